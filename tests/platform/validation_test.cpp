// Supported on an accelerator is a matter of record.
#include "fovea/validation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>

#include "fovea/explain.hpp"
#include "fovea/version.hpp"
#include "src/backends/package/paths.hpp"
#include "src/platform/policy.hpp"
#include "src/select/assumed_state.hpp"
#include "src/validation/cases.hpp"
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
        const std::string& remedy = entry.report.reasons.back().remedy;
        EXPECT_TRUE(remedy.find("--record") != std::string::npos ||
                    remedy.starts_with("compare it"))
            << remedy;
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
    const std::string passed = std::string(row.kind) + " 128/128";
    const ValidationRecord record{
        "f.json", own,     "fovea", "",    version(), "cuda.block_sparse_sm90",
        "cuda",   "sm_90", "",      passed};
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
    ValidationRecord record{
        "f.json", own, "fovea",        "", version(), "cuda.block_sparse_sm90", "cuda",
        "sm_90",  "",  "top-k 128/128"};
    const ValidatedPath path{chooses, "fovea", "cuda.block_sparse_sm90"};
    EXPECT_FALSE(covers(record, problem)) << own;
    EXPECT_EQ(missing_validation(path, problem, facts, {&record, 1}),
              "its validation record does not cover top-k key padding");
    record.passed = "dense 128/128, key padding 128/128";
    EXPECT_FALSE(covers(record, problem)) << own;
    record.passed = "top-k 64/64 128/128, top-k key padding 64/64 128/128";
    EXPECT_TRUE(covers(record, problem)) << own;
    // Heads that did not run.
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
       {Row{"bf16 b2 h4 s64 d64", "dense 64/64"},
        Row{"bf16 b2 h4 s64 d64 kvlen=64,3", "key padding 64/64"},
        Row{"bf16 b2 h4 s64 d64 mask=keys", "key padding 64/64"},
        Row{"bf16 b2 h4 s64 d64 sk=65", "unequal lengths 64/64"},
        Row{"bf16 b2 h4 s64 d64 sk=65 mask=keys", "key padding 64/64, unequal lengths 64/64"},
        Row{"bf16 b1 h4 s64 d64 layout=packed docs=30:30,34:34", "packed 64/64"}}) {
    const Problem problem = *parse_problem(row.problem);
    ValidationRecord record;
    record.passed = "replay 64/64";
    EXPECT_FALSE(covers(record, problem)) << row.problem;
    record.passed = row.needs;
    EXPECT_TRUE(covers(record, problem)) << row.problem;
  }
  ValidationRecord all;
  all.passed = "dense 64/64, key padding 64/64, unequal lengths 64/64, packed 64/64, replay 64/64";
  for (const char* outside :
       {"f16 b1 h1 s64 d64", "f32 b1 h1 s64 d64", "bf16 b1 h1 s64 d64 out=f32",
        "bf16 b1 h1 s64 d264", "bf16 b1 h1 s64 d64 mask=causal", "bf16 b1 h1 s64 d64 window=8,8",
        "bf16 b1 h1 s64 d64 mask=bias"})
    EXPECT_FALSE(covers(all, *parse_problem(outside))) << outside;
}

// Bug: a record of some head sizes counted for every size up to the largest of any run.
TEST(Validation, ARecordCoversTheHeadSizesOfEachKind) {
  ValidationRecord record;
  record.passed = "dense 32/32 80/48 192/128, key padding 32/32";
  const auto covered = [&](const char* problem, HeadRule rule = HeadRule::none) {
    return covers(record, *parse_problem(problem), rule);
  };
  EXPECT_TRUE(covered("bf16 b1 h1 s8 d32"));
  EXPECT_TRUE(covered("bf16 b1 h1 s8 d80 dv=48"));
  EXPECT_TRUE(covered("bf16 b2 h1 s8 d32 mask=keys"));
  EXPECT_FALSE(covered("bf16 b2 h1 s8 d80 dv=48 mask=keys"));
  for (const char* other : {"bf16 b1 h1 s8 d80", "bf16 b1 h1 s8 d48", "bf16 b1 h1 s8 d24",
                            "bf16 b1 h1 s8 d192", "bf16 b1 h1 s8 d8"})
    EXPECT_FALSE(covered(other)) << other;
  // A rule of the package stands for the sizes between those that ran, and for no others.
  EXPECT_TRUE(covered("bf16 b1 h1 s8 d80", HeadRule::published));
  EXPECT_TRUE(covered("bf16 b1 h1 s8 d128", HeadRule::published));
  EXPECT_TRUE(covered("bf16 b1 h1 s8 d192 dv=128", HeadRule::published));
  for (const char* beyond : {"bf16 b1 h1 s8 d24", "bf16 b1 h1 s8 d64 dv=24", "bf16 b1 h1 s8 d200",
                             "bf16 b1 h1 s8 d192", "bf16 b2 h1 s8 d64 mask=keys"})
    EXPECT_FALSE(covered(beyond, HeadRule::published)) << beyond;
}

// Bug: a run that holds no such problem was offered as the remedy.
TEST(Validation, TheRemedyIsARunThatHelps) {
  const auto remedy = [](const char* device, BackendName backend, std::string_view path,
                         const char* problem) {
    return validation_remedy({backend, "fovea", path}, *parse_problem(problem),
                             *preset_facts(device));
  };
  const std::string validate = "validate it with fovea check --contract --backend ";
  const std::string_view sm90 = "cuda.flash_sm90";
  EXPECT_TRUE(remedy("h200", backend::FLASH_ATTN, sm90, "bf16 b1 h1 s8 d96").starts_with(validate));
  for (const char* text :
       {"bf16 b1 h1 s8 d72", "f16 b1 h1 s8 d128", "bf16 b1 h1 s8 d128 mask=causal"})
    EXPECT_EQ(remedy("h200", backend::FLASH_ATTN, sm90, text),
              "compare it with fovea check --backend FLASH_ATTN --device cuda --problem '" +
                  std::string(text) + "'");
  // Where the path has no record, one is worth making.
  EXPECT_TRUE(remedy("a100", backend::FLASH_ATTN, "cuda.flash_sm80", "f16 b1 h1 s8 d72")
                  .starts_with(validate));
  const std::string_view sparse = "cuda.block_sparse_sm90";
  const char* unequal = "bf16 b1 h4 s256 d128 sk=300 sparse=radial(frames=2)";
  EXPECT_TRUE(remedy("h200", backend::RADIAL_ATTN, sparse, unequal).starts_with("compare it with"));
  EXPECT_EQ(missing_validation({backend::RADIAL_ATTN, "fovea", sparse}, *parse_problem(unequal),
                               *preset_facts("h200")),
            "no validation run holds such problems");
  // Every case of a run is such a problem, under its kind.
  const std::pair<BackendName, std::string_view> own[] = {{backend::FLASH_ATTN, sm90},
                                                          {backend::BLOCK_SPARSE_ATTN, sparse}};
  for (const auto& [name, path] : own) {
    for (const validation::Case& each : validation::validation_cases(name, *preset_facts("h200"))) {
      EXPECT_TRUE(remedy("h200", name, path, each.problem.c_str()).starts_with(validate))
          << each.problem;
      const std::vector<std::string> kinds = validation_kinds(*parse_problem(each.problem));
      EXPECT_TRUE(each.kind == "replay" ||
                  std::find(kinds.begin(), kinds.end(), each.kind) != kinds.end())
          << each.kind << ": " << each.problem;
    }
  }
  // Where the program cannot run the kernel, the host program can.
  const DeviceFacts hopper = *parse_facts(PlatformId::cuda, "sm=90,fa4=4.0.0b36");
  EXPECT_EQ(validation_remedy({backend::FLASH_ATTN_4, "package fa4 4.0.0b36", "fa4_dense"},
                              *parse_problem("bf16 b1 h1 s8 d72"), hopper),
            "compare it in the host program");
}

// The head sizes of the listed models and of the records: 128 is covered, and what is not says so.
TEST(Validation, TheCommittedRecordsCoverWhatModelsUse) {
  const DeviceFacts facts = *preset_facts("h200");
  const ValidatedPath path{backend::FLASH_ATTN, "fovea", "cuda.flash_sm90"};
  const ValidationRecord* record = find_validation_record(path, facts);
  ASSERT_NE(record, nullptr);
  for (const char* problem : {"bf16 b1 h40 s75600 d128", "bf16 b1 h40 s75600 d128 sk=512",
                              "bf16 b2 h24 s4608 d128 mask=keys", "bf16 b1 h24 s4608 d64"})
    EXPECT_TRUE(covers(*record, *parse_problem(problem))) << problem;
  const Problem other = *parse_problem("bf16 b1 h24 s4608 d72");
  EXPECT_FALSE(covers(*record, other));
  EXPECT_EQ(missing_validation(path, other, facts),
            "its validation record does not cover head sizes 72/72 (it has 32/32 64/64 80/48 "
            "96/96 128/128 192/128 256/256)");
}

// Whatever ran on a path that nobody has inspected, it is not verified.
TEST(Validation, UninspectedPathsMakeNoRow) {
  std::set<std::string_view> uninspected, inspected;
  for (const std::string_view package : {"fa4", "aiter", "mindiesd"})
    for (const backends::PathRow& row : backends::paths_of(package).rows)
      (row.verifiable && !row.refuses() ? inspected : uninspected).insert(row.path);
  for (const std::string_view path : inspected) EXPECT_TRUE(can_be_verified(path)) << path;
  for (const std::string_view path : uninspected)
    EXPECT_EQ(can_be_verified(path), inspected.count(path) > 0) << path;
  EXPECT_TRUE(can_be_verified("cuda.flash_sm90"));
  test::VendorRecord record;
  record.path = "unverified";
  const auto file = ValidationFile::parse(record.text(), "f.json");
  ASSERT_FALSE(file.has_value());
  EXPECT_NE(file.error().message.find("no path"), std::string::npos) << file.error().message;
}

// Bug: a record of another version of this library counted.
TEST(Validation, ARecordCountsForItsVersionOfFovea) {
  test::VendorRecord made;
  made.fovea = "0.0.1";
  const auto older = ValidationFile::parse(made.text(), "f.json");
  ASSERT_TRUE(older.has_value()) << older.error().message;
  const DeviceFacts facts = *parse_facts(PlatformId::cuda, "sm=103,fa4=4.0.0b18");
  const ValidatedPath path{backend::FLASH_ATTN, "package fa4 4.0.0b18", "fa4_dense"};
  EXPECT_EQ(find_validation_record(path, facts, (*older)->records()), nullptr);
  EXPECT_EQ(
      missing_validation(path, *parse_problem("bf16 b1 h1 s8 d64"), facts, (*older)->records()),
      std::string("its validation record is of fovea 0.0.1, this is ") + version());
  made.fovea = version();
  const auto current = ValidationFile::parse(made.text(), "f.json");
  EXPECT_NE(find_validation_record(path, facts, (*current)->records()), nullptr);
}

TEST(Validation, ARecordCountsForItsVersionOfTheLibrary) {
  const ValidationRecord record{"f.json",     "CUDNN_ATTN", "cudnn", "9.14.0", version(),
                                "cuda.cudnn", "cuda",       "sm_90", "",       "dense 64/64"};
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
            "its validation record is of cudnn 9.14.0, not of 9.19");
  EXPECT_EQ(missing_validation(path, problem, *parse_facts(PlatformId::cuda, "sm=90,cudnn=unknown"),
                               {&record, 1}),
            "its validation record is of cudnn 9.14.0, and no version is stated here");
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
  EXPECT_EQ(row.fovea, version());
  EXPECT_EQ(row.passed,
            "dense 32/32 64/64 80/48 192/128 256/256, unequal lengths 32/32 64/64 80/48 192/128 "
            "256/256, replay 32/32 64/64 80/48 192/128 256/256");
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
                      row.device_class == record.device_class && row.fovea == record.fovea &&
                      row.passed == record.passed);
    EXPECT_TRUE(same);
    // And the file has no row that the table lacks.
    for (const ValidationRecord& row : (*file)->records())
      EXPECT_TRUE(std::any_of(validation_records().begin(), validation_records().end(),
                              [&](const ValidationRecord& known) {
                                return known.file == record.file && known.path == row.path;
                              }))
          << row.path;
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
