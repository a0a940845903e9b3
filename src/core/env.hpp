// The environment variables of Fovea. No other file reads the environment.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fovea::env {

enum class Variable { backend, log, isa, num_threads, plugin_path };

struct VariableInfo {
  Variable variable;
  std::string_view name;  // "FOVEA_BACKEND"
  std::string_view summary;
  bool folded;  // read in lower case
};

// Every variable, in a fixed order. Static storage.
std::span<const VariableInfo> variables() noexcept;

// The value without blanks at its ends, in lower case where the table says so; nothing when unset
// or blank. Thread-safe as long as nothing changes the environment.
std::optional<std::string> read(Variable variable);

// One warning per entry ("NAME=value") that looks meant for Fovea but is not read: unknown FOVEA_*
// names and DIFFUSION_ATTENTION_BACKEND.
std::vector<std::string> warnings(std::span<const std::string_view> entries);

// Logs the warnings of this process's environment, the first time it is called. Thread-safe.
void warn_once();

}  // namespace fovea::env
