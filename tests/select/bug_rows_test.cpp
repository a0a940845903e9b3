// Faults reported of other projects' selection, by their row in the list of bug reports.
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "fovea/fovea.hpp"
#include "tests/select/fakes.hpp"

namespace fovea {
namespace {

using test::FakeBackend;
using test::FakePlatform;
using test::Registered;

class SelectionBugReports : public ::testing::Test {
 protected:
  SelectionBugReports() {
    set_log_level(LogLevel::info);
    set_log_sink([this](LogLevel level, std::string_view line) {
      lines.push_back(std::string(name(level)) + ": " + std::string(line));
    });
  }
  ~SelectionBugReports() override {
    set_log_sink({});
    set_log_level(LogLevel::warning);
  }

  static Explanation explained(std::string_view config, PlatformId platform, const char* facts,
                               const char* problem, bool mask_free = false) {
    ExecutionContext context;
    context.facts = *parse_facts(platform, facts);
    context.local = false;
    ExplainQuery query;
    query.problem = *parse_problem(problem);
    query.policy.mask_free = mask_free;
    return explain(*parse_config(config), make_platform(context.facts), {query}, context);
  }
  static const TrailEntry* step(const ExplainEntry& entry, BackendName backend) {
    for (const TrailEntry& each : entry.trail)
      if (each.backend == backend) return &each;
    return nullptr;
  }
  int count_lines(std::string_view part) const {
    return static_cast<int>(std::count_if(lines.begin(), lines.end(), [&](const std::string& line) {
      return line.find(part) != std::string::npos;
    }));
  }

  std::vector<std::string> lines;
};

// Tensors of one call, filled with a smooth pattern.
struct Call {
  Call(int64_t seq, int64_t heads_q, int64_t heads_kv, int64_t head_dim)
      : q(static_cast<size_t>(seq * heads_q * head_dim)),
        k(static_cast<size_t>(seq * heads_kv * head_dim)),
        v(k.size()) {
    for (size_t i = 0; i < q.size(); ++i) q[i] = std::sin(0.31f * static_cast<float>(i));
    for (size_t i = 0; i < k.size(); ++i) k[i] = std::cos(0.17f * static_cast<float>(i));
    for (size_t i = 0; i < v.size(); ++i) v[i] = std::sin(0.05f * static_cast<float>(i) + 1);
    tensors.q = make_view(q.data(), kF32, {1, seq, heads_q, head_dim});
    tensors.k = make_view(k.data(), kF32, {1, seq, heads_kv, head_dim});
    tensors.v = make_view(v.data(), kF32, {1, seq, heads_kv, head_dim});
  }
  std::vector<float> q, k, v;
  AttentionTensors tensors;
};

AttentionConfig config_of(std::string_view json) { return *parse_config(json); }

std::vector<float> values(const OwnedTensor& tensor) {
  const auto* data = static_cast<const float*>(tensor.view().data);
  return {data, data + tensor.view().numel()};
}

TEST_F(SelectionBugReports, BugRow28_TwentyEightHeadsOnSevenEqualTheirRepetition) {
  Call grouped(33, 28, 7, 16), repeated(33, 28, 28, 16);
  const auto layer = Attention::create({}, config_of(R"({"default": "FLASH_ATTN"})"));
  ASSERT_TRUE(layer.has_value());
  for (size_t token = 0; token < 33; ++token)
    for (size_t head = 0; head < 28; ++head)
      for (size_t d = 0; d < 16; ++d) {
        const size_t from = (token * 7 + head / 4) * 16 + d, to = (token * 28 + head) * 16 + d;
        repeated.k[to] = grouped.k[from];
        repeated.v[to] = grouped.v[from];
      }
  const auto one = (*layer)(grouped.tensors);
  const auto other = (*layer)(repeated.tensors);
  ASSERT_TRUE(one.has_value()) << one.error().message;
  ASSERT_TRUE(other.has_value());
  const auto a = values(one->out), b = values(other->out);
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 2e-6) << i;
  // A ratio that a split over ranks has broken is refused by both numbers.
  Call broken(4, 14, 4, 16);
  const auto refused = (*layer)(broken.tensors);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("14"), std::string::npos);
  EXPECT_NE(refused.error().message.find("4"), std::string::npos);
}

TEST_F(SelectionBugReports, BugRow32_ALossyBackendIsNeverChosenAutomatically) {
  const Explanation e = explained("{}", PlatformId::cuda, "sm=120,sageattn3=1.0,cudnn=9.19",
                                  "bf16 b1 h28 hk=4 s512 d128");
  EXPECT_NE(e.entries[0].report.backend, backend::SAGE_ATTN_3);
  const TrailEntry* sage = step(e.entries[0], backend::SAGE_ATTN_3);
  EXPECT_TRUE(sage == nullptr || sage->verdict != TrailVerdict::selected);
  const Explanation asked = explained(R"({"default": "SAGE_ATTN_3"})", PlatformId::cuda,
                                      "sm=120,sageattn3=1.0", "bf16 b1 h28 hk=4 s512 d128");
  EXPECT_EQ(asked.entries[0].report.support, SupportStatus::unsupported);
  ASSERT_FALSE(asked.entries[0].report.reasons.empty());
  EXPECT_EQ(asked.entries[0].report.reasons[0].code, ReasonCode::heads);
  // Preferred, it is passed over, and explain says why.
  const Explanation preferred =
      explained(R"({"default": {"backend": "SAGE_ATTN_3", "strictness": "prefer"}})",
                PlatformId::cuda, "sm=120,sageattn3=1.0,cudnn=9.19", "bf16 b1 h28 hk=4 s512 d128");
  const ExplainEntry& entry = preferred.entries[0];
  EXPECT_NE(entry.report.support, SupportStatus::unsupported) << sentence(entry.report.reasons);
  EXPECT_EQ(entry.report.backend, backend::CUDNN_ATTN);
  const TrailEntry* passed = step(entry, backend::SAGE_ATTN_3);
  ASSERT_NE(passed, nullptr);
  EXPECT_EQ(passed->verdict, TrailVerdict::rejected);
  ASSERT_FALSE(passed->reasons.empty());
  EXPECT_EQ(passed->reasons[0].code, ReasonCode::heads);
  EXPECT_EQ(passed->reasons[0].got, "4");
}

TEST_F(SelectionBugReports, BugRow51_AMissingKernelImageIsKnownBeforeAnythingIsLoaded) {
  const Explanation family = explained(R"({"default": "FLASH_ATTN_3"})", PlatformId::cuda, "sm=8.9",
                                       "bf16 b1 h8 s512 d128");
  ASSERT_TRUE(family.refused);
  EXPECT_EQ(family.entries[0].report.reasons[0].code, ReasonCode::architecture);
  EXPECT_EQ(family.entries[0].report.reasons[0].got, "sm_89");
  EXPECT_EQ(family.entries[0].report.reasons[0].accepted, "sm_90");
  const Explanation binary = explained(R"({"default": "FLASH_ATTN"})", PlatformId::cuda,
                                       "sm=89,kernels=sm_90a", "bf16 b1 h8 s512 d128");
  ASSERT_TRUE(binary.refused);
  EXPECT_NE(sentence(binary.entries[0].report.reasons).find("built for sm_90a, device is sm_89"),
            std::string::npos);
}

TEST_F(SelectionBugReports, BugRow52_LogReceiptAndKernelAgree) {
  const auto layer = Attention::create(
      {}, config_of(R"({"default": {"backend": "FLASH_ATTN_3", "strictness": "prefer"}})"));
  ASSERT_TRUE(layer.has_value());
  Call call(9, 2, 2, 8);
  const auto result = (*layer)(call.tensors);
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_EQ(result->receipt->backend, backend::FLASH_ATTN);
  EXPECT_TRUE(result->receipt->path.starts_with("cpu."));
  EXPECT_EQ(result->receipt->compute_qk, "f32");
  ASSERT_TRUE(result->receipt->fallback.has_value());
  EXPECT_EQ(result->receipt->fallback->from, backend::FLASH_ATTN_3);
  EXPECT_EQ(count_lines("FLASH_ATTN_3 was preferred"), 1);
  EXPECT_EQ(count_lines("running FLASH_ATTN"), 1);
  EXPECT_EQ(count_lines("Resolved attention backend FLASH_ATTN for"), 1);
}

TEST_F(SelectionBugReports, BugRow53_AnIncompletePackageHasOneCause) {
  const Explanation e = explained(R"({"default": "FLASHINFER_ATTN"})", PlatformId::cuda,
                                  "sm=90,flashinfer=0.6.18", "bf16 b1 h8 s512 d128");
  ASSERT_EQ(e.entries[0].report.reasons.size(), 1u);
  EXPECT_EQ(e.entries[0].report.reasons[0].code, ReasonCode::package);
  EXPECT_EQ(e.entries[0].report.reasons[0].got,
            "0.6.18 without BatchPrefillWithRaggedKVCacheWrapper");
  // One line of the log, and it says the same.
  lines.clear();
  const Explanation preferred =
      explained(R"({"default": {"backend": "FLASHINFER_ATTN", "strictness": "prefer"}})",
                PlatformId::cuda, "sm=90,flashinfer=0.6.18", "bf16 b1 h8 s512 d128");
  EXPECT_EQ(preferred.entries[0].report.backend, backend::FLASH_ATTN);
  EXPECT_EQ(count_lines("FLASHINFER_ATTN"), 1);
  EXPECT_EQ(count_lines("without BatchPrefillWithRaggedKVCacheWrapper"), 1);
}

TEST_F(SelectionBugReports, BugRow54_OddVersionsAreReadOrCalledNotUnderstood) {
  EXPECT_EQ(parse_version("2.8.0.post1+cu13"), (Version{2, 8, 0}));
  EXPECT_FALSE(parse_version("unknown").has_value());
  EXPECT_FALSE(parse_version("").has_value());
  for (const char* version : {"2.8.0.post1+cu13", "unknown"}) {
    const Explanation e = explained(
        R"({"default": {"backend": "FLASH_ATTN", "provider": "package"}})", PlatformId::cuda,
        (std::string("sm=90,flash_attn=") + version).c_str(), "bf16 b1 h8 s512 d128");
    EXPECT_EQ(e.entries[0].report.support, SupportStatus::unmigrated)
        << version << ": " << sentence(e.entries[0].report.reasons);
  }
  for (const char* facts : {"sm=100,cudnn=unknown", "sm=100,cudnn="}) {
    const Explanation e = explained("{}", PlatformId::cuda, facts, "bf16 b1 h8 s512 d128");
    const TrailEntry* cudnn = step(e.entries[0], backend::CUDNN_ATTN);
    ASSERT_NE(cudnn, nullptr);
    EXPECT_NE(sentence(cudnn->reasons).find("version not understood"), std::string::npos)
        << facts << ": " << sentence(cudnn->reasons);
  }
}

TEST_F(SelectionBugReports, BugRow57_WhatIsAskedForRunsOrIsAnErrorWithAHint) {
  const Explanation sage =
      explained(R"({"default": "SAGE_ATTN"})", PlatformId::cuda, "sm=90", "bf16 b1 h8 s512 d128");
  EXPECT_TRUE(sage.refused);
  EXPECT_EQ(sage.entries[0].trail.size(), 1u) << "nothing else is tried";
  EXPECT_NE(sentence(sage.entries[0].report.reasons).find("pip install"), std::string::npos);
  // A model that is right with one backend only pins it for its role.
  AttentionConfig pinned = config_of(R"({"per_role": {"video.self": "FASTVIDEO_VSA"}})");
  LayerOptions options;
  options.role = "video.self";
  const auto layer = Attention::create(options, pinned);
  ASSERT_TRUE(layer.has_value());
  Call call(4, 1, 1, 8);
  const auto refused = (*layer)(call.tensors);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("FASTVIDEO_VSA"), std::string::npos);
  EXPECT_NE(refused.error().message.find("per_role['video.self']"), std::string::npos);
}

TEST_F(SelectionBugReports, BugRow59_SparseSelfAttentionLeavesCrossAttentionDense) {
  const Registered radial(backend::RADIAL_ATTN, std::make_shared<FakeBackend>("test:radial"));
  const Registered flash(backend::FLASH_ATTN, std::make_shared<FakeBackend>("test:flash"));
  auto platform = std::make_shared<FakePlatform>();
  platform->order = {backend::FLASH_ATTN};
  const AttentionConfig config = config_of(
      R"({"per_role": {"self": {"backend": "RADIAL_ATTN", "radial": {"dense_timesteps": 0}}}})");
  ExplainQuery self, cross;
  self.role = "wan.self";
  self.category = "self";
  cross.role = "wan.cross.text";
  cross.category = "cross";
  const Explanation e = explain(config, platform, {self, cross}, {});
  EXPECT_EQ(e.entries[0].report.backend, backend::RADIAL_ATTN);
  EXPECT_EQ(e.entries[1].report.backend, backend::FLASH_ATTN);
  EXPECT_EQ(e.entries[1].source, "platform default");
  EXPECT_FALSE(e.refused);
  // A sparse default, and the category says what cannot be sparse.
  const Explanation by_category =
      explain(config_of(R"({"default": {"backend": "RADIAL_ATTN", "radial": {"dense_timesteps": 0}},
                    "per_role": {"cross": "FLASH_ATTN"}})"),
              platform, {self, cross}, {});
  EXPECT_EQ(by_category.entries[0].report.backend, backend::RADIAL_ATTN);
  EXPECT_EQ(by_category.entries[1].report.backend, backend::FLASH_ATTN);
  EXPECT_EQ(by_category.entries[1].source,
            "attention_config.per_role['cross'] (role_category fallback)");
  EXPECT_FALSE(by_category.refused);
}

TEST_F(SelectionBugReports, BugRow60_EveryKnobChangesTheReceiptOrIsRejected) {
  Call call(6, 2, 2, 8);
  const auto run = [&](const std::string& entry) {
    const auto layer = Attention::create({}, config_of("{\"default\": {" + entry + "}}"));
    EXPECT_TRUE(layer.has_value());
    return (*layer)(call.tensors);
  };
  const auto plain = run(R"("backend": "FLASH_ATTN")");
  ASSERT_TRUE(plain.has_value());
  for (const char* provider : {"cudnn", "package"}) {
    const auto refused =
        run(std::string(R"("backend": "FLASH_ATTN", "provider": ")") + provider + "\"");
    ASSERT_FALSE(refused.has_value()) << provider;
    EXPECT_EQ(refused.error().reasons[0].code, ReasonCode::provider);
  }
  EXPECT_TRUE(run(R"("backend": "FLASH_ATTN", "provider": "fovea")").has_value());
  EXPECT_EQ(run(R"("backend": "REFERENCE")")->receipt->backend, backend::REFERENCE);
  EXPECT_NE(values(run(R"("backend": "FLASH_ATTN", "scale": 2.0)")->out), values(plain->out));
  EXPECT_NE(values(run(R"("backend": "FLASH_ATTN", "is_causal": true)")->out), values(plain->out));
  EXPECT_FALSE(parse_config(R"({"default": {"backend": "FLASH_ATTN", "use_cudnn": true}})"));
}

TEST_F(SelectionBugReports, BugRow64_ExplainShowsThePinAndWhoWins) {
  const AttentionConfig config =
      config_of(R"({"default": "FLASH_ATTN", "per_role": {"vae": "TORCH_SDPA"}})");
  ExplainQuery vae, self;
  vae.role = "vae";
  const Explanation e = explain(config, make_platform(*probe_cpu()), {vae, self}, {});
  EXPECT_EQ(e.entries[0].report.backend, backend::TORCH_SDPA);
  EXPECT_EQ(e.entries[0].source, "attention_config.per_role['vae']");
  EXPECT_EQ(e.entries[1].report.backend, backend::FLASH_ATTN);
  EXPECT_EQ(e.entries[1].source, "attention_config.default");
  // A pin of a category and a user's choice for the role: the role wins, and the entry is named.
  ExplainQuery wan;
  wan.role = "wan.self";
  wan.category = "self";
  for (const auto& [json, wins, source] :
       {std::tuple(R"({"per_role": {"self": "TORCH_SDPA", "wan.self": "REFERENCE"}})",
                   backend::REFERENCE, "attention_config.per_role['wan.self']"),
        std::tuple(R"({"per_role": {"self": "TORCH_SDPA"}})", backend::TORCH_SDPA,
                   "attention_config.per_role['self'] (role_category fallback)")}) {
    const Explanation pinned = explain(config_of(json), make_platform(*probe_cpu()), {wan}, {});
    EXPECT_EQ(pinned.entries[0].report.backend, wins);
    EXPECT_EQ(pinned.entries[0].source, source);
  }
}

TEST_F(SelectionBugReports, BugRow65_TheHeadSizeOfAPlanIsFixed) {
  const auto layer = Attention::create({}, config_of(R"({"default": "FLASH_ATTN"})"));
  ASSERT_TRUE(layer.has_value());
  const auto plan = layer->plan(*parse_problem("f32 b1 h2 s6 d8"));
  ASSERT_TRUE(plan.has_value());
  Call other(6, 2, 2, 16);
  std::vector<float> out(6 * 2 * 16);
  other.tensors.out = make_view(out.data(), kF32, {1, 6, 2, 16});
  std::vector<std::byte> scratch((*plan)->workspace_bytes() + 256);
  const Status status = (*plan)->run(other.tensors, {scratch.data(), scratch.size()}, {});
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::invalid_tensor) << status.error().message;
}

TEST_F(SelectionBugReports, BugRow66_FortyLayersWarnOnce) {
  const AttentionConfig config =
      config_of(R"({"per_role": {"cross": {"backend": "SAGE_ATTN", "strictness": "prefer"}}})");
  LayerOptions options;
  options.role = "cross";
  Call call(4, 1, 1, 8);
  for (int index = 0; index < 40; ++index) {
    const auto layer = Attention::create(options, config);
    ASSERT_TRUE(layer.has_value());
    ASSERT_TRUE((*layer)(call.tensors).has_value());
  }
  EXPECT_EQ(count_lines("warning: SAGE_ATTN was preferred"), 1);
  EXPECT_EQ(count_lines("info: Resolved attention backend"), 1);
}

TEST_F(SelectionBugReports, BugRow67_AMasklessKernelIsTheDefaultOnlyForMaskFreeModels) {
  const char* facts = "sm=100,cudnn=9.19,flashinfer=0.6.18,trtllm=1";
  const Explanation masked =
      explained("{}", PlatformId::cuda, facts, "bf16 b1 h24 s4608 d128 mask=keys");
  const TrailEntry* skipped = step(masked.entries[0], backend::TRTLLM_ATTN);
  ASSERT_NE(skipped, nullptr);
  EXPECT_EQ(skipped->verdict, TrailVerdict::rejected);
  EXPECT_EQ(skipped->reasons[0].code, ReasonCode::mask_free);
  const Explanation free =
      explained("{}", PlatformId::cuda, facts, "bf16 b1 h40 s32760 d128", true);
  EXPECT_EQ(free.entries[0].report.backend, backend::TRTLLM_ATTN);
}

TEST_F(SelectionBugReports, BugRow74_DenseStepsRunTheNamedDenseBackend) {
  const Registered radial(backend::RADIAL_ATTN, std::make_shared<FakeBackend>("test:radial"));
  const AttentionConfig config = config_of(R"({"default": {"backend": "RADIAL_ATTN",
      "radial": {"dense_timesteps": 3, "dense_backend": "REFERENCE"}}})");
  auto platform = std::make_shared<FakePlatform>();
  platform->order = {backend::FLASH_ATTN};
  const Registered reference(backend::REFERENCE, std::make_shared<FakeBackend>("test:ref"));
  const auto e = explain_schedule(config, nullptr, platform, {ExplainQuery{}}, {{5, 1, {}}}, {});
  ASSERT_TRUE(e) << e.error().message;
  ASSERT_EQ(e->entries.size(), 2u);
  EXPECT_EQ(e->entries[0].report.path, "test:ref");
  EXPECT_EQ(e->entries[0].steps, "0-2");
  EXPECT_EQ(e->entries[1].report.path, "test:radial");
}

}  // namespace
}  // namespace fovea
