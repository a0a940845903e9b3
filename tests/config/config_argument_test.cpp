#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/config/config_matchers.hpp"

namespace fovea {
namespace {

class ConfigArgument : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("fovea_config_argument_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string file(const std::string& name, const std::string& content) const {
    const auto path = folder_ / name;
    std::ofstream(path, std::ios::binary) << content;
    return path.string();
  }
  static std::string fault(const std::string& argument) {
    const auto text = read_config_argument(argument);
    if (text) return "accepted " + *text;
    EXPECT_EQ(ErrorCode::invalid_file, text.error().code);
    return text.error().message;
  }

  std::filesystem::path folder_;
};

TEST_F(ConfigArgument, text_that_starts_with_a_brace_is_json) {
  EXPECT_EQ(" \n {\"default\": \"FA3\"}", *read_config_argument(" \n {\"default\": \"FA3\"}"));
  EXPECT_EQ("{", *read_config_argument("{"));
}

TEST_F(ConfigArgument, anything_else_is_a_path) {
  EXPECT_EQ("{\"default\": \"FA3\"}\n",
            *read_config_argument(file("a.json", "{\"default\": \"FA3\"}\n")));
  EXPECT_EQ("[]", *read_config_argument(file("list.json", "[]"))) << "the parser judges it";
}

TEST_F(ConfigArgument, unreadable_files_say_why) {
  EXPECT_HAS(fault((folder_ / "absent.json").string()),
             "there is no such file; JSON text would start with '{'");
  EXPECT_HAS(fault(folder_.string()), "is a directory");
  EXPECT_HAS(fault(file("empty.json", " \n")), "is empty");
  EXPECT_HAS(fault(file("large.json", std::string((1 << 20) + 1, ' '))), "is larger than 1 MiB");
  EXPECT_HAS(fault(" "), "the path is empty");
  EXPECT_HAS(fault(std::string(5000, 'x')), "there is no such file");
}

}  // namespace
}  // namespace fovea
