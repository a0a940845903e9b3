// The flags of one verb. Each verb binds its flags to variables; parsing is in flags.cpp, the only
// file that sees the command line library.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "fovea/config.hpp"
#include "fovea/error.hpp"

namespace fovea::cli {

// Where a value goes. A bool is a flag without a value; a vector may be given repeatedly.
using Target =
    std::variant<bool*, std::string*, std::optional<std::string>*, int64_t*,
                 std::optional<int64_t>*, std::optional<double>*, std::vector<std::string>*>;

class Flags {
 public:
  // `example` holds command lines that work in the root of the source tree.
  Flags(std::string_view verb, std::string_view summary, std::string_view example);
  ~Flags();
  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;

  // `names` as "--head-dim,--head-size", or without dashes for a positional argument. `value` names
  // the value in the help and is empty for a flag. The target must outlive parse().
  void add(const std::string& names, const std::string& value, Target target,
           const std::string& help);

  // Parses what follows the verb. Error invalid_argument names the flag, what was given and what is
  // accepted. With --help nothing is stored.
  Status parse(const std::vector<std::string>& arguments);
  bool help_requested() const noexcept;
  std::string help() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Takes "--config.A.B X" and "--config.A.B=X" out of `arguments`. Error invalid_argument for one
// without a value.
Result<std::vector<ConfigFlag>> take_config_flags(std::vector<std::string>& arguments);

}  // namespace fovea::cli
