#include "src/config/extra_reader.hpp"

#include <gtest/gtest.h>

#include "fovea/option_fields.hpp"
#include "tests/config/config_matchers.hpp"

namespace fovea {
namespace {

class ExtraReader : public testing::Test {
 protected:
  void SetUp() override {
    backend_ = *add_backend_name("EXTRA_TEST_ATTN");
    OptionField tile{"tile", OptionType::integer, 16, 256, {}, "128", "Rows of a tile."};
    OptionField bias{"bias", OptionType::number, std::nullopt, std::nullopt, {}, "", "Added."};
    OptionField mode{"mode", OptionType::choice, {}, {}, {"fast", "exact"}, "", "Arithmetic."};
    OptionField log{"log", OptionType::boolean, {}, {}, {}, "", "Say more."};
    OptionField tag{"tag", OptionType::text, {}, {}, {}, "", "A word."};
    ASSERT_TRUE(register_option_fields(backend_, {tile, bias, mode, log, tag}));
  }
  void TearDown() override { clear_option_fields(backend_); }

  static std::string with(const std::string& extra) {
    return R"({"default": {"backend": "EXTRA_TEST_ATTN", "extra": )" + extra + "}}";
  }

  BackendName backend_;
};

TEST_F(ExtraReader, options_are_checked_and_kept_as_json_text) {
  const auto spec = parsed_default(
      with(R"({"extra_test_attn": {"bias": -0.5, "mode": "FAST", "log": true, "tag": "a\"b"}})"));
  const ExtraOptions expected = {{"tile", "128"},
                                 {"bias", "-0.5"},
                                 {"mode", "\"fast\""},
                                 {"log", "true"},
                                 {"tag", "\"a\\\"b\""}};
  ASSERT_TRUE(spec.extra.contains("EXTRA_TEST_ATTN"));
  EXPECT_EQ(expected, spec.extra.at("EXTRA_TEST_ATTN"));
  EXPECT_TRUE(validate(spec));
  EXPECT_EQ(spec, parsed_default(R"({"default": )" + to_json(spec) + "}"));
}

TEST_F(ExtraReader, flags_reach_them) {
  ConfigSources sources;
  sources.flags = {{"default.backend", "EXTRA_TEST_ATTN"},
                   {"default.extra.EXTRA_TEST_ATTN.tile", "64"},
                   {"default.extra.EXTRA_TEST_ATTN.tag", "7"}};
  const auto config = parsed(sources);
  EXPECT_EQ("64", config.default_spec->extra.at("EXTRA_TEST_ATTN").at("tile"));
  EXPECT_EQ("\"7\"", config.default_spec->extra.at("EXTRA_TEST_ATTN").at("tag"));
}

TEST_F(ExtraReader, faults_are_named) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"EXTRA_TEST_ATTN": {"tyle": 64}})",
       "default.extra.EXTRA_TEST_ATTN.tyle: unknown key; known here: tile, bias, mode, log, tag; "
       "did you mean 'tile'?"},
      {R"({"EXTRA_TEST_ATTN": {"tile": 8}})", "expected an integer in [16, 256], found 8"},
      {R"({"EXTRA_TEST_ATTN": {"tile": 64.0}})", "expected an integer in [16, 256], found 64.0"},
      {R"({"EXTRA_TEST_ATTN": {"tile": true}})", "expected an integer in [16, 256], found true"},
      {R"({"EXTRA_TEST_ATTN": {"mode": "quick"}})", "expected one of fast, exact"},
      {R"({"EXTRA_TEST_ATTN": 3})", "default.extra.EXTRA_TEST_ATTN: expected a map of options"},
      {R"([])", "default.extra: expected a map from a backend registered at run time"},
      {R"({"EXTRA_TEST_ATTM": {}})",
       "default.extra.EXTRA_TEST_ATTM: no options are registered at run time under this name; "
       "registered: EXTRA_TEST_ATTN; did you mean 'EXTRA_TEST_ATTN'?"},
      {R"({"FLASH_ATTN": {}})", "default.extra.FLASH_ATTN: no options are registered at run time"},
  };
  for (const auto& [extra, expected] : cases) EXPECT_HAS(refused(with(extra)), expected) << extra;
}

TEST_F(ExtraReader, options_belong_to_their_backend) {
  EXPECT_HAS(
      refused(R"({"default": {"backend": "FA3", "extra": {"EXTRA_TEST_ATTN": {"tile": 64}}}})"),
      "default.extra.EXTRA_TEST_ATTN: FLASH_ATTN_3 does not take the options of EXTRA_TEST_ATTN");
}

TEST_F(ExtraReader, a_spec_made_by_hand_is_checked_too) {
  AttentionSpec spec;
  spec.backend = backend_;
  spec.extra["EXTRA_TEST_ATTN"] = {{"tile", "4"}, {"tag", "not json"}, {"unknown", "1"}};
  const auto status = validate(spec);
  ASSERT_FALSE(status);
  EXPECT_HAS(status.error().message,
             "extra.EXTRA_TEST_ATTN.tile: expected an integer in [16, 256]");
  EXPECT_HAS(status.error().message, "extra.EXTRA_TEST_ATTN.tag: 'not json' is not JSON text");
  EXPECT_HAS(status.error().message, "extra.EXTRA_TEST_ATTN.unknown: unknown key");
}

TEST_F(ExtraReader, unregistered_options_are_gone) {
  clear_option_fields(backend_);
  EXPECT_HAS(refused(with(R"({"EXTRA_TEST_ATTN": {}})")), "registered: none");
}

TEST_F(ExtraReader, malformed_tables_are_refused) {
  const auto fault = [&](OptionField field) {
    const auto status = register_option_fields(backend_, {std::move(field)});
    return status ? std::string("accepted") : status.error().message;
  };
  EXPECT_EQ("accepted", fault({"a", OptionType::text, {}, {}, {}, "", ""}));
  EXPECT_HAS(fault({"A", OptionType::text, {}, {}, {}, "", ""}),
             "the name must be [a-z][a-z0-9_]*");
  EXPECT_HAS(fault({"", OptionType::text, {}, {}, {}, "", ""}), "the name must be");
  EXPECT_HAS(fault({"a", OptionType::choice, {}, {}, {}, "", ""}), "a choice needs choices");
  EXPECT_HAS(fault({"a", OptionType::layers, {}, {}, {}, "", ""}), "the type must be");
  EXPECT_HAS(fault({"a", static_cast<OptionType>(99), {}, {}, {}, "", ""}), "the type is unknown");
  EXPECT_HAS(fault({"a", OptionType::integer, 3, 2, {}, "", ""}), "minimum and maximum contradict");
  EXPECT_HAS(fault({"a", OptionType::integer, {}, {}, {}, "x", ""}), "the default is not JSON");
  EXPECT_HAS(fault({"a", OptionType::integer, 2, {}, {}, "1", ""}),
             "expected an integer of at least 2");
  const auto twice = register_option_fields(
      backend_,
      {{"a", OptionType::text, {}, {}, {}, "", ""}, {"a", OptionType::text, {}, {}, {}, "", ""}});
  ASSERT_FALSE(twice);
  EXPECT_EQ("option 'a' of EXTRA_TEST_ATTN: the name is given twice", twice.error().message);
  EXPECT_EQ(ErrorCode::invalid_argument, twice.error().code);
}

TEST_F(ExtraReader, registered_tables_are_listed) {
  const auto blocks = option_blocks();
  ASSERT_EQ("extra.EXTRA_TEST_ATTN", blocks.back().name);
  ASSERT_EQ(5u, blocks.back().fields.size());
  EXPECT_EQ("an integer in [16, 256]", blocks.back().fields[0].accepted);
  EXPECT_EQ("128", blocks.back().fields[0].default_value);
}

}  // namespace
}  // namespace fovea
