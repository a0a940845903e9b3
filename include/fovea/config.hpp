// What a user asks for: one spec per layer role, and how strictly it is meant.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fovea/backend_name.hpp"
#include "fovea/error.hpp"
#include "fovea/options.hpp"

namespace fovea {

// require: run this backend or refuse. prefer: fall through to the platform's list, once, loudly,
// in the receipt.
enum class Strictness : uint8_t { require, prefer };
FOVEA_API std::string_view name(Strictness strictness) noexcept;

// A plugin option value as written: a number, boolean or string kept as JSON text.
using ExtraOptions = std::map<std::string, std::string>;

// One entry of a configuration. Values are checked when a config is built; a spec made by hand is
// checked by validate().
struct AttentionSpec {
  BackendName backend = backend::FLASH_ATTN;
  Strictness strictness = Strictness::require;
  std::string provider;  // empty: any; else "fovea", "cudnn" or "package"
  bool allow_copy = false;
  std::optional<QuantOptions> quant;
  std::optional<AiterQuantOptions> aiter_quant;
  std::optional<SkipSoftmaxOptions> skip_softmax;
  std::optional<BlockSparseOptions> block_sparse;
  std::optional<int64_t> fastvideo_vsa_topk;
  std::optional<RadialOptions> radial;
  std::optional<LocalSparseOptions> local_sparse;
  std::map<std::string, ExtraOptions> extra;
  // The guide's form.
  std::optional<double> scale;
  std::optional<bool> is_causal;
  // Made by a sparse factory of the guide: without a sparse state it runs dense_backend and says
  // so.
  bool from_factory = false;

  bool operator==(const AttentionSpec&) const = default;
};

// The sparse half of the guide's configuration.
struct SparseAttentionConfig {
  std::optional<std::string> sparse_impl;  // "radial", "local"
  int64_t dense_timesteps = 40;
  int64_t dense_layers = 0;
  double decay_factor = 1.0;
  int64_t local_window_size = 6;
  int64_t block_size = 128;
  bool use_sage_attention = false;

  bool operator==(const SparseAttentionConfig&) const = default;
};

// The guide's configuration as one struct.
struct GuideConfig {
  AttnImplType attn_impl = AttnImplType::TORCH_SDPA;
  std::optional<SparseAttentionConfig> sparse_config;
  std::optional<double> scale;
  double dropout = 0.0;  // only 0
  std::optional<bool> is_causal;
};

// A spec and where it came from.
struct ResolvedSpec {
  const AttentionSpec* spec = nullptr;  // null: platform default
  // "attention_config.per_role['self']", "attention_config.default", "environment FOVEA_BACKEND",
  // ...
  std::string source;
};

// A default and one spec per role. Value type; a model keeps its own copy, so two models never see
// each other.
struct AttentionConfig {
  std::optional<AttentionSpec> default_spec;
  std::map<std::string, AttentionSpec> per_role;
  bool environment_disabled = false;      // default: "auto" was written
  bool default_from_environment = false;  // the default is the value of FOVEA_BACKEND

  bool operator==(const AttentionConfig&) const = default;

  // Exact role, then category, then default. The pointer is valid as long as this object is.
  FOVEA_API ResolvedSpec resolve(std::string_view role, std::string_view category = {}) const;

  // The guide's form, as a default that is meant strictly. Error invalid_config: a sparse attn_impl
  // without a sparse_config or one that contradicts it, a dropout other than 0, values out of
  // range.
  FOVEA_API static Result<AttentionConfig> from_guide(const GuideConfig& guide);

  // The guide's factories. The sparse ones make a preference: without a sparse state dense_backend
  // runs, and says so. Errors: invalid_config.
  FOVEA_API static Result<AttentionConfig> dense_attention(BackendName backend);
  FOVEA_API static Result<AttentionConfig> radial_attention(const SparseAttentionConfig& sparse);
  FOVEA_API static Result<AttentionConfig> local_sparse_attention(
      const SparseAttentionConfig& sparse);
};

// Ownership, ranges and strictness of one spec. Error invalid_config names the field, the value and
// what is accepted.
FOVEA_API Status validate(const AttentionSpec& spec);

// A flag as typed: key "default.backend", value "FA3".
struct ConfigFlag {
  std::string path;
  std::string value;
};

// Everything that may define a configuration, in order of precedence: flags over `text` over
// `backend` over the environment (used only when no default is set).
struct ConfigSources {
  std::string text;    // JSON text, or empty
  std::string origin;  // how errors call it, e.g. a file name; empty: "config"
  std::vector<ConfigFlag> flags;
  std::string backend;  // shorthand for the default; conflicts with a default in `text`
  std::optional<std::string>
      environment;  // value of FOVEA_BACKEND; use read_environment() for the process's own
};

// Parses, normalises and validates. Error invalid_config: unknown keys (lists what exists, suggests
// the nearest), wrong types, values out of range, conflicts.
FOVEA_API Result<AttentionConfig> build_config(const ConfigSources& sources);

// JSON text only; no flags, no environment.
FOVEA_API Result<AttentionConfig> parse_config(std::string_view json);

// If `argument` starts (after blanks) with '{' it is JSON text, else a path. `kind` is what errors
// call the file. Error invalid_file.
FOVEA_API Result<std::string> read_config_argument(const std::string& argument,
                                                   std::string_view kind = "config");

// Normalised JSON of a config; parse_config(to_json(c)) == c.
FOVEA_API std::string to_json(const AttentionConfig& config);
FOVEA_API std::string to_json(const AttentionSpec& spec);

// FOVEA_BACKEND of this process, blank = nothing.
FOVEA_API std::optional<std::string> environment_backend();

}  // namespace fovea
