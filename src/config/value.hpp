// A parsed JSON document as a small tree, independent of the parser.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fovea::config {

// One JSON value. Copyable; object members keep their order.
struct Value {
  enum class Kind : uint8_t { null, boolean, integer, number, string, array, object };

  Kind kind = Kind::null;
  bool boolean = false;
  int64_t integer = 0;
  double number = 0;              // also set when kind is integer
  std::string text;               // of a string; the digits as written of a number
  std::vector<std::string> keys;  // of an object; keys[i] belongs to items[i]
  std::vector<Value> items;       // of an array or object
  bool from_flag = false;         // typed as a flag: a string may stand for any scalar

  static Value of(bool value);
  static Value of(int64_t value);
  static Value of(double value);
  static Value of(std::string value);
  static Value array();
  static Value object();

  bool is_object() const noexcept { return kind == Kind::object; }
  bool is_string() const noexcept { return kind == Kind::string; }

  // The member of an object, or null.
  const Value* find(std::string_view key) const noexcept;
  Value* find(std::string_view key) noexcept;
  // Replaces or appends a member of an object.
  Value& set(std::string_view key, Value value);
  // Removes a member of an object, if there.
  void erase(std::string_view key);
};

// How messages call what was found: true, 1.5, "text" (cut when long), "a list", "a map", "null".
std::string describe(const Value& value);

// True for null and for the word auto in any case: both remove the entry they stand for.
bool is_removal(const Value& value) noexcept;
bool is_auto(const Value& value) noexcept;

// Compact JSON. Numbers read back as the same double; invalid UTF-8 is replaced by U+FFFD and
// numbers that JSON cannot hold are written as null.
std::string write_json(const Value& value);

}  // namespace fovea::config
