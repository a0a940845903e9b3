#include "fovea/backend_name.hpp"

#include <gtest/gtest.h>

#include <set>

#include "src/core/text.hpp"

namespace fovea {
namespace {

TEST(BackendName, every_spelling_is_unique_and_reads_back) {
  std::set<std::string> spellings;
  for (const BackendNameInfo& row : backend_names()) {
    EXPECT_EQ(row.canonical, name(row.name));
    EXPECT_FALSE(row.summary.empty());
    std::vector<std::string_view> all(row.aliases.begin(), row.aliases.end());
    all.push_back(row.canonical);
    for (std::string_view spelling : all) {
      EXPECT_TRUE(spellings.insert(text::fold(spelling)).second) << spelling;
      EXPECT_EQ(row.name, *parse_backend("  " + text::fold(spelling) + "\t")) << spelling;
    }
  }
  EXPECT_EQ(24u, backend_names().size());
}

TEST(BackendName, both_vocabularies_name_the_same_values) {
  EXPECT_EQ(backend::RADIAL_ATTN, AttnImplType::RADIAL_ATTN);
  EXPECT_EQ(backend::CUDNN_ATTN, AttnImplType::TORCH_CUDNN);
  EXPECT_EQ(backend::FLASH_ATTN, *parse_backend("FA"));
  EXPECT_EQ(backend::TORCH_SDPA, *parse_backend("sdpa"));
  EXPECT_EQ(backend::REFERENCE, *parse_backend("Ref"));
}

TEST(BackendName, a_misspelt_name_is_answered_with_the_nearest_and_the_list) {
  const Result<BackendName> parsed = parse_backend("FLASH_ATN");
  ASSERT_FALSE(parsed);
  EXPECT_EQ(ErrorCode::invalid_config, parsed.error().code);
  EXPECT_TRUE(
      parsed.error().message.starts_with("backend 'FLASH_ATN' is not known; did you mean "
                                         "'FLASH_ATTN'? (known: TORCH_SDPA, CUDNN_ATTN, "))
      << parsed.error().message;
  EXPECT_FALSE(parse_backend(""));
  EXPECT_FALSE(parse_backend("bogus"));
}

TEST(BackendName, names_added_at_run_time_are_known_everywhere) {
  const Result<BackendName> added = add_backend_name("ACME_ATTN");
  ASSERT_TRUE(added);
  EXPECT_EQ(*added, *add_backend_name("ACME_ATTN"));
  EXPECT_EQ(*added, *parse_backend("acme_attn"));
  EXPECT_EQ("ACME_ATTN", name(*added));
  EXPECT_EQ(*added, all_backends().back());
  EXPECT_NE(std::string::npos, parse_backend("ACME_ATN").error().message.find("'ACME_ATTN'?"));
}

TEST(BackendName, ill_formed_and_built_in_names_cannot_be_added) {
  for (std::string_view bad : {"", "acme", "1ACME", "ACME ATTN", "_ACME", "FA2", "FLASH_ATTN"}) {
    const Result<BackendName> added = add_backend_name(bad);
    ASSERT_FALSE(added) << bad;
    EXPECT_EQ(ErrorCode::invalid_argument, added.error().code);
  }
}

TEST(BackendName, an_id_that_was_never_given_has_a_printable_name) {
  EXPECT_EQ("unknown backend 65535", name(BackendName(65535)));
}

}  // namespace
}  // namespace fovea
