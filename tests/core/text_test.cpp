#include "src/core/text.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

namespace fovea::text {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"FLASH_ATTN", "FLASH_ATTN_2", "RADIAL_ATTN",
                                                    "hk"};

TEST(Text, trim_removes_blanks_at_both_ends_only) {
  EXPECT_EQ("a b", trim(" \t\r\n a b\v\f "));
  EXPECT_EQ("", trim(" \n"));
}

TEST(Text, fold_and_equal_folded_touch_ascii_letters_only) {
  EXPECT_EQ("az_09\xC3\x84", fold("AZ_09\xC3\x84"));
  EXPECT_TRUE(equal_folded("Flash", "fLASH"));
  EXPECT_FALSE(equal_folded("Flash", "Flash2"));
  EXPECT_FALSE(equal_folded("[", "{"));
}

TEST(Text, split_keeps_empty_pieces) {
  EXPECT_EQ((std::vector<std::string_view>{"a", "", "b", ""}), split("a,,b,", ','));
  EXPECT_EQ((std::vector<std::string_view>{""}), split("", ','));
}

TEST(Text, join_puts_separators_between) {
  const std::vector<std::string> items = {"a", "b"};
  EXPECT_EQ("a, b", join(std::span<const std::string>(items)));
  EXPECT_EQ("FLASH_ATTN|FLASH_ATTN_2",
            join(std::span<const std::string_view>(kNames).first(2), "|"));
}

TEST(Text, edit_distance_counts_edits_and_neighbour_swaps) {
  EXPECT_EQ(0u, edit_distance("abc", "ABC"));
  EXPECT_EQ(1u, edit_distance("abc", "acb"));
  EXPECT_EQ(1u, edit_distance("abc", "ab"));
  EXPECT_EQ(3u, edit_distance("kitten", "sitting"));
  EXPECT_EQ(3u, edit_distance("", "abc"));
  EXPECT_EQ(65u, edit_distance(std::string(65, 'a'), std::string(65, 'a')));
}

TEST(Text, nearest_finds_what_was_meant_and_nothing_far_away) {
  EXPECT_EQ("FLASH_ATTN", nearest("flash_atn", kNames));
  EXPECT_EQ("RADIAL_ATTN", nearest("RADAIL_ATTN", kNames));
  EXPECT_EQ("hk", nearest("hq", kNames));
  EXPECT_EQ("RADIAL_ATTN", nearest("radial", kNames));
  EXPECT_EQ(std::nullopt, nearest("xyzzy", kNames));
  EXPECT_EQ(std::nullopt, nearest("", kNames));
  EXPECT_EQ("; did you mean 'hk'?", suggestion("kh", kNames));
  EXPECT_EQ("", suggestion("xyzzy", kNames));
}

TEST(Text, integers_are_strict) {
  EXPECT_EQ(42, parse_integer("42"));
  EXPECT_EQ(std::numeric_limits<int64_t>::min(), parse_integer("-9223372036854775808"));
  EXPECT_EQ(std::numeric_limits<uint64_t>::max(), parse_unsigned("18446744073709551615"));
  for (std::string_view bad : {"", " 1", "1 ", "+1", "1.0", "0x1", "9223372036854775808", "1e3"})
    EXPECT_EQ(std::nullopt, parse_integer(bad)) << bad;
  EXPECT_EQ(std::nullopt, parse_unsigned("-1"));
}

TEST(Text, numbers_are_strict_and_finite) {
  EXPECT_EQ(0.125, parse_number("0.125"));
  EXPECT_EQ(-1e-3, parse_number("-1e-3"));
  for (std::string_view bad : {"", " 1", "1x", "+1", "nan", "inf", "-inf", "1e999", "0x1p3"})
    EXPECT_EQ(std::nullopt, parse_number(bad)) << bad;
}

TEST(Text, formatted_numbers_read_back_exactly) {
  for (double value : {0.1, 1.0, 1e300, 5e-324, -0.08838834764831845})
    EXPECT_EQ(value, parse_number(format_number(value)));
  EXPECT_EQ("inf", format_number(INFINITY));
  EXPECT_EQ("-inf", format_number(-INFINITY));
  EXPECT_EQ("nan", format_number(std::nan("")));
}

TEST(Text, quotes_escape_what_a_terminal_should_not_see) {
  EXPECT_EQ("'a\\x1b[0m\\xff'", quote("a\x1b[0m\xff"));
  EXPECT_EQ("'\xC3\xA4'", quote("\xC3\xA4"));
  const std::string longest(60, 'a');
  EXPECT_EQ(concat("'", longest, "...'"), quote(longest + 'a'));
  EXPECT_EQ(concat("'", longest, "'"), quote(longest));
}

TEST(Text, utf8_refuses_malformed_sequences) {
  EXPECT_TRUE(valid_utf8("a\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80"));
  for (std::string_view bad : {"\x80", "\xC0\x80", "\xC3", "\xE0\x80\x80", "\xED\xA0\x80",
                               "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x82"})
    EXPECT_FALSE(valid_utf8(bad));
}

TEST(Text, concat_joins_strings_and_integers) {
  EXPECT_EQ("head_dim 80, -1", concat("head_dim ", 80, ',', ' ', int64_t{-1}));
}

}  // namespace
}  // namespace fovea::text
