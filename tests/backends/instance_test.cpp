#include "src/backends/instance.hpp"

#include <gtest/gtest.h>

#include <functional>

namespace fovea::backends {
namespace {

std::optional<Reason> never(const DeviceFacts&) {
  return Reason{ReasonCode::architecture, "sm", "80", "90", {}};
}

ExecutionContext here() {
  ExecutionContext context;
  return context;
}

Problem dense() {
  Problem p;
  p.dtype = p.out_dtype = kBF16;
  p.batch = 2;
  p.heads_q = p.heads_kv = 4;
  p.seq_q = p.seq_kv = 32;
  p.head_dim = p.dim_v = 64;
  fill_strides(p);
  return p;
}

// A kernel for dense() and little else.
Instance narrow() {
  Instance in;
  in.name = "narrow";
  in.path = "test.narrow";
  in.dtypes = {Element::bf16};
  in.head_dim = {64, 128, 64};
  in.dim_v = {64, 128, 64};
  in.equal_dims = true;
  in.masks = {MaskKind::none, MaskKind::boolean};
  in.mask_dtypes = {Element::boolean};
  in.causal = in.window = in.kv_lengths = in.packed = in.gqa = in.lse = in.f32_out = false;
  in.expanded_strides = false;
  in.alignment = 16;
  in.stride_multiple = 8;
  return in;
}

TEST(Instance, DefaultsRunTheWholeContract) {
  const Instance whole{.name = "whole", .path = "test"};
  Problem p = dense();
  p.heads_kv = 2;
  p.head_dim = 1;
  p.dim_v = 512;
  p.out_dtype = kF32;
  p.causal = p.lse = p.has_kv_lengths = true;
  p.window = {3, 0};
  p.mask = {MaskKind::bias, kF16, true, true, true};
  p.strides_kind = StridesKind::expanded;
  p.alignment = 2;
  fill_strides(p);
  EXPECT_TRUE(refusals(whole, p, here()).empty());
}

struct Refused {
  ReasonCode code;
  const char* field;
  const char* got;
  std::function<void(Problem&, ExecutionContext&)> ask;
};

TEST(Instance, F01_EverythingAKernelLacksIsANamedReason) {
  const Refused table[] = {
      {ReasonCode::dtype, "dtype", "f16",
       [](Problem& p, ExecutionContext&) { p.dtype = p.out_dtype = kF16; }},
      {ReasonCode::output_dtype, "out_dtype", "f32",
       [](Problem& p, ExecutionContext&) { p.out_dtype = kF32; }},
      {ReasonCode::head_dim, "head_dim", "96",
       [](Problem& p, ExecutionContext&) { p.head_dim = 96; }},
      {ReasonCode::dim_v, "dim_v", "128", [](Problem& p, ExecutionContext&) { p.dim_v = 128; }},
      {ReasonCode::heads, "heads_kv", "2", [](Problem& p, ExecutionContext&) { p.heads_kv = 2; }},
      {ReasonCode::mask, "mask", "keys",
       [](Problem& p, ExecutionContext&) {
         p.mask = {MaskKind::keys, kBool, true, false, false};
       }},
      {ReasonCode::mask_dtype, "mask dtype", "i64",
       [](Problem& p, ExecutionContext&) {
         p.mask = {MaskKind::boolean, kI64, true, false, true};
       }},
      {ReasonCode::causal, "causal", "1", [](Problem& p, ExecutionContext&) { p.causal = true; }},
      {ReasonCode::window, "window", "3,-1",
       [](Problem& p, ExecutionContext&) {
         p.window = {3, -1};
       }},
      {ReasonCode::kv_lengths, "kv_lengths", "1",
       [](Problem& p, ExecutionContext&) { p.has_kv_lengths = true; }},
      {ReasonCode::packed, "layout", "packed",
       [](Problem& p, ExecutionContext&) {
         p.layout = p.out_layout = Layout::packed;
         p.batch = 1;
       }},
      {ReasonCode::piecewise, "pieces", "2",
       [](Problem& p, ExecutionContext&) {
         p.pieces = {{10, 10, true}, {22, 32, false}};
       }},
      {ReasonCode::lse, "lse", "1", [](Problem& p, ExecutionContext&) { p.lse = true; }},
      {ReasonCode::sparse, "sparse", "radial",
       [](Problem& p, ExecutionContext&) {
         p.sparse = SparsePattern{"radial", {}};
       }},
      {ReasonCode::alignment, "base address", "8 bytes",
       [](Problem& p, ExecutionContext&) { p.alignment = 8; }},
      {ReasonCode::strides, "k strides", "8192/257/64",
       [](Problem& p, ExecutionContext&) {
         p.strides_kind = StridesKind::custom;
         p.k_strides.seq = 257;
       }},
      {ReasonCode::strides, "v strides", "0",
       [](Problem& p, ExecutionContext&) {
         p.strides_kind = StridesKind::custom;
         p.v_strides.batch = 0;
       }},
      {ReasonCode::paged_kv, "paged_kv", "1",
       [](Problem&, ExecutionContext& c) { c.paged_kv = true; }},
      {ReasonCode::dtype, "kv_cache_dtype", "fp8",
       [](Problem&, ExecutionContext& c) { c.kv_cache_dtype = "fp8"; }},
      {ReasonCode::metadata, "laser_input_scale", "0.5",
       [](Problem&, ExecutionContext& c) { c.laser_input_scale = 0.5; }},
      {ReasonCode::prepared, "prepared tensors", "q_scale:f32[8]@cpu",
       [](Problem&, ExecutionContext& c) { c.prepared = "q_scale:f32[8]@cpu"; }},
      {ReasonCode::packed, "packed_padding", "padded tensors",
       [](Problem&, ExecutionContext& c) {
         c.facts = DeviceFacts(PlatformId::cuda);
         c.host_documents = true;
       }},
      {ReasonCode::kv_lengths, "valid_kv_length", "beside a sparse pattern",
       [](Problem&, ExecutionContext& c) {
         c.facts = DeviceFacts(PlatformId::cuda);
         c.host_lengths = true;
       }},
  };
  // Another head_dim alone would also be unequal to dim_v.
  Instance any_dims = narrow();
  any_dims.equal_dims = false;
  EXPECT_TRUE(refusals(narrow(), dense(), here()).empty());
  for (const Refused& row : table) {
    SCOPED_TRACE(row.field);
    Problem p = dense();
    ExecutionContext context;
    row.ask(p, context);
    fill_strides(p);
    const bool head_dim = row.code == ReasonCode::head_dim;
    const std::vector<Reason> reasons = refusals(head_dim ? any_dims : narrow(), p, context);
    ASSERT_EQ(reasons.size(), 1u) << sentence(reasons);
    EXPECT_EQ(reasons[0].code, row.code);
    EXPECT_EQ(reasons[0].field, row.field);
    EXPECT_EQ(reasons[0].got, row.got);
    EXPECT_FALSE(reasons[0].accepted.empty());
  }
}

TEST(Instance, AllReasonsAreCollected) {
  Problem p = dense();
  p.causal = p.lse = true;
  p.head_dim = p.dim_v = 80;
  fill_strides(p);
  Instance in = narrow();
  in.device = never;
  std::vector<ReasonCode> codes;
  for (const Reason& reason : refusals(in, p, here())) codes.push_back(reason.code);
  EXPECT_EQ(codes,
            (std::vector<ReasonCode>{ReasonCode::architecture, ReasonCode::head_dim,
                                     ReasonCode::dim_v, ReasonCode::causal, ReasonCode::lse}));
}

TEST(Instance, AxesOfSizeOneHaveNoStrides) {
  Problem p = dense();
  p.batch = 1;
  p.heads_q = p.heads_kv = 1;
  p.strides_kind = StridesKind::custom;
  fill_strides(p);
  for (Strides* s : {&p.q_strides, &p.k_strides, &p.v_strides}) *s = {7, 64, 0};
  EXPECT_TRUE(refusals(narrow(), p, here()).empty());
}

TEST(Instance, ChoosesTheFirstRowThatFits) {
  const Instance table[] = {narrow(), {.name = "whole", .path = "test"}};
  Problem p = dense();
  EXPECT_EQ(choose(table, p, here()).instance, &table[0]);
  p.lse = true;
  EXPECT_EQ(choose(table, p, here()).instance, &table[1]);
}

TEST(Instance, RefusesWithTheReasonsOfTheClosestRow) {
  Instance far = narrow();
  far.head_dim = {8, 8, 8};
  Instance near = narrow();
  const Instance table[] = {far, near, near};
  Problem p = dense();
  p.lse = true;
  const Choice choice = choose(table, p, here());
  EXPECT_EQ(choice.instance, nullptr);
  ASSERT_EQ(choice.reasons.size(), 1u);
  EXPECT_EQ(choice.reasons[0].code, ReasonCode::lse);
  const auto result = report(backend::FLASH_ATTN, "fovea", choice, p, here());
  EXPECT_EQ(result.support, SupportStatus::unsupported);
  EXPECT_EQ(result.reasons, choice.reasons);
}

TEST(Instance, BuiltRowsArePreferredAndUnbuiltOnesSaySo) {
  Instance unbuilt = narrow();
  unbuilt.built = false;
  const Instance both[] = {unbuilt, {.name = "whole", .path = "test"}};
  EXPECT_EQ(choose(both, dense(), here()).instance, &both[1]);

  const Instance one[] = {unbuilt};
  const Choice choice = choose(one, dense(), here());
  ASSERT_EQ(choice.instance, &one[0]);
  ExecutionContext context;
  const auto here = report(backend::FLASH_ATTN, "fovea", choice, dense(), context);
  EXPECT_EQ(here.support, SupportStatus::unsupported);
  ASSERT_EQ(here.reasons.size(), 1u);
  EXPECT_EQ(here.reasons[0].code, ReasonCode::not_built);
  const Status refused = admit(here, dense(), context);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::not_built);

  context.local = false;
  const auto elsewhere = report(backend::FLASH_ATTN, "fovea", choice, dense(), context);
  EXPECT_EQ(elsewhere.support, SupportStatus::supported);
  EXPECT_FALSE(elsewhere.built);
}

TEST(Instance, UnverifiedRowsAreUnmigrated) {
  Instance in = narrow();
  in.verified = [](const DeviceFacts&) { return false; };
  const auto result = report(backend::FLASH_ATTN_3, "fovea", {&in, {}}, dense(), here());
  EXPECT_EQ(result.support, SupportStatus::unmigrated);
  EXPECT_TRUE(admit(result, dense(), here()).has_value());
}

TEST(Instance, RefusalNamesWhoWhatAndWhatIsAccepted) {
  Problem p = dense();
  p.head_dim = p.dim_v = 80;
  fill_strides(p);
  const Instance table[] = {narrow()};
  const auto result = report(backend::FLASH_ATTN, "fovea", choose(table, p, here()), p, here());
  const Status status = admit(result, p, here());
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::unsupported);
  EXPECT_EQ(status.error().reasons, result.reasons);
  for (const char* part : {"FLASH_ATTN", "bf16 b2 h4 s32 d80", "head_dim 80", "multiples of 64"})
    EXPECT_NE(status.error().message.find(part), std::string::npos) << status.error().message;
}

TEST(Instance, PlansNeedTheMachineThatTheFactsDescribe) {
  const Instance table[] = {narrow()};
  ExecutionContext context;
  context.local = false;
  const auto result =
      report(backend::FLASH_ATTN, "fovea", choose(table, dense(), context), dense(), context);
  EXPECT_EQ(result.support, SupportStatus::supported);
  const Status status = admit(result, dense(), context);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::not_available);
}

TEST(Instance, ProviderOfTheSpecMustMatch) {
  const Instance table[] = {narrow()};
  AttentionSpec spec;
  for (const auto& [asked, provider, accepted] : {std::tuple("", "fovea", true),
                                                  {"fovea", "fovea", true},
                                                  {"cudnn", "fovea", false},
                                                  {"package", "package flash_attn 2.8.0", true},
                                                  {"package", "cudnn", false}}) {
    auto result =
        report(backend::FLASH_ATTN, provider, choose(table, dense(), here()), dense(), here());
    spec.provider = asked;
    apply_spec(result, &spec);
    EXPECT_EQ(result.support == SupportStatus::supported, accepted) << asked << ' ' << provider;
    EXPECT_EQ(result.reasons.empty(), accepted);
  }
}

TEST(Instance, ReceiptCarriesTheRow) {
  Instance in = narrow();
  in.compute_qk = "bf16";
  in.deterministic = false;
  const auto result = report(backend::FLASH_ATTN_3, "fovea", {&in, {}}, dense(), here());
  const Receipt receipt = make_receipt(result, in);
  EXPECT_EQ(receipt.backend, backend::FLASH_ATTN_3);
  EXPECT_EQ(receipt.path, "test.narrow");
  EXPECT_EQ(receipt.instance, "narrow");
  EXPECT_EQ(receipt.compute_qk, "bf16");
  EXPECT_FALSE(receipt.deterministic);
}

}  // namespace
}  // namespace fovea::backends
