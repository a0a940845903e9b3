#include "fovea/registry.hpp"

#include <gtest/gtest.h>

#include "tests/select/fakes.hpp"

namespace fovea {
namespace {

using test::FakeBackend;

TEST(Registry, BuiltinPathsLoadOnce) {
  auto first = load_backend(backend::REFERENCE, "builtin:reference");
  auto second = load_backend(backend::REFERENCE, "builtin:reference");
  ASSERT_TRUE(first.has_value());
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(first->get(), second->get());
  EXPECT_EQ((*first)->path(), "builtin:reference");
}

TEST(Registry, ReplacementKeepsTheNameAndChangesTheEpoch) {
  const uint64_t before = registry_epoch();
  auto fake = std::make_shared<FakeBackend>("test:fake");
  ASSERT_TRUE(register_backend(backend::SAGE_ATTN, fake).has_value());
  EXPECT_TRUE(is_overridden(backend::SAGE_ATTN));
  EXPECT_EQ(name(backend::SAGE_ATTN), "SAGE_ATTN");
  EXPECT_GT(registry_epoch(), before);
  EXPECT_EQ(load_backend(backend::SAGE_ATTN, "builtin:reference")->get(), fake.get());
  const uint64_t replaced = registry_epoch();
  clear_override(backend::SAGE_ATTN);
  EXPECT_FALSE(is_overridden(backend::SAGE_ATTN));
  EXPECT_GT(registry_epoch(), replaced);
  EXPECT_EQ((*load_backend(backend::SAGE_ATTN, "builtin:reference"))->path(), "builtin:reference");
}

TEST(Registry, ReplacementByPath) {
  ASSERT_TRUE(register_backend(backend::SAGE_ATTN, "builtin:reference").has_value());
  EXPECT_EQ((*load_backend(backend::SAGE_ATTN, ""))->path(), "builtin:reference");
  clear_override(backend::SAGE_ATTN);
}

TEST(Registry, MalformedPathsAndNullObjectsAreArgumentErrors) {
  for (const char* path : {"", "reference", ":reference", "builtin:"}) {
    const Status status = register_backend(backend::SAGE_ATTN, path);
    ASSERT_FALSE(status.has_value()) << path;
    EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(status.error().message.find("builtin:NAME"), std::string::npos);
  }
  EXPECT_EQ(register_backend(backend::SAGE_ATTN, std::shared_ptr<const Backend>()).error().code,
            ErrorCode::invalid_argument);
  EXPECT_FALSE(is_overridden(backend::SAGE_ATTN));
}

TEST(Registry, AnUnknownBuiltinListsWhatIsBuilt) {
  const auto loaded = load_backend(backend::FLASH_ATTN_3, "builtin:no_such_kernel");
  ASSERT_FALSE(loaded.has_value());
  EXPECT_EQ(loaded.error().code, ErrorCode::not_built);
  EXPECT_NE(loaded.error().message.find("builtin:reference"), std::string::npos);
  ASSERT_EQ(loaded.error().reasons.size(), 1u);
  EXPECT_EQ(loaded.error().reasons[0].code, ReasonCode::not_built);
}

TEST(Registry, AnEmptyPathSaysToRegisterFirst) {
  const auto loaded = load_backend(backend::TRTLLM_ATTN, "");
  ASSERT_FALSE(loaded.has_value());
  EXPECT_NE(loaded.error().message.find("register"), std::string::npos);
}

TEST(Registry, SchemesLoadThroughTheirLoader) {
  EXPECT_EQ(load_backend(backend::SAGE_ATTN, "scripted:x").error().code, ErrorCode::not_available);
  auto fake = std::make_shared<FakeBackend>("scripted:x");
  std::string asked;
  ASSERT_TRUE(set_path_loader("scripted", [&](std::string_view rest) {
                asked = rest;
                return Result<std::shared_ptr<const Backend>>(fake);
              }).has_value());
  EXPECT_EQ(load_backend(backend::SAGE_ATTN, "scripted:x")->get(), fake.get());
  EXPECT_EQ(asked, "x");
  ASSERT_TRUE(set_path_loader("scripted", [](std::string_view) {
                return Result<std::shared_ptr<const Backend>>(std::shared_ptr<const Backend>());
              }).has_value());
  EXPECT_EQ(load_backend(backend::SAGE_ATTN, "scripted:x").error().code, ErrorCode::not_available);
  ASSERT_TRUE(set_path_loader("scripted", {}).has_value());
  EXPECT_FALSE(set_path_loader("builtin", {}).has_value());
}

TEST(Registry, APackageAnswersForADescribedDeviceOnly) {
  auto loaded = load_backend(backend::FLASHINFER_ATTN, "package:flashinfer");
  ASSERT_TRUE(loaded.has_value());
  ExecutionContext context;
  context.facts = DeviceFacts(PlatformId::cuda);
  context.facts.set("flashinfer", "0.6.16");
  context.local = false;
  const Problem problem = *parse_problem("bf16 b1 h2 s64 d128");
  const auto described = (*loaded)->resolve(backend::FLASHINFER_ATTN, problem, nullptr, context);
  EXPECT_EQ(described.support, SupportStatus::unmigrated);
  EXPECT_EQ(described.provider, "package flashinfer 0.6.16");
  EXPECT_FALSE(described.built);
  context.local = true;
  EXPECT_EQ((*loaded)->resolve(backend::FLASHINFER_ATTN, problem, nullptr, context).support,
            SupportStatus::unsupported);
  EXPECT_FALSE((*loaded)->plan(backend::FLASHINFER_ATTN, problem, nullptr, context).has_value());
}

TEST(Registry, APackageRefusesWhatItsKernelsDoNotTake) {
  const struct {
    BackendName backend;
    PlatformId platform;
    const char* facts;
    const char* problem;
    ReasonCode code;
    const char* package = "package:any";
  } cases[] = {
      {backend::TRTLLM_ATTN, PlatformId::cuda, "sm=100", "bf16 b1 h2 s64 d128 mask=keys",
       ReasonCode::mask},
      {backend::SAGE_ATTN, PlatformId::cuda, "sm=90", "bf16 b1 h2 s64 d128 mask=keys",
       ReasonCode::mask},
      {backend::SAGE_ATTN_2_8_8, PlatformId::cuda, "sm=90", "f32 b1 h2 s64 d128",
       ReasonCode::dtype},
      {backend::SAGE_ATTN_3, PlatformId::cuda, "sm=120", "bf16 b1 h28 hk=4 s64 d128",
       ReasonCode::heads},
      {backend::FLASH_ATTN, PlatformId::cuda, "sm=100", "f32 b1 h2 s64 d128", ReasonCode::dtype},
      {backend::FLASH_ATTN, PlatformId::rocm, "gfx=gfx942", "bf16 b1 h2 s64 d128 mask=bool",
       ReasonCode::mask},
      {backend::RAINFUSION_ATTN, PlatformId::npu, "mindiesd=3.1", "bf16 b1 h2 s64 d128 mask=causal",
       ReasonCode::causal},
      {backend::AITER_QUANT_ATTN, PlatformId::rocm, "gfx=gfx942", "bf16 b1 h2 s64 d128 kvlen=40",
       ReasonCode::kv_lengths},
      {backend::TORCH_SDPA, PlatformId::npu, "", "f32 b1 h2 s64 d128 window=8,8",
       ReasonCode::window},
      // Bug: the routes of a package's dense attention were taken for its other kernels.
      {backend::RAINFUSION_ATTN, PlatformId::npu, "mindiesd=3.1", "bf16 b1 h2 s64 d128 mask=causal",
       ReasonCode::causal, "package:mindiesd"},
      {backend::RAINFUSION_ATTN, PlatformId::npu, "mindiesd=3.1", "bf16 b1 h2 s64 d128 mask=keys",
       ReasonCode::mask, "package:mindiesd"},
      {backend::AITER_QUANT_ATTN, PlatformId::rocm, "gfx=gfx942,aiter=0.1.7",
       "bf16 b1 h2 s64 d128 kvlen=40", ReasonCode::kv_lengths, "package:aiter"},
      {backend::AITER_QUANT_ATTN, PlatformId::rocm, "gfx=gfx942,aiter=0.1.7", "f32 b1 h2 s64 d128",
       ReasonCode::dtype, "package:aiter"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(name(c.backend));
    ExecutionContext context;
    context.facts = *parse_facts(c.platform, c.facts);
    context.local = false;
    const auto loaded = load_backend(c.backend, c.package);
    ASSERT_TRUE(loaded.has_value());
    const auto report = (*loaded)->resolve(c.backend, *parse_problem(c.problem), nullptr, context);
    EXPECT_EQ(report.support, SupportStatus::unsupported);
    ASSERT_FALSE(report.reasons.empty());
    EXPECT_EQ(report.reasons[0].code, c.code) << sentence(report.reasons);
    const auto plain =
        (*loaded)->resolve(c.backend, *parse_problem("bf16 b1 h2 s64 d128"), nullptr, context);
    EXPECT_EQ(plain.support, SupportStatus::unmigrated) << sentence(plain.reasons);
    EXPECT_EQ(plain.path, std::string("package.") + (c.package + 8));
  }
}

// A ring or gathered keys would tear the blocks of a sparse selection apart.
TEST(Registry, SparsePackagesAreNotSharded) {
  ExecutionContext context;
  context.facts = *parse_facts(PlatformId::npu, "mindiesd=3.1");
  context.local = false;
  const auto loaded = *load_backend(backend::RAINFUSION_ATTN, "package:mindiesd");
  const Problem problem = *parse_problem("bf16 b1 h2 s64 d128");
  for (const auto& [strategy, support] :
       {std::pair{ParallelStrategy::ring, SupportStatus::unsupported},
        std::pair{ParallelStrategy::hybrid_ulysses_ring, SupportStatus::unsupported},
        std::pair{ParallelStrategy::allgather_kv, SupportStatus::unsupported},
        std::pair{ParallelStrategy::ulysses, SupportStatus::unmigrated}}) {
    context.parallel_strategy = strategy;
    const auto report = loaded->resolve(backend::RAINFUSION_ATTN, problem, nullptr, context);
    EXPECT_EQ(report.support, support) << name(strategy) << ' ' << sentence(report.reasons);
  }
}

TEST(Registry, QuantisedPackagesAreLossy) {
  ExecutionContext context;
  context.facts = *parse_facts(PlatformId::cuda, "sm=90");
  context.local = false;
  const auto loaded = *load_backend(backend::SAGE_ATTN, "package:any");
  const Problem problem = *parse_problem("bf16 b1 h2 s64 d128");
  EXPECT_TRUE(loaded->resolve(backend::SAGE_ATTN_2_8_8, problem, nullptr, context).lossy);
  EXPECT_FALSE(loaded->resolve(backend::FLASH_ATTN_4, problem, nullptr, context).lossy);
}

TEST(Registry, AQuantBlockIsJudgedForDeviceVersionAndCall) {
  const struct {
    const char* facts;
    const char* spec;
    const char* problem;
    const char* refusal;
  } cases[] = {
      {"sm=100,trtllm=1,flashinfer=0.6.18rc10", R"j("TRTLLM_ATTN", "quant": {"dtype_qk": "int8"})j",
       "bf16 b1 h2 s64 d128", ""},
      {"sm=100,trtllm=1,flashinfer=unknown", R"j("TRTLLM_ATTN", "quant": {"dtype_qk": "int8"})j",
       "bf16 b1 h2 s64 d128", ""},
      {"sm=103,trtllm=1,flashinfer=0.6.18", R"j("TRTLLM_ATTN", "quant": {"dtype_qk": "int8"})j",
       "bf16 b1 h2 s64 d128",
       "quant.dtype_qk int8 on sm_103 is not supported (accepted: int8 on sm_100), use fp8_e4m3, "
       "or "
       "remove quant"},
      {"sm=103,trtllm=1,flashinfer=0.6.18", R"j("TRTLLM_ATTN", "quant": {"dtype_qk": "fp8_e4m3"})j",
       "bf16 b1 h2 s64 d128", ""},
      {"sm=101,trtllm=1,flashinfer=0.6.18", R"j("TRTLLM_ATTN", "quant": {"dtype_qk": "fp8_e4m3"})j",
       "bf16 b1 h2 s64 d128",
       "quant.dtype_qk fp8_e4m3 on sm_101 is not supported (accepted: fp8_e4m3 on sm_100, sm_103), "
       "remove quant"},
      {"sm=100,trtllm=1,flashinfer=0.6.17", R"j("TRTLLM_ATTN", "quant": {"dtype_qk": "fp8_e4m3"})j",
       "bf16 b1 h2 s64 d128",
       "flashinfer 0.6.17 does not fit (needed: >= 0.6.18 for quant.dtype_qk fp8_e4m3), pip "
       "install "
       "flashinfer-python"},
      {"sm=100,trtllm=1,flashinfer=0.6.10", R"j("TRTLLM_ATTN", "quant": {})j",
       "bf16 b1 h2 s64 d128", ""},
      // Upstream drops the block without a word.
      {"sm=100,trtllm=1,flashinfer=0.6.18", R"j("TRTLLM_ATTN", "quant": {"dtype_qk": "int8"})j",
       "bf16 b1 h2 s64 d128 mask=causal",
       "quant.dtype_qk int8 with causal masking is not supported (accepted: calls without causal "
       "masking), remove quant for this role"},
      {"sm=90,flashinfer_prefill=1,flashinfer=0.6.14",
       R"j("FLASHINFER_ATTN", "quant": {"dtype_vo": "fp8_e4m3"})j", "bf16 b1 h2 s64 d128",
       "flashinfer 0.6.14 does not fit (needed: >= 0.6.15 for quant.dtype_vo fp8_e4m3), pip "
       "install "
       "flashinfer-python"},
      {"sm=90,flashinfer_prefill=1,flashinfer=0.6.15",
       R"j("FLASHINFER_ATTN", "quant": {"dtype_vo": "fp8_e4m3"})j", "bf16 b1 h2 s64 d128", ""},
  };
  const auto loaded = *load_backend(backend::TRTLLM_ATTN, "package:any");
  for (const auto& c : cases) {
    SCOPED_TRACE(std::string(c.facts) + ' ' + c.spec);
    const auto config = parse_config(std::string(R"j({"default": {"backend": )j") + c.spec + "}}");
    ASSERT_TRUE(config) << config.error().message;
    ExecutionContext context;
    context.facts = *parse_facts(PlatformId::cuda, c.facts);
    context.local = false;
    const AttentionSpec& spec = *config->default_spec;
    const ExecutionPathResult report =
        loaded->resolve(spec.backend, *parse_problem(c.problem), &spec, context);
    EXPECT_EQ(report.support == SupportStatus::unsupported, *c.refusal != '\0');
    if (*c.refusal != '\0') {
      EXPECT_EQ(sentence(report.reasons), c.refusal);
    }
  }
}

// Bug: TRTLLM_ATTN and FLASHINFER_ATTN with a quant block called themselves exact.
TEST(Registry, AQuantBlockMakesAPackageLossy) {
  ExecutionContext context;
  context.facts = *parse_facts(PlatformId::cuda, "sm=100,cuda=13.0,trtllm=1,flashinfer_prefill=1");
  context.local = false;
  const auto loaded = *load_backend(backend::TRTLLM_ATTN, "package:any");
  const Problem problem = *parse_problem("bf16 b1 h2 s64 d128");
  const std::pair<const char*, bool> cases[] = {
      {R"j({"backend": "TRTLLM_ATTN"})j", false},
      {R"j({"backend": "TRTLLM_ATTN", "quant": {"dtype_qk": "int8"}})j", true},
      {R"j({"backend": "TRTLLM_ATTN", "quant": {"dtype_qk": "fp8_e4m3", "dtype_vo": "fp8_e4m3"}})j",
       true},
      {R"j({"backend": "FLASHINFER_ATTN", "quant": {"dtype_qk": "bfloat16"}})j", false},
      {R"j({"backend": "FLASHINFER_ATTN", "quant": {"dtype_qk": "float16"}})j", true},
      {R"j({"backend": "FLASHINFER_ATTN", "quant": {"dtype_vo": "fp8_e4m3"}})j", true},
      {R"j({"backend": "FLASHINFER_ATTN", "quant": {"flashinfer_backend": "fa2"}})j", false},
  };
  for (const auto& [json, lossy] : cases) {
    const auto config = parse_config(std::string(R"j({"default": )j") + json + "}");
    ASSERT_TRUE(config) << config.error().message;
    const AttentionSpec& spec = *config->default_spec;
    EXPECT_EQ(loaded->resolve(spec.backend, problem, &spec, context).lossy, lossy) << json;
  }
}

}  // namespace
}  // namespace fovea
