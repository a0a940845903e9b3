// The option blocks of an AttentionSpec as data: for help texts, bindings and plugins.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fovea/backend_name.hpp"
#include "fovea/error.hpp"

namespace fovea {

// layers: a list of layer numbers or a selector such as "0-2,38". backend: a backend name.
enum class OptionType : uint8_t { boolean, integer, number, text, choice, backend, layers };

// "boolean", "integer", ... Thread-safe; static storage.
FOVEA_API std::string_view name(OptionType type) noexcept;

// One option that a plugin's backend understands. Types: boolean, integer, number, text, choice.
struct OptionField {
  std::string name;  // [a-z][a-z0-9_]*
  OptionType type = OptionType::text;
  std::optional<double> minimum;     // integer and number
  std::optional<double> maximum;     // integer and number
  std::vector<std::string> choices;  // choice: at least one
  std::string default_value;         // JSON text; empty: none
  std::string summary;               // one line
};

// Makes `extra.<NAME>` accepted in configurations, checked against `fields`; replaces an earlier
// table of the same name. Error invalid_argument for a malformed or repeated field. Thread-safe.
FOVEA_API Status register_option_fields(BackendName backend, std::vector<OptionField> fields);
// Removes the table again. Thread-safe.
FOVEA_API void clear_option_fields(BackendName backend);

// One row of help: what a field is called, takes and means.
struct OptionFieldInfo {
  std::string name;
  OptionType type = OptionType::text;
  std::string accepted;             // "a number in [0, 1]"
  std::string default_value;        // JSON text; empty: unset
  std::vector<BackendName> owners;  // empty: those of the block
  std::string summary;
};

// One block. The first is the spec itself, under an empty name.
struct OptionBlockInfo {
  std::string name;                 // "quant", "extra.MY_ATTN"
  std::vector<BackendName> owners;  // backends that the block belongs to; empty: all
  std::vector<OptionFieldInfo> fields;
  std::string summary;
};

// Every block, in-tree ones first, then those registered at run time. Thread-safe.
FOVEA_API std::vector<OptionBlockInfo> option_blocks();

}  // namespace fovea
