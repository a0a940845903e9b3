#include "src/config/problems.hpp"

#include <algorithm>
#include <utility>

#include "src/core/text.hpp"

namespace fovea::config {
namespace {

// More would only hide the first ones.
constexpr size_t kMaxKept = 20;

bool plain_key(std::string_view key) {
  return !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  });
}

}  // namespace

Path Path::operator/(std::string_view key) const {
  Path child = *this;
  if (!child.text.empty()) child.text += '.';
  child.text += plain_key(key) ? std::string(key) : text::quote(key);
  return child;
}

Path Path::operator[](size_t index) const {
  Path child = *this;
  child.text += text::concat('[', index, ']');
  return child;
}

Path Path::at(const Value& value) const {
  Path place = *this;
  place.from_flag = place.from_flag || value.from_flag;
  return place;
}

std::string Path::print() const {
  if (text.empty()) return from_flag ? "--config" : "the top level";
  return from_flag ? "--config." + text : text;
}

void Problems::add(const Path& path, ReasonCode code, std::string text, std::string got,
                   std::string accepted, std::string remedy) {
  if (++count_ > kMaxKept) return;
  std::string place = path.print();
  texts_.push_back(text::concat(place, ": ", text));
  reasons_.push_back(
      {code, std::move(place), std::move(got), std::move(accepted), std::move(remedy)});
}

void Problems::mismatch(const Path& path, std::string_view accepted, const Value& value,
                        std::string_view hint) {
  std::string found = describe(value);
  std::string text = text::concat("expected ", accepted, ", found ", found, hint);
  add(path.at(value), ReasonCode::option_value, std::move(text), std::move(found),
      std::string(accepted));
}

Error Problems::error(std::string_view origin) const {
  Error error{ErrorCode::invalid_config, std::string(origin), reasons_};
  error.message += ": ";
  if (count_ == 1) {
    error.message += texts_.front();
    return error;
  }
  error.message += text::concat(count_, " problems");
  for (const std::string& text : texts_) error.message += text::concat("\n  ", text);
  if (count_ > texts_.size()) {
    error.message += text::concat("\n  and ", count_ - texts_.size(), " more");
  }
  return error;
}

}  // namespace fovea::config
