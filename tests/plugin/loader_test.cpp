#include "fovea/plugin_loader.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "fovea/log.hpp"
#include "fovea/registry.hpp"

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
      {"other_major", "is written for version 2.0 of the plugin interface; this library has 1.0"},
      {"description_small", "struct_size 8"},
      {"description_old", "struct_size"},
      {"description_huge", "struct_size"},
      {"no_backends", "has 0 backends, which is not in 1..64"},
      {"too_many_backends", "which is not in 1..64"},
      {"null_list", "its list of backends is NULL"},
      {"null_backend", "the description of a backend is NULL"},
      {"backend_other_major", "a backend is written for version 7.0"},
      {"backend_small", "the description of a backend has struct_size"},
      {"null_name", "the name of a backend is NULL"},
      {"bad_name", "'a#b' is not made of letters"},
      {"same_name", "has two backends called resolve_throws_number"},
      {"null_resolve", "lacks the entry resolve"},
      {"null_plan", "lacks the entry plan"},
      {"null_run", "lacks the entry run"},
      {"alias_name", "declares the alias SDPA; it must declare TORCH_SDPA"},
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

TEST_F(PluginLoader, OneWrongNameRegistersNothing) {
  ASSERT_FALSE(load_plugin(copy("bad_backend_name")).has_value());
  const auto added = add_backend_name("NEW_FAULTY_ATTN");
  ASSERT_TRUE(added.has_value());
  EXPECT_FALSE(is_overridden(*added));
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
  for (const char* file : {"newer_minor", "backend_old", "backend_newer", "null_texts"}) {
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
