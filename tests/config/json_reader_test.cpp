#include "src/config/json_reader.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace fovea::config {
namespace {

std::string message(std::string_view text) {
  Problems problems;
  const auto value = read_json(text, "doc", problems);
  return value ? "accepted " + write_json(*value) : value.error().message;
}

TEST(JsonReader, reads_every_kind) {
  Problems problems;
  const auto value = read_json(
      R"({"a": [null, true, -3, 2.5e1, "x\u00e9"], "b": {"c": {}}, "": []})", "doc", problems);
  ASSERT_TRUE(value);
  EXPECT_EQ("{\"a\":[null,true,-3,25,\"x\xc3\xa9\"],\"b\":{\"c\":{}},\"\":[]}", write_json(*value));
  EXPECT_EQ(Value::Kind::number, value->find("a")->items[3].kind) << "2.5e1 is not an integer";
  EXPECT_EQ(Value::Kind::integer, value->find("a")->items[2].kind);
  EXPECT_TRUE(problems.empty());
}

TEST(JsonReader, an_integer_beyond_int64_is_a_number_that_keeps_its_digits) {
  Problems problems;
  const auto value = read_json("[9223372036854775807, 9223372036854775808]", "doc", problems);
  ASSERT_TRUE(value);
  EXPECT_EQ(Value::Kind::integer, value->items[0].kind);
  EXPECT_EQ(Value::Kind::number, value->items[1].kind);
  EXPECT_EQ("9223372036854775808", describe(value->items[1]));
}

TEST(JsonReader, duplicate_keys_are_all_reported_with_their_path) {
  Problems problems;
  const auto value =
      read_json(R"({"a": {"x": 1, "x": 2}, "b": [{"y": 1, "y": [3]}], "a": 5})", "doc", problems);
  ASSERT_TRUE(value);
  EXPECT_EQ(R"({"a":{"x":1},"b":[{"y":1}]})", write_json(*value)) << "the first one stands";
  EXPECT_EQ(
      "doc: 3 problems\n  a.x: duplicate key; write it once\n  b[0].y: duplicate key; write it "
      "once\n  a: duplicate key; write it once",
      problems.error("doc").message);
}

TEST(JsonReader, errors_point_at_the_place) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "doc: not valid JSON: the text ends too early"},
      {"[1,2 ", "doc: not valid JSON: the text ends too early"},
      {"{\"a\":\"b", "doc: not valid JSON: the text ends too early"},
      {"{\"a\":\"b\nc\"}", "doc: not valid JSON: a string is not closed on line 1"},
      {"[1,2}",
       "doc: not valid JSON at line 1, column 5: unexpected '}'; is there a comma too many, or a "
       "value missing?"},
      {"{\n \"a\": 1,\n}",
       "doc: not valid JSON at line 3, column 1: unexpected '}'; is there a comma too many, or a "
       "value missing?"},
      {"{\"a\":NaN}",
       "doc: not valid JSON at line 1, column 6: unexpected 'NaN}'; JSON has no NaN and no "
       "infinity"},
      {"[-Infinity]",
       "doc: not valid JSON at line 1, column 2: unexpected '-Infinity]'; JSON has no NaN and no "
       "infinity"},
      {"[True]",
       "doc: not valid JSON at line 1, column 2: unexpected 'True]'; JSON writes true and false"},
      {"[None]", "doc: not valid JSON at line 1, column 2: unexpected 'None]'; JSON writes null"},
      {"['a']",
       "doc: not valid JSON at line 1, column 2: unexpected ''a']'; JSON strings stand in double "
       "quotes"},
      {"[1] // x",
       "doc: not valid JSON at line 1, column 5: unexpected '// x'; JSON has no comments"},
      {"[tru]", "doc: not valid JSON at line 1, column 2: unexpected 'tru]'"},
      {"[1 2]", "doc: not valid JSON at line 1, column 4: unexpected '2]'"},
      {"[01]", "doc: not valid JSON at line 1, column 2: unexpected '01]'"},
      {"{\"a\":1e999}", "doc: line 1, column 6: the number '1e999' is too large"},
      {"\"\xff\"", "doc: not valid JSON at line 1, column 2: unexpected '\\xff\"'"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(expected, message(text)) << text;
}

TEST(JsonReader, depth_is_limited) {
  const std::string deepest = std::string(kMaxDepth, '[') + std::string(kMaxDepth, ']');
  EXPECT_EQ("accepted " + deepest, message(deepest));
  EXPECT_EQ("doc: nested deeper than 64 levels", message("[" + deepest + "]"));
  EXPECT_EQ("doc: nested deeper than 64 levels", message(std::string(1'000'000, '[')));
}

TEST(JsonReader, a_byte_order_mark_is_skipped_and_zero_bytes_are_refused) {
  EXPECT_EQ("accepted {}", message("\xef\xbb\xbf{}"));
  EXPECT_EQ("doc: not valid JSON at line 1, column 3: a zero byte",
            message(std::string_view("{}\0", 3)));
}

}  // namespace
}  // namespace fovea::config
