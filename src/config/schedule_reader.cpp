#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "fovea/schedule.hpp"
#include "src/config/entries.hpp"
#include "src/config/fields.hpp"
#include "src/config/json_reader.hpp"
#include "src/config/schedule_rules.hpp"
#include "src/config/spec_hash.hpp"
#include "src/core/text.hpp"

namespace fovea {
namespace config {
namespace {

constexpr std::string_view kOrigin = "schedule";
constexpr std::array<std::string_view, 6> kScheduleKeys = {
    "profiles", "steps", "sigma", "layers", "dense_first_steps", "dense_first_layers"};
constexpr std::array<std::string_view, 3> kRangeKeys = {"start", "end", "profile"};
constexpr std::array<std::string_view, 3> kWindowKeys = {"low", "high", "profile"};

bool known_key(std::string_view key, std::span<const std::string_view> known, const Path& path,
               Problems& problems) {
  if (std::find(known.begin(), known.end(), key) != known.end()) return true;
  problems.add(
      path, ReasonCode::option_value,
      text::concat("unknown key; known here: ", text::join(known), text::suggestion(key, known)),
      std::string(key), text::join(known));
  return false;
}

// The three members of a range or window, in the order of `keys`; nulls where they are missing.
std::optional<std::array<const Value*, 3>> members(const Value& node,
                                                   std::span<const std::string_view, 3> keys,
                                                   const Path& path, Problems& problems) {
  if (!node.is_object()) {
    problems.mismatch(path, "a map with the keys " + text::join(keys), node);
    return {};
  }
  const size_t before = problems.count();
  for (const std::string& key : node.keys) known_key(key, keys, path / key, problems);
  std::array<const Value*, 3> out{};
  for (size_t i = 0; i < keys.size(); ++i) {
    out[i] = node.find(keys[i]);
    if (out[i] != nullptr) continue;
    problems.add(path, ReasonCode::option_value,
                 text::concat("lacks ", keys[i], "; every entry has ", text::join(keys)), {},
                 std::string(keys[i]));
  }
  if (problems.count() > before) return {};
  return out;
}

std::optional<int64_t> read_count(const Value& value, const Path& path, Problems& problems) {
  if (value.kind == Value::Kind::integer && value.integer >= 0) return value.integer;
  problems.mismatch(path, "an integer of at least 0", value);
  return {};
}

std::optional<double> read_sigma(const Value& value, const Path& path, Problems& problems) {
  const bool number = value.kind == Value::Kind::integer || value.kind == Value::Kind::number;
  if (number && value.number >= 0 && value.number <= 1) return value.number;
  problems.mismatch(path, "a number in [0, 1]", value);
  return {};
}

std::optional<std::string> read_profile(const Value& value, const Path& path, Problems& problems) {
  if (value.is_string()) return value.text;
  problems.mismatch(path, "the name of a profile", value);
  return {};
}

bool expect_list(const Value& node, const Path& path, Problems& problems) {
  if (node.kind == Value::Kind::array) return true;
  problems.mismatch(path, "a list", node);
  return false;
}

std::vector<StepRange> read_ranges(const Value& node, const Path& path, Problems& problems) {
  std::vector<StepRange> out;
  if (!expect_list(node, path, problems)) return out;
  for (size_t i = 0; i < node.items.size(); ++i) {
    const Path place = path[i];
    const auto parts = members(node.items[i], kRangeKeys, place, problems);
    if (!parts) continue;
    const auto start = read_count(*(*parts)[0], place / "start", problems);
    const bool open = (*parts)[1]->kind == Value::Kind::null;
    const auto end = open ? std::nullopt : read_count(*(*parts)[1], place / "end", problems);
    const auto profile = read_profile(*(*parts)[2], place / "profile", problems);
    if (start && (open || end) && profile) out.push_back({*start, end, *profile});
  }
  return out;
}

std::vector<SigmaWindow> read_windows(const Value& node, const Path& path, Problems& problems) {
  std::vector<SigmaWindow> out;
  if (!expect_list(node, path, problems)) return out;
  for (size_t i = 0; i < node.items.size(); ++i) {
    const Path place = path[i];
    const auto parts = members(node.items[i], kWindowKeys, place, problems);
    if (!parts) continue;
    const auto low = read_sigma(*(*parts)[0], place / "low", problems);
    const auto high = read_sigma(*(*parts)[1], place / "high", problems);
    const auto profile = read_profile(*(*parts)[2], place / "profile", problems);
    if (low && high && profile) out.push_back({*low, *high, *profile});
  }
  return out;
}

void read_profiles(const Value& node, AttentionSchedule& schedule, Problems& problems) {
  const Path path{"profiles"};
  if (!node.is_object()) {
    problems.mismatch(path, "a map from names to configurations", node);
    return;
  }
  for (size_t i = 0; i < node.keys.size(); ++i) {
    const Path place = path / node.keys[i];
    Value root = node.items[i];
    // A bare backend name is the default of its profile.
    if (root.is_string()) {
      root = Value::object();
      root.set("default", node.items[i]);
    }
    const Entries entries = read_entries(root, place, problems);
    schedule.profiles[node.keys[i]] = read_specs(entries, place, problems);
  }
}

// Everything but the profiles, for schedules and requests alike.
void read_lists(const Value& root, ScheduleRequest& out, Problems& problems) {
  const auto given = [&](std::string_view key) -> const Value* {
    const Value* value = root.find(key);
    return value != nullptr && value->kind != Value::Kind::null ? value : nullptr;
  };
  if (const Value* node = given("steps")) out.steps = read_ranges(*node, Path{"steps"}, problems);
  if (const Value* node = given("sigma")) out.sigma = read_windows(*node, Path{"sigma"}, problems);
  if (const Value* node = given("layers")) {
    out.layers = read_ranges(*node, Path{"layers"}, problems);
  }
  if (const Value* node = given("dense_first_steps")) {
    out.dense_first_steps = read_count(*node, Path{"dense_first_steps"}, problems);
  }
  if (const Value* node = given("dense_first_layers")) {
    out.dense_first_layers = read_count(*node, Path{"dense_first_layers"}, problems);
  }
}

bool expect_keys(const Value& root, std::span<const std::string_view> known, Problems& problems) {
  if (!root.is_object()) {
    problems.mismatch(Path{}, "a map with keys among " + text::join(known), root);
    return false;
  }
  for (const std::string& key : root.keys) known_key(key, known, Path{} / key, problems);
  return true;
}

Value list_value(const std::vector<StepRange>& ranges) {
  Value out = Value::array();
  for (const StepRange& range : ranges) {
    Value& item = out.items.emplace_back(Value::object());
    item.set("start", Value::of(range.start));
    item.set("end", range.end ? Value::of(*range.end) : Value{});
    item.set("profile", Value::of(range.profile));
  }
  return out;
}

Value list_value(const std::vector<SigmaWindow>& windows) {
  Value out = Value::array();
  for (const SigmaWindow& window : windows) {
    Value& item = out.items.emplace_back(Value::object());
    item.set("low", Value::of(window.low));
    item.set("high", Value::of(window.high));
    item.set("profile", Value::of(window.profile));
  }
  return out;
}

}  // namespace
}  // namespace config

Result<AttentionSchedule> parse_schedule(std::string_view json) {
  config::Problems problems;
  FOVEA_TRY(const config::Value root, config::read_json(json, config::kOrigin, problems));
  AttentionSchedule out;
  if (config::expect_keys(root, config::kScheduleKeys, problems)) {
    if (const auto* profiles = root.find("profiles");
        profiles != nullptr && profiles->kind != config::Value::Kind::null) {
      config::read_profiles(*profiles, out, problems);
    }
    ScheduleRequest lists;
    config::read_lists(root, lists, problems);
    out.steps = std::move(lists.steps).value_or(std::vector<StepRange>{});
    out.sigma = std::move(lists.sigma).value_or(std::vector<SigmaWindow>{});
    out.layers = std::move(lists.layers).value_or(std::vector<LayerRange>{});
    out.dense_first_steps = lists.dense_first_steps.value_or(0);
    out.dense_first_layers = lists.dense_first_layers.value_or(0);
  }
  // Order and overlap are judged on complete lists only.
  if (problems.empty()) config::check_schedule(out, problems);
  if (!problems.empty()) return problems.error(config::kOrigin);
  return out;
}

Result<ScheduleRequest> parse_schedule_request(std::string_view json) {
  config::Problems problems;
  FOVEA_TRY(const config::Value root, config::read_json(json, "schedule request", problems));
  ScheduleRequest out;
  const auto known = std::span(config::kScheduleKeys).subspan(1);
  if (root.kind != config::Value::Kind::null && config::expect_keys(root, known, problems)) {
    config::read_lists(root, out, problems);
  }
  if (!problems.empty()) return problems.error("schedule request");
  return out;
}

std::string to_json(const AttentionSchedule& schedule) {
  using config::Value;
  Value out = Value::object();
  if (!schedule.profiles.empty()) {
    Value& profiles = out.set("profiles", Value::object());
    for (const auto& [name, profile] : schedule.profiles) {
      profiles.set(name, config::to_value(profile));
    }
  }
  if (!schedule.steps.empty()) out.set("steps", config::list_value(schedule.steps));
  if (!schedule.sigma.empty()) out.set("sigma", config::list_value(schedule.sigma));
  if (!schedule.layers.empty()) out.set("layers", config::list_value(schedule.layers));
  if (schedule.dense_first_steps != 0) {
    out.set("dense_first_steps", Value::of(schedule.dense_first_steps));
  }
  if (schedule.dense_first_layers != 0) {
    out.set("dense_first_layers", Value::of(schedule.dense_first_layers));
  }
  return config::write_json(out);
}

}  // namespace fovea
