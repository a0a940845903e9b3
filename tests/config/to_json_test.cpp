#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "src/config/fields.hpp"
#include "src/config/spec_hash.hpp"
#include "src/config/spec_reader.hpp"
#include "tests/config/config_matchers.hpp"

namespace fovea::config {
namespace {

// Random specs that are valid by construction of each field; rules decide which are kept.
class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}

  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }
  bool chance(int percent) { return below(100) < static_cast<size_t>(percent); }

  Value value(const Field& field) {
    switch (field.type) {
      case OptionType::boolean:
        return Value::of(chance(50));
      case OptionType::integer: {
        if (!field.sizes.empty()) return Value::of(field.sizes[below(field.sizes.size())]);
        const auto low = static_cast<int64_t>(field.minimum);
        return Value::of(chance(5) ? std::numeric_limits<int64_t>::max()
                                   : low + static_cast<int64_t>(below(50)));
      }
      case OptionType::number: {
        if (field.minimum == field.maximum) return Value::of(field.minimum);
        const double unit = std::uniform_real_distribution<double>(0, 1)(random_);
        if (std::isfinite(field.maximum)) return Value::of(unit);
        return Value::of(std::ldexp(1 - unit, static_cast<int>(below(200)) - 100));
      }
      case OptionType::text: {
        const char* words[] = {"fa3", "a\"b\\c", "tab\there", "\xc3\xa9\xf0\x9f\x99\x82", "null"};
        return Value::of(std::string(words[below(std::size(words))]));
      }
      case OptionType::choice:
        return Value::of(std::string(field.choices[below(field.choices.size())]));
      case OptionType::backend:
        return Value::of(std::string(backend_names()[below(backend_names().size())].canonical));
      case OptionType::layers: {
        Value list = Value::array();
        int64_t layer = -1;
        while (chance(70)) {
          list.items.push_back(Value::of(layer += 1 + static_cast<int64_t>(below(4))));
        }
        return list;
      }
    }
    return {};
  }

  AttentionSpec spec() {
    AttentionSpec out;
    for (const Field& field : spec_fields()) {
      if (field.name == "backend" || chance(30)) field.set(&out, value(field));
    }
    for (const Block& block : blocks()) {
      if (!chance(contains(block.owners, out.backend) ? 70 : 1)) continue;
      void* options = block.emplace(out);
      for (const Field& field : block.fields) {
        if (chance(50)) field.set(options, value(field));
      }
    }
    add_implied_blocks(out);
    return out;
  }

  std::string role() {
    const char* words[] = {"self", "cross", "ltx2", "audio_self", "joint", "Gen-1", "\xc3\xa9"};
    std::string out = words[below(std::size(words))];
    while (chance(40)) out += std::string(".") + words[below(std::size(words))];
    return out;
  }

 private:
  std::mt19937_64 random_;
};

TEST(ToJson, random_configs_read_back_equal) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Generator generator(seed);
  size_t kept = 0;
  size_t refused_specs = 0;
  std::set<uint16_t> backends;
  for (int round = 0; round < 20000; ++round) {
    AttentionConfig config;
    const auto draw = [&]() -> std::optional<AttentionSpec> {
      AttentionSpec spec = generator.spec();
      if (validate(spec)) return spec;
      ++refused_specs;
      return {};
    };
    if (generator.chance(60)) config.default_spec = draw();
    if (!config.default_spec) config.environment_disabled = generator.chance(30);
    while (generator.chance(30)) {
      if (auto spec = draw()) config.per_role[generator.role()] = *spec;
    }
    if (config.default_spec) backends.insert(config.default_spec->backend.id());
    const std::string text = to_json(config);
    const auto read = parse_config(text);
    ASSERT_TRUE(read) << text << '\n' << read.error().message;
    ASSERT_EQ(config, *read) << text << '\n' << to_json(*read);
    EXPECT_EQ(text, to_json(*read));
    kept += config.default_spec || !config.per_role.empty();
  }
  EXPECT_GT(kept, 5000u) << "the generator draws too few valid configs";
  EXPECT_GT(refused_specs, 500u) << "the generator draws too few invalid specs";
  EXPECT_EQ(backend_names().size(), backends.size()) << "a backend was never drawn";
}

TEST(ToJson, a_spec_shows_what_differs_and_its_blocks_whole) {
  EXPECT_EQ(R"({"backend":"FLASH_ATTN_2","strictness":"prefer","scale":0.1})",
            to_json(parsed_default(
                R"({"default": {"backend": "fa2", "strictness": "prefer", "scale": 0.1}})")));
  EXPECT_EQ(R"({"backend":"TRTLLM_ATTN","strictness":"require","quant":{"dtype_qk":"int8",)"
            R"("q_block_size":1,"k_block_size":16}})",
            to_json(parsed_default(
                R"({"default": {"backend": "TRTLLM_ATTN", "quant": {"dtype_qk": "int8"}}})")));
  EXPECT_EQ(R"({"backend":"FLASHINFER_ATTN","strictness":"require","quant":{"q_block_size":1,)"
            R"("k_block_size":16,"flashinfer_backend":"fa3"}})",
            to_json(parsed_default(R"({"default": {"backend": "FLASHINFER_ATTN",
                "quant": {"flashinfer_backend": "fa3"}}})")));
  EXPECT_EQ(R"({"default":"auto"})", to_json(parsed(R"({"default": "auto"})")));
  EXPECT_EQ("{}", to_json(AttentionConfig{}));
}

TEST(ToJson, equal_specs_hash_equal_and_every_field_counts) {
  std::set<uint64_t> hashes;
  size_t variants = 0;
  const auto add = [&](const AttentionSpec& spec) {
    hashes.insert(spec_hash(spec));
    ++variants;
  };
  AttentionSpec base;
  base.backend = backend::RADIAL_ATTN;
  base.radial.emplace();
  add(base);
  EXPECT_EQ(spec_hash(base), spec_hash(AttentionSpec(base)));
  const auto change = [&](auto&& edit) {
    AttentionSpec spec = base;
    edit(spec);
    add(spec);
  };
  change([](AttentionSpec& s) { s.backend = backend::FLASH_ATTN; });
  change([](AttentionSpec& s) { s.strictness = Strictness::prefer; });
  change([](AttentionSpec& s) { s.provider = "fovea"; });
  change([](AttentionSpec& s) { s.allow_copy = true; });
  change([](AttentionSpec& s) { s.scale = 0.5; });
  change([](AttentionSpec& s) { s.is_causal = false; });
  change([](AttentionSpec& s) { s.from_factory = true; });
  change([](AttentionSpec& s) { s.radial->dense_timesteps = 1; });
  change([](AttentionSpec& s) { s.radial->decay_factor = std::nextafter(1.0, 2.0); });
  change([](AttentionSpec& s) { s.radial->rule = "authors"; });
  change([](AttentionSpec& s) { s.radial.reset(); });
  change([](AttentionSpec& s) { s.extra["X"]["a"] = "1"; });
  change([](AttentionSpec& s) { s.extra["X"]["a"] = "2"; });
  EXPECT_EQ(variants, hashes.size());
}

}  // namespace
}  // namespace fovea::config
