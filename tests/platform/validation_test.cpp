// Supported on an accelerator is a matter of record.
#include "fovea/validation.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "fovea/explain.hpp"
#include "src/platform/policy.hpp"
#include "src/select/assumed_state.hpp"
#include "tests/platform/policy_cases.hpp"
#include "tests/select/vendor_record.hpp"

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
    "bf16 b1 h4 s256 d64 sparse=local(frames=2)",
    "bf16 b1 h4 s256 d128 sparse=mask(q=128,kv=64,most=3)",
    "bf16 b1 h4 s256 d128 sparse=topk(sparsity=0.5)",
};

// The problem as the name's answer is about: with the video pattern that its spec stands for.
Problem judged(BackendName backend, const char* problem) {
  AttentionSpec spec;
  spec.backend = backend;
  Problem asked = *parse_problem(problem);
  ExecutionContext context;
  assume_sparse_state(&spec, 0, 0, asked, context);
  return asked;
}

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
        const ValidatedPath path{entry.report.backend, entry.report.provider, entry.report.path};
        const ValidationRecord* record = find_validation_record(path, facts);
        const bool verified =
            record != nullptr && covers(*record, judged(entry.report.backend, problem));
        EXPECT_EQ(entry.report.support == SupportStatus::supported, verified)
            << preset.name << ' ' << name(entry.report.backend) << ' ' << entry.report.path;
        if (verified) {
          EXPECT_EQ(record->backend, name(entry.report.backend));
          continue;
        }
        ASSERT_FALSE(entry.report.reasons.empty()) << entry.report.path;
        EXPECT_EQ(entry.report.reasons.back().code, ReasonCode::unvalidated) << entry.report.path;
        EXPECT_NE(entry.report.reasons.back().remedy.find("--record"), std::string::npos);
      }
    }
  }
  EXPECT_GT(answers, 20);
}

// The sparse names answer on accelerators, and none of them is supported without its own record.
TEST(Validation, SparseAnswersNeedTheirOwnRecord) {
  const DeviceFacts facts = *preset_facts("h200");
  const struct {
    BackendName backend;
    const char* problem;
    const char* kind;
  } rows[] = {
      {backend::RADIAL_ATTN, "bf16 b1 h4 s256 d128 sparse=radial(frames=2)", "radial"},
      {backend::LOCAL_SPARSE_ATTN, "bf16 b1 h4 s256 d128 sparse=local(frames=2)", "local window"},
      {backend::BLOCK_SPARSE_ATTN, "bf16 b1 h4 s256 d128 sparse=mask(q=128,kv=64,most=3)",
       "block lists"},
      {backend::SPARGE_ATTN, "bf16 b1 h4 s256 d128 sparse=topk(sparsity=0.5)", "top-k"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(name(row.backend));
    const Problem problem = *parse_problem(row.problem);
    EXPECT_EQ(validation_kinds(problem), std::vector<std::string>{row.kind});
    const std::string own = name(row.backend);
    const ValidationRecord record{"f.json", own,     "fovea", "",       "cuda.block_sparse_sm90",
                                  "cuda",   "sm_90", "",      row.kind, ""};
    const ValidatedPath path{row.backend, "fovea", "cuda.block_sparse_sm90"};
    EXPECT_EQ(find_validation_record(path, facts, {&record, 1}), &record);
    EXPECT_TRUE(covers(record, problem));
    // That of another name, of dense problems, or of unpadded ones does not count.
    const ValidatedPath other{backend::FLASH_ATTN_3, "fovea", "cuda.block_sparse_sm90"};
    EXPECT_EQ(find_validation_record(other, facts, {&record, 1}), nullptr);
    // Without a pattern SPARGE_ATTN chooses its blocks.
    EXPECT_EQ(covers(record, *parse_problem("bf16 b1 h4 s256 d128")),
              row.backend == backend::SPARGE_ATTN);
    Problem padded = problem;
    padded.has_kv_lengths = true;
    EXPECT_FALSE(covers(record, padded));
  }
}

// A problem without a pattern is of the blocks that the name's options choose.
TEST(Validation, ChosenBlocksAreTopKWithoutAPattern) {
  const Problem problem = *parse_problem("bf16 b2 h4 s256 d128 kvlen=256,3");
  const DeviceFacts facts = *preset_facts("h200");
  for (const BackendName chooses : {backend::SPARGE_ATTN, backend::BLOCK_SPARSE_ATTN}) {
    const std::string own = name(chooses);
    ValidationRecord record{"f.json", own,     "fovea", "",      "cuda.block_sparse_sm90",
                            "cuda",   "sm_90", "",      "top-k", ""};
    const ValidatedPath path{chooses, "fovea", "cuda.block_sparse_sm90"};
    EXPECT_FALSE(covers(record, problem)) << own;
    EXPECT_EQ(missing_validation(path, problem, facts, {&record, 1}),
              "its validation record does not cover top-k key padding");
    record.kinds = "dense, key padding";
    EXPECT_FALSE(covers(record, problem)) << own;
    record.kinds = "top-k, top-k key padding";
    EXPECT_TRUE(covers(record, problem)) << own;
    // The sparse cases end at heads of 128.
    EXPECT_FALSE(covers(record, *parse_problem("bf16 b2 h4 s256 d136 kvlen=256,3"))) << own;
    EXPECT_FALSE(covers(record, *parse_problem("bf16 b2 h4 s256 d64 dv=256 sparse=topk"))) << own;
  }
}

TEST(Validation, ARecordCoversTheKindsThatPassed) {
  struct Row {
    const char* problem;
    const char* needs;
  };
  for (const Row& row :
       {Row{"bf16 b2 h4 s64 d64", "dense"}, Row{"bf16 b2 h4 s64 d64 kvlen=64,3", "key padding"},
        Row{"bf16 b2 h4 s64 d64 mask=keys", "key padding"},
        Row{"bf16 b2 h4 s64 d64 sk=65", "unequal lengths"},
        Row{"bf16 b2 h4 s64 d64 sk=65 mask=keys", "key padding, unequal lengths"},
        Row{"bf16 b1 h4 s64 d64 layout=packed docs=30:30,34:34", "packed"}}) {
    const Problem problem = *parse_problem(row.problem);
    ValidationRecord record;
    record.kinds = "replay";
    EXPECT_FALSE(covers(record, problem)) << row.problem;
    record.kinds = row.needs;
    EXPECT_TRUE(covers(record, problem)) << row.problem;
  }
  ValidationRecord all;
  all.kinds = "dense, key padding, unequal lengths, packed, replay";
  for (const char* outside :
       {"f16 b1 h1 s64 d64", "f32 b1 h1 s64 d64", "bf16 b1 h1 s64 d64 out=f32",
        "bf16 b1 h1 s64 d264", "bf16 b1 h1 s64 d64 mask=causal", "bf16 b1 h1 s64 d64 window=8,8",
        "bf16 b1 h1 s64 d64 mask=bias"})
    EXPECT_FALSE(covers(all, *parse_problem(outside))) << outside;
}

TEST(Validation, ARecordCountsForItsVersionOfTheLibrary) {
  const ValidationRecord record{"f.json", "CUDNN_ATTN", "cudnn", "9.14.0", "cuda.cudnn",
                                "cuda",   "sm_90",      "",      "dense",  ""};
  const ValidatedPath path{backend::CUDNN_ATTN, "cudnn", "cuda.cudnn"};
  const auto found = [&](const char* facts) {
    return find_validation_record(path, *parse_facts(PlatformId::cuda, facts), {&record, 1}) !=
           nullptr;
  };
  EXPECT_TRUE(found("sm=90,cudnn=9.14.0"));
  EXPECT_TRUE(found("sm=90,cudnn=9.14"));
  EXPECT_FALSE(found("sm=90,cudnn=9.19"));
  EXPECT_FALSE(found("sm=90,cudnn=unknown"));
  EXPECT_FALSE(found("sm=90"));
  EXPECT_FALSE(found("sm=100,cudnn=9.14.0"));
  const Problem problem = *parse_problem("bf16 b1 h1 s64 d64");
  EXPECT_EQ(missing_validation(path, problem, *parse_facts(PlatformId::cuda, "sm=90,cudnn=9.19"),
                               {&record, 1}),
            "its validation record is of cudnn 9.14.0");
  EXPECT_EQ(missing_validation(path, *parse_problem("bf16 b1 h1 s64 d64 mask=keys"),
                               *parse_facts(PlatformId::cuda, "sm=90,cudnn=9.14"), {&record, 1}),
            "its validation record does not cover key padding");
  EXPECT_EQ(missing_validation({backend::FLASH_ATTN, "fovea", "cuda.flash_sm90"}, problem,
                               *parse_facts(PlatformId::cuda, "sm=75"), {&record, 1}),
            "without a validation record");
}

TEST(Validation, AFileOfTheCallersIsReadLikeACommittedOne) {
  const test::VendorRecord sound;
  const auto file = ValidationFile::parse(sound.text(), "f.json");
  ASSERT_TRUE(file.has_value()) << file.error().message;
  ASSERT_EQ((*file)->records().size(), 1u);
  const ValidationRecord& row = (*file)->records().front();
  EXPECT_EQ(row.provider, "package fa4");
  EXPECT_EQ(row.library, "4.0.0b18");
  EXPECT_EQ(row.kinds, "dense, unequal lengths, replay");
  EXPECT_EQ(row.heads, "64/64");
  const auto refused = [](const test::VendorRecord& record, const char* cause) {
    const auto parsed = ValidationFile::parse(record.text(), "f.json");
    ASSERT_FALSE(parsed.has_value()) << cause;
    EXPECT_EQ(parsed.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(parsed.error().message.find(cause), std::string::npos) << parsed.error().message;
  };
  test::VendorRecord wrong = sound;
  wrong.pass = false;
  refused(wrong, "does not pass");
  wrong = sound;
  wrong.captured = false;
  refused(wrong, "not captured");
  wrong = sound;
  wrong.driver.clear();
  refused(wrong, "lacks driver");
  wrong = sound;
  wrong.kinds = {"dense"};
  refused(wrong, "'replay'");
  EXPECT_FALSE(ValidationFile::parse("{", "f.json").has_value());
  EXPECT_FALSE(ValidationFile::parse("{}", "f.json").has_value());
  EXPECT_EQ(ValidationFile::open("no/such/record.json").error().code, ErrorCode::invalid_file);
  EXPECT_EQ(ValidationFile::open(FOVEA_SOURCE_DIR).error().code, ErrorCode::invalid_file);
}

// docs/backends.md does not say "never run" of what a record shows.
TEST(Validation, WhatHasARecordHasRun) {
  for (const ValidationRecord& record : validation_records()) {
    SCOPED_TRACE(record.file);
    bool has_run = false;
    for (const platform::Row& row : platform::policy(*parse_platform(record.platform)).rows) {
      const bool packaged = row.provider == platform::Provider::package;
      if (name(row.backend) != record.backend ||
          packaged != record.provider.starts_with("package "))
        continue;
      if (packaged && record.provider.substr(8) != row.package) continue;
      has_run = has_run || !row.tried.empty();
    }
    EXPECT_TRUE(has_run);
  }
}

TEST(Validation, EveryRecordIsAFileOfTheTreeAndReadsTheSame) {
  EXPECT_GE(validation_records().size(), 4u);
  for (const ValidationRecord& record : validation_records()) {
    SCOPED_TRACE(record.file);
    const std::string path =
        std::string(FOVEA_SOURCE_DIR) + "/docs/validation/" + std::string(record.file);
    EXPECT_TRUE(std::filesystem::exists(path));
    const auto file = ValidationFile::open(path);
    ASSERT_TRUE(file.has_value()) << file.error().message;
    bool same = false;
    for (const ValidationRecord& row : (*file)->records())
      same = same || (row.backend == record.backend && row.path == record.path &&
                      row.provider == record.provider && row.library == record.library &&
                      row.device_class == record.device_class && row.kinds == record.kinds &&
                      row.heads == record.heads);
    EXPECT_TRUE(same);
    EXPECT_EQ(record.file, validation_file_name(*parse_backend(record.backend), record.provider,
                                                *parse_facts(PlatformId::cuda, "sm=90")));
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
  EXPECT_EQ(find_validation_record({backend::FLASH_ATTN_3, "fovea", "cuda.no_such_path"},
                                   *parse_facts(PlatformId::cuda, "sm=90")),
            nullptr);
}

TEST(Validation, TheCommandSaysWhatToRun) {
  const DeviceFacts hopper = *parse_facts(PlatformId::cuda, "sm=90");
  EXPECT_EQ(validation_command(backend::FLASH_ATTN_3, "fovea", hopper),
            "fovea check --contract --backend FLASH_ATTN_3 --device cuda --record "
            "FLASH_ATTN_3-sm_90.json");
  EXPECT_EQ(validation_command(backend::FLASH_ATTN_4, "package fa4 4.0.0", hopper),
            "python3 -m fovea.check --contract --backend FLASH_ATTN_4 --device cuda --record "
            "FLASH_ATTN_4-fa4-sm_90.json");
  EXPECT_EQ(validation_command(backend::TRTLLM_ATTN, "package flashinfer", hopper),
            "python3 -m fovea.check --contract --backend TRTLLM_ATTN --device cuda --import "
            "MODULE_THAT_BINDS_flashinfer --record TRTLLM_ATTN-flashinfer-sm_90.json");
  EXPECT_EQ(validation_command(backend::SAGE_ATTN, "plugin naive 1.0", hopper),
            "fovea check --contract --backend SAGE_ATTN --device cuda --record "
            "SAGE_ATTN-naive-sm_90.json");
}

}  // namespace
}  // namespace fovea
