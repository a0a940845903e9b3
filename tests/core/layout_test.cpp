#include "fovea/layout.hpp"

#include <gtest/gtest.h>

namespace fovea {
namespace {

TEST(Layout, names_read_back_as_the_same_layout) {
  for (Layout layout : {Layout::bshd, Layout::bhsd, Layout::packed})
    EXPECT_EQ(layout, parse_layout(name(layout)));
}

TEST(Layout, aliases_are_accepted_in_any_case) {
  for (std::string_view alias : {"BSND", "nhd"}) EXPECT_EQ(Layout::bshd, parse_layout(alias));
  for (std::string_view alias : {"bnsd", "HND"}) EXPECT_EQ(Layout::bhsd, parse_layout(alias));
  for (std::string_view alias : {"thd", "TND"}) EXPECT_EQ(Layout::packed, parse_layout(alias));
  EXPECT_EQ(std::nullopt, parse_layout("bsh"));
}

}  // namespace
}  // namespace fovea
