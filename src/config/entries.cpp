#include "src/config/entries.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "src/config/json_reader.hpp"
#include "src/config/spec_reader.hpp"
#include "src/core/text.hpp"

namespace fovea::config {
namespace {

bool valid_segment(std::string_view segment) {
  if (segment.empty() || text::trim(segment) != segment || !text::valid_utf8(segment)) return false;
  return std::none_of(segment.begin(), segment.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) == 0x7f;
  });
}

bool holds_spec_key(const Value& map) {
  return std::any_of(map.keys.begin(), map.keys.end(), is_spec_key);
}

void add_role(const std::string& role, const Value& value, const Path& path, Entries& entries,
              Problems& problems) {
  if (!entries.per_role.emplace(role, Entry{value}).second) {
    problems.add(path.at(value), ReasonCode::option_value,
                 text::concat("role ", text::quote(role), " is given twice"), role);
  }
}

// `prefix` is the role so far, empty at the top of per_role.
void flatten(const Value& map, const std::string& prefix, const Path& path, Entries& entries,
             Problems& problems) {
  for (size_t i = 0; i < map.keys.size(); ++i) {
    const std::string& key = map.keys[i];
    const Value& value = map.items[i];
    const Path place = path / key;
    const auto segments = text::split(key, '.');
    if (!std::all_of(segments.begin(), segments.end(), valid_segment)) {
      problems.add(place.at(value), ReasonCode::option_value,
                   "a role name has no empty parts, no blanks around them and no control "
                   "characters",
                   key);
      continue;
    }
    const std::string role = prefix.empty() ? key : prefix + "." + key;
    const bool spec_like = value.is_string() || value.kind == Value::Kind::null ||
                           (value.is_object() && holds_spec_key(value));
    // "bakend" inside a role is a misspelt key rather than a nested role.
    if (!prefix.empty() && !(value.is_object() && holds_spec_key(value))) {
      if (const auto near = text::nearest(key, spec_keys())) {
        problems.add(place.at(value), ReasonCode::option_value,
                     text::concat("not taken as the name of a nested role; did you mean ",
                                  text::quote(*near), "?"),
                     key, std::string(*near));
        continue;
      }
    }
    if (spec_like) {
      add_role(role, value, place, entries, problems);
    } else if (!value.is_object()) {
      problems.mismatch(place, "a backend name or a map", value);
    } else if (value.keys.empty()) {
      problems.add(place.at(value), ReasonCode::option_value,
                   "an empty map; name a backend, or remove the entry", "an empty map");
    } else {
      flatten(value, role, place, entries, problems);
    }
  }
}

std::vector<std::string> split_path(std::string_view path) {
  std::vector<std::string> out;
  for (std::string_view piece : text::split(path, '.')) out.emplace_back(piece);
  return out;
}

Path flag_place(const ConfigFlag& flag) {
  Path place{{}, true};
  for (const std::string& piece : split_path(flag.path)) place = place / piece;
  return place;
}

// The map behind an entry; a bare backend name becomes {"backend": name}.
Value& as_map(Entry& entry) {
  Value& value = entry.value;
  if (value.is_object()) return value;
  Value map = Value::object();
  if (value.kind != Value::Kind::null) map.set("backend", std::move(value));
  value = std::move(map);
  return value;
}

// Sets a member of an entry, making the maps in between.
void set_member(Entry& entry, std::span<const std::string> path, Value leaf) {
  if (path.empty()) {
    entry = Entry{std::move(leaf)};
    return;
  }
  Value* map = &as_map(entry);
  // Both spellings of the backend: the flag replaces either.
  if (path.size() == 1 && path[0] == "backend") map->erase("attn_impl");
  if (path.size() == 1 && path[0] == "attn_impl") map->erase("backend");
  for (size_t i = 0; i + 1 < path.size(); ++i) {
    Value* next = map->find(path[i]);
    if (next == nullptr || !next->is_object()) {
      Value fresh = Value::object();
      fresh.from_flag = true;
      next = &map->set(path[i], std::move(fresh));
    }
    map = next;
  }
  map->set(path.back(), std::move(leaf));
}

// A word or number as typed, or a map or list in JSON.
Value flag_value(const ConfigFlag& flag, Problems& problems) {
  const std::string_view trimmed = text::trim(flag.value);
  Value value = text::equal_folded(trimmed, "null") ? Value{} : Value::of(std::string(trimmed));
  if (!trimmed.empty() && (trimmed.front() == '{' || trimmed.front() == '[')) {
    auto parsed = read_json(trimmed, "its value", problems);
    if (parsed) {
      value = std::move(parsed).value();
    } else {
      problems.add(flag_place(flag), ReasonCode::option_value, parsed.error().message);
      value = Value{};
    }
  }
  value.from_flag = true;
  return value;
}

// An entry as written to a spec. `was_auto` tells that the word auto removed it.
std::optional<AttentionSpec> read_entry(const Entry& entry, const Path& path, Problems& problems,
                                        bool& was_auto) {
  was_auto = false;
  const Value* node = &entry.value;
  if (is_removal(*node)) {
    was_auto = is_auto(*node);
    return {};
  }
  Value map;
  if (node->is_string()) {
    const auto backend = parse_backend(node->text);
    if (!backend) {
      problems.add(path.at(*node), ReasonCode::option_value, backend.error().message,
                   describe(*node), "a backend name");
      return {};
    }
    map = Value::object();
    map.set("backend", *node);
    node = &map;
  }
  auto read = read_spec(*node, entry.guide_form, path.at(*node), problems);
  was_auto = read.is_auto;
  return std::move(read.spec);
}

}  // namespace

Entries read_entries(const Value& root, const Path& base, Problems& problems) {
  Entries entries;
  if (!root.is_object()) {
    if (root.kind != Value::Kind::null) {
      problems.mismatch(base, "a map with the keys default and per_role", root);
    }
    return entries;
  }
  std::vector<std::string_view> known = {"default", "per_role"};
  known.insert(known.end(), guide_keys().begin(), guide_keys().end());
  Value guide = Value::object();
  for (size_t i = 0; i < root.keys.size(); ++i) {
    const std::string& key = root.keys[i];
    const Value& value = root.items[i];
    if (key == "default") {
      if (value.kind == Value::Kind::null) continue;
      if (value.is_string() || value.is_object()) {
        entries.default_entry = Entry{value};
      } else {
        problems.mismatch(base / key, "a backend name or a map", value);
      }
    } else if (key == "per_role") {
      if (value.is_object()) {
        flatten(value, {}, base / key, entries, problems);
      } else if (value.kind != Value::Kind::null) {
        problems.mismatch(base / key, "a map from roles to backends", value);
      }
    } else if (std::find(known.begin(), known.end(), key) != known.end()) {
      if (value.kind != Value::Kind::null) guide.set(key, value);
    } else if (is_spec_key(key)) {
      problems.add(
          base / key, ReasonCode::option_value,
          text::concat("stands inside an entry; write {\"default\": {\"", key, "\": ...}}"), key,
          "default, per_role");
    } else {
      problems.add(base / key, ReasonCode::option_value,
                   text::concat("unknown key; known here: ", text::join(known),
                                text::suggestion(key, known)),
                   key, text::join(known));
    }
  }
  if (guide.keys.empty()) return entries;
  if (entries.default_entry) {
    problems.add(base / guide.keys.front(), ReasonCode::option_value,
                 "describes the default, and so does default; keep one of them",
                 guide.keys.front());
    return entries;
  }
  entries.default_entry = Entry{std::move(guide), true};
  return entries;
}

void apply_flags(std::span<const ConfigFlag> flags, Entries& entries, Problems& problems) {
  std::vector<std::string_view> known = {"default", "per_role"};
  known.insert(known.end(), guide_keys().begin(), guide_keys().end());
  for (size_t f = 0; f < flags.size(); ++f) {
    const ConfigFlag& flag = flags[f];
    const Path place = flag_place(flag);
    const bool repeated =
        std::any_of(flags.begin(), flags.begin() + static_cast<ptrdiff_t>(f),
                    [&](const ConfigFlag& other) { return other.path == flag.path; });
    if (repeated) {
      problems.add(place, ReasonCode::option_value, "is given twice", flag.value);
      continue;
    }
    const auto segments = split_path(flag.path);
    if (!std::all_of(segments.begin(), segments.end(), valid_segment)) {
      problems.add(place, ReasonCode::option_value,
                   "is not a path; write for instance --config.default.backend FLASH_ATTN",
                   flag.path);
      continue;
    }
    const std::span<const std::string> path(segments);
    const std::string& head = path[0];
    if (head == "default") {
      if (!entries.default_entry) entries.default_entry.emplace();
      set_member(*entries.default_entry, path.subspan(1), flag_value(flag, problems));
    } else if (head == "per_role") {
      size_t role_end = 1;
      while (role_end < path.size() && !is_spec_key(path[role_end])) ++role_end;
      if (role_end == 1) {
        problems.add(place, ReasonCode::option_value,
                     "names no role; write for instance --config.per_role.cross.backend FLASH_ATTN",
                     flag.path);
        continue;
      }
      std::string role = path[1];
      for (size_t i = 2; i < role_end; ++i) role += "." + path[i];
      // The last part may be a key that was misspelt.
      if (role_end == path.size() && path.size() > 2) {
        if (const auto near = text::nearest(path.back(), spec_keys())) {
          problems.add(
              place, ReasonCode::option_value,
              text::concat(text::quote(path.back()), " is not taken as a role; did you mean ",
                           text::quote(*near), "?"),
              path.back(), std::string(*near));
          continue;
        }
      }
      set_member(entries.per_role[role], path.subspan(role_end), flag_value(flag, problems));
    } else if (std::find(guide_keys().begin(), guide_keys().end(), head) != guide_keys().end()) {
      if (!entries.default_entry) entries.default_entry = Entry{Value::object(), true};
      set_member(*entries.default_entry, path, flag_value(flag, problems));
    } else {
      problems.add(place, ReasonCode::option_value,
                   text::concat("unknown key; known here: ", text::join(known),
                                text::suggestion(head, known)),
                   head, text::join(known));
    }
  }
}

AttentionConfig read_specs(const Entries& entries, const Path& base, Problems& problems) {
  AttentionConfig out;
  if (entries.default_entry) {
    const Path path = entries.default_entry->guide_form ? base : base / "default";
    out.default_spec = read_entry(*entries.default_entry, path, problems, out.environment_disabled);
  }
  for (const auto& [role, entry] : entries.per_role) {
    bool was_auto = false;
    auto spec = read_entry(entry, base / "per_role" / role, problems, was_auto);
    if (spec) out.per_role.emplace(role, std::move(*spec));
  }
  return out;
}

}  // namespace fovea::config
