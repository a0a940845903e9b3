#include "src/config/fields.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "tests/config/config_matchers.hpp"

namespace fovea::config {
namespace {

struct Row {
  std::string block;
  std::string field;
  std::string accepted;
  std::string initial;  // JSON, empty: unset
};

// The whole table, as a user relies on it.
const Row kTable[] = {
    {"", "backend", "a backend name", ""},
    {"", "strictness", "one of require, prefer", "\"require\""},
    {"", "provider", "one of fovea, cudnn, package", ""},
    {"", "allow_copy", "true or false", "false"},
    {"", "fastvideo_vsa_topk", "an integer of at least 1", ""},
    {"", "scale", "a finite number above 0", ""},
    {"", "is_causal", "true or false", ""},
    {"", "dropout", "0", ""},
    {"", "from_factory", "true or false", "false"},
    {"quant", "dtype_qk", "one of float16, bfloat16, int8, fp8_e4m3", ""},
    {"quant", "dtype_vo", "one of float16, bfloat16, int8, fp8_e4m3", ""},
    {"quant", "q_block_size", "1, 4 or 16", "1"},
    {"quant", "k_block_size", "1, 4 or 16", "16"},
    {"quant", "flashinfer_backend", "a non-empty text", ""},
    {"aiter_quant", "format", "one of bf16, fp8, i8fp8, mxfp8, mxfp4, mxfp6, f6f4, f8f6",
     "\"fp8\""},
    {"skip_softmax", "target_sparsity", "a number in [0, 1]", ""},
    {"skip_softmax", "threshold", "a finite number of at least 0", ""},
    {"skip_softmax", "disabled_until_timestep", "a number in [0, 1]", "0"},
    {"block_sparse", "sparsity", "a number in [0, 1]", "0.8"},
    {"block_sparse", "start_step", "an integer of at least 0", "0"},
    {"block_sparse", "end_step", "an integer of at least 0", "0"},
    {"block_sparse", "precision", "one of bf16, fp8, mix", "\"bf16\""},
    {"block_sparse", "skip_layers", "a list of layers or a text such as \"0-2,38\"", "[]"},
    {"block_sparse", "selection", "one of mask, block_topk", "\"block_topk\""},
    {"block_sparse", "block_size", "64 or 128", "128"},
    {"block_sparse", "protected_prefix", "an integer of at least 0", "0"},
    {"radial", "dense_timesteps", "an integer of at least 0", "40"},
    {"radial", "dense_layers", "an integer of at least 0", "0"},
    {"radial", "decay_factor", "a finite number above 0", "1"},
    {"radial", "block_size", "64 or 128", "128"},
    {"radial", "rule", "one of radial, authors, telefuser", "\"radial\""},
    {"radial", "dense_backend", "a backend name", "\"FLASH_ATTN\""},
    {"radial", "use_sage_attention", "true or false", "false"},
    {"local_sparse", "dense_timesteps", "an integer of at least 0", "40"},
    {"local_sparse", "dense_layers", "an integer of at least 0", "0"},
    {"local_sparse", "local_window_size", "an integer of at least 1", "6"},
    {"local_sparse", "block_size", "64 or 128", "128"},
    {"local_sparse", "topk", "an integer of at least 1", ""},
    {"local_sparse", "dense_backend", "a backend name", "\"FLASH_ATTN\""},
    {"local_sparse", "use_sage_attention", "true or false", "false"},
};

TEST(Fields, the_tables_are_what_users_rely_on) {
  size_t row = 0;
  for (const OptionBlockInfo& block : option_blocks()) {
    for (const OptionFieldInfo& field : block.fields) {
      ASSERT_LT(row, std::size(kTable)) << block.name << '.' << field.name;
      EXPECT_EQ(kTable[row].block, block.name);
      EXPECT_EQ(kTable[row].field, field.name);
      EXPECT_EQ(kTable[row].accepted, field.accepted) << field.name;
      EXPECT_EQ(kTable[row].initial, field.default_value) << field.name;
      EXPECT_FALSE(field.summary.empty()) << field.name;
      ++row;
    }
  }
  EXPECT_EQ(std::size(kTable), row);
}

TEST(Fields, ownership_is_one_table) {
  const std::pair<const char*, const char*> owners[] = {
      {"quant", "TRTLLM_ATTN, FLASHINFER_ATTN"},
      {"aiter_quant", "AITER_QUANT_ATTN"},
      {"skip_softmax", "TRTLLM_ATTN, FLASH_ATTN"},
      {"block_sparse", "RAINFUSION_ATTN, BLOCK_SPARSE_ATTN, SPARGE_ATTN"},
      {"radial", "RADIAL_ATTN"},
      {"local_sparse", "LOCAL_SPARSE_ATTN"},
  };
  for (const auto& [block, names] : owners) {
    ASSERT_NE(nullptr, find_block(block));
    EXPECT_EQ(names, list_names(find_block(block)->owners)) << block;
  }
  EXPECT_EQ(std::size(owners), blocks().size());
  EXPECT_EQ("FASTVIDEO_VSA", list_names(find_field(spec_fields(), "fastvideo_vsa_topk")->owners));
  const auto of_field = [](const char* block, const char* field) {
    return list_names(find_field(find_block(block)->fields, field)->owners);
  };
  EXPECT_EQ("FLASHINFER_ATTN", of_field("quant", "flashinfer_backend"));
  EXPECT_EQ("TRTLLM_ATTN", of_field("quant", "q_block_size"));
  EXPECT_EQ("TRTLLM_ATTN", of_field("quant", "k_block_size"));
  EXPECT_EQ("BLOCK_SPARSE_ATTN, SPARGE_ATTN", of_field("block_sparse", "protected_prefix"));
  EXPECT_EQ("", of_field("quant", "dtype_qk"));
}

// One wrong value of every JSON type that a field does not take.
TEST(Fields, every_field_refuses_every_other_type) {
  const auto check = [](const Field& field) {
    const auto refused = [&](const Value& value) {
      Problems problems;
      const auto read = read_value(field, value, Path{"x"}, problems);
      EXPECT_FALSE(read) << field.name << " took " << write_json(value);
      EXPECT_EQ(1u, problems.count()) << field.name;
      EXPECT_TRUE(has(problems.error("o").message, "o: x")) << problems.error("o").message;
    };
    const bool texts = field.type == OptionType::text;
    const bool numeric = field.type == OptionType::integer || field.type == OptionType::number;
    refused(Value{});
    refused(Value::object());
    if (field.type != OptionType::boolean) refused(Value::of(true));
    if (!numeric) refused(Value::of(int64_t{1}));
    if (field.type != OptionType::number) refused(Value::of(0.5));
    if (field.type != OptionType::layers) refused(Value::array());
    if (!texts) refused(Value::of(std::string("no such word")));
    refused(Value::of(std::numeric_limits<double>::quiet_NaN()));
    refused(Value::of(std::numeric_limits<double>::infinity()));
    if (numeric) {
      refused(Value::of(std::string("1")));  // a number as a string
      refused(Value::of(int64_t{-1}));
      refused(Value::of(true));
    }
  };
  for (const Field& field : spec_fields()) check(field);
  for (const Field& field : sparse_config_fields()) check(field);
  for (const Block& block : blocks()) {
    for (const Field& field : block.fields) check(field);
  }
}

TEST(Fields, limits_are_inclusive_unless_said) {
  const auto takes = [](std::string_view block, std::string_view name, const Value& value) {
    const Field* field = find_field(find_block(block)->fields, name);
    Problems problems;
    return read_value(*field, value, Path{}, problems).has_value();
  };
  EXPECT_TRUE(takes("block_sparse", "sparsity", Value::of(0.0)));
  EXPECT_TRUE(takes("block_sparse", "sparsity", Value::of(int64_t{1})));
  EXPECT_FALSE(takes("block_sparse", "sparsity", Value::of(std::nextafter(1.0, 2.0))));
  EXPECT_FALSE(takes("block_sparse", "sparsity", Value::of(-1e-300)));
  EXPECT_TRUE(takes("radial", "decay_factor", Value::of(1e-300)));
  EXPECT_FALSE(takes("radial", "decay_factor", Value::of(0.0)));
  EXPECT_TRUE(takes("skip_softmax", "threshold", Value::of(0.0)));
  EXPECT_TRUE(takes("skip_softmax", "threshold", Value::of(1e300)));
  EXPECT_TRUE(takes("radial", "block_size", Value::of(int64_t{64})));
  EXPECT_FALSE(takes("radial", "block_size", Value::of(int64_t{96})));
  EXPECT_TRUE(takes("radial", "dense_timesteps", Value::of(int64_t{0})));
  EXPECT_TRUE(takes("radial", "dense_timesteps", Value::of(std::numeric_limits<int64_t>::max())));
  EXPECT_FALSE(takes("local_sparse", "topk", Value::of(int64_t{0})));
}

TEST(Fields, choices_are_read_in_any_case_and_kept_in_one) {
  const Field* format = find_field(find_block("aiter_quant")->fields, "format");
  for (const std::string_view choice : format->choices) {
    std::string upper(choice);
    for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    Problems problems;
    const auto value = read_value(*format, Value::of(" " + upper + " "), Path{}, problems);
    ASSERT_TRUE(value) << choice;
    EXPECT_EQ(choice, value->text);
  }
}

TEST(Fields, flags_are_converted_by_type_and_json_strings_are_not) {
  Value typed = Value::of(std::string(" 7 "));
  const Field* topk = find_field(spec_fields(), "fastvideo_vsa_topk");
  Problems problems;
  EXPECT_FALSE(read_value(*topk, typed, Path{"a"}, problems));
  typed.from_flag = true;
  const auto value = read_value(*topk, typed, Path{"a"}, problems);
  ASSERT_TRUE(value);
  EXPECT_EQ(7, value->integer);
  Value wrong = Value::of(std::string("7.5"));
  wrong.from_flag = true;
  Problems flagged;
  EXPECT_FALSE(read_value(*topk, wrong, Path{"a"}, flagged));
  EXPECT_EQ("o: --config.a: expected an integer of at least 1, found '7.5'",
            flagged.error("o").message);
}

TEST(Fields, layers_come_as_list_or_selector) {
  const Field* layers = find_field(find_block("block_sparse")->fields, "skip_layers");
  Value list = Value::array();
  for (int64_t layer : {38, 1, 0, 2, 1}) list.items.push_back(Value::of(layer));
  Problems problems;
  EXPECT_EQ("[0,1,2,38]", write_json(*read_value(*layers, list, Path{}, problems)));
  EXPECT_EQ("[0,1,2,38]",
            write_json(*read_value(*layers, Value::of(std::string("0-2, 38")), Path{}, problems)));
  list.items.push_back(Value::of(true));
  EXPECT_FALSE(read_value(*layers, list, Path{"l"}, problems));
  EXPECT_EQ("o: l[5]: expected a layer from 0 to 4095, found true", problems.error("o").message);
}

TEST(Fields, every_set_value_is_read_back_by_get) {
  for (const Block& block : blocks()) {
    AttentionSpec spec;
    EXPECT_EQ(nullptr, block.find(spec)) << block.name;
    void* options = block.emplace(spec);
    EXPECT_EQ(options, block.find(spec)) << block.name;
    std::set<std::string> seen;
    for (const Field& field : block.fields) {
      EXPECT_TRUE(seen.insert(std::string(field.name)).second) << field.name << " twice";
      Value value;
      if (field.type == OptionType::boolean) value = Value::of(true);
      if (field.type == OptionType::integer) {
        value = Value::of(field.sizes.empty() ? int64_t{3} : field.sizes.back());
      }
      if (field.type == OptionType::number) value = Value::of(0.25);
      if (field.type == OptionType::text) value = Value::of(std::string("fa3"));
      if (field.type == OptionType::choice) value = Value::of(std::string(field.choices.back()));
      if (field.type == OptionType::backend) value = Value::of(std::string("TORCH_SDPA"));
      if (field.type == OptionType::layers) {
        value = Value::array();
        value.items.push_back(Value::of(int64_t{4}));
      }
      field.set(options, value);
      EXPECT_EQ(write_json(value), write_json(field.get(options))) << field.name;
    }
  }
}

}  // namespace
}  // namespace fovea::config
