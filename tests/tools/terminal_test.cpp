#include "tools/fovea/terminal.hpp"

#include <gtest/gtest.h>

namespace fovea::cli {
namespace {

// The test's standard output is not a terminal, so there are no colours.
TEST(Aligned, PadsTextLeftAndNumbersRight) {
  const Table table{{"name", "size"}, {{"a", "1"}, {"longer", "100"}}};
  EXPECT_EQ(Terminal().aligned(table),
            "name    size\n"
            "a          1\n"
            "longer   100\n");
}

TEST(Aligned, CountsCharactersNotBytes) {
  const Table table{{"a", "b"}, {{"\xc3\xa9", "x"}, {"yy", "z"}}};
  EXPECT_EQ(Terminal().aligned(table),
            "a   b\n"
            "\xc3\xa9   x\n"
            "yy  z\n");
}

TEST(Aligned, FieldsShareOneColumn) {
  const Fields fields = {{"role", "self"}, {"problem", "f32"}};
  EXPECT_EQ(Terminal().aligned(fields),
            "role     self\n"
            "problem  f32\n");
}

TEST(Csv, QuotesWhatNeedsIt) {
  const Table table{{"a", "b"}, {{"plain", "with, comma"}, {"say \"hi\"", "two\nlines"}}};
  EXPECT_EQ(to_csv(table),
            "a,b\n"
            "plain,\"with, comma\"\n"
            "\"say \"\"hi\"\"\",\"two\nlines\"\n");
}

TEST(Format, ListsWhatIsAccepted) {
  EXPECT_EQ(*parse_format("csv"), Format::csv);
  const Result<Format> wrong = parse_format("jsn");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().message,
            "--format 'jsn' is not a format (accepted: table, json, csv); did you mean 'json'?");
}

TEST(Figures, HaveReadableUnits) {
  EXPECT_EQ(duration(0.0123), "12.3 us");
  EXPECT_EQ(duration(12.345), "12.3 ms");
  EXPECT_EQ(duration(2345), "2.35 s");
  EXPECT_EQ(flop_rate(0.0123), "12.3 GFLOP/s");
  EXPECT_EQ(flop_rate(1.5), "1.50 TFLOP/s");
  EXPECT_EQ(byte_count(0), "0 B");
  EXPECT_EQ(byte_count(1536), "1.5 KiB");
  EXPECT_EQ(scientific(1.9e-7), "1.9e-07");
}

}  // namespace
}  // namespace fovea::cli
