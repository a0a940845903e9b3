#include "src/config/fields.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "src/config/layer_selector.hpp"
#include "src/core/text.hpp"

namespace fovea::config {
namespace {

// Struct members to and from Values.
Value to_value(bool value) { return Value::of(value); }
Value to_value(int64_t value) { return Value::of(value); }
Value to_value(double value) { return Value::of(value); }
Value to_value(const std::string& value) { return Value::of(value); }
Value to_value(BackendName value) { return Value::of(name(value)); }
Value to_value(Strictness value) { return Value::of(std::string(name(value))); }
Value to_value(const std::vector<int64_t>& layers) {
  Value out = Value::array();
  for (int64_t layer : layers) out.items.push_back(Value::of(layer));
  return out;
}
template <class T>
Value to_value(const std::optional<T>& value) {
  return value ? to_value(*value) : Value{};
}

void from_value(const Value& value, bool& out) { out = value.boolean; }
void from_value(const Value& value, int64_t& out) { out = value.integer; }
void from_value(const Value& value, double& out) { out = value.number; }
void from_value(const Value& value, std::string& out) { out = value.text; }
void from_value(const Value& value, BackendName& out) {
  out = parse_backend(value.text).value_or(out);
}
void from_value(const Value& value, Strictness& out) {
  out = value.text == name(Strictness::prefer) ? Strictness::prefer : Strictness::require;
}
void from_value(const Value& value, std::vector<int64_t>& out) {
  out.clear();
  for (const Value& layer : value.items) out.push_back(layer.integer);
}
template <class T>
void from_value(const Value& value, std::optional<T>& out) {
  from_value(value, out.emplace());
}

template <class T>
struct MemberOf;
template <class C, class T>
struct MemberOf<T C::*> {
  using Owner = C;
};

template <auto member>
Value get(const void* owner) {
  using Owner = typename MemberOf<decltype(member)>::Owner;
  return to_value(static_cast<const Owner*>(owner)->*member);
}

template <auto member>
void set(void* owner, const Value& value) {
  using Owner = typename MemberOf<decltype(member)>::Owner;
  from_value(value, static_cast<Owner*>(owner)->*member);
}

// Fields by type.
template <auto member>
constexpr Field flag(std::string_view name, std::string_view summary,
                     std::span<const BackendName> owners = {}) {
  Field field{name, OptionType::boolean, summary};
  field.owners = owners;
  field.get = get<member>;
  field.set = set<member>;
  return field;
}

template <auto member>
constexpr Field count(std::string_view name, int64_t minimum, std::string_view summary,
                      std::span<const BackendName> owners = {}) {
  Field field{name, OptionType::integer, summary, static_cast<double>(minimum)};
  field.owners = owners;
  field.get = get<member>;
  field.set = set<member>;
  return field;
}

template <auto member>
constexpr Field size(std::string_view name, std::span<const int64_t> sizes,
                     std::string_view summary) {
  Field field{name, OptionType::integer, summary};
  field.sizes = sizes;
  field.get = get<member>;
  field.set = set<member>;
  return field;
}

template <auto member>
constexpr Field number(std::string_view name, double minimum, double maximum, bool above_minimum,
                       std::string_view summary) {
  Field field{name, OptionType::number, summary, minimum, maximum, above_minimum};
  field.get = get<member>;
  field.set = set<member>;
  return field;
}

template <auto member>
constexpr Field choice(std::string_view name, std::span<const std::string_view> choices,
                       std::string_view summary) {
  Field field{name, OptionType::choice, summary};
  field.choices = choices;
  field.get = get<member>;
  field.set = set<member>;
  return field;
}

template <auto member>
constexpr Field other(std::string_view name, OptionType type, std::string_view summary) {
  Field field{name, type, summary};
  field.get = get<member>;
  field.set = set<member>;
  return field;
}

// A field of a block that only some of the block's owners take.
constexpr Field only(std::span<const BackendName> owners, Field field) {
  field.owners = owners;
  return field;
}

constexpr double kNoLimit = Field::kNoLimit;

constexpr int64_t kQuantBlocks[] = {1, 4, 16};
constexpr int64_t kSparseBlocks[] = {64, 128};
constexpr std::string_view kQuantTypes[] = {"float16", "bfloat16", "int8", "fp8_e4m3"};
constexpr std::string_view kAiterFormats[] = {"bf16",  "fp8",   "i8fp8", "mxfp8",
                                              "mxfp4", "mxfp6", "f6f4",  "f8f6"};
constexpr std::string_view kPrecisions[] = {"bf16", "fp8", "mix"};
constexpr std::string_view kSelections[] = {"mask", "block_topk"};
constexpr std::string_view kRadialRules[] = {"radial", "authors", "telefuser"};
constexpr std::string_view kSparseImpls[] = {"none", "radial", "local"};
constexpr std::string_view kStrictness[] = {"require", "prefer"};
constexpr std::string_view kProviders[] = {"fovea", "cudnn", "package"};

constexpr BackendName kQuantOwners[] = {backend::TRTLLM_ATTN, backend::FLASHINFER_ATTN};
constexpr BackendName kTrtllm[] = {backend::TRTLLM_ATTN};
constexpr BackendName kFlashInfer[] = {backend::FLASHINFER_ATTN};
constexpr BackendName kPrefixOwners[] = {backend::BLOCK_SPARSE_ATTN, backend::SPARGE_ATTN};
constexpr BackendName kAiterOwners[] = {backend::AITER_QUANT_ATTN};
constexpr BackendName kSkipSoftmaxOwners[] = {backend::TRTLLM_ATTN, backend::FLASH_ATTN};
constexpr BackendName kBlockSparseOwners[] = {backend::RAINFUSION_ATTN, backend::BLOCK_SPARSE_ATTN,
                                              backend::SPARGE_ATTN};
constexpr BackendName kRadialOwners[] = {backend::RADIAL_ATTN};
constexpr BackendName kLocalOwners[] = {backend::LOCAL_SPARSE_ATTN};
constexpr BackendName kVsaOwners[] = {backend::FASTVIDEO_VSA};
constexpr BackendName kFactoryOwners[] = {backend::RADIAL_ATTN, backend::LOCAL_SPARSE_ATTN};

// dropout is never stored: zero is all there is.
constexpr Field dropout_field() {
  Field field{"dropout", OptionType::number, "Accepted for the guide's sake; only 0.", 0, 0};
  field.get = [](const void*) { return Value{}; };
  field.set = [](void*, const Value&) {};
  return field;
}

// An empty provider is an unset one.
constexpr Field provider_field() {
  Field field = choice<&AttentionSpec::provider>("provider", kProviders,
                                                 "Run with this provider or refuse; unset: any.");
  field.get = [](const void* owner) {
    const auto& provider = static_cast<const AttentionSpec*>(owner)->provider;
    return provider.empty() ? Value{} : Value::of(provider);
  };
  return field;
}

constexpr Field kSpecFields[] = {
    other<&AttentionSpec::backend>("backend", OptionType::backend,
                                   "The backend to run. Also spelt attn_impl."),
    choice<&AttentionSpec::strictness>(
        "strictness", kStrictness,
        "require: run this backend or refuse. prefer: fall through to the platform's list, once, "
        "logged and in the receipt."),
    provider_field(),
    flag<&AttentionSpec::allow_copy>(
        "allow_copy", "Permit copies of tensors that a kernel cannot read in place."),
    count<&AttentionSpec::fastvideo_vsa_topk>("fastvideo_vsa_topk", 1,
                                              "Key blocks kept per query block.", kVsaOwners),
    number<&AttentionSpec::scale>("scale", 0, kNoLimit, true,
                                  "Softmax scale; unset: head_dim^-0.5."),
    flag<&AttentionSpec::is_causal>("is_causal", "Causal masking; unset: what the call says."),
    dropout_field(),
    flag<&AttentionSpec::from_factory>(
        "from_factory",
        "As made by the guide's sparse factories: without a sparse state run dense_backend and "
        "say so. Needs strictness prefer.",
        kFactoryOwners),
};

constexpr Field kQuantFields[] = {
    choice<&QuantOptions::dtype_qk>("dtype_qk", kQuantTypes, "Element type of Q and K."),
    choice<&QuantOptions::dtype_vo>("dtype_vo", kQuantTypes, "Element type of V."),
    only(kTrtllm, size<&QuantOptions::q_block_size>("q_block_size", kQuantBlocks,
                                                    "Query rows that share a scale.")),
    only(kTrtllm, size<&QuantOptions::k_block_size>("k_block_size", kQuantBlocks,
                                                    "Key rows that share a scale.")),
    only(kFlashInfer,
         other<&QuantOptions::flashinfer_backend>("flashinfer_backend", OptionType::text,
                                                  "FlashInfer's own kernel choice, such as fa3.")),
};

constexpr Field kAiterQuantFields[] = {
    choice<&AiterQuantOptions::format>("format", kAiterFormats, "Number format of the kernel."),
};

constexpr Field kSkipSoftmaxFields[] = {
    number<&SkipSoftmaxOptions::target_sparsity>(
        "target_sparsity", 0, 1, false,
        "Share of key tiles to skip, through the checkpoint's calibration. Excludes threshold."),
    number<&SkipSoftmaxOptions::threshold>(
        "threshold", 0, kNoLimit, false,
        "Skip a key tile that cannot raise the result above this. Excludes target_sparsity."),
    number<&SkipSoftmaxOptions::disabled_until_timestep>(
        "disabled_until_timestep", 0, 1, false,
        "Dense while the normalised timestep is above this; 0 switches the gate off."),
};

constexpr Field kBlockSparseFields[] = {
    number<&BlockSparseOptions::sparsity>("sparsity", 0, 1, false, "Share of blocks left out."),
    count<&BlockSparseOptions::start_step>("start_step", 0, "The first steps that stay dense."),
    count<&BlockSparseOptions::end_step>("end_step", 0, "The last steps that stay dense."),
    choice<&BlockSparseOptions::precision>("precision", kPrecisions, "Arithmetic of the kernel."),
    other<&BlockSparseOptions::skip_layers>("skip_layers", OptionType::layers,
                                            "Layers that stay dense."),
    choice<&BlockSparseOptions::selection>(
        "selection", kSelections,
        "mask: the caller's block mask. block_topk: the blocks that score highest."),
    size<&BlockSparseOptions::block_size>("block_size", kSparseBlocks, "Rows of a block."),
    count<&BlockSparseOptions::protected_prefix>(
        "protected_prefix", 0, "First keys, such as text, whose blocks block_topk always keeps.",
        kPrefixOwners),
};

constexpr Field kRadialFields[] = {
    count<&RadialOptions::dense_timesteps>("dense_timesteps", 0,
                                           "The first denoising steps that stay dense."),
    count<&RadialOptions::dense_layers>("dense_layers", 0, "The first layers that stay dense."),
    number<&RadialOptions::decay_factor>("decay_factor", 0, kNoLimit, true,
                                         "Larger keeps more blocks of distant frames."),
    size<&RadialOptions::block_size>("block_size", kSparseBlocks, "Rows of a block."),
    choice<&RadialOptions::rule>(
        "rule", kRadialRules,
        "radial: the authors' rule with the diagonal kept. authors: without that repair. "
        "telefuser: as TeleFuser computes it."),
    other<&RadialOptions::dense_backend>("dense_backend", OptionType::backend,
                                         "Runs the dense steps and layers."),
    flag<&RadialOptions::use_sage_attention>("use_sage_attention",
                                             "Quantised arithmetic inside the kept blocks."),
};

constexpr Field kLocalSparseFields[] = {
    count<&LocalSparseOptions::dense_timesteps>("dense_timesteps", 0,
                                                "The first denoising steps that stay dense."),
    count<&LocalSparseOptions::dense_layers>("dense_layers", 0,
                                             "The first layers that stay dense."),
    count<&LocalSparseOptions::local_window_size>("local_window_size", 1,
                                                  "Total width of the window in blocks per axis."),
    size<&LocalSparseOptions::block_size>("block_size", kSparseBlocks, "Rows of a block."),
    count<&LocalSparseOptions::topk>("topk", 1, "Key blocks kept inside the window; unset: all."),
    other<&LocalSparseOptions::dense_backend>("dense_backend", OptionType::backend,
                                              "Runs the dense steps and layers."),
    flag<&LocalSparseOptions::use_sage_attention>("use_sage_attention",
                                                  "Quantised arithmetic inside the kept blocks."),
};

constexpr Field kSparseConfigFields[] = {
    choice<&SparseAttentionConfig::sparse_impl>("sparse_impl", kSparseImpls,
                                                "Must agree with attn_impl; unset: follows it."),
    count<&SparseAttentionConfig::dense_timesteps>("dense_timesteps", 0,
                                                   "The first denoising steps that stay dense."),
    count<&SparseAttentionConfig::dense_layers>("dense_layers", 0,
                                                "The first layers that stay dense."),
    number<&SparseAttentionConfig::decay_factor>("decay_factor", 0, kNoLimit, true,
                                                 "Radial: larger keeps more distant blocks."),
    count<&SparseAttentionConfig::local_window_size>(
        "local_window_size", 1, "Local: total width of the window in blocks per axis."),
    size<&SparseAttentionConfig::block_size>("block_size", kSparseBlocks, "Rows of a block."),
    flag<&SparseAttentionConfig::use_sage_attention>(
        "use_sage_attention", "Quantised arithmetic inside the kept blocks."),
};

template <auto member>
const void* find(const AttentionSpec& spec) {
  return (spec.*member) ? &*(spec.*member) : nullptr;
}

template <auto member>
void* emplace(AttentionSpec& spec) {
  return &(spec.*member).emplace();
}

template <auto member>
constexpr Block block(std::string_view name, std::span<const BackendName> owners,
                      std::span<const Field> fields, bool implied, std::string_view summary) {
  return {name, summary, owners, fields, implied, find<member>, emplace<member>};
}

constexpr Block kBlocks[] = {
    block<&AttentionSpec::quant>("quant", kQuantOwners, kQuantFields, false,
                                 "Element types of quantised attention."),
    block<&AttentionSpec::aiter_quant>("aiter_quant", kAiterOwners, kAiterQuantFields, true,
                                       "Number format of AITER's quantised kernels."),
    block<&AttentionSpec::skip_softmax>(
        "skip_softmax", kSkipSoftmaxOwners, kSkipSoftmaxFields, false,
        "Skip key tiles that cannot matter. With FLASH_ATTN an extension of Fovea."),
    block<&AttentionSpec::block_sparse>("block_sparse", kBlockSparseOwners, kBlockSparseFields,
                                        true, "Attention over selected blocks."),
    block<&AttentionSpec::radial>("radial", kRadialOwners, kRadialFields, true,
                                  "Video attention that thins out with distance in time."),
    block<&AttentionSpec::local_sparse>("local_sparse", kLocalOwners, kLocalSparseFields, true,
                                        "Attention inside a local window of blocks."),
};

std::string number_text(double value) { return text::format_number(value); }

// A scalar typed as a flag, in the form that JSON would have given it.
Value typed(const Field& field, const Value& value) {
  if (!value.from_flag || !value.is_string()) return value;
  const std::string_view text = text::trim(value.text);
  Value out = value;
  if (field.type == OptionType::boolean) {
    if (text::equal_folded(text, "true") || text::equal_folded(text, "false")) {
      out = Value::of(text::equal_folded(text, "true"));
    }
  } else if (field.type == OptionType::integer) {
    if (const auto integer = text::parse_integer(text)) out = Value::of(*integer);
  } else if (field.type == OptionType::number) {
    if (const auto number = text::parse_number(text)) out = Value::of(*number);
  }
  out.from_flag = true;
  return out;
}

bool in_range(const Field& field, double value) {
  if (!std::isfinite(value)) return false;
  return (field.above_minimum ? value > field.minimum : value >= field.minimum) &&
         value <= field.maximum;
}

std::optional<Value> read_layers(const Field& field, const Value& value, const Path& path,
                                 Problems& problems) {
  std::vector<int64_t> layers;
  if (value.is_string()) {
    auto parsed = parse_layer_selector(value.text);
    if (!parsed) {
      problems.add(path.at(value), ReasonCode::option_value, parsed.error().message,
                   describe(value), accepted(field));
      return {};
    }
    layers = std::move(parsed).value();
  } else if (value.kind == Value::Kind::array) {
    for (size_t i = 0; i < value.items.size(); ++i) {
      const Value& item = value.items[i];
      if (item.kind != Value::Kind::integer || item.integer < 0 || item.integer >= kMaxLayers) {
        problems.mismatch(path[i], text::concat("a layer from 0 to ", kMaxLayers - 1), item);
        return {};
      }
      layers.push_back(item.integer);
    }
    std::sort(layers.begin(), layers.end());
    layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  } else {
    problems.mismatch(path, accepted(field), value);
    return {};
  }
  return to_value(layers);
}

}  // namespace

std::span<const Field> spec_fields() noexcept { return kSpecFields; }
std::span<const Block> blocks() noexcept { return kBlocks; }
std::span<const Field> sparse_config_fields() noexcept { return kSparseConfigFields; }

const Block* find_block(std::string_view name) noexcept {
  for (const Block& block : kBlocks) {
    if (block.name == name) return &block;
  }
  return nullptr;
}

const Field* find_field(std::span<const Field> fields, std::string_view name) noexcept {
  for (const Field& field : fields) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

std::vector<std::string_view> field_names(std::span<const Field> fields) {
  std::vector<std::string_view> names;
  for (const Field& field : fields) names.push_back(field.name);
  return names;
}

std::string accepted(const Field& field) {
  switch (field.type) {
    case OptionType::boolean:
      return "true or false";
    case OptionType::text:
      return "a non-empty text";
    case OptionType::choice:
      return "one of " + text::join(field.choices);
    case OptionType::backend:
      return "a backend name";
    case OptionType::layers:
      return "a list of layers or a text such as \"0-2,38\"";
    case OptionType::integer:
    case OptionType::number:
      break;
  }
  if (!field.sizes.empty()) {
    std::string out;
    for (size_t i = 0; i < field.sizes.size(); ++i) {
      if (i > 0) out += i + 1 == field.sizes.size() ? " or " : ", ";
      out += std::to_string(field.sizes[i]);
    }
    return out;
  }
  const bool integer = field.type == OptionType::integer;
  if (field.minimum == field.maximum) return number_text(field.minimum);
  const std::string_view noun = integer ? "an integer" : "a number";
  const bool low = std::isfinite(field.minimum);
  const bool high = std::isfinite(field.maximum);
  if (low && high) {
    return text::concat(noun, " in [", number_text(field.minimum), ", ", number_text(field.maximum),
                        "]");
  }
  if (low && field.above_minimum) {
    return text::concat(integer ? "an integer" : "a finite number", " above ",
                        number_text(field.minimum));
  }
  if (low) {
    return text::concat(integer ? "an integer" : "a finite number", " of at least ",
                        number_text(field.minimum));
  }
  if (high) return text::concat(noun, " of at most ", number_text(field.maximum));
  return std::string(integer ? "an integer" : "a finite number");
}

std::optional<Value> read_value(const Field& field, const Value& raw, const Path& path,
                                Problems& problems) {
  const Value value = typed(field, raw);
  const auto refuse = [&](std::string_view hint = {}) -> std::optional<Value> {
    problems.mismatch(path, accepted(field), value, hint);
    return {};
  };
  switch (field.type) {
    case OptionType::boolean:
      if (value.kind != Value::Kind::boolean) return refuse();
      return value;
    case OptionType::integer:
      if (value.kind != Value::Kind::integer) return refuse();
      if (!field.sizes.empty()) {
        if (std::find(field.sizes.begin(), field.sizes.end(), value.integer) == field.sizes.end()) {
          return refuse();
        }
      } else if (!in_range(field, value.number)) {
        return refuse();
      }
      return value;
    case OptionType::number:
      if (value.kind != Value::Kind::integer && value.kind != Value::Kind::number) return refuse();
      if (!in_range(field, value.number)) return refuse();
      return value;
    case OptionType::text:
      if (!value.is_string() || text::trim(value.text).empty() || !text::valid_utf8(value.text)) {
        return refuse();
      }
      return value;
    case OptionType::choice: {
      if (!value.is_string()) return refuse();
      const std::string_view word = text::trim(value.text);
      for (std::string_view choice : field.choices) {
        if (text::equal_folded(choice, word)) return Value::of(std::string(choice));
      }
      return refuse(text::suggestion(word, field.choices));
    }
    case OptionType::backend: {
      if (!value.is_string()) return refuse();
      const auto backend = parse_backend(value.text);
      if (!backend) {
        problems.add(path.at(value), ReasonCode::option_value, backend.error().message,
                     describe(value), accepted(field));
        return {};
      }
      return Value::of(name(*backend));
    }
    case OptionType::layers:
      return read_layers(field, value, path, problems);
  }
  return {};
}

std::string list_names(std::span<const BackendName> names) {
  std::vector<std::string> words;
  for (BackendName each : names) words.push_back(name(each));
  return text::join(words);
}

bool contains(std::span<const BackendName> names, BackendName name) noexcept {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace fovea::config
