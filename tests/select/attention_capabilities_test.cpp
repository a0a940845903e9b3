// What is said of a path before and after a layer exists: statuses, reasons, full-graph requests.
#include <gtest/gtest.h>

#include <set>

#include "src/backends/instance.hpp"

#include "tests/select/fakes.hpp"
#include "tests/select/vendor_double.hpp"

namespace fovea {
namespace {

using test::FakeBackend;
using test::Registered;

ExecutionPathResult report(SupportStatus support, CompilationMode mode) {
  ExecutionPathResult r;
  r.path = "some.path";
  r.support = support;
  r.compilation_mode = mode;
  if (support == SupportStatus::unsupported)
    r.reasons = {{ReasonCode::head_dim, "head_dim", "80", "64", {}}};
  return r;
}

// Every combination of status, compilation mode and request.
TEST(Capabilities, requested_support_truth_table) {
  using enum SupportStatus;
  using enum CompilationMode;
  struct Row {
    SupportStatus support;
    CompilationMode mode;
    bool fullgraph;
    SupportStatus expected;
    bool adds_reason;
  };
  const Row rows[] = {{supported, traceable, false, supported, false},
                      {supported, custom_op, false, supported, false},
                      {supported, eager_only, false, supported, false},
                      {supported, traceable, true, supported, false},
                      {supported, custom_op, true, supported, false},
                      {supported, eager_only, true, unsupported, true},
                      {unmigrated, traceable, false, unmigrated, false},
                      {unmigrated, custom_op, false, unmigrated, false},
                      {unmigrated, eager_only, false, unmigrated, false},
                      {unmigrated, traceable, true, unsupported, true},
                      {unmigrated, custom_op, true, unsupported, true},
                      {unmigrated, eager_only, true, unsupported, true},
                      {unsupported, traceable, false, unsupported, false},
                      {unsupported, custom_op, false, unsupported, false},
                      {unsupported, eager_only, false, unsupported, false},
                      {unsupported, traceable, true, unsupported, false},
                      {unsupported, custom_op, true, unsupported, false},
                      {unsupported, eager_only, true, unsupported, false}};
  for (const Row& row : rows) {
    const ExecutionPathResult given = report(row.support, row.mode);
    const CapabilityResult answer = requested_support(given, row.fullgraph);
    EXPECT_EQ(answer.status, row.expected);
    EXPECT_EQ(answer.reasons.size(), given.reasons.size() + (row.adds_reason ? 1 : 0));
    if (answer.status == unsupported) {
      ASSERT_FALSE(answer.reasons.empty());
      EXPECT_FALSE(answer.reasons.back().accepted.empty());
    }
    if (row.adds_reason) {
      EXPECT_FALSE(answer.reasons.back().remedy.empty());
    }
    EXPECT_EQ(given.support, row.support) << "a request never changes the report";
  }
}

TEST(Capabilities, before_construction_nothing_is_supported) {
  for (const DevicePreset& preset : device_presets()) {
    ExecutionContext context;
    context.facts = *preset_facts(preset.name);
    context.kernel_variant = "fa4";
    context.dtype = kBF16;
    context.causal = false;
    context.parallel_strategy = ParallelStrategy::ulysses;
    for (BackendName backend : {backend::FLASH_ATTN, backend::TORCH_SDPA, backend::CUDNN_ATTN,
                                backend::SAGE_ATTN_3, backend::RAINFUSION_ATTN}) {
      const ExecutionPathResult r = resolve_capabilities(backend, context);
      EXPECT_NE(r.support, SupportStatus::supported) << preset.name << ' ' << name(backend);
      EXPECT_EQ(r.compilation_mode, CompilationMode::eager_only);
      EXPECT_EQ(r.platform, context.facts.platform());
      EXPECT_EQ(r.parallel_strategy, ParallelStrategy::ulysses);
      EXPECT_NE(r.kernel_variant, "fa4") << "claims are not repeated";
      if (r.support == SupportStatus::unsupported) {
        EXPECT_FALSE(r.reasons.empty());
      }
    }
  }
}

TEST(Capabilities, before_construction_a_refusal_says_what_would_help) {
  ExecutionContext context;
  context.facts = *parse_facts(PlatformId::cuda, "sm=75");
  const ExecutionPathResult r = resolve_capabilities(backend::SAGE_ATTN_3, context);
  EXPECT_EQ(r.support, SupportStatus::unsupported);
  ASSERT_FALSE(r.reasons.empty());
  for (const Reason& reason : r.reasons)
    EXPECT_FALSE(reason.accepted.empty() && reason.remedy.empty()) << sentence(reason);
}

// No refusal anywhere without something the user can act on.
TEST(Capabilities, every_refusal_is_actionable) {
  const char* problems[] = {"f32 b1 h2 s8 d4096",
                            "bf16 b2 h3 s8 d64 mask=bias lse=1 out=f32",
                            "f16 b1 h4 s8 d40 hk=2 dv=24 mask=causal+bool",
                            "bf16 b1 h2 s8 d64 docs=4:4,4:4 window=1,1",
                            "bf16 b1 h2 s8 d64 pieces=4:4c,4:8",
                            "f32 b1 h2 s8 d64 kvlen=? strides=expanded align=4",
                            "bf16 b1 h2 s8 d64 sparse=radial"};
  std::set<ReasonCode> seen;
  for (const DevicePreset& preset : device_presets()) {
    for (const auto& [backend_name, path] :
         std::vector<std::pair<BackendName, const char*>>{{backend::FLASH_ATTN, ""},
                                                          {backend::TORCH_SDPA, ""},
                                                          {backend::REFERENCE, ""},
                                                          {backend::FLASH_ATTN_3, ""},
                                                          {backend::SAGE_ATTN, ""},
                                                          {backend::TRTLLM_ATTN, ""}}) {
      AttentionConfig config;
      config.default_spec.emplace().backend = backend_name;
      const auto layer =
          Attention::create({}, config, &serial_executor(), *preset_facts(preset.name));
      ASSERT_TRUE(layer.has_value());
      for (const char* text : problems)
        for (int variant = 0; variant < 4; ++variant) {
          ExecutionContext context;
          context.local = false;
          context.paged_kv = variant == 1;
          if (variant == 2) context.parallel_strategy = ParallelStrategy::ring;
          AttentionMetadata metadata;
          if (variant == 3) metadata.kv_cache_dtype = "fp8";
          const ExecutionPathResult r =
              layer->resolve_execution_path(*parse_problem(text), context, metadata);
          if (r.support != SupportStatus::unsupported) continue;
          ASSERT_FALSE(r.reasons.empty())
              << preset.name << ' ' << name(backend_name) << ' ' << text;
          for (const Reason& reason : r.reasons) {
            seen.insert(reason.code);
            EXPECT_FALSE(reason.accepted.empty() && reason.remedy.empty())
                << preset.name << ' ' << name(backend_name) << ' ' << text << ": "
                << sentence(reason);
          }
        }
    }
  }
  EXPECT_TRUE(seen.count(ReasonCode::head_dim) && seen.count(ReasonCode::paged_kv) &&
              seen.count(ReasonCode::piecewise));
}

// Backends that refuse without a reason are given one; they are never taken.
TEST(Capabilities, a_refusal_without_a_reason_still_has_one) {
  class Silent final : public Backend {
   public:
    std::string_view path() const noexcept override { return "test:silent"; }
    ExecutionPathResult resolve(BackendName backend, const Problem&, const AttentionSpec*,
                                const ExecutionContext&) const override {
      ExecutionPathResult r;
      r.backend = backend;
      return r;
    }
    Result<std::unique_ptr<Plan>> plan(BackendName, const Problem&, const AttentionSpec*,
                                       const ExecutionContext&) const override {
      ADD_FAILURE() << "a refused backend was asked for a plan";
      return Error{ErrorCode::internal, "no", {}};
    }
  };
  ASSERT_TRUE(register_backend(backend::TORCH_SDPA, std::make_shared<Silent>()).has_value());
  AttentionConfig config;
  config.default_spec.emplace().backend = backend::TORCH_SDPA;
  const auto layer = Attention::create({}, config, &serial_executor());
  const ExecutionPathResult r = layer->resolve_execution_path(test::problem_with(8), {});
  clear_override(backend::TORCH_SDPA);
  EXPECT_EQ(r.support, SupportStatus::unsupported);
  ASSERT_EQ(r.reasons.size(), 1u);
  EXPECT_FALSE(r.reasons[0].remedy.empty());
}

TEST(Capabilities, the_cpu_is_verified_on_its_own_only) {
  const auto layer = Attention::create({}, {}, &serial_executor());
  const Problem problem = *parse_problem("bf16 b1 h2 s8 d64");
  const ExecutionPathResult alone = layer->resolve_execution_path(problem, {});
  EXPECT_EQ(alone.support, SupportStatus::supported);
  EXPECT_EQ(alone.compilation_mode, CompilationMode::custom_op);
  for (ParallelStrategy strategy :
       {ParallelStrategy::ulysses, ParallelStrategy::ring, ParallelStrategy::hybrid_ulysses_ring,
        ParallelStrategy::allgather_kv}) {
    ExecutionContext context;
    context.parallel_strategy = strategy;
    const ExecutionPathResult r = layer->resolve_execution_path(problem, context);
    EXPECT_EQ(r.support, SupportStatus::unmigrated) << name(strategy);
    ASSERT_EQ(r.reasons.size(), 1u);
    EXPECT_EQ(r.reasons[0].code, ReasonCode::unvalidated);
    EXPECT_EQ(r.reasons[0].remedy, "validate the combination in the host engine");
    EXPECT_EQ(r.compilation_mode, CompilationMode::eager_only);
    EXPECT_EQ(r.parallel_strategy, strategy);
  }
  for (OuterBoundary boundary : {OuterBoundary::hsdp, OuterBoundary::attention_schedule}) {
    ExecutionContext context;
    context.outer_boundaries = {boundary};
    EXPECT_EQ(layer->resolve_execution_path(problem, context).support, SupportStatus::unmigrated);
  }
  ExecutionContext paged;
  paged.paged_kv = true;
  EXPECT_EQ(layer->resolve_execution_path(problem, paged).support, SupportStatus::unsupported);
}

// What is claimed of masks, packing, kernel, type and device is not used.
TEST(Capabilities, claims_are_overwritten) {
  const auto layer = Attention::create({}, {}, &serial_executor());
  const Problem problem = *parse_problem("f32 b1 h2 s8 d64");
  ExecutionContext claims;
  claims.facts = *preset_facts("h200");
  claims.kernel_variant = "fa4";
  claims.dtype = kBF16;
  claims.causal = true;
  claims.mask_mode = MaskMode::unknown;
  claims.packing_mode = PackingMode::multi_document;
  claims.piecewise = true;
  claims.kv_cache_dtype = "fp8";
  claims.prepared = "q_scale";
  claims.host_documents = true;
  claims.host_lengths = true;
  claims.video_layout.emplace();
  const ExecutionPathResult r = layer->resolve_execution_path(problem, claims);
  EXPECT_EQ(r.support, SupportStatus::supported) << sentence(r.reasons);
  EXPECT_EQ(r.kernel_variant, "fovea");
  EXPECT_EQ(r.platform, PlatformId::cpu);
  AttentionMetadata contradicting;
  contradicting.valid_kv_length = 9;
  EXPECT_EQ(layer->resolve_execution_path(problem, claims, contradicting).platform,
            PlatformId::cpu);
}

// Resolution is asked again when metadata changes, and answers for what it is given.
TEST(Capabilities, metadata_changes_change_the_answer) {
  const auto layer = Attention::create({}, {}, &serial_executor());
  const Problem problem = *parse_problem("f32 b1 h2 s8 d64");
  const auto support = [&](const AttentionMetadata& metadata) {
    return layer->resolve_execution_path(problem, {}, metadata).support;
  };
  AttentionMetadata metadata;
  EXPECT_EQ(support(metadata), SupportStatus::supported);
  metadata.kv_cache_dtype = "fp8";
  EXPECT_EQ(support(metadata), SupportStatus::unsupported);
  metadata.kv_cache_dtype.clear();
  metadata.valid_kv_length = 9;
  const ExecutionPathResult r = layer->resolve_execution_path(problem, {}, metadata);
  EXPECT_EQ(r.support, SupportStatus::unsupported);
  EXPECT_EQ(r.path, "contradiction");
  ASSERT_EQ(r.reasons.size(), 1u);
  EXPECT_EQ(r.reasons[0].field, "valid_kv_length");
  EXPECT_EQ(r.reasons[0].accepted, "0..8");
  metadata.valid_kv_length = 8;
  EXPECT_EQ(support(metadata), SupportStatus::supported);
}

// The answer of resolution is what a run then does, for every kind of metadata.
TEST(Capabilities, resolution_and_dispatch_share_the_normal_form) {
  AttentionConfig config;
  config.default_spec.emplace().backend = backend::FLASH_ATTN;
  const auto layer = Attention::create({}, config, &serial_executor());
  std::vector<AttentionMetadata> list(6);
  list[1].valid_kv_length = 5;
  list[2].packed_padding = PackedPadding{3, 4};
  list[3].full_attn_spans = std::vector<Span>{{2, 5}};
  list[4].kv_cache_dtype = "fp8";
  list[5].protected_kv_prefix = 9;
  for (const AttentionMetadata& metadata : list) {
    test::VendorCall call("f32 b1 h2 s8 d16");
    call.metadata = metadata;
    const ExecutionPathResult r = layer->resolve_execution_path(call.problem(), {}, metadata);
    const auto got = call.run(*layer);
    ASSERT_EQ(got.has_value(), r.support != SupportStatus::unsupported) << sentence(r.reasons);
    if (!got) continue;
    EXPECT_EQ(got->receipt->path, r.path);
    EXPECT_EQ(got->receipt->instance, r.instance);
    EXPECT_EQ(got->receipt->compilation_mode, r.compilation_mode);
    EXPECT_EQ(got->receipt->workspace_bytes, r.workspace_bytes);
  }
}

// Nothing is read: the problem has no tensors, and the masks that a call would pass do not exist.
TEST(Capabilities, resolution_reads_no_tensor) {
  const auto layer = Attention::create({}, {}, &serial_executor());
  AttentionTensors tensors;
  auto* nowhere = reinterpret_cast<float*>(uintptr_t{64});
  tensors.q = tensors.k = tensors.v = make_view(nowhere, kF32, {1, 8, 2, 16});
  tensors.mask = make_view(nowhere, kBool, {1, 8});
  const auto problem = describe(tensors, {});
  ASSERT_TRUE(problem.has_value()) << problem.error().message;
  EXPECT_EQ(layer->resolve_execution_path(*problem, {}).support, SupportStatus::supported);
}

// Row 38: a ring needs the log-sum-exp, and a path without one says so.
TEST(Capabilities, BugRow38_rings_need_the_log_sum_exp) {
  backends::Instance row;
  row.name = "no_lse";
  row.lse = false;
  ExecutionContext context;
  for (ParallelStrategy strategy :
       {ParallelStrategy::ring, ParallelStrategy::hybrid_ulysses_ring}) {
    context.parallel_strategy = strategy;
    const auto reasons = backends::refusals(row, *parse_problem("f32 b1 h1 s4 d8"), context);
    ASSERT_EQ(reasons.size(), 1u);
    EXPECT_EQ(reasons[0].code, ReasonCode::lse);
    EXPECT_FALSE(reasons[0].remedy.empty());
  }
  context.parallel_strategy = ParallelStrategy::ulysses;
  EXPECT_TRUE(backends::refusals(row, *parse_problem("f32 b1 h1 s4 d8"), context).empty());
}

// Kernels that no ring and no gathered keys may run through: the answer is a refusal by name.
TEST(Capabilities, packages_refuse_the_parallel_forms_they_would_get_wrong) {
  struct Case {
    BackendName backend;
    const char* facts;
    ParallelStrategy strategy;
    const char* stored;
    const char* field;  // "": not refused
    const char* call = "bf16 b1 h2 s8 d128";
  };
  using enum ParallelStrategy;
  const char* const trtllm = "sm=100,trtllm=1,flashinfer=0.6.18";
  const char* const fa4 = "sm=100,fa4=4.0";
  const Case cases[] = {
      {backend::TRTLLM_ATTN, trtllm, ParallelStrategy::none, "", ""},
      {backend::TRTLLM_ATTN, trtllm, ulysses, "", ""},
      {backend::TRTLLM_ATTN, trtllm, allgather_kv, "", "parallel strategy"},
      {backend::TRTLLM_ATTN, trtllm, ring, "", "parallel strategy"},
      {backend::TRTLLM_ATTN, trtllm, hybrid_ulysses_ring, "", "parallel strategy"},
      {backend::FLASH_ATTN, fa4, allgather_kv, "", ""},
      {backend::FLASH_ATTN, fa4, ulysses, "fp8", ""},
      {backend::FLASH_ATTN, fa4, ring, "fp8", "kv_cache_dtype"},
      {backend::FLASH_ATTN, fa4, hybrid_ulysses_ring, "fp8", "kv_cache_dtype"},
      {backend::FLASH_ATTN, fa4, ulysses, "", "", "bf16 b1 h2 s8 d128 mask=keys"},
      {backend::FLASH_ATTN, fa4, ring, "", "mask", "bf16 b1 h2 s8 d128 mask=keys"},
      {backend::FLASH_ATTN, fa4, hybrid_ulysses_ring, "", "mask", "bf16 b1 h2 s8 d128 mask=bool"},
      {backend::FLASH_ATTN, fa4, ring, "", "", "bf16 b1 h2 s8 d128 kvlen=?"},
  };
  for (const Case& c : cases) {
    // A ring would not skip what the configuration says.
    const auto config = parse_config(
        c.backend == backend::TRTLLM_ATTN
            ? R"({"default": {"backend": "TRTLLM_ATTN", "skip_softmax": {"threshold": 0.01}}})"
            : R"({"default": "FLASH_ATTN"})");
    ASSERT_TRUE(config.has_value()) << config.error().message;
    ExecutionContext context;
    context.facts = parse_facts(PlatformId::cuda, c.facts).value();
    context.local = false;
    context.parallel_strategy = c.strategy;
    context.kv_cache_dtype = c.stored;
    context.paged_kv = false;
    const Selector selector(make_platform(context.facts), *config);
    const auto decision = selector.decide({}, *parse_problem(c.call), context);
    const ExecutionPathResult& r = decision->report;
    SCOPED_TRACE(testing::Message() << c.facts << ' ' << name(c.strategy) << ' ' << c.stored << ": "
                                    << sentence(r.reasons));
    if (*c.field == 0) {
      EXPECT_EQ(r.support, SupportStatus::unmigrated);
      continue;
    }
    EXPECT_EQ(r.support, SupportStatus::unsupported);
    ASSERT_FALSE(r.reasons.empty());
    EXPECT_EQ(r.reasons[0].code, ReasonCode::parallel);
    EXPECT_EQ(r.reasons[0].field, c.field);
    EXPECT_FALSE(r.reasons[0].remedy.empty());
  }
}

// Kernels without block lists would read every key in silence.
TEST(Capabilities, patterns_are_refused_by_dense_packages) {
  struct Case {
    const char* package;
    PlatformId platform;
    const char* facts;
  };
  for (const Case& c : {Case{"mindiesd", PlatformId::npu, "mindiesd=2.1.0"},
                        Case{"aiter", PlatformId::rocm, "gfx=gfx942,aiter=0.1.7"},
                        Case{"fa4", PlatformId::cuda, "sm=103,cuda=13.0,fa4=4.0.0b18"}}) {
    SCOPED_TRACE(c.package);
    test::VendorDouble vendor(c.package);
    const Attention layer = test::vendor_layer(c.platform, c.facts);
    test::VendorCall call("bf16 b1 h2 s130 d64");
    std::vector<int32_t> lists = {1, 1, 0, 0};
    call.tensors.block_counts = make_view(lists.data(), kI32, {1, 1, 2});
    call.tensors.block_indices = make_view(lists.data() + 2, kI32, {1, 1, 2, 1});
    const ExecutionPathResult report = layer.resolve_execution_path(call.problem(), {});
    EXPECT_EQ(report.support, SupportStatus::unsupported);
    ASSERT_FALSE(report.reasons.empty());
    EXPECT_EQ(report.reasons[0].code, ReasonCode::sparse);
    EXPECT_FALSE(call.run(layer).has_value());
    EXPECT_TRUE(vendor.calls().empty());
  }
}

// What is published to hide nothing is no mask, to kernels that take none too.
TEST(Capabilities, a_no_op_mask_is_no_mask_to_a_kernel_without_masks) {
  test::VendorDouble trtllm("flashinfer");
  AttentionConfig config;
  config.default_spec.emplace().backend = backend::TRTLLM_ATTN;
  const Attention layer =
      test::vendor_layer(PlatformId::cuda, "sm=100,cuda=13.0,trtllm=1,flashinfer=0.6.18", config);
  test::VendorCall call("bf16 b1 h2 s16 d128");
  call.set_mask({1, 16}, [](int64_t, int64_t) { return true; });
  for (const std::optional<MaskMode> mode :
       {std::optional<MaskMode>{}, std::optional(MaskMode::padding),
        std::optional(MaskMode::arbitrary)}) {
    call.metadata.mask_mode = mode;
    const auto refused = call.run(layer);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().reasons.at(0).code, ReasonCode::mask);
    EXPECT_EQ(refused.error().reasons.at(0).accepted, "none");
    EXPECT_TRUE(trtllm.calls().empty());
  }
  call.metadata.mask_mode = MaskMode::none;
  const auto ran = call.run(layer);
  ASSERT_TRUE(ran.has_value()) << ran.error().message;
  EXPECT_EQ(trtllm.last().mask, "");
}

// A package's path follows what is published of a mask, not the shape of its tensor.
TEST(Capabilities, a_published_mode_chooses_the_path_of_a_package) {
  test::VendorDouble aiter("aiter");
  const Attention layer = test::vendor_layer(PlatformId::rocm, "gfx=gfx942,aiter=0.1.7");
  test::VendorCall call("f32 b2 h2 s5 d8 sk=11");
  // Rows of their own that are all alike.
  call.set_mask({2, 1, 5, 11}, [](int64_t row, int64_t key) { return (key + row / 5) % 3 != 0; });
  EXPECT_FALSE(call.run(layer).has_value());
  call.metadata.mask_mode = MaskMode::padding;
  const auto ran = call.run(layer);
  const auto expected = call.expected();
  ASSERT_TRUE(ran.has_value()) << ran.error().message;
  ASSERT_TRUE(expected.has_value());
  EXPECT_EQ(ran->receipt->path, "rocm_masked_varlen");
  EXPECT_EQ(aiter.last().mask, "bool[2,11]");
  const TensorView& out = ran->out.view();
  EXPECT_EQ(0, std::memcmp(out.data, expected->out.view().data,
                           static_cast<size_t>(out.numel()) * sizeof(float)));
  call.set_mask({2, 11}, [](int64_t row, int64_t key) { return (key + row) % 3 != 0; });
  EXPECT_TRUE(call.run(layer).has_value());
  call.metadata.mask_mode = MaskMode::arbitrary;
  const auto refused = call.run(layer);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().reasons.at(0).code, ReasonCode::mask);
}

// Kernels of packages find the layout of the videos in their call; another layout is another call.
TEST(Capabilities, a_video_layout_reaches_the_kernel) {
  test::VendorDouble mindie("mindiesd");
  AttentionConfig config;
  config.default_spec.emplace().backend = backend::RAINFUSION_ATTN;
  config.default_spec->block_sparse.emplace();
  const Attention layer = test::vendor_layer(PlatformId::npu, "mindiesd=2.1.0", config);
  test::VendorCall call("bf16 b1 h2 s16 d64");
  for (const int64_t frames : {0, 2, 3, 2}) {
    call.metadata.video_layout.reset();
    if (frames > 0) call.metadata.video_layout = VideoLayout{1, VideoGrid{frames, 1, 4}, 0, {}};
    const auto ran = call.run(layer);
    ASSERT_TRUE(ran.has_value()) << ran.error().message;
    EXPECT_EQ(mindie.last().video_layout, call.metadata.video_layout) << frames;
  }
}

}  // namespace
}  // namespace fovea
