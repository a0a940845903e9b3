#include "fovea/reason.hpp"

#include <gtest/gtest.h>

#include <set>

namespace fovea {
namespace {

constexpr int kCodes = static_cast<int>(ReasonCode::known_fault) + 1;

TEST(Reason, every_code_has_its_own_name_and_a_sentence) {
  std::set<std::string_view> names;
  for (int i = 0; i < kCodes; ++i) {
    const auto code = static_cast<ReasonCode>(i);
    EXPECT_TRUE(names.insert(name(code)).second) << name(code);
    const std::string text = sentence(Reason{code, "FIELD", "GOT", "ACCEPTED", "do this"});
    EXPECT_EQ(std::string::npos, text.find('$')) << text;
    EXPECT_TRUE(text.ends_with(", do this")) << text;
    EXPECT_NE('.', text.back());
  }
  EXPECT_EQ("unknown", name(static_cast<ReasonCode>(kCodes)));
}

TEST(Reason, sentences_say_what_was_asked_and_what_is_accepted) {
  EXPECT_EQ("head_dim 80 is not supported (accepted: 64, 128)",
            sentence(Reason{ReasonCode::head_dim, "head_dim", "80", "64, 128"}));
  EXPECT_EQ("mask dtype i64 is not supported (accepted: bool), convert the mask to bool",
            sentence(Reason{ReasonCode::mask_dtype, "mask dtype", "i64", "bool",
                            "convert the mask to bool"}));
  EXPECT_EQ("cudnn 9.1 does not fit (needed: 9.5)",
            sentence(Reason{ReasonCode::version, "cudnn", "9.1", "9.5"}));
  EXPECT_EQ("flash_attn is absent (needed: 2.6.0 or newer)",
            sentence(Reason{ReasonCode::package, "flash_attn", "absent", "2.6.0 or newer"}));
  EXPECT_EQ("quant does not belong to FLASH_ATTN (belongs to: SAGE_ATTN)",
            sentence(Reason{ReasonCode::option_owner, "quant", "FLASH_ATTN", "SAGE_ATTN"}));
}

TEST(Reason, flags_do_not_list_what_is_accepted) {
  EXPECT_EQ("causal masking is not supported",
            sentence(Reason{ReasonCode::causal, "causal", "1", "none"}));
  EXPECT_EQ("mask keys is not supported (accepted: none)",
            sentence(Reason{ReasonCode::mask, "mask", "keys", "none"}));
}

TEST(Reason, empty_parts_leave_no_gaps) {
  EXPECT_EQ("layout is not supported", sentence(Reason{ReasonCode::layout, "layout", "", ""}));
}

TEST(Reason, several_reasons_are_joined) {
  const Reason causal{ReasonCode::causal, "causal", "1", ""};
  EXPECT_EQ("causal masking is not supported; causal masking is not supported",
            sentence(std::vector<Reason>{causal, causal}));
  EXPECT_EQ("", sentence(std::vector<Reason>{}));
}

}  // namespace
}  // namespace fovea
