#include "src/core/env.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>

#include "fovea/config.hpp"
#include "fovea/log.hpp"

namespace fovea::env {
namespace {

// Sets a variable for one test.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~ScopedVariable() { unsetenv(name_); }

 private:
  const char* name_;
};

TEST(Env, values_are_trimmed_and_blank_is_unset) {
  unsetenv("FOVEA_BACKEND");
  EXPECT_EQ(std::nullopt, read(Variable::backend));
  const ScopedVariable blank("FOVEA_BACKEND", " \t ");
  EXPECT_EQ(std::nullopt, read(Variable::backend));
  EXPECT_EQ(std::nullopt, environment_backend());
  const ScopedVariable set("FOVEA_BACKEND", "  FLASH_ATTENTION_2  ");
  EXPECT_EQ("FLASH_ATTENTION_2", read(Variable::backend));
  EXPECT_EQ("FLASH_ATTENTION_2", environment_backend());
}

TEST(Env, values_are_folded_except_paths) {
  const ScopedVariable isa("FOVEA_ISA", "AVX2");
  const ScopedVariable path("FOVEA_PLUGIN_PATH", "/Lib");
  EXPECT_EQ("avx2", read(Variable::isa));
  EXPECT_EQ("/Lib", read(Variable::plugin_path));
}

TEST(Env, the_table_is_indexed_by_the_variable) {
  for (size_t i = 0; i < variables().size(); ++i)
    EXPECT_EQ(i, static_cast<size_t>(variables()[i].variable));
  EXPECT_EQ(5u, variables().size());
}

TEST(Env, unknown_fovea_variables_are_warned_of_with_the_list_and_the_nearest) {
  const std::array<std::string_view, 4> entries = {"HOME=/root", "FOVEA_BACKENDS=FA", "FOVEA_LOG=x",
                                                   "FOVEA_XYZZY="};
  const std::vector<std::string> lines = warnings(entries);
  ASSERT_EQ(2u, lines.size());
  EXPECT_EQ(
      "environment variable 'FOVEA_BACKENDS' is not read; did you mean 'FOVEA_BACKEND'? (known: "
      "FOVEA_BACKEND, FOVEA_LOG, FOVEA_ISA, FOVEA_NUM_THREADS, FOVEA_PLUGIN_PATH)",
      lines[0]);
  EXPECT_TRUE(lines[1].starts_with("environment variable 'FOVEA_XYZZY' is not read (known: "));
}

TEST(Env, the_upstream_variable_is_answered_with_advice) {
  const std::array<std::string_view, 1> set = {"DIFFUSION_ATTENTION_BACKEND=FLASH_ATTN"};
  EXPECT_EQ(
      std::vector<std::string>{
          "DIFFUSION_ATTENTION_BACKEND is not read; set FOVEA_BACKEND instead"},
      warnings(set));
  const std::array<std::string_view, 1> blank = {"DIFFUSION_ATTENTION_BACKEND= "};
  EXPECT_TRUE(warnings(blank).empty());
}

// In a process of its own: other tests of this program may have used up the one warning.
TEST(EnvDeathTest, the_process_is_warned_once) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const ScopedVariable unknown("FOVEA_TYPO", "1");
  EXPECT_EXIT(
      {
        int lines = 0;
        set_log_sink([&](LogLevel level, std::string_view line) {
          lines +=
              level == LogLevel::warning && line.find("'FOVEA_TYPO'") != std::string_view::npos;
        });
        (void)environment_backend();
        warn_once();
        std::exit(lines);
      },
      testing::ExitedWithCode(1), "");
}

}  // namespace
}  // namespace fovea::env
