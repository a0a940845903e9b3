// Supported on an accelerator is a matter of record.
#include "fovea/validation.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "fovea/explain.hpp"
#include "tests/platform/policy_cases.hpp"

namespace fovea {
namespace {

using namespace policy_cases;

const char* const kProblems[] = {
    "bf16 b1 h4 s256 d64",
    "bf16 b1 h4 s256 d128",
    "f16 b2 h4 s256 d128 mask=causal lse=1",
    "bf16 b2 h4 s256 d128 mask=keys",
    "bf16 b1 h4 s256 d128 layout=packed docs=100:100,156:156",
    "f32 b1 h4 s256 d64",
    "bf16 b1 h4 s256 d128 sparse=radial(frames=2)",
};

// The answers of every name on every described accelerator.
std::vector<ExplainEntry> accelerator_answers(const DevicePreset& preset, const char* problem) {
  std::vector<ExplainEntry> out;
  ExecutionContext context;
  context.facts = *preset_facts(preset.name);
  context.local = false;
  for (const BackendName backend : all_backends()) {
    AttentionConfig config;
    config.default_spec.emplace().backend = backend;
    ExplainQuery query;
    query.problem = *parse_problem(problem);
    const Explanation e = explain(config, make_platform(context.facts), {query}, context);
    out.push_back(e.entries.front());
  }
  return out;
}

TEST(Validation, ASupportedAnswerOnAnAcceleratorHasItsCommittedRecord) {
  int answers = 0;
  for (const DevicePreset& preset : device_presets()) {
    if (preset.platform == PlatformId::cpu) continue;
    const DeviceFacts facts = *preset_facts(preset.name);
    for (const char* problem : kProblems) {
      for (const ExplainEntry& entry : accelerator_answers(preset, problem)) {
        if (entry.report.support == SupportStatus::unsupported) continue;
        ++answers;
        const ValidationRecord* record = find_validation_record(entry.report.path, facts);
        EXPECT_EQ(entry.report.support == SupportStatus::supported,
                  record != nullptr && covers(*record, *parse_problem(problem)))
            << preset.name << ' ' << name(entry.report.backend) << ' ' << entry.report.path;
        if (record != nullptr && covers(*record, *parse_problem(problem))) continue;
        ASSERT_FALSE(entry.report.reasons.empty()) << entry.report.path;
        EXPECT_EQ(entry.report.reasons.back().code, ReasonCode::unvalidated) << entry.report.path;
        EXPECT_NE(entry.report.reasons.back().remedy.find("--record"), std::string::npos);
      }
    }
  }
  EXPECT_GT(answers, 20);
}

TEST(Validation, ARecordCoversTheKindsThatPassed) {
  struct Row {
    const char* problem;
    bool ValidationRecord::*needs;
  };
  for (const Row& row :
       {Row{"bf16 b2 h4 s64 d64 kvlen=64,3", &ValidationRecord::key_padding},
        Row{"bf16 b2 h4 s64 d64 mask=keys", &ValidationRecord::key_padding},
        Row{"bf16 b2 h4 s64 d64 sk=65", &ValidationRecord::unequal_lengths},
        Row{"bf16 b1 h4 s64 d64 layout=packed docs=30:30,34:34", &ValidationRecord::packed}}) {
    const Problem problem = *parse_problem(row.problem);
    ValidationRecord record;
    EXPECT_FALSE(covers(record, problem)) << row.problem;
    record.*row.needs = true;
    EXPECT_TRUE(covers(record, problem)) << row.problem;
  }
  EXPECT_TRUE(covers({}, *parse_problem("bf16 b2 h4 s64 d64 lse=1")));
  ValidationRecord all;
  all.key_padding = all.unequal_lengths = all.packed = true;
  for (const char* outside :
       {"f16 b1 h1 s64 d64", "f32 b1 h1 s64 d64", "bf16 b1 h1 s64 d64 out=f32",
        "bf16 b1 h1 s64 d264", "bf16 b1 h1 s64 d64 mask=causal", "bf16 b1 h1 s64 d64 window=8,8",
        "bf16 b1 h1 s64 d64 mask=bias"})
    EXPECT_FALSE(covers(all, *parse_problem(outside))) << outside;
}

TEST(Validation, EveryRecordIsAFileOfTheTree) {
  for (const ValidationRecord& record : validation_records()) {
    SCOPED_TRACE(record.file);
    EXPECT_EQ(record.file,
              std::string(record.path) + "-" + std::string(record.device_class) + ".json");
    EXPECT_TRUE(std::filesystem::exists(std::string(FOVEA_SOURCE_DIR) + "/docs/validation/" +
                                        std::string(record.file)));
  }
}

TEST(Validation, MindIeAndAiterStayUnmigrated) {
  for (const char* device : {"mi300x", "ascend910b"}) {
    const DevicePreset* preset = nullptr;
    for (const DevicePreset& each : device_presets())
      if (each.name == device) preset = &each;
    ASSERT_NE(preset, nullptr);
    int unmigrated = 0;
    for (const ExplainEntry& entry : accelerator_answers(*preset, kProblems[1])) {
      EXPECT_NE(entry.report.support, SupportStatus::supported) << name(entry.report.backend);
      unmigrated += entry.report.support == SupportStatus::unmigrated;
    }
    EXPECT_GT(unmigrated, 1) << device;
  }
}

TEST(Validation, ARecordCoversOneKindOfDevice) {
  EXPECT_EQ(device_class(*parse_facts(PlatformId::cuda, "sm=90,cudnn=9.19")), "sm_90");
  EXPECT_EQ(device_class(*parse_facts(PlatformId::rocm, "gfx=gfx942")), "gfx942");
  EXPECT_EQ(device_class(*parse_facts(PlatformId::npu, "mindiesd=3.1")), "npu");
  EXPECT_EQ(device_class(*parse_facts(PlatformId::cpu, "isa=avx2")), "cpu");
  EXPECT_EQ(find_validation_record("cuda.no_such_path", *parse_facts(PlatformId::cuda, "sm=90")),
            nullptr);
}

TEST(Validation, TheCommandSaysWhatToRun) {
  EXPECT_EQ(validation_command(backend::FLASH_ATTN_3, "cuda.flash_sm90",
                               *parse_facts(PlatformId::cuda, "sm=90")),
            "fovea check --contract --backend FLASH_ATTN_3 --device cuda --record "
            "docs/validation/cuda.flash_sm90-sm_90.json");
}

}  // namespace
}  // namespace fovea
