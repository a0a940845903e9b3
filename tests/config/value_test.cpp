#include "src/config/value.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace fovea::config {
namespace {

TEST(Value, set_replaces_and_erase_removes) {
  Value map = Value::object();
  map.set("a", Value::of(int64_t{1}));
  map.set("b", Value::of(true));
  map.set("a", Value::of(int64_t{2}));
  EXPECT_EQ("{\"a\":2,\"b\":true}", write_json(map));
  map.erase("a");
  map.erase("absent");
  EXPECT_EQ("{\"b\":true}", write_json(map));
  EXPECT_EQ(nullptr, map.find("a"));
}

TEST(Value, strings_are_escaped) {
  EXPECT_EQ(R"("a\"b\\c\u000ad")", write_json(Value::of(std::string("a\"b\\c\nd"))));
  EXPECT_EQ("\"\xc3\xa9\"", write_json(Value::of(std::string("\xc3\xa9"))));
  EXPECT_EQ("\"\xef\xbf\xbd!\"", write_json(Value::of(std::string("\xff!"))));
  EXPECT_EQ("\"\xef\xbf\xbd\"", write_json(Value::of(std::string("\xe2"))));
}

TEST(Value, numbers_that_json_cannot_hold_become_null) {
  EXPECT_EQ("null", write_json(Value::of(std::nan(""))));
  EXPECT_EQ("null", write_json(Value::of(std::numeric_limits<double>::infinity())));
  EXPECT_EQ("0", write_json(Value::of(-0.0)));
  EXPECT_EQ("0.1", write_json(Value::of(0.1)));
  EXPECT_EQ("-9223372036854775808", write_json(Value::of(std::numeric_limits<int64_t>::min())));
}

TEST(Value, auto_and_null_remove) {
  EXPECT_TRUE(is_removal(Value{}));
  EXPECT_TRUE(is_removal(Value::of(std::string(" Auto "))));
  EXPECT_FALSE(is_auto(Value{}));
  EXPECT_TRUE(is_auto(Value::of(std::string("AUTO"))));
  EXPECT_FALSE(is_removal(Value::of(std::string("automatic"))));
  EXPECT_FALSE(is_removal(Value::of(false)));
}

TEST(Value, descriptions_name_the_json_type) {
  EXPECT_EQ("the string '4'", describe(Value::of(std::string("4"))));
  EXPECT_EQ("4", describe(Value::of(int64_t{4})));
  EXPECT_EQ("true", describe(Value::of(true)));
  EXPECT_EQ("a list", describe(Value::array()));
  EXPECT_EQ("a map", describe(Value::object()));
  EXPECT_EQ("null", describe(Value{}));
}

}  // namespace
}  // namespace fovea::config
