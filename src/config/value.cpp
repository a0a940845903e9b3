#include "src/config/value.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "src/core/text.hpp"

namespace fovea::config {
namespace {

void write_string(std::string& out, std::string_view text) {
  out += '"';
  size_t i = 0;
  while (i < text.size()) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x80) {
      if (byte == '"' || byte == '\\') {
        out += '\\';
        out += text[i];
      } else if (byte < 0x20 || byte == 0x7f) {
        char buffer[8];
        std::snprintf(buffer, sizeof buffer, "\\u%04x", static_cast<unsigned>(byte));
        out += buffer;
      } else {
        out += text[i];
      }
      ++i;
      continue;
    }
    const size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
    const std::string_view sequence = text.substr(i, length);
    if (sequence.size() == length && text::valid_utf8(sequence)) {
      out += sequence;
      i += length;
    } else {
      out += "\xef\xbf\xbd";
      ++i;
    }
  }
  out += '"';
}

void write(std::string& out, const Value& value) {
  switch (value.kind) {
    case Value::Kind::null:
      out += "null";
      return;
    case Value::Kind::boolean:
      out += value.boolean ? "true" : "false";
      return;
    case Value::Kind::integer:
      out += std::to_string(value.integer);
      return;
    case Value::Kind::number:
      out += std::isfinite(value.number) ? text::format_number(value.number) : "null";
      return;
    case Value::Kind::string:
      write_string(out, value.text);
      return;
    case Value::Kind::array:
    case Value::Kind::object: {
      const bool object = value.is_object();
      out += object ? '{' : '[';
      for (size_t i = 0; i < value.items.size(); ++i) {
        if (i > 0) out += ',';
        if (object) {
          write_string(out, value.keys[i]);
          out += ':';
        }
        write(out, value.items[i]);
      }
      out += object ? '}' : ']';
      return;
    }
  }
}

}  // namespace

Value Value::of(bool value) {
  Value out;
  out.kind = Kind::boolean;
  out.boolean = value;
  return out;
}

Value Value::of(int64_t value) {
  Value out;
  out.kind = Kind::integer;
  out.integer = value;
  out.number = static_cast<double>(value);
  return out;
}

Value Value::of(double value) {
  Value out;
  out.kind = Kind::number;
  out.number = value + 0.0;  // -0 and 0 are one value with one text
  return out;
}

Value Value::of(std::string value) {
  Value out;
  out.kind = Kind::string;
  out.text = std::move(value);
  return out;
}

Value Value::array() {
  Value out;
  out.kind = Kind::array;
  return out;
}

Value Value::object() {
  Value out;
  out.kind = Kind::object;
  return out;
}

const Value* Value::find(std::string_view key) const noexcept {
  const auto it = std::find(keys.begin(), keys.end(), key);
  return it == keys.end() ? nullptr : &items[static_cast<size_t>(it - keys.begin())];
}

Value* Value::find(std::string_view key) noexcept {
  return const_cast<Value*>(std::as_const(*this).find(key));
}

Value& Value::set(std::string_view key, Value value) {
  if (Value* existing = find(key)) {
    *existing = std::move(value);
    return *existing;
  }
  keys.emplace_back(key);
  items.push_back(std::move(value));
  return items.back();
}

void Value::erase(std::string_view key) {
  const auto it = std::find(keys.begin(), keys.end(), key);
  if (it == keys.end()) return;
  items.erase(items.begin() + (it - keys.begin()));
  keys.erase(it);
}

std::string describe(const Value& value) {
  switch (value.kind) {
    case Value::Kind::null:
      return "null";
    case Value::Kind::boolean:
      return value.boolean ? "true" : "false";
    case Value::Kind::integer:
      return std::to_string(value.integer);
    case Value::Kind::number:
      return value.text.empty() ? text::format_number(value.number) : value.text.substr(0, 40);
    case Value::Kind::string:
      return value.from_flag ? text::quote(value.text)
                             : text::concat("the string ", text::quote(value.text));
    case Value::Kind::array:
      return "a list";
    case Value::Kind::object:
      return "a map";
  }
  return {};
}

bool is_auto(const Value& value) noexcept {
  return value.is_string() && text::equal_folded(text::trim(value.text), "auto");
}

bool is_removal(const Value& value) noexcept {
  return value.kind == Value::Kind::null || is_auto(value);
}

std::string write_json(const Value& value) {
  std::string out;
  write(out, value);
  return out;
}

}  // namespace fovea::config
