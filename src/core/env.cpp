#include "src/core/env.hpp"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <mutex>

#include "src/core/log.hpp"
#include "src/core/text.hpp"

namespace fovea::env {
namespace {

constexpr std::array kVariables = {
    // parse_backend ignores case; messages show the value as it was typed.
    VariableInfo{Variable::backend, "FOVEA_BACKEND",
                 "default backend when no default is configured", false},
    VariableInfo{Variable::log, "FOVEA_LOG", "log level: debug, info, warning, error, off", true},
    VariableInfo{Variable::isa, "FOVEA_ISA", "highest CPU instruction set to use", true},
    VariableInfo{Variable::num_threads, "FOVEA_NUM_THREADS", "threads of CPU kernels", true},
    VariableInfo{Variable::plugin_path, "FOVEA_PLUGIN_PATH", "folders searched for plugins", false},
};

constexpr std::string_view kPrefix = "FOVEA_";
constexpr std::string_view kUpstream = "DIFFUSION_ATTENTION_BACKEND";

std::vector<std::string_view> names() {
  std::vector<std::string_view> out;
  for (const VariableInfo& row : kVariables) out.push_back(row.name);
  return out;
}

bool known(std::string_view name) noexcept {
  for (const VariableInfo& row : kVariables)
    if (row.name == name) return true;
  return false;
}

}  // namespace

std::span<const VariableInfo> variables() noexcept { return kVariables; }

std::optional<std::string> read(Variable variable) {
  const VariableInfo& row = kVariables[static_cast<size_t>(variable)];
  const char* const value = std::getenv(row.name.data());
  if (value == nullptr) return std::nullopt;
  const std::string_view trimmed = text::trim(value);
  if (trimmed.empty()) return std::nullopt;
  return row.folded ? text::fold(trimmed) : std::string(trimmed);
}

std::vector<std::string> warnings(std::span<const std::string_view> entries) {
  std::vector<std::string> out;
  const std::vector<std::string_view> accepted = names();
  for (std::string_view entry : entries) {
    const size_t equals = entry.find('=');
    const std::string_view name = entry.substr(0, equals);
    const bool blank =
        equals == std::string_view::npos || text::trim(entry.substr(equals + 1)).empty();
    if (name.starts_with(kPrefix) && !known(name)) {
      out.push_back(text::concat("environment variable ", text::quote(name), " is not read",
                                 text::suggestion(name, accepted),
                                 " (known: ", text::join(std::span(accepted)), ")"));
    } else if (name == kUpstream && !blank) {
      out.push_back(text::concat(kUpstream, " is not read; set FOVEA_BACKEND instead"));
    }
  }
  return out;
}

void warn_once() {
  static std::once_flag once;
  std::call_once(once, [] {
    std::vector<std::string_view> entries;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
      entries.emplace_back(*entry);
    for (const std::string& line : warnings(entries)) log(LogLevel::warning, line);
  });
}

}  // namespace fovea::env
