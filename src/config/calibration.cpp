#include "fovea/calibration.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "src/config/json_reader.hpp"
#include "src/core/text.hpp"

namespace fovea {
namespace config {
namespace {

using std::string_view;
using text::concat;

constexpr string_view kOrigin = "calibration";
constexpr string_view kRoot = "sparse_attention_config";
constexpr string_view kGroups = "config_groups";
constexpr string_view kAlgorithm = "skip_softmax";
constexpr string_view kFormula = "a*exp(b*target_sparsity)";
constexpr string_view kRootKeys[] = {"config_groups", "producer"};
constexpr string_view kGroupKeys[] = {"algorithm", "threshold_scale_factor", "target_sparsity",
                                      "disabled_until_timestep", "ignore"};
// A diffusion transformer has one phase, which language models call prefill.
constexpr string_view kFactorKeys[] = {"formula", "coefficients", "prefill", "decode"};
constexpr string_view kPhaseKeys[] = {"prefill", "decode"};
constexpr string_view kCoefficientKeys[] = {"a", "b"};
// Compilers wrap modules in one of this name.
constexpr string_view kWrapper = "_orig_mod.";

bool is_map(const Value& node, const Path& path, Problems& problems) {
  if (node.is_object()) return true;
  problems.mismatch(path, "a map", node);
  return false;
}

void check_keys(const Value& node, std::span<const string_view> known, const Path& path,
                Problems& problems) {
  for (const std::string& key : node.keys)
    if (std::find(known.begin(), known.end(), key) == known.end())
      problems.add(
          path / key, ReasonCode::option_value,
          concat("unknown key; known here: ", text::join(known), text::suggestion(key, known)), key,
          text::join(known));
}

bool is_number(const Value& value) noexcept {
  return value.kind == Value::Kind::integer || value.kind == Value::Kind::number;
}

std::string without_blanks(string_view text) {
  std::string out;
  std::copy_if(text.begin(), text.end(), std::back_inserter(out),
               [](char c) { return !text::is_blank(c); });
  return out;
}

class Reader {
 public:
  explicit Reader(Problems& problems) : problems_(problems) {}

  // A config.json or a sparse_attention_config; nothing for a map that is neither.
  bool read_transformer(const Value& node, const Path& path, ExpertCalibration& out) {
    const Value* root = node.find(kRoot);
    if (root == nullptr && node.find(kGroups) == nullptr) return false;
    if (root == nullptr)
      read_root(node, path, out);
    else
      read_root(*root, path / kRoot, out);
    return true;
  }

 private:
  void read_root(const Value& node, const Path& path, ExpertCalibration& out) {
    if (!is_map(node, path, problems_)) return;
    check_keys(node, kRootKeys, path, problems_);
    const Value* groups = node.find(kGroups);
    const Path place = path / kGroups;
    if (groups == nullptr) {
      problems_.add(path, ReasonCode::option_value, concat("lacks ", kGroups));
      return;
    }
    if (!is_map(*groups, place, problems_)) return;
    size_t found = 0;
    for (size_t i = 0; i < groups->keys.size(); ++i) {
      const Value& group = groups->items[i];
      const Path where = place / groups->keys[i];
      if (!is_map(group, where, problems_)) continue;
      const Value* algorithm = group.find("algorithm");
      if (algorithm == nullptr || !algorithm->is_string()) {
        problems_.add(where, ReasonCode::option_value, "lacks the name of an algorithm");
        continue;
      }
      if (algorithm->text != kAlgorithm) continue;  // of another method
      if (++found == 1) read_group(group, where, out);
    }
    if (found != 1)
      problems_.add(
          place, ReasonCode::option_value,
          concat(found == 0 ? "has no group" : "has several groups", " of algorithm ", kAlgorithm),
          std::to_string(found), "1");
  }

  void read_group(const Value& group, const Path& path, ExpertCalibration& out) {
    check_keys(group, kGroupKeys, path, problems_);
    if (const Value* factor = group.find("threshold_scale_factor"))
      read_factor(*factor, path / "threshold_scale_factor", out);
    else
      problems_.add(path, ReasonCode::option_value, "lacks threshold_scale_factor");
    if (const Value* target = group.find("target_sparsity")) {
      const Path place = path / "target_sparsity";
      if (target->is_object()) {
        check_keys(*target, kPhaseKeys, place, problems_);
        if (const Value* phase = target->find("prefill"))
          read_share(*phase, place / "prefill", out.target_sparsity);
      } else {
        read_share(*target, place, out.target_sparsity);
      }
    }
    if (const Value* gate = group.find("disabled_until_timestep"))
      read_share(*gate, path / "disabled_until_timestep", out.disabled_until_timestep);
    if (const Value* ignore = group.find("ignore")) read_ignore(*ignore, path / "ignore", out);
  }

  void read_factor(const Value& node, const Path& path, ExpertCalibration& out) {
    if (!is_map(node, path, problems_)) return;
    check_keys(node, kFactorKeys, path, problems_);
    const Value* formula = node.find("formula");
    if (formula == nullptr || !formula->is_string())
      problems_.add(path, ReasonCode::option_value, concat("lacks a formula, ", kFormula));
    else if (without_blanks(formula->text) != kFormula)
      problems_.add(path / "formula", ReasonCode::option_value,
                    concat(text::quote(formula->text), " is not a formula known here: ", kFormula),
                    formula->text, std::string(kFormula));
    const Value* flat = node.find("coefficients");
    const Value* phase = node.find("prefill");
    if ((flat == nullptr) == (phase == nullptr)) {
      problems_.add(path, ReasonCode::option_value,
                    "needs the coefficients a and b, either as coefficients or as prefill");
      return;
    }
    read_coefficients(flat != nullptr ? *flat : *phase,
                      path / (flat != nullptr ? "coefficients" : "prefill"), out);
  }

  void read_coefficients(const Value& node, const Path& path, ExpertCalibration& out) {
    if (!is_map(node, path, problems_)) return;
    check_keys(node, kCoefficientKeys, path, problems_);
    for (const string_view key : kCoefficientKeys) {
      const Value* value = node.find(key);
      if (value == nullptr) {
        problems_.add(path, ReasonCode::option_value, concat("lacks ", key));
        continue;
      }
      const bool positive = key == "a";
      if (!is_number(*value) || (positive && value->number <= 0)) {
        problems_.mismatch(path / key, positive ? "a number above 0" : "a number", *value);
        continue;
      }
      (positive ? out.a : out.b) = value->number;
    }
    if (!std::isfinite(out.a * std::exp(std::max(out.b, 0.0))))
      problems_.add(path, ReasonCode::option_value,
                    "a*exp(b) is beyond every number; b is the logarithm of a ratio");
  }

  void read_share(const Value& value, const Path& path, std::optional<double>& out) {
    if (is_number(value) && value.number >= 0 && value.number <= 1)
      out = value.number;
    else
      problems_.mismatch(path, "a number in [0, 1]", value);
  }

  void read_ignore(const Value& value, const Path& path, ExpertCalibration& out) {
    if (value.kind != Value::Kind::array) {
      problems_.mismatch(path, "a list of patterns", value);
      return;
    }
    for (size_t i = 0; i < value.items.size(); ++i) {
      if (value.items[i].is_string() && !value.items[i].text.empty())
        out.ignore.push_back(value.items[i].text);
      else
        problems_.mismatch(path[i], "a pattern of layer names", value.items[i]);
    }
  }

  Problems& problems_;
};

// Whether the character class that begins at pattern[at] holds `c`; `at` moves behind it. A '['
// without an end stands for itself.
bool class_matches(string_view pattern, size_t& at, char c) noexcept {
  size_t end = at + 1;
  if (end < pattern.size() && pattern[end] == '!') ++end;
  if (end < pattern.size() && pattern[end] == ']') ++end;
  end = pattern.find(']', end);
  if (end == string_view::npos) return pattern[at++] == c;
  string_view members = pattern.substr(at + 1, end - at - 1);
  at = end + 1;
  const bool negated = members.starts_with('!');
  if (negated) members.remove_prefix(1);
  bool found = false;
  for (size_t i = 0; i < members.size(); ++i) {
    if (i + 2 < members.size() && members[i + 1] == '-') {
      found = found || (members[i] <= c && c <= members[i + 2]);
      i += 2;
    } else {
      found = found || members[i] == c;
    }
  }
  return found != negated;
}

// Shell patterns over the whole text; no character is special in it.
bool glob_matches(string_view pattern, string_view text) noexcept {
  size_t p = 0, t = 0;
  size_t star = string_view::npos, mark = 0;  // where to go on when a match fails
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
      continue;
    }
    bool same = false;
    size_t next = p;
    if (p < pattern.size()) {
      if (pattern[p] == '[') {
        same = class_matches(pattern, next, text[t]);
      } else {
        same = pattern[p] == '?' || pattern[p] == text[t];
        ++next;
      }
    }
    if (same) {
      p = next;
      ++t;
    } else if (star != string_view::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::string without_wrappers(string_view layer) {
  std::string out(layer);
  for (size_t at = out.find(kWrapper); at != std::string::npos; at = out.find(kWrapper))
    out.erase(at, kWrapper.size());
  return out;
}

// The transformer with the longest name that the layer's begins with.
const std::pair<const std::string, ExpertCalibration>* find_expert(
    const SkipSoftmaxCalibration& calibration, string_view layer) noexcept {
  const std::pair<const std::string, ExpertCalibration>* best = nullptr;
  for (const auto& expert : calibration.experts) {
    const string_view name = expert.first;
    const bool fits = name.empty() || layer == name ||
                      (layer.starts_with(name) && layer.substr(name.size()).starts_with('.'));
    if (fits && (best == nullptr || name.size() > best->first.size())) best = &expert;
  }
  return best;
}

// Patterns are written with or without the transformer in front.
bool ignores(string_view pattern, string_view layer, string_view expert) {
  const std::string below = concat(pattern, ".*");
  const auto matches = [&](string_view name) {
    return glob_matches(pattern, name) || glob_matches(below, name);
  };
  if (matches(layer)) return true;
  for (const string_view prefix :
       {expert, string_view("transformer"), string_view("transformer_2")})
    if (!prefix.empty() && layer.starts_with(concat(prefix, '.')) &&
        matches(layer.substr(prefix.size() + 1)))
      return true;
  return false;
}

void calibrate(AttentionSpec& spec, const ExpertCalibration& expert, string_view layer,
               string_view prefix) {
  if (!spec.skip_softmax || !spec.skip_softmax->target_sparsity) return;
  LayerCalibration& out = spec.skip_softmax->calibration.emplace();
  out.a = expert.a;
  out.b = expert.b;
  for (const std::string& pattern : expert.ignore)
    if (out.ignored_by.empty() && ignores(pattern, layer, prefix)) out.ignored_by = pattern;
}

}  // namespace
}  // namespace config

Result<SkipSoftmaxCalibration> parse_calibration(std::string_view json) {
  config::Problems problems;
  FOVEA_TRY(const config::Value root, config::read_json(json, config::kOrigin, problems));
  SkipSoftmaxCalibration out;
  config::Reader reader(problems);
  if (!config::is_map(root, {}, problems)) return problems.error(config::kOrigin);
  ExpertCalibration single;
  if (reader.read_transformer(root, {}, single)) {
    out.experts[""] = std::move(single);
  } else {
    config::Problems strangers;  // members that are no transformer
    for (size_t i = 0; i < root.keys.size(); ++i) {
      const config::Path place = config::Path{} / root.keys[i];
      const config::Value& node = root.items[i];
      ExpertCalibration expert;
      if (node.is_object() && reader.read_transformer(node, place, expert))
        out.experts[root.keys[i]] = std::move(expert);
      else
        strangers.add(place, ReasonCode::option_value, text::concat("holds no ", config::kRoot));
    }
    if (out.experts.empty())
      problems.add({}, ReasonCode::option_value,
                   text::concat("holds no ", config::kRoot,
                                "; pass a transformer's config.json or a map of them"));
    else if (!strangers.empty())
      return strangers.error(config::kOrigin);
  }
  if (!problems.empty()) return problems.error(config::kOrigin);
  return out;
}

AttentionConfig calibrate(AttentionConfig config, const SkipSoftmaxCalibration& calibration,
                          std::string_view layer) {
  const std::string name = config::without_wrappers(layer);
  const auto* expert = config::find_expert(calibration, name);
  if (expert == nullptr) return config;
  if (config.default_spec)
    config::calibrate(*config.default_spec, expert->second, name, expert->first);
  for (auto& [role, spec] : config.per_role)
    config::calibrate(spec, expert->second, name, expert->first);
  return config;
}

std::string_view name(SkipState state) noexcept {
  switch (state) {
    case SkipState::skips:
      return "skips";
    case SkipState::off:
      return "off";
    case SkipState::uncalibrated:
      return "uncalibrated";
    case SkipState::ignored_layer:
      return "ignored_layer";
    case SkipState::gated:
      return "gated";
    case SkipState::unknown_timestep:
      return "unknown_timestep";
  }
  return "unknown";
}

SkipDecision decide_skip(const SkipSoftmaxOptions& options, int64_t seq_kv,
                         std::optional<double> timestep) noexcept {
  SkipDecision out;
  const auto keys = static_cast<double>(seq_kv);
  if (options.threshold) {
    out.threshold = options.threshold;
    if (seq_kv > 0) out.factor = *options.threshold * keys;
  } else if (options.target_sparsity) {
    if (!options.calibration) {
      out.state = SkipState::uncalibrated;
      return out;
    }
    if (!options.calibration->ignored_by.empty()) {
      out.state = SkipState::ignored_layer;
      return out;
    }
    out.factor =
        options.calibration->a * std::exp(options.calibration->b * *options.target_sparsity);
    if (seq_kv > 0) out.threshold = *out.factor / keys;
  } else {
    return out;
  }
  out.state = SkipState::skips;
  if (options.disabled_until_timestep <= 0) return out;
  if (!timestep)
    out.state = SkipState::unknown_timestep;
  else if (!(*timestep <= options.disabled_until_timestep))
    out.state = SkipState::gated;
  return out;
}

}  // namespace fovea
