// One verb of the program: declares its flags, then does its work.
#pragma once

#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "fovea/config.hpp"
#include "fovea/error.hpp"
#include "tools/fovea/exit_code.hpp"
#include "tools/fovea/flags.hpp"
#include "tools/fovea/terminal.hpp"

namespace fovea::cli {

// What every verb is given.
struct Invocation {
  const Terminal& terminal;
  Format format = Format::table;
  std::vector<ConfigFlag> config_flags;  // --config.A.B X, in order
};

class Verb {
 public:
  virtual ~Verb() = default;
  virtual void declare(Flags& flags) = 0;
  // Prints its result and returns ok, comparison failed or unsupported; everything else that goes
  // wrong is an error.
  virtual Result<ExitCode> execute(const Invocation& invocation) = 0;
};

struct VerbInfo {
  std::string_view name;
  std::string_view summary;
  std::string_view example;
  std::unique_ptr<Verb> (*make)();
  bool takes_config = false;  // accepts --config.A.B X
  bool drawn = false;         // its table is rows of characters: --format text
};

std::unique_ptr<Verb> make_run();
std::unique_ptr<Verb> make_check();
std::unique_ptr<Verb> make_bench();
std::unique_ptr<Verb> make_explain();
std::unique_ptr<Verb> make_backends();
std::unique_ptr<Verb> make_devices();
std::unique_ptr<Verb> make_mask();
std::unique_ptr<Verb> make_config();
std::unique_ptr<Verb> make_version();

}  // namespace fovea::cli
