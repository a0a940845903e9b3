// One table per option block. JSON reading, flags, to_json, help, docs, ownership and hashing all
// read these tables.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/backend_name.hpp"
#include "fovea/config.hpp"
#include "fovea/option_fields.hpp"
#include "src/config/problems.hpp"
#include "src/config/value.hpp"

namespace fovea::config {

struct Field {
  static constexpr double kNoLimit = std::numeric_limits<double>::infinity();

  std::string_view name;
  OptionType type = OptionType::text;
  std::string_view summary;
  double minimum = -kNoLimit;
  double maximum = kNoLimit;
  bool above_minimum = false;                      // the minimum itself is refused
  std::span<const int64_t> sizes = {};             // integer: only these
  std::span<const std::string_view> choices = {};  // choice: only these
  std::span<const BackendName> owners = {};        // empty: those of the block
  // Reads the member of the struct behind `owner`; null when unset.
  Value (*get)(const void* owner) = nullptr;
  // Writes a value that read_value() returned.
  void (*set)(void* owner, const Value& value) = nullptr;
};

struct Block {
  std::string_view name;
  std::string_view summary;
  std::span<const BackendName> owners;
  std::span<const Field> fields;
  bool implied = false;  // choosing an owner gives the block its defaults
  const void* (*find)(const AttentionSpec& spec) = nullptr;  // null when absent
  void* (*emplace)(AttentionSpec& spec) = nullptr;           // with defaults
};

// The fields of the spec itself; their owner is an AttentionSpec.
std::span<const Field> spec_fields() noexcept;
// The option blocks of a spec.
std::span<const Block> blocks() noexcept;
const Block* find_block(std::string_view name) noexcept;
// The guide's sparse_config; its owner is a SparseAttentionConfig.
std::span<const Field> sparse_config_fields() noexcept;

const Field* find_field(std::span<const Field> fields, std::string_view name) noexcept;
std::vector<std::string_view> field_names(std::span<const Field> fields);

// "a number in [0, 1]", "1, 4 or 16", "one of bf16, fp8, mix".
std::string accepted(const Field& field);

// The value normalised for Field::set (text of flags converted, choices and backends in canonical
// spelling), or a problem.
std::optional<Value> read_value(const Field& field, const Value& value, const Path& path,
                                Problems& problems);

// "TRTLLM_ATTN, FLASHINFER_ATTN"
std::string list_names(std::span<const BackendName> names);
bool contains(std::span<const BackendName> names, BackendName name) noexcept;

// The fields registered for extra.<NAME>, or nothing when none are.
std::optional<std::vector<OptionField>> extra_fields(BackendName backend);
// A view of a registered field; `choices` backs it and must outlive it, as must `field`.
Field view(const OptionField& field, std::vector<std::string_view>& choices);

}  // namespace fovea::config
