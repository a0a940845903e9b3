// Everything wrong with one document, gathered so that a user mends it in one go.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fovea/error.hpp"
#include "src/config/value.hpp"

namespace fovea::config {

// Where a value stands: "default.quant.dtype_qk" or "--config.default.quant.dtype_qk".
struct Path {
  std::string text;
  bool from_flag = false;

  // A member and a list element of this place.
  Path operator/(std::string_view key) const;
  Path operator[](size_t index) const;
  // The same place, given as a flag when `value` came from one.
  Path at(const Value& value) const;
  // As printed; "the top level" for the root.
  std::string print() const;
};

class Problems {
 public:
  // `text` is one sentence without a full stop; it is printed after the path.
  void add(const Path& path, ReasonCode code, std::string text, std::string got = {},
           std::string accepted = {}, std::string remedy = {});
  // expected <accepted>, found <value>
  void mismatch(const Path& path, std::string_view accepted, const Value& value,
                std::string_view hint = {});

  bool empty() const noexcept { return count_ == 0; }
  size_t count() const noexcept { return count_; }
  // One line, or a count and one line for each of the first problems. Code invalid_config.
  Error error(std::string_view origin) const;

 private:
  size_t count_ = 0;
  std::vector<std::string> texts_;  // the first ones
  std::vector<Reason> reasons_;
};

}  // namespace fovea::config
