// The facts each platform knows, and the reader of "key=value,..." text.
#include <algorithm>
#include <iterator>
#include <optional>
#include <vector>

#include "fovea/device_facts.hpp"
#include "src/core/text.hpp"
#include "src/platform/added_platforms.hpp"
#include "src/platform/cpu_probe.hpp"
#include "src/simd/cpu_features.hpp"

namespace fovea {
namespace {

using Type = FactKey::Type;
constexpr bool kRequired = true;

constexpr FactKey kCpuKeys[] = {
    {"isa", Type::text, !kRequired,
     "instruction set: generic, avx2, avx512, avx512bf16, amx, neon"},
};

constexpr FactKey kCudaKeys[] = {
    {"sm", Type::integer, kRequired, "compute capability: 90 (also 9.0 and sm_90)"},
    {"name", Type::text, !kRequired, "device name"},
    {"driver", Type::version, !kRequired, "driver version"},
    {"cuda", Type::version, !kRequired, "CUDA toolkit version"},
    {"cudnn", Type::version, !kRequired, "cuDNN version: 9.5 (also 90500)"},
    {"flash_attn", Type::version, !kRequired, "package flash_attn (FlashAttention 2)"},
    {"flash_attn_3", Type::version, !kRequired, "package flash_attn_interface (FlashAttention 3)"},
    {"fa4", Type::version, !kRequired, "FlashAttention 4 (flash_attn.cute)"},
    {"flashinfer", Type::version, !kRequired, "package flashinfer"},
    {"flashinfer_prefill", Type::flag, !kRequired,
     "flashinfer has BatchPrefillWithRaggedKVCacheWrapper"},
    {"trtllm", Type::flag, !kRequired, "flashinfer has trtllm_ragged_attention_deepseek"},
    {"sageattention", Type::version, !kRequired, "package sageattention"},
    {"sageattn3", Type::version, !kRequired, "package sageattn3"},
    {"spas_sage_attn", Type::version, !kRequired, "package spas_sage_attn"},
    {"sparse_sageattn", Type::version, !kRequired, "package sparse_sageattn"},
    {"block_sparse_attn", Type::version, !kRequired, "package block_sparse_attn"},
    {"tf_kernel", Type::version, !kRequired, "package tf_kernel"},
    {"hub_kernels", Type::version, !kRequired, "package kernels, with a build of the hub kernel"},
    {"fastvideo_kernel", Type::version, !kRequired, "package fastvideo_kernel"},
    {"kernels", Type::text, !kRequired, "architectures this build embeds: sm_80+sm_90a, or none"},
    {"fovea_kernels", Type::flag, !kRequired, "0 hides Fovea's own CUDA kernels (default 1)"},
};

constexpr FactKey kRocmKeys[] = {
    {"gfx", Type::text, !kRequired, "architecture: gfx942 (also 942)"},
    {"aiter", Type::version, !kRequired, "package aiter"},
    {"name", Type::text, !kRequired, "device name"},
    {"driver", Type::version, !kRequired, "driver version"},
};

constexpr FactKey kNpuKeys[] = {
    {"mindiesd", Type::version, !kRequired, "package mindiesd (MindIE SD)"},
    {"laser", Type::flag, !kRequired, "MindIE runs ascend_laser_attention"},
    {"name", Type::text, !kRequired, "device name"},
    {"driver", Type::version, !kRequired, "driver version"},
};

constexpr FactKey kXpuKeys[] = {
    {"arch", Type::text, !kRequired, "architecture id as the driver reports it"},
    {"auto_round", Type::version, !kRequired, "package auto_round (its attention kernel)"},
    {"name", Type::text, !kRequired, "device name"},
    {"driver", Type::version, !kRequired, "driver version"},
};

constexpr FactKey kMusaKeys[] = {
    {"cc", Type::version, !kRequired, "compute capability: 3.1"},
    {"flash_attn", Type::version, !kRequired, "package flash_attn for MUSA"},
    {"name", Type::text, !kRequired, "device name"},
    {"driver", Type::version, !kRequired, "driver version"},
};

Error invalid(PlatformId platform, std::string message) {
  return Error{ErrorCode::invalid_facts, text::concat(name(platform), " facts: ", message), {}};
}

bool starts_with_digit(std::string_view value) noexcept {
  return !value.empty() && value.front() >= '0' && value.front() <= '9';
}

std::string_view without_prefix(std::string_view value, std::string_view prefix) noexcept {
  return value.substr(0, prefix.size()) == prefix ? value.substr(prefix.size()) : value;
}

// "90", "9.0", "sm_90", "sm90" and "sm_90a" are 90.
std::optional<std::string> architecture_number(std::string_view value) {
  std::string digits = text::fold(value);
  digits = without_prefix(without_prefix(digits, "sm"), "_");
  if (!digits.empty() && (digits.back() == 'a' || digits.back() == 'f')) digits.pop_back();
  if (const size_t dot = digits.find('.'); dot != std::string::npos) {
    if (dot == 0 || digits.size() != dot + 2) return std::nullopt;
    digits.erase(dot, 1);
  }
  const std::optional<int64_t> number = text::parse_integer(digits);
  if (!number || *number < 10 || *number > 999) return std::nullopt;
  return digits;
}

// cuDNN reports 9.5.0 as 90500 and 8.9.4 as 8904.
std::string cudnn_version(std::string_view value) {
  const std::optional<int64_t> number = text::parse_integer(value);
  if (!number || *number < 1000) return std::string(value);
  const int64_t major = *number >= 10000 ? 10000 : 1000;
  return text::concat(*number / major, '.', *number % major / 100, '.', *number % 100);
}

bool architecture_list(std::string_view value) {
  if (value == "none") return true;
  for (const std::string_view item : text::split(value, '+'))
    if (without_prefix(item, "sm_").size() == item.size() || !architecture_number(item))
      return false;
  return true;
}

// The stored form of a value, or what is accepted instead.
struct Normalised {
  std::string value;
  std::string accepted = {};
};

// The keys of built-in platforms that have a form of their own; nothing for the others.
std::optional<Normalised> normalise_known(PlatformId id, const FactKey& key,
                                          std::string_view value) {
  if (key.key == "sm") {
    std::optional<std::string> number = architecture_number(value);
    if (!number) return Normalised{{}, "a compute capability such as 90, 9.0 or sm_90"};
    return Normalised{*std::move(number)};
  }
  if (key.key == "kernels") {
    std::string folded = text::fold(value);
    if (!architecture_list(folded))
      return Normalised{{}, "sm_80, sm_90a, several joined by '+', or none"};
    return Normalised{std::move(folded)};
  }
  if (id == PlatformId::cpu && key.key == "isa") {
    const std::optional<simd::Isa> isa = simd::parse_isa(value);
    if (!isa) return Normalised{{}, platform::isa_list()};
    return Normalised{std::string(simd::name(*isa))};
  }
  // Other flags may be given as the version of what is there.
  if (key.key == "fovea_kernels" && value != "0" && value != "1")
    return Normalised{{}, "0, 1 or unknown"};
  if (key.key == "gfx") {
    std::string folded = text::fold(value);
    if (starts_with_digit(folded)) folded.insert(0, "gfx");
    return Normalised{std::move(folded)};
  }
  return std::nullopt;
}

Normalised normalise(PlatformId id, const FactKey& key, std::string_view value) {
  if (value == "unknown") return {std::string(value)};
  if (is_built_in(id)) {
    if (std::optional<Normalised> known = normalise_known(id, key, value)) return *std::move(known);
  }
  switch (key.type) {
    case Type::version:
      return {key.key == "cudnn" ? cudnn_version(value) : std::string(value)};
    case Type::flag:
      if (!starts_with_digit(value) && !value.starts_with("broken"))
        return {{}, "0, 1, unknown or broken: CAUSE"};
      return {std::string(value)};
    case Type::integer:
      if (!text::parse_integer(value)) return {{}, "an integer"};
      return {std::string(value)};
    case Type::text:
      return {std::string(value)};
  }
  return {};
}

template <size_t N>
std::vector<FactKey> table(const FactKey (&keys)[N]) {
  return {keys, keys + N};
}

std::vector<std::string_view> key_names(PlatformId platform) {
  std::vector<std::string_view> names;
  for (const FactKey& key : fact_keys(platform)) names.push_back(key.key);
  return names;
}

}  // namespace

const std::vector<FactKey>& fact_keys(PlatformId platform) {
  // In the order of PlatformId.
  static const std::vector<FactKey> keys[] = {table(kCpuKeys), table(kCudaKeys), table(kRocmKeys),
                                              table(kNpuKeys), table(kXpuKeys),  table(kMusaKeys)};
  static const std::vector<FactKey> none;
  const auto index = static_cast<size_t>(platform);
  if (index < std::size(keys)) return keys[index];
  const platform::AddedPlatform* added = platform::find_added(platform);
  return added != nullptr ? added->keys : none;
}

Result<DeviceFacts> parse_facts(PlatformId platform, std::string_view text) {
  DeviceFacts facts(platform);
  const std::vector<FactKey>& keys = fact_keys(platform);
  if (!text::trim(text).empty()) {
    for (const std::string_view item : text::split(text, ',')) {
      const size_t equals = item.find('=');
      const std::string_view key = text::trim(item.substr(0, equals));
      const auto known = std::find_if(keys.begin(), keys.end(), [&](const FactKey& k) {
        return text::equal_folded(k.key, key);
      });
      const std::vector<std::string_view> names = key_names(platform);
      if (known == keys.end())
        return invalid(platform, text::concat("unknown key ", text::quote(key), "; keys are ",
                                              text::join(names), text::suggestion(key, names)));
      if (equals == std::string_view::npos)
        return invalid(platform, text::concat("key '", known->key, "' has no value; write ",
                                              known->key, "=VALUE"));
      if (facts.has(known->key))
        return invalid(platform, text::concat("key '", known->key, "' is given twice"));
      const std::string_view value = text::trim(item.substr(equals + 1));
      Normalised normalised = normalise(platform, *known, value);
      if (!normalised.accepted.empty())
        return invalid(platform, text::concat("key '", known->key, "' is ", text::quote(value),
                                              "; accepted: ", normalised.accepted));
      facts.set(std::string(known->key), std::move(normalised.value));
    }
  }
  for (const FactKey& key : keys)
    if (key.required && !facts.has(key.key))
      return invalid(platform,
                     text::concat("required key '", key.key, "' is missing (", key.summary, ')'));
  return facts;
}

}  // namespace fovea
