#include "fovea/plugin_loader.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "fovea/config.hpp"
#include "fovea/log.hpp"
#include "fovea/platform.hpp"
#include "fovea/registry.hpp"
#include "src/validation/contract.hpp"

namespace fovea {
namespace {

namespace fs = std::filesystem;

// A folder of copies of the faulty plugin, each of which is a plugin of its own.
class PluginLoader : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) /
              ("plugin_loader_" +
               std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    set_log_sink([this](LogLevel level, std::string_view line) {
      if (level == LogLevel::warning) warnings_.emplace_back(line);
    });
  }
  void TearDown() override { set_log_sink({}); }

  std::string copy(const std::string& name, const char* from = FAULTY_PLUGIN) const {
    const fs::path to = folder_ / (name + ".so");
    fs::copy_file(from, to);
    return to.string();
  }

  fs::path folder_;
  std::vector<std::string> warnings_;
};

struct Fault {
  const char* file;
  const char* cause;
};

TEST_F(PluginLoader, EveryFaultIsAnErrorWithItsCause) {
  const Fault faults[] = {
      {"entry_throws", "fovea_plugin_entry threw: not today"},
      {"refuses_to_load", "needs a newer driver"},
      {"null_description", "its description is NULL"},
      {"other_major", "is written for version 2.2 of the plugin interface; this library has 1.2"},
      {"description_small", "struct_size 8"},
      {"description_old", "struct_size"},
      {"description_huge", "struct_size"},
      {"no_backends", "has 0 backends, which is not in 1..64"},
      {"too_many_backends", "which is not in 1..64"},
      {"null_list", "its list of backends is NULL"},
      {"null_backend", "the description of a backend is NULL"},
      {"backend_other_major", "a backend is written for version 7.2"},
      {"backend_small", "the description of a backend has struct_size"},
      {"null_name", "the name of a backend is NULL"},
      {"bad_name", "'a#b' is not made of letters"},
      {"same_name", "has two backends called resolve_throws_number"},
      {"null_resolve", "lacks the entry resolve"},
      {"null_plan", "lacks the entry plan"},
      {"null_run", "lacks the entry run"},
      {"alias_name", "declares the alias SDPA; it must declare TORCH_SDPA"},
      {"options_count", "has 18446744073709551615 options, which is not in 0..64"},
      {"options_null", "the list of options of backend resolve_throws is NULL"},
      {"option_null", "an option is NULL"},
      {"option_small", "an option has struct_size 8"},
      {"option_type", "an option of backend resolve_throws has type 7, which is not in 0..4"},
      {"option_choices", "a choice of option width is NULL"},
      {"option_name", "the name must be [a-z][a-z0-9_]*"},
      {"option_range", "minimum and maximum contradict"},
      {"option_nameless", "has options but declares no backend_name"},
      {"platforms_count", "platforms, which is not in 0..8"},
      {"platforms_null", "its list of platforms is NULL"},
      {"platform_null", "the description of a platform is NULL"},
      {"platform_small", "the description of a platform has struct_size"},
      {"platform_major", "a platform is written for version 9.0"},
      {"platform_name_null", "the name of a platform is NULL"},
      {"platform_name", "the name 'No Name' is not [a-z][a-z0-9_]*"},
      {"platform_builtin", "the name is that of a built-in platform"},
      {"platform_device", "has device_type 99, which is none of 1, 2, 3, 10, 12, 14"},
      {"platform_facts", "facts, which is not in 0..64"},
      {"platform_facts_null", "the list of facts of platform faulty_platform is NULL"},
      {"platform_fact_type", "has type -1, which is not in 0..3"},
      {"platform_order", "an order of 0 names, which is not in 1..64"},
      {"platform_order_null", "a name in the order of platform faulty_platform is NULL"},
      {"platform_order_name", "NO_SUCH_ATTN"},
      {"platform_judge", "lacks the entry judge"},
      {"packages_count", "packages, which is not in 0..64"},
      {"packages_null", "its list of packages is NULL"},
      {"package_null", "a package is NULL"},
      {"package_small", "a package has struct_size 16"},
      {"package_nameless", "the name of a package is NULL"},
      {"package_run", "package faulty_package lacks the entry run"},
      {"package_record", "no/such/record.json"},
      {"accesses_count", "has 9 accesses, which is not in 0..8"},
      {"accesses_null", "its list of accesses is NULL"},
      {"access_null", "an access to devices is NULL"},
      {"access_small", "an access to devices has struct_size 24"},
      {"access_major", "an access to devices is written for version 3.2"},
      {"access_platform_null", "the platform of an access to devices is NULL"},
      {"access_platform", "abacus"},
      {"access_no_copy", "the access to musa devices lacks the entry copy"},
      {"access_half_capture", "some of capture, replay and drop, not all"},
  };
  for (const Fault& fault : faults) {
    const std::string file = copy(fault.file);
    const auto loaded = load_plugin(file);
    ASSERT_FALSE(loaded.has_value()) << fault.file;
    EXPECT_EQ(loaded.error().code, ErrorCode::not_available) << fault.file;
    EXPECT_NE(loaded.error().message.find(fault.cause), std::string::npos)
        << loaded.error().message;
    EXPECT_NE(loaded.error().message.find(fs::canonical(file).string()), std::string::npos);
    ASSERT_EQ(loaded.error().reasons.size(), 1u);
    EXPECT_EQ(loaded.error().reasons[0].code, ReasonCode::plugin);
  }
}

TEST_F(PluginLoader, AnAccessThatMisbehavesEndsTheRun) {
  const Fault faults[] = {
      {"access_describe_throws", "describe threw: no device"},
      {"access_describe_code", "describe failed with code 300: the driver is gone"},
      {"access_describe_nothing", "describes a device of type 0"},
      {"access_device_type", "describes a device of type 77"},
      {"access_bad_facts", "colour"},
  };
  for (const Fault& fault : faults) {
    SCOPED_TRACE(fault.file);
    const auto loaded = load_plugin(copy(fault.file));
    ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
    EXPECT_EQ(loaded->accesses, std::vector<std::string>{"musa"});
    const auto device = validation::open_device("musa:0");
    ASSERT_FALSE(device.has_value());
    EXPECT_NE(device.error().message.find(fault.cause), std::string::npos)
        << device.error().message;
  }
  for (const Fault& fault : {Fault{"access_allocate_throws", "allocate threw"},
                             Fault{"access_allocate_null", "allocate stored NULL"},
                             Fault{"access_allocate_code", "allocate failed with code 400"}}) {
    SCOPED_TRACE(fault.file);
    ASSERT_TRUE(load_plugin(copy(fault.file)).has_value());
    const auto device = validation::open_device("musa");
    ASSERT_TRUE(device.has_value()) << device.error().message;
    AttentionConfig config;
    config.default_spec.emplace().backend = backend::FLASH_ATTN;
    const auto run = validation::run_contract(config, {}, **device, serial_executor(), {});
    ASSERT_FALSE(run.has_value());
    EXPECT_NE(run.error().message.find(fault.cause), std::string::npos) << run.error().message;
  }
}

TEST_F(PluginLoader, OneWrongNameRegistersNothing) {
  ASSERT_FALSE(load_plugin(copy("bad_backend_name")).has_value());
  const auto added = add_backend_name("NEW_FAULTY_ATTN");
  ASSERT_TRUE(added.has_value());
  EXPECT_FALSE(is_overridden(*added));
}

TEST_F(PluginLoader, AJudgeThatMisbehavesRefuses) {
  const auto loaded = load_plugin(copy("platform_sound"));
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
  EXPECT_EQ(loaded->platforms, std::vector<std::string>{"faulty_platform"});
  const PlatformId id = *parse_platform("faulty_platform");
  const struct {
    const char* mood;
    const char* cause;
  } cases[] = {{"throws", "judge threw: no opinion"},
               {"code", "judge returned the code 77"},
               {"null_reason", "reason is NULL"}};
  for (const auto& c : cases) {
    const auto platform = make_platform(*parse_facts(id, std::string("mood=") + c.mood));
    const PolicyVerdict verdict = platform->judge(backend::TORCH_SDPA, {});
    ASSERT_FALSE(verdict.reasons.empty()) << c.mood;
    EXPECT_NE(sentence(verdict.reasons).find(c.cause), std::string::npos)
        << sentence(verdict.reasons);
    EXPECT_EQ(verdict.reasons[0].code, ReasonCode::plugin);
  }
  const auto calm = make_platform(*parse_facts(id, "mood=calm"));
  EXPECT_TRUE(calm->judge(backend::TORCH_SDPA, {}).reasons.empty());
  EXPECT_EQ(calm->preference({}).size(), 1u);
}

TEST_F(PluginLoader, OptionsOfAReplacedNameAreChecked) {
  ASSERT_TRUE(load_plugin(copy("options_sound")).has_value());
  EXPECT_TRUE(parse_config(
      R"({"default": {"backend": "FAULTY_ATTN", "extra": {"FAULTY_ATTN": {"width": 3}}}})"));
  const auto beyond = parse_config(
      R"({"default": {"backend": "FAULTY_ATTN", "extra": {"FAULTY_ATTN": {"width": 30}}}})");
  ASSERT_FALSE(beyond);
  EXPECT_NE(beyond.error().message.find("an integer in [1, 8]"), std::string::npos)
      << beyond.error().message;
}

TEST_F(PluginLoader, FilesThatAreNoPlugins) {
  const auto missing = load_plugin((folder_ / "nothing.so").string());
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, ErrorCode::invalid_file);
  const auto other = load_plugin(copy("other", NO_ENTRY_PLUGIN));
  ASSERT_FALSE(other.has_value());
  EXPECT_NE(other.error().message.find("exports no function fovea_plugin_entry"),
            std::string::npos);
  std::ofstream(folder_ / "text.so") << "not a library";
  const auto text = load_plugin((folder_ / "text.so").string());
  ASSERT_FALSE(text.has_value());
  EXPECT_NE(text.error().message.find("does not load"), std::string::npos);
}

TEST_F(PluginLoader, OtherMinorVersionsAndSizesLoad) {
  for (const char* file :
       {"newer_minor", "older_minor", "backend_old", "backend_newer", "null_texts"}) {
    const auto loaded = load_plugin(copy(file));
    ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
    EXPECT_GT(loaded->backends.size(), 20u);
    EXPECT_FALSE(loaded->backends[0].name.has_value());
  }
}

TEST_F(PluginLoader, PathsNameABackendOfAFile) {
  ASSERT_TRUE(enable_plugin_paths().has_value());
  const std::string file = copy("paths");
  ASSERT_TRUE(register_backend(backend::SAGE_ATTN, "plugin:" + file + "#refuses").has_value());
  const auto loaded = load_backend(backend::SAGE_ATTN, "");
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
  EXPECT_EQ((*loaded)->path(), "plugin:" + fs::canonical(file).string() + "#refuses");

  const auto wrong = load_backend(backend::SAGE_ATTN_3, "plugin:" + file + "#refusess");
  ASSERT_FALSE(wrong.has_value());
  EXPECT_NE(wrong.error().message.find("did you mean 'refuses'?"), std::string::npos);
  const auto nameless = load_backend(backend::SAGE_ATTN_3, "plugin:" + file);
  ASSERT_FALSE(nameless.has_value());
  EXPECT_NE(nameless.error().message.find("FILE#NAME"), std::string::npos);
  clear_override(backend::SAGE_ATTN);
}

TEST_F(PluginLoader, FoldersLoadWhatIsSoundAndWarnOfTheRest) {
  copy("libfovea-backend-newer_minor");
  copy("libfovea-backend-entry_throws");
  copy("not_a_backend_by_name");
  const std::string absent = (folder_ / "absent").string();
  const PluginSearch found = load_plugins({folder_.string(), absent});
  ASSERT_EQ(found.loaded.size(), 1u);
  EXPECT_EQ(found.loaded[0].name, "faulty");
  EXPECT_EQ(found.loaded[0].version, "0.1");
  ASSERT_EQ(found.failed.size(), 2u);
  EXPECT_NE(found.failed[0].message.find("not today"), std::string::npos);
  EXPECT_NE(found.failed[1].message.find("is not a folder"), std::string::npos);
  EXPECT_EQ(warnings_.size(), 2u);
}

}  // namespace
}  // namespace fovea
