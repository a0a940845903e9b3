#include "src/config/spec_reader.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "src/config/extra_reader.hpp"
#include "src/config/fields.hpp"
#include "src/config/guide.hpp"
#include "src/config/rules.hpp"
#include "src/core/text.hpp"

namespace fovea::config {
namespace {

constexpr std::string_view kGuideKeys[] = {"attn_impl", "sparse_config", "scale", "is_causal",
                                           "dropout"};

// Fields of `fields` from the map `node` into the struct behind `owner`.
void read_fields(std::span<const Field> fields, const Value& node, const Path& path, void* owner,
                 Problems& problems) {
  for (size_t i = 0; i < node.keys.size(); ++i) {
    const std::string& key = node.keys[i];
    const Value& value = node.items[i];
    const Field* field = find_field(fields, key);
    if (field == nullptr) {
      const auto names = field_names(fields);
      problems.add((path / key).at(value), ReasonCode::option_value,
                   text::concat("unknown key; known here: ", text::join(names),
                                text::suggestion(key, names)),
                   key, text::join(names));
      continue;
    }
    if (is_removal(value)) continue;
    if (const auto checked = read_value(*field, value, path / key, problems)) {
      field->set(owner, *checked);
    }
  }
}

bool expect_map(const Value& value, std::span<const Field> fields, const Path& path,
                Problems& problems) {
  if (value.is_object()) return true;
  problems.mismatch(path, "a map with keys among " + text::join(field_names(fields)), value);
  return false;
}

void unknown_keys(const Value& node, const Path& path, Problems& problems, bool& backend_misspelt) {
  const auto known = spec_keys();
  for (size_t i = 0; i < node.keys.size(); ++i) {
    const std::string& key = node.keys[i];
    if (is_spec_key(key)) continue;
    const bool roles = path.text.rfind("per_role", 0) == 0;
    const auto near = text::nearest(key, known);
    backend_misspelt = backend_misspelt || near == "backend" || near == "attn_impl";
    problems.add(
        (path / key).at(node.items[i]), ReasonCode::option_value,
        text::concat("unknown key; known here: ", text::join(known), text::suggestion(key, known),
                     roles && !near ? "; nested roles cannot be mixed with these keys" : ""),
        key, text::join(known));
  }
}

// Settings that would be lost silently with the entry.
void check_removed(const Value& node, const Path& path, Problems& problems) {
  for (size_t i = 0; i < node.keys.size(); ++i) {
    const std::string& key = node.keys[i];
    const bool harmless = key == "backend" || key == "attn_impl" || key == "strictness" ||
                          key == "allow_copy" || !is_spec_key(key);
    if (harmless || is_removal(node.items[i])) continue;
    problems.add((path / key).at(node.items[i]), ReasonCode::option_owner,
                 "is set, but backend is auto, which removes this entry; name a backend or remove "
                 "the setting",
                 "auto");
  }
}

}  // namespace

std::span<const std::string_view> spec_keys() {
  static const std::vector<std::string_view> keys = [] {
    std::vector<std::string_view> out = field_names(spec_fields());
    for (const Block& block : blocks()) out.push_back(block.name);
    for (std::string_view key : {"extra", "attn_impl", "sparse_config"}) out.push_back(key);
    return out;
  }();
  return keys;
}

bool is_spec_key(std::string_view key) {
  const auto keys = spec_keys();
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

std::span<const std::string_view> guide_keys() noexcept { return kGuideKeys; }

void add_implied_blocks(AttentionSpec& spec) {
  for (const Block& block : blocks()) {
    if (block.implied && block.find(spec) == nullptr && contains(block.owners, spec.backend)) {
      block.emplace(spec);
    }
  }
}

ReadSpec read_spec(const Value& node, bool guide_form, const Path& path, Problems& problems) {
  const size_t before = problems.count();
  AttentionSpec spec;
  bool backend_misspelt = false;
  unknown_keys(node, path, problems, backend_misspelt);

  // The backend, under one of its two spellings.
  const Value* backend = node.find("backend");
  const Value* impl = node.find("attn_impl");
  if (backend != nullptr && impl != nullptr) {
    problems.add(path / "attn_impl", ReasonCode::option_value,
                 "means the same as backend; keep one of them");
  }
  const bool by_impl = backend == nullptr && impl != nullptr;
  const std::string_view backend_key = by_impl ? "attn_impl" : "backend";
  const Value* given = by_impl ? impl : backend;
  const bool removed = given != nullptr && is_removal(*given) && !(guide_form && !is_auto(*given));
  if (removed) check_removed(node, path, problems);
  const bool implied_backend = guide_form && (given == nullptr || is_removal(*given));
  bool backend_known = false;
  if (implied_backend) {
    spec.backend = backend::TORCH_SDPA;
    backend_known = true;
  } else if (given != nullptr && !removed) {
    const Field& field = *find_field(spec_fields(), "backend");
    if (const auto checked = read_value(field, *given, path / backend_key, problems)) {
      field.set(&spec, *checked);
      backend_known = true;
    }
  } else if (given == nullptr && !backend_misspelt) {
    problems.add(path, ReasonCode::option_value,
                 "names no backend; add \"backend\", or remove the entry for the platform's choice",
                 {}, "backend");
  }

  bool has_sparse_config = false;
  for (size_t i = 0; i < node.keys.size(); ++i) {
    const std::string& key = node.keys[i];
    const Value& value = node.items[i];
    if (key == "backend" || key == "attn_impl" || is_removal(value)) continue;
    if (const Field* field = find_field(spec_fields(), key)) {
      if (const auto checked = read_value(*field, value, path / key, problems)) {
        field->set(&spec, *checked);
      }
    } else if (const Block* block = find_block(key)) {
      const Path place = (path / key).at(value);
      if (expect_map(value, block->fields, place, problems)) {
        read_fields(block->fields, value, place, block->emplace(spec), problems);
      }
    } else if (key == "extra") {
      read_extra(value, path / key, spec, problems);
    } else if (key == "sparse_config") {
      has_sparse_config = true;
      SparseAttentionConfig sparse;
      if (!expect_map(value, sparse_config_fields(), path / key, problems)) continue;
      const size_t faults = problems.count();
      read_fields(sparse_config_fields(), value, path / key, &sparse, problems);
      for (std::string_view same : {"radial", "local_sparse"}) {
        if (const Value* other = node.find(same); other != nullptr && !is_removal(*other)) {
          problems.add(path / key, ReasonCode::option_value,
                       text::concat("says the same as ", same, "; keep one of them"));
        }
      }
      if (backend_known && problems.count() == faults) {
        apply_sparse_config(sparse, implied_backend, path / key, spec, problems);
      }
    }
  }
  if (by_impl && backend_known && !has_sparse_config) {
    check_sparse_config_given(spec, path, problems);
  }
  if (removed) return {{}, true, is_auto(*given)};
  if (backend_known) check_rules(spec, path, problems);
  if (problems.count() > before) return {};
  add_implied_blocks(spec);
  return {std::move(spec), false, false};
}

}  // namespace fovea::config
