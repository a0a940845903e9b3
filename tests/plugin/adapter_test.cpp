// Every wrong answer of a plugin's backend is survived and explained.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>

#include "fovea/attention.hpp"
#include "fovea/plugin_loader.hpp"
#include "fovea/registry.hpp"

namespace fovea {
namespace {

namespace fs = std::filesystem;

class PluginAdapter : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    file_ = fs::canonical(FAULTY_PLUGIN).string();
    ASSERT_TRUE(enable_plugin_paths().has_value());
  }

  static std::shared_ptr<const Backend> load(const std::string& fault) {
    auto loaded = load_backend(backend::SAGE_ATTN, "plugin:" + file_ + "#" + fault);
    EXPECT_TRUE(loaded.has_value()) << loaded.error().message;
    return loaded ? *loaded : nullptr;
  }
  static Problem problem() {
    Problem p = *parse_problem("f32 b1 h1 s2 d4");
    return p;
  }
  static ExecutionPathResult resolve(const std::string& fault,
                                     const AttentionSpec* spec = nullptr) {
    return load(fault)->resolve(backend::SAGE_ATTN, problem(), spec, {});
  }
  static Result<std::unique_ptr<Plan>> plan(const std::string& fault) {
    return load(fault)->plan(backend::SAGE_ATTN, problem(), nullptr, {});
  }
  static Status run(const std::string& fault) {
    auto made = plan(fault);
    if (!made) return made.error();
    std::array<float, 8> q{}, k{}, v{}, out{};
    AttentionTensors t;
    t.q = make_view(q.data(), kF32, {1, 2, 1, 4});
    t.k = make_view(k.data(), kF32, {1, 2, 1, 4});
    t.v = make_view(v.data(), kF32, {1, 2, 1, 4});
    t.out = make_view(out.data(), kF32, {1, 2, 1, 4});
    return (*made)->run(t, {}, {});
  }
  static int released() {
    void* const handle = dlopen(file_.c_str(), RTLD_NOW | RTLD_NOLOAD);
    return reinterpret_cast<int (*)()>(dlsym(handle, "faulty_released"))();
  }

  static std::string file_;
};
std::string PluginAdapter::file_;

TEST_F(PluginAdapter, WrongReportsAreRefusals) {
  const struct {
    const char* fault;
    const char* cause;
  } cases[] = {
      {"resolve_throws", "resolve threw: out of coffee"},
      {"resolve_throws_number", "resolve threw: an exception of an unknown type"},
      {"resolve_code", "resolve failed (not_available): the licence expired"},
      {"resolve_unknown_code", "resolve returned the unknown code 12345"},
      {"no_reason", "refused without a reason"},
      {"support_range", "support 9, which is not in 0..2"},
      {"mode_range", "compilation_mode -1, which is not in 0..2"},
      {"density_range", "density nan"},
      {"report_workspace", "workspace of 18446744073709551615 bytes"},
      {"null_reason", "reason is NULL"},
      {"reason_size", "struct_size 3"},
      {"unknown_reason", "reason code 'phase_of_moon' is not known here"},
  };
  for (const auto& c : cases) {
    const ExecutionPathResult r = resolve(c.fault);
    EXPECT_EQ(r.support, SupportStatus::unsupported) << c.fault;
    ASSERT_FALSE(r.reasons.empty()) << c.fault;
    EXPECT_EQ(r.reasons[0].code, ReasonCode::plugin) << c.fault;
    EXPECT_NE(sentence(r.reasons).find(c.cause), std::string::npos) << sentence(r.reasons);
    const auto planned = plan(c.fault);
    ASSERT_FALSE(planned.has_value()) << c.fault;
    EXPECT_EQ(planned.error().reasons, r.reasons) << c.fault;
  }
}

TEST_F(PluginAdapter, ReasonsCrossAsData) {
  const ExecutionPathResult r = resolve("refuses");
  const std::vector<Reason> expected = {{ReasonCode::head_dim, "head_dim", "80", "64", "pad it"}};
  EXPECT_EQ(r.reasons, expected);
  EXPECT_EQ(r.provider, "plugin faulty 0.1");
  const std::vector<Reason> shorter = {{ReasonCode::head_dim, "head_dim", "80", "", ""}};
  EXPECT_EQ(resolve("reason_old").reasons, shorter);
  EXPECT_EQ(resolve("reason_null_strings").reasons.size(), 1u);
  EXPECT_EQ(resolve("many_reasons").reasons.size(), 32u);
}

TEST_F(PluginAdapter, ReportsAreCleaned) {
  EXPECT_EQ(resolve("not_utf8").path, "cpu.?");
  EXPECT_EQ(resolve("run_code").path, "plugin.run_code");
  EXPECT_EQ(resolve("supported").support, SupportStatus::supported);
  ExecutionContext cuda;
  cuda.facts = *parse_facts(PlatformId::cuda, "sm=90");
  cuda.local = false;
  EXPECT_EQ(load("supported")->resolve(backend::SAGE_ATTN, problem(), nullptr, cuda).support,
            SupportStatus::unmigrated);
}

// Boundaries and lengths that were made from metadata lie on the host, where a device has none.
TEST_F(PluginAdapter, NumbersInHostMemoryAreRefusedOnADevice) {
  const auto answer = [](PlatformId platform, const char* facts, bool documents, bool lengths) {
    ExecutionContext context;
    context.facts = *parse_facts(platform, facts);
    context.local = false;
    context.host_documents = documents;
    context.host_lengths = lengths;
    return load("supported")->resolve(backend::SAGE_ATTN, problem(), nullptr, context);
  };
  for (const bool documents : {true, false}) {
    const ExecutionPathResult r = answer(PlatformId::cuda, "sm=90", documents, !documents);
    EXPECT_EQ(r.support, SupportStatus::unsupported);
    ASSERT_EQ(r.reasons.size(), 1u);
    EXPECT_EQ(r.reasons[0].field, documents ? "packed_padding" : "valid_kv_length");
    EXPECT_FALSE(r.reasons[0].remedy.empty());
  }
  EXPECT_EQ(answer(PlatformId::cpu, "isa=avx2", true, true).support, SupportStatus::supported);
}

TEST_F(PluginAdapter, OptionsThatThePluginDoesNotReadAreRefused) {
  AttentionSpec spec;
  spec.backend = backend::SAGE_ATTN;
  EXPECT_EQ(resolve("supported", &spec).support, SupportStatus::supported);
  spec.quant = QuantOptions{};
  const ExecutionPathResult r = resolve("supported", &spec);
  EXPECT_EQ(r.support, SupportStatus::unsupported);
  ASSERT_EQ(r.reasons.size(), 1u);
  EXPECT_EQ(r.reasons[0].code, ReasonCode::option_owner);
  EXPECT_EQ(r.reasons[0].got, "quant");
}

// A plugin that reads options is told whether tiles may be skipped in this call.
TEST_F(PluginAdapter, TheGateOfSkipSoftmaxCrossesDecided) {
  const auto told = [](const AttentionSpec* spec, std::optional<double> timestep) {
    ExecutionContext context;
    context.timestep = timestep;
    return load("tells_skip")
        ->resolve(backend::TRTLLM_ATTN, *parse_problem("f32 b1 h1 s2 d4 sk=8"), spec, context)
        .path;
  };
  AttentionSpec spec;
  spec.backend = backend::TRTLLM_ATTN;
  EXPECT_EQ(told(nullptr, 0.5), "nothing");
  EXPECT_EQ(told(&spec, 0.5), "nothing");
  spec.skip_softmax.emplace().threshold = 0.25;
  EXPECT_EQ(told(&spec, {}), "skips/2.000000");
  spec.skip_softmax->disabled_until_timestep = 0.86;
  EXPECT_EQ(told(&spec, 0.86), "skips/2.000000");
  EXPECT_EQ(told(&spec, 0.87), "gated/2.000000");
  EXPECT_EQ(told(&spec, {}), "unknown_timestep/2.000000");
}

TEST_F(PluginAdapter, WrongPlansAreErrors) {
  const struct {
    const char* fault;
    ErrorCode code;
    const char* cause;
    int released;
  } cases[] = {
      {"plan_throws", ErrorCode::not_available, "plan threw: no plan", 0},
      {"plan_null", ErrorCode::not_available, "plan succeeded but returned NULL", 0},
      {"plan_code", ErrorCode::out_of_memory, "plan failed (out_of_memory): no room", 0},
      {"workspace_throws", ErrorCode::not_available, "workspace_bytes threw: no size", 1},
      {"workspace_size", ErrorCode::not_available, "workspace of 18446744073709551615 bytes", 1},
  };
  for (const auto& c : cases) {
    load(c.fault);
    const int before = released();
    const auto made = plan(c.fault);
    ASSERT_FALSE(made.has_value()) << c.fault;
    EXPECT_EQ(made.error().code, c.code) << c.fault;
    EXPECT_NE(made.error().message.find(c.cause), std::string::npos) << made.error().message;
    EXPECT_EQ(released() - before, c.released) << c.fault;
  }
}

TEST_F(PluginAdapter, WrongRunsAreErrors) {
  const struct {
    const char* fault;
    ErrorCode code;
    const char* cause;
  } cases[] = {
      {"run_throws", ErrorCode::not_available, "run threw: midway"},
      {"task_throws", ErrorCode::not_available, "a task of run threw an exception"},
      {"run_code", ErrorCode::device_error, "run failed (device_error): the device is gone"},
      {"run_unknown_code", ErrorCode::not_available, "run returned the unknown code -77"},
  };
  for (const auto& c : cases) {
    const Status status = run(c.fault);
    ASSERT_FALSE(status.has_value()) << c.fault;
    EXPECT_EQ(status.error().code, c.code) << c.fault;
    EXPECT_NE(status.error().message.find(c.cause), std::string::npos) << status.error().message;
  }
  EXPECT_TRUE(run("supported").has_value());
  EXPECT_TRUE(run("release_throws").has_value());
}

TEST_F(PluginAdapter, OlderBackendsRunWithoutTheEntriesTheyLack) {
  const fs::path old = fs::path(testing::TempDir()) / "backend_old.so";
  fs::remove(old);
  fs::copy_file(FAULTY_PLUGIN, old);
  auto loaded = load_backend(backend::SAGE_ATTN, "plugin:" + old.string() + "#workspace_size");
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
  const auto made = (*loaded)->plan(backend::SAGE_ATTN, problem(), nullptr, {});
  ASSERT_TRUE(made.has_value()) << made.error().message;
  EXPECT_EQ((*made)->workspace_bytes(), 0u);
}

}  // namespace
}  // namespace fovea
