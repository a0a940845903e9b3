// The paths of FLASH_ATTN behind vendor packages: which one a call takes, what its kernel is given,
// what is refused. Only the kernel is replaced.
#include <cmath>
#include <cstring>

#include "tests/select/vendor_double.hpp"
#include "tests/select/vendor_record.hpp"

namespace fovea {
namespace {

using test::vendor_layer;
using test::VendorCall;
using test::VendorDouble;
using test::VendorRecord;

constexpr const char* kNpu = "mindiesd=2.1.0";
constexpr const char* kLaser = "mindiesd=2.1.0,laser=1";
constexpr const char* kRocm = "gfx=gfx942,aiter=0.1.7";
constexpr const char* kBlackwell = "sm=103,cuda=13.0,fa4=4.0.0b18";

void expect_equal(const Result<AttentionResult>& got, const Result<AttentionResult>& expected) {
  ASSERT_TRUE(got.has_value()) << got.error().message;
  ASSERT_TRUE(expected.has_value()) << expected.error().message;
  const TensorView& a = got->out.view();
  const TensorView& b = expected->out.view();
  ASSERT_EQ(to_string(a), to_string(b));
  EXPECT_EQ(0, std::memcmp(a.data, b.data, static_cast<size_t>(a.numel()) * size_bytes(a.dtype)));
}

// Resolution and dispatch name the same path, and the answer is the oracle's.
void expect_path(const Attention& layer, VendorCall& call, const VendorDouble& vendor,
                 const std::string& path, SupportStatus support = SupportStatus::unmigrated) {
  const ExecutionPathResult report =
      layer.resolve_execution_path(call.problem(), {}, call.metadata);
  EXPECT_EQ(report.path, path) << sentence(report.reasons);
  EXPECT_EQ(report.support, support) << sentence(report.reasons);
  const size_t before = vendor.calls().size();
  const auto got = call.run(layer);
  expect_equal(got, call.expected());
  if (!got) return;
  EXPECT_EQ(got->receipt->path, path);
  ASSERT_EQ(vendor.calls().size(), before + 1);
  EXPECT_EQ(vendor.last().path, path);
}

// Resolution and dispatch both refuse, with something to do, and no kernel runs.
void expect_refused(const Attention& layer, VendorCall& call, const VendorDouble& vendor,
                    ReasonCode code, const std::string& accepted) {
  const ExecutionPathResult report =
      layer.resolve_execution_path(call.problem(), {}, call.metadata);
  EXPECT_EQ(report.support, SupportStatus::unsupported);
  ASSERT_FALSE(report.reasons.empty());
  EXPECT_EQ(report.reasons[0].code, code) << sentence(report.reasons);
  EXPECT_EQ(report.reasons[0].accepted, accepted);
  EXPECT_FALSE(report.reasons[0].remedy.empty());
  const size_t before = vendor.calls().size();
  const auto got = call.run(layer);
  ASSERT_FALSE(got.has_value()) << "ran " << got->receipt->path;
  EXPECT_NE(got.error().message.find(report.reasons[0].remedy), std::string::npos)
      << got.error().message;
  EXPECT_EQ(vendor.calls().size(), before);
}

// Whatever lies outside the inspected paths is unverified, never supported and never full-graph.
void expect_unverified(const Attention& layer, const Problem& problem, const std::string& path) {
  std::vector<ExecutionContext> contexts(7);
  contexts[0].paged_kv = true;
  for (int i = 0; i < 4; ++i)
    contexts[static_cast<size_t>(1 + i)].parallel_strategy = static_cast<ParallelStrategy>(1 + i);
  contexts[5].outer_boundaries = {OuterBoundary::hsdp};
  contexts[6].outer_boundaries = {OuterBoundary::attention_schedule};
  for (size_t i = 0; i < contexts.size(); ++i) {
    const ExecutionPathResult report = layer.resolve_execution_path(problem, contexts[i]);
    EXPECT_EQ(report.path, path) << i;
    EXPECT_EQ(report.support, SupportStatus::unmigrated) << i;
    EXPECT_EQ(report.compilation_mode, CompilationMode::eager_only);
    EXPECT_EQ(report.parallel_strategy, contexts[i].parallel_strategy);
  }
  AttentionMetadata metadata;
  metadata.kv_cache_dtype = "fp8";
  EXPECT_EQ(layer.resolve_execution_path(problem, {}, metadata).path, path);
  metadata.kv_cache_dtype.clear();
  metadata.full_attn_spans = std::vector<Span>{{1, 3}};
  EXPECT_EQ(layer.resolve_execution_path(problem, {}, metadata).path, path);
}

// A full graph is promised only where it has been verified.
void expect_no_full_graph(const Attention& layer, const Problem& problem) {
  const ExecutionPathResult report = layer.resolve_execution_path(problem, {});
  EXPECT_EQ(requested_support(report, false).status, SupportStatus::unmigrated);
  const CapabilityResult asked = requested_support(report, true);
  EXPECT_EQ(asked.status, SupportStatus::unsupported);
  ASSERT_FALSE(asked.reasons.empty());
  EXPECT_EQ(asked.reasons.back().code, ReasonCode::compilation);
  EXPECT_FALSE(asked.reasons.back().remedy.empty());
  // The report itself stays what it was.
  EXPECT_EQ(report.support, SupportStatus::unmigrated);
}

std::shared_ptr<const ValidationFile> npu_record() {
  VendorRecord record{.provider = "package mindiesd 2.1.0",
                      .platform = "npu",
                      .device_class = "npu",
                      .path = "npu_dense",
                      .kinds = {"dense", "unequal lengths", "replay"},
                      .heads = {"d16"}};
  return record.file();
}

std::shared_ptr<const ValidationFile> rocm_record() {
  VendorRecord record{.provider = "package aiter 0.1.7",
                      .platform = "rocm",
                      .device_class = "gfx942",
                      .path = "rocm_dense",
                      .kinds = {"dense", "unequal lengths", "replay"},
                      .heads = {"d16"}};
  return record.file();
}

SupportStatus support_of(const Attention& layer, std::string_view problem) {
  return layer.resolve_execution_path(*parse_problem(problem), {}).support;
}

// --- NPU with MindIE

TEST(FlashAttn, npu_contract_path_identity) {
  VendorDouble mindie("mindiesd");
  const Attention layer = vendor_layer(PlatformId::npu, kNpu);
  VendorCall dense("f32 b2 h4 s9 d16 hk=2 sk=12");
  expect_path(layer, dense, mindie, "npu_dense");
  VendorCall masked("f32 b2 h4 s9 d16 hk=2 sk=12");
  masked.set_mask({2, 12}, [](int64_t row, int64_t key) { return key < 7 + row; });
  expect_path(layer, masked, mindie, "npu_masked");
  // A published no-op mask is no mask.
  masked.metadata.mask_mode = MaskMode::none;
  expect_path(layer, masked, mindie, "npu_dense");
  EXPECT_EQ(mindie.last().mask, "");

  const ExecutionPathResult report = layer.resolve_execution_path(dense.problem(), {});
  EXPECT_EQ(report.platform, PlatformId::npu);
  EXPECT_EQ(report.kernel_variant, "mindiesd");
  EXPECT_EQ(report.provider, "package mindiesd 2.1.0");
  EXPECT_EQ(report.backend, backend::FLASH_ATTN);
  EXPECT_EQ(report.compilation_mode, CompilationMode::eager_only);
  ASSERT_EQ(report.reasons.size(), 1u);
  EXPECT_EQ(report.reasons[0].code, ReasonCode::unvalidated);
  EXPECT_EQ(report.reasons[0].remedy,
            "validate it with python3 -m fovea.check --contract --backend FLASH_ATTN --device npu "
            "--record FLASH_ATTN-mindiesd-npu.json");
}

TEST(FlashAttn, npu_contract_masks_are_forwarded_with_rows) {
  VendorDouble mindie("mindiesd");
  const Attention layer = vendor_layer(PlatformId::npu, kNpu);
  VendorCall keys("f32 b2 h2 s5 d8 sk=11");
  keys.set_mask({2, 11}, [](int64_t row, int64_t key) { return (key + row) % 3 != 0; });
  expect_path(layer, keys, mindie, "npu_masked");
  EXPECT_EQ(mindie.last().mask, "bool[2,1,5,11]");
  EXPECT_EQ(mindie.last().mask_stride[2], 0) << "expanded in place, not copied";
  VendorCall three("f32 b2 h2 s5 d8 sk=11");
  three.set_mask({1, 5, 11}, [](int64_t row, int64_t key) { return key <= row + 4; });
  expect_path(layer, three, mindie, "npu_masked");
  EXPECT_EQ(mindie.last().mask, "bool[1,1,5,11]");
  VendorCall heads("f32 b2 h2 s5 d8 sk=11");
  heads.set_mask({2, 2, 1, 11}, [](int64_t row, int64_t key) { return (key + row) % 4 != 1; });
  expect_path(layer, heads, mindie, "npu_masked");
  EXPECT_EQ(mindie.last().mask, "bool[2,2,5,11]");
}

TEST(FlashAttn, npu_contract_varlen_forwards_boundaries) {
  VendorDouble mindie("mindiesd");
  const Attention layer = vendor_layer(PlatformId::npu, kNpu);
  VendorCall padding("f32 b1 h2 s10 d8 sk=12");
  padding.metadata.packed_padding = PackedPadding{6, 7};
  padding.metadata.npu_attn_varlen = true;
  expect_path(layer, padding, mindie, "npu_packed_varlen");
  EXPECT_EQ(mindie.last().starts_q, (std::vector<int32_t>{0, 6, 10, 10}));
  EXPECT_EQ(mindie.last().starts_kv, (std::vector<int32_t>{0, 7, 7, 12}));
  VendorCall documents("f32 b1 h2 s12 d8 docs=5:5,0:0,7:7");
  documents.metadata.npu_attn_varlen = true;
  expect_path(layer, documents, mindie, "npu_packed_varlen");
  EXPECT_EQ(mindie.last().starts_q, (std::vector<int32_t>{0, 5, 5, 12}));
}

TEST(FlashAttn, npu_contract_laser_slices_the_prefix) {
  VendorDouble mindie("mindiesd");
  const Attention layer = vendor_layer(PlatformId::npu, kLaser);
  VendorCall padding("f32 b1 h2 s10 d8 sk=12");
  padding.metadata.packed_padding = PackedPadding{6, 7};
  padding.metadata.npu_attn_varlen = true;
  expect_path(layer, padding, mindie, "npu_prefix_kv_slice");
  EXPECT_EQ(mindie.last().k, "f32[7,2,8]");
  EXPECT_EQ(mindie.last().valid_queries, 6);
}

TEST(FlashAttn, npu_contract_laser_input_scale_is_read_by_laser_attention_only) {
  VendorDouble mindie("mindiesd");
  VendorCall call("f32 b1 h2 s10 d8");
  call.metadata.laser_input_scale = 0.5;
  const auto ran = call.run(vendor_layer(PlatformId::npu, kLaser));
  ASSERT_TRUE(ran.has_value()) << ran.error().message;
  EXPECT_EQ(mindie.last().laser_input_scale, 0.5);
  const auto refused = [&](const Result<AttentionResult>& result) {
    ASSERT_FALSE(result.has_value()) << "ran " << result->receipt->path;
    ASSERT_FALSE(result.error().reasons.empty());
    EXPECT_EQ(result.error().reasons[0].field, "laser_input_scale");
    EXPECT_EQ(result.error().reasons[0].got, "0.5");
    EXPECT_FALSE(result.error().reasons[0].remedy.empty());
  };
  const size_t before = mindie.calls().size();
  refused(call.run(vendor_layer(PlatformId::npu, kNpu)));
  EXPECT_EQ(mindie.calls().size(), before);
  VendorDouble aiter("aiter");
  refused(call.run(vendor_layer(PlatformId::rocm, kRocm)));
  EXPECT_TRUE(aiter.calls().empty());
  refused(call.expected());
  AttentionConfig cpu;
  for (const BackendName name : {backend::FLASH_ATTN, backend::TORCH_SDPA}) {
    cpu.default_spec.emplace().backend = name;
    refused(call.run(Attention::create({}, cpu, &serial_executor()).value()));
  }
  for (const double bad : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    call.metadata.laser_input_scale = bad;
    const auto contradiction = call.run(vendor_layer(PlatformId::npu, kLaser));
    ASSERT_FALSE(contradiction.has_value());
    EXPECT_EQ(contradiction.error().code, ErrorCode::invalid_argument);
    EXPECT_EQ(contradiction.error().reasons.at(0).accepted, "a finite number above 0");
  }
}

TEST(FlashAttn, npu_contract_fallbacks_that_lose_documents_are_refused) {
  VendorDouble mindie("mindiesd");
  VendorCall documents("f32 b1 h2 s12 d8 docs=5:5,7:7");
  expect_refused(vendor_layer(PlatformId::npu, kNpu), documents, mindie, ReasonCode::packed,
                 "npu_attn_varlen with it");
  documents.metadata.npu_attn_varlen = true;
  expect_refused(vendor_layer(PlatformId::npu, kLaser), documents, mindie, ReasonCode::packed,
                 "one document with packed_padding on padded tensors");
}

TEST(FlashAttn, npu_contract_missing_mask_is_an_error) {
  VendorDouble mindie("mindiesd");
  const Attention layer = vendor_layer(PlatformId::npu, kNpu);
  VendorCall call("f32 b2 h2 s6 d8");
  call.metadata.npu_attn_varlen = true;
  expect_refused(layer, call, mindie, ReasonCode::mask, "a mask, or packed_padding");
  // With a mask the call falls back to it, by name.
  call.set_mask({2, 6}, [](int64_t row, int64_t key) { return key < 4 + row; });
  expect_path(layer, call, mindie, "npu_masked_fallback");
  EXPECT_EQ(mindie.last().mask, "bool[2,1,6,6]");
}

TEST(FlashAttn, npu_contract_other_surroundings_are_unverified) {
  VendorDouble mindie("mindiesd", npu_record());
  const Attention layer = vendor_layer(PlatformId::npu, kNpu);
  expect_unverified(layer, *parse_problem("bf16 b1 h2 s8 d16"), "npu_unverified");
}

TEST(FlashAttn, npu_contract_full_graph_requests_are_answered_conservatively) {
  // Neither a record of other paths nor one of another version promotes.
  VendorDouble mindie("mindiesd", npu_record());
  const Attention layer = vendor_layer(PlatformId::npu, kNpu);
  expect_no_full_graph(layer, *parse_problem("bf16 b1 h2 s8 d16 mask=keys"));
  const Attention newer = vendor_layer(PlatformId::npu, "mindiesd=2.2.0");
  expect_no_full_graph(newer, *parse_problem("bf16 b1 h2 s8 d16"));
}

TEST(FlashAttn, npu_contract_a_record_promotes_what_it_holds) {
  VendorDouble mindie("mindiesd", npu_record(), false);
  const Attention layer = vendor_layer(PlatformId::npu, kNpu);
  EXPECT_EQ(support_of(layer, "bf16 b1 h2 s8 d16"), SupportStatus::supported);
  // What did not run there: padding, other head sizes without a rule of the package, another name,
  // surroundings.
  EXPECT_EQ(support_of(layer, "bf16 b1 h2 s8 d16 mask=keys"), SupportStatus::unmigrated);
  EXPECT_EQ(support_of(layer, "bf16 b1 h2 s8 d32"), SupportStatus::unmigrated);
  EXPECT_EQ(support_of(layer, "f16 b1 h2 s8 d16"), SupportStatus::unmigrated);
  const ExecutionPathResult padded =
      layer.resolve_execution_path(*parse_problem("bf16 b1 h2 s8 d32"), {});
  EXPECT_EQ(padded.reasons.back().got,
            "npu_dense, its validation record does not cover head sizes 32/32 (it has 16/16)");
}

// --- ROCm with AITER

TEST(FlashAttn, rocm_contract_path_identity) {
  VendorDouble aiter("aiter");
  const Attention layer = vendor_layer(PlatformId::rocm, kRocm);
  VendorCall dense("f32 b2 h4 s9 d16 hk=2 sk=12");
  expect_path(layer, dense, aiter, "rocm_dense");
  VendorCall masked("f32 b2 h4 s9 d16 hk=2 sk=12");
  masked.set_mask({2, 12}, [](int64_t row, int64_t key) { return key < 7 + row; });
  expect_path(layer, masked, aiter, "rocm_masked_varlen");
  VendorCall packed("f32 b1 h2 s12 d8 docs=5:5,7:7");
  expect_path(layer, packed, aiter, "rocm_packed_varlen");
  // The same name, another platform, another kernel.
  const ExecutionPathResult report = layer.resolve_execution_path(dense.problem(), {});
  EXPECT_EQ(report.platform, PlatformId::rocm);
  EXPECT_EQ(report.kernel_variant, "aiter");
  EXPECT_EQ(report.backend, backend::FLASH_ATTN);
}

TEST(FlashAttn, rocm_contract_masks_and_boundaries_are_forwarded) {
  VendorDouble aiter("aiter");
  const Attention layer = vendor_layer(PlatformId::rocm, kRocm);
  VendorCall call("f32 b2 h2 s5 d8 sk=11");
  call.set_mask({2, 1, 1, 11}, [](int64_t row, int64_t key) { return (key + row) % 3 != 0; });
  expect_path(layer, call, aiter, "rocm_masked_varlen");
  EXPECT_EQ(aiter.last().mask, "bool[2,11]") << "unpadding is by key";
  VendorCall documents("f32 b1 h2 s12 d8 docs=3:2,4:4,5:6");
  expect_path(layer, documents, aiter, "rocm_packed_varlen");
  EXPECT_EQ(aiter.last().starts_q, (std::vector<int32_t>{0, 3, 7, 12}));
  EXPECT_EQ(aiter.last().starts_kv, (std::vector<int32_t>{0, 2, 6, 12}));
  VendorCall padding("f32 b1 h2 s8 d8");
  padding.metadata.packed_padding = PackedPadding{5, 5};
  expect_path(layer, padding, aiter, "rocm_packed_varlen");
  EXPECT_EQ(aiter.last().starts_q, (std::vector<int32_t>{0, 5, 8, 8}));
}

TEST(FlashAttn, rocm_contract_masks_with_rows_are_refused_not_flattened) {
  VendorDouble aiter("aiter");
  const Attention layer = vendor_layer(PlatformId::rocm, kRocm);
  VendorCall call("f32 b1 h2 s6 d8");
  call.set_mask({1, 1, 6, 6}, [](int64_t row, int64_t key) { return key <= row; });
  expect_refused(layer, call, aiter, ReasonCode::mask, "none, padding");
}

TEST(FlashAttn, rocm_contract_other_surroundings_are_unverified) {
  VendorDouble aiter("aiter", rocm_record());
  const Attention layer = vendor_layer(PlatformId::rocm, kRocm);
  expect_unverified(layer, *parse_problem("bf16 b1 h2 s8 d16"), "rocm_unverified");
}

TEST(FlashAttn, rocm_contract_full_graph_requests_are_answered_conservatively) {
  VendorDouble aiter("aiter", rocm_record());
  const Attention layer = vendor_layer(PlatformId::rocm, "gfx=gfx950,aiter=0.1.7");
  expect_no_full_graph(layer, *parse_problem("bf16 b1 h2 s8 d16"));
}

TEST(FlashAttn, rocm_contract_identity_comes_from_what_is_bound) {
  VendorDouble aiter("aiter");
  const Attention layer = vendor_layer(PlatformId::rocm, kRocm);
  ExecutionContext claims;
  claims.kernel_variant = "fa4";
  claims.facts = *parse_facts(PlatformId::cuda, kBlackwell);
  claims.mask_mode = MaskMode::padding;
  claims.packing_mode = PackingMode::multi_document;
  claims.piecewise = true;
  claims.dtype = kBF16;
  const ExecutionPathResult report =
      layer.resolve_execution_path(*parse_problem("f32 b1 h2 s8 d16"), claims);
  EXPECT_EQ(report.kernel_variant, "aiter");
  EXPECT_EQ(report.path, "rocm_dense");
  EXPECT_EQ(report.platform, PlatformId::rocm);
}

TEST(FlashAttn, rocm_contract_a_record_counts_for_its_name_only) {
  // AITER_QUANT_ATTN is another kernel of the same package, with limits of its own.
  VendorDouble aiter("aiter", rocm_record());
  const Attention layer = vendor_layer(PlatformId::rocm, kRocm);
  EXPECT_EQ(support_of(layer, "bf16 b1 h2 s8 d16"), SupportStatus::supported);
  const auto bound = *load_backend(backend::AITER_QUANT_ATTN, "package:aiter");
  ExecutionContext context;
  context.facts = *parse_facts(PlatformId::rocm, kRocm);
  const Problem problem = *parse_problem("bf16 b1 h2 s8 d16");
  const ExecutionPathResult other =
      bound->resolve(backend::AITER_QUANT_ATTN, problem, nullptr, context);
  EXPECT_EQ(other.path, "package.aiter");
  EXPECT_EQ(other.support, SupportStatus::unmigrated) << sentence(other.reasons);
  EXPECT_EQ(bound->resolve(backend::FLASH_ATTN, problem, nullptr, context).support,
            SupportStatus::supported);
}

// --- CUDA with FA4

TEST(FlashAttn, fa4_dense_bf16_is_supported_with_a_record) {
  VendorDouble fa4("fa4", VendorRecord().file());
  const Attention layer = vendor_layer(PlatformId::cuda, kBlackwell);
  VendorCall call("bf16 b2 h4 s9 d80 dv=48 sk=17");
  expect_path(layer, call, fa4, "fa4_dense", SupportStatus::supported);
  const ExecutionPathResult report = layer.resolve_execution_path(call.problem(), {});
  EXPECT_EQ(report.compilation_mode, CompilationMode::custom_op);
  EXPECT_EQ(report.kernel_variant, "fa4");
  EXPECT_EQ(requested_support(report, true).status, SupportStatus::supported);
  // A mask that is published to hide nothing changes nothing, a mask that hides does.
  call.set_mask({2, 17}, [](int64_t, int64_t key) { return key < 11; });
  call.metadata.mask_mode = MaskMode::none;
  EXPECT_EQ(layer.resolve_execution_path(call.problem(), {}, call.metadata).path, "fa4_dense");
  call.metadata.mask_mode = MaskMode::padding;
  const ExecutionPathResult masked =
      layer.resolve_execution_path(call.problem(), {}, call.metadata);
  EXPECT_EQ(masked.path, "unverified");
  EXPECT_EQ(masked.support, SupportStatus::unmigrated);
}

TEST(FlashAttn, fa4_every_single_deviation_is_unmigrated) {
  VendorDouble fa4("fa4", VendorRecord().file());
  const Attention layer = vendor_layer(PlatformId::cuda, kBlackwell);
  expect_unverified(layer, *parse_problem("bf16 b1 h2 s8 d64"), "unverified");
  for (const char* text : {"f16 b1 h2 s8 d64", "f32 b1 h2 s8 d64", "bf16 b1 h2 s8 d64 mask=causal",
                           "bf16 b1 h2 s8 d64 window=2,2", "bf16 b1 h2 s8 d64 mask=keys",
                           "bf16 b1 h2 s8 d64 mask=bool", "bf16 b1 h2 s8 d64 kvlen=?",
                           "bf16 b1 h2 s8 d64 docs=4:4,4:4"}) {
    const ExecutionPathResult report = layer.resolve_execution_path(*parse_problem(text), {});
    EXPECT_EQ(report.path, "unverified") << text;
    EXPECT_EQ(report.support, SupportStatus::unmigrated) << text;
    EXPECT_EQ(report.compilation_mode, CompilationMode::eager_only) << text;
  }
  // A mask that nobody has classified.
  const auto bound = *load_backend(backend::FLASH_ATTN, "package:fa4");
  ExecutionContext unknown;
  unknown.facts = *parse_facts(PlatformId::cuda, kBlackwell);
  unknown.mask_mode = MaskMode::unknown;
  const ExecutionPathResult report =
      bound->resolve(backend::FLASH_ATTN, *parse_problem("bf16 b1 h2 s8 d64"), nullptr, unknown);
  EXPECT_EQ(report.path, "runtime_mask_dependent");
  EXPECT_EQ(report.support, SupportStatus::unmigrated);
}

TEST(FlashAttn, fa4_head_sizes_are_judged_by_the_package) {
  VendorDouble fa4("fa4", VendorRecord().file());
  const Attention layer = vendor_layer(PlatformId::cuda, kBlackwell);
  for (const char* dims : {"d32", "d64", "d80 dv=48", "d96", "d192 dv=128", "d256"}) {
    const int before = fa4.validations();
    const ExecutionPathResult report =
        layer.resolve_execution_path(*parse_problem("bf16 b1 h2 s8 " + std::string(dims)), {});
    EXPECT_EQ(report.support, SupportStatus::supported) << dims << sentence(report.reasons);
    EXPECT_EQ(fa4.validations(), before + 1);
  }
  EXPECT_EQ(support_of(layer, "bf16 b1 h2 s8 d24"), SupportStatus::unmigrated) << "below them all";
  VendorCall wide("bf16 b1 h2 s8 d264");
  expect_refused(layer, wide, fa4, ReasonCode::head_dim, "head sizes up to 256");
  VendorCall odd("bf16 b1 h2 s8 d64 dv=44");
  expect_refused(layer, odd, fa4, ReasonCode::head_dim, "head sizes that are multiples of 8");
  const ExecutionPathResult report = layer.resolve_execution_path(odd.problem(), {});
  EXPECT_EQ(sentence(report.reasons[0]),
            "fa4 head sizes 64/44 is not supported (accepted: head sizes that are multiples of 8), "
            "select compatible inputs or another backend");
}

TEST(FlashAttn, fa4_without_a_validator_or_record_is_unmigrated) {
  for (const bool validator : {false, true}) {
    VendorDouble fa4("fa4", validator ? nullptr : VendorRecord().file(), validator);
    const Attention layer = vendor_layer(PlatformId::cuda, kBlackwell);
    VendorCall call("bf16 b1 h2 s8 d64");
    expect_path(layer, call, fa4, "fa4_dense", SupportStatus::unmigrated);
    const ExecutionPathResult report = layer.resolve_execution_path(call.problem(), {});
    EXPECT_EQ(report.compilation_mode, CompilationMode::eager_only);
    EXPECT_EQ(report.reasons[0].got, validator
                                         ? "fa4_dense, without a validation record"
                                         : "fa4_dense, without a rule of the package for head "
                                           "sizes");
  }
}

// The record is there; what is missing is the rule that the bound kernel brings.
TEST(FlashAttn, fa4_with_a_record_and_no_rule_asks_for_the_kernel) {
  const ValidationRecord* own = nullptr;
  for (const ValidationRecord& record : validation_records())
    if (record.backend == "FLASH_ATTN_4" && record.path == "fa4_dense") own = &record;
  ASSERT_NE(own, nullptr);
  ExecutionContext elsewhere;
  elsewhere.facts =
      *parse_facts(PlatformId::cuda, "sm=90,cuda=13.0,fa4=" + std::string(own->library));
  elsewhere.local = false;
  AttentionConfig config;
  config.default_spec.emplace().backend = backend::FLASH_ATTN_4;
  ExplainQuery query;
  query.problem = *parse_problem("bf16 b1 h2 s64 d64");
  const Explanation answer = explain(config, make_platform(elsewhere.facts), {query}, elsewhere);
  const ExecutionPathResult& report = answer.entries.front().report;
  EXPECT_EQ(report.support, SupportStatus::unmigrated);
  ASSERT_EQ(report.reasons.size(), 1u);
  EXPECT_EQ(report.reasons[0].remedy,
            "bind the package's kernel, which brings the rule (docs/python.md)");
}

TEST(FlashAttn, an_unbound_package_answers_for_its_device_but_runs_nothing) {
  const Attention layer = vendor_layer(PlatformId::npu, kNpu);
  VendorCall call("bf16 b1 h2 s8 d64");
  ExecutionContext elsewhere;
  elsewhere.local = false;
  const ExecutionPathResult report = layer.resolve_execution_path(call.problem(), elsewhere);
  EXPECT_EQ(report.path, "npu_dense");
  EXPECT_EQ(report.support, SupportStatus::unmigrated);
  const auto got = call.run(layer);
  ASSERT_FALSE(got.has_value());
  EXPECT_NE(got.error().message.find("bind_package"), std::string::npos) << got.error().message;
}

TEST(FlashAttn, memory_of_other_devices_is_the_callers) {
  VendorDouble aiter("aiter");
  VendorCall call("bf16 b1 h2 s8 d16");
  for (TensorView* view : {&call.tensors.q, &call.tensors.k, &call.tensors.v})
    view->device = {DeviceType::rocm, 0};
  const auto unplaced = call.run(vendor_layer(PlatformId::rocm, kRocm));
  ASSERT_FALSE(unplaced.has_value()) << "host memory was taken for a ROCm device";
  EXPECT_EQ(unplaced.error().code, ErrorCode::unsupported);
  EXPECT_EQ(unplaced.error().reasons.at(0).field, "outputs");
  EXPECT_EQ(unplaced.error().reasons.at(0).got, "allocated on rocm:0");
  // With outputs in place the call runs on them.
  std::vector<uint16_t> out(8 * 2 * 16);
  call.tensors.out = make_view(out.data(), kBF16, {1, 8, 2, 16}, {DeviceType::rocm, 0});
  const auto plan = vendor_layer(PlatformId::rocm, kRocm).plan(call.tensors, call.options);
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  EXPECT_EQ(plan->receipt->path, "rocm_dense");
  // Without facts nothing is known of such a device, and it is not taken for a CPU.
  AttentionConfig config;
  config.default_spec.emplace().backend = backend::FLASH_ATTN;
  const auto unknown =
      Attention::create({}, config, &serial_executor())->run(call.tensors, call.options);
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().reasons.at(0).field, "device");
  EXPECT_FALSE(unknown.error().reasons.at(0).remedy.empty());
}

TEST(FlashAttn, a_kernel_that_throws_is_an_error) {
  PackageKernel kernel;
  kernel.package = "aiter";
  kernel.run = [](const PackageCall&) -> Status { throw 7; };
  ASSERT_TRUE(bind_package(kernel).has_value());
  const Attention layer = vendor_layer(PlatformId::rocm, kRocm);
  VendorCall call("f32 b1 h2 s8 d16");
  const auto got = call.run(layer);
  unbind_package("aiter");
  ASSERT_FALSE(got.has_value());
  EXPECT_EQ(got.error().code, ErrorCode::device_error);
  EXPECT_FALSE(bind_package({}).has_value());
}

// An explicit choice is refused; a preference falls through once, and the receipt says so.
TEST(FlashAttn, BugRow02_a_mask_that_a_path_lacks_is_never_ignored) {
  VendorDouble aiter("aiter");
  VendorDouble torch("torch");
  VendorCall call("f32 b1 h2 s6 d8");
  call.set_mask({1, 1, 6, 6}, [](int64_t row, int64_t key) { return key <= row; });
  AttentionConfig config;
  config.default_spec.emplace().backend = backend::FLASH_ATTN;
  config.default_spec->strictness = Strictness::prefer;
  const Attention layer = vendor_layer(PlatformId::rocm, kRocm, config);
  const auto got = call.run(layer);
  expect_equal(got, call.expected());
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->receipt->backend, backend::TORCH_SDPA);
  ASSERT_TRUE(got->receipt->fallback.has_value());
  EXPECT_EQ(got->receipt->fallback->from, backend::FLASH_ATTN);
  EXPECT_EQ(got->receipt->fallback->reasons[0].code, ReasonCode::mask);
  EXPECT_TRUE(aiter.calls().empty());
}

// --- the CPU, where everything runs for real

TEST(FlashAttn, cpu_metadata_runs_and_says_so) {
  AttentionConfig config;
  config.default_spec.emplace().backend = backend::FLASH_ATTN;
  const auto layer = Attention::create({}, config, &serial_executor());
  ASSERT_TRUE(layer.has_value());
  VendorCall call("f32 b1 h2 s12 d8");
  call.metadata.packed_padding = PackedPadding{7, 9};
  const ExecutionPathResult report =
      layer->resolve_execution_path(call.problem(), {}, call.metadata);
  EXPECT_EQ(report.support, SupportStatus::supported);
  EXPECT_EQ(report.kernel_variant, "fovea");
  const auto got = call.run(*layer);
  ASSERT_TRUE(got.has_value()) << got.error().message;
  EXPECT_EQ(got->receipt->path, report.path);
  const float* out = static_cast<const float*>(got->out.view().data);
  for (int64_t i = 7 * 16; i < 12 * 16; ++i) EXPECT_EQ(out[i], 0.0f);
  EXPECT_EQ(to_string(got->out.view()), "f32[1,12,2,8]");
}

TEST(FlashAttn, BugRow05_an_all_true_mask_is_declared_away) {
  // A layer whose model promises no masks takes a mask that is published to hide nothing.
  LayerOptions options;
  options.mask_free = true;
  const auto layer = Attention::create(options, {}, &serial_executor());
  ASSERT_TRUE(layer.has_value());
  VendorCall call("f32 b1 h2 s12 d8");
  call.set_mask({1, 12}, [](int64_t, int64_t) { return true; });
  EXPECT_FALSE(call.run(*layer).has_value());
  call.metadata.mask_mode = MaskMode::none;
  EXPECT_TRUE(call.run(*layer).has_value());
}

TEST(FlashAttn, boundaries_must_be_those_of_the_lengths_stated) {
  const auto layer = Attention::create({}, {}, &serial_executor());
  VendorCall call("f32 b1 h2 s12 d8 docs=5:5,7:7");
  call.metadata.packed_padding = PackedPadding{5, 5};
  EXPECT_TRUE(call.run(*layer).has_value());
  for (const bool q : {true, false}) {
    call.metadata.packed_padding = PackedPadding{q ? 6 : 5, q ? 5 : 6};
    const auto got = call.run(*layer);
    ASSERT_FALSE(got.has_value());
    EXPECT_EQ(got.error().message, std::string("attention: cu_seqlens_") + (q ? "q" : "kv") +
                                       "[1] is 5 (accepted: 6, as packed_padding states)");
  }
}

}  // namespace
}  // namespace fovea
