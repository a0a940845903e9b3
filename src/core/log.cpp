#include "src/core/log.hpp"

#include <array>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <set>
#include <string>

#include "src/core/env.hpp"
#include "src/core/text.hpp"

namespace fovea {
namespace {

// Bounds what log_once remembers; beyond it a line may come twice.
constexpr size_t kMaxRemembered = 4096;

constexpr std::array<std::string_view, 5> kLevels = {"debug", "info", "warning", "error", "off"};

void write_to_stderr(LogLevel level, std::string_view line) {
  const std::string text = text::concat("fovea ", name(level), ": ", line, '\n');
  std::fwrite(text.data(), 1, text.size(), stderr);
}

struct Log {
  std::atomic<LogLevel> level{LogLevel::warning};
  std::mutex mutex;
  LogSink sink;
  std::set<std::string> remembered;  // what log_once sent to this sink

  Log() {
    const std::optional<std::string> asked = env::read(env::Variable::log);
    if (!asked) return;
    if (const auto parsed = parse_log_level(*asked))
      level = *parsed;
    else
      write_to_stderr(LogLevel::warning,
                      text::concat("FOVEA_LOG ", text::quote(*asked), " is not a level",
                                   text::suggestion(*asked, kLevels), " (accepted: ",
                                   text::join(std::span(kLevels)), "), warning is used"));
  }

  void write(LogLevel at, std::string_view line) const {
    if (sink)
      sink(at, line);
    else
      write_to_stderr(at, line);
  }
};

Log& state() {
  static Log instance;
  return instance;
}

}  // namespace

std::string_view name(LogLevel level) noexcept {
  const auto index = static_cast<size_t>(level);
  return index < kLevels.size() ? kLevels[index] : "unknown";
}

std::optional<LogLevel> parse_log_level(std::string_view text) noexcept {
  for (size_t i = 0; i < kLevels.size(); ++i)
    if (text::equal_folded(kLevels[i], text)) return static_cast<LogLevel>(i);
  return std::nullopt;
}

void set_log_sink(LogSink sink) {
  Log& log = state();
  const std::lock_guard lock(log.mutex);
  log.sink = std::move(sink);
  log.remembered.clear();
}

void set_log_level(LogLevel level) noexcept { state().level = level; }

LogLevel log_level() noexcept { return state().level; }

bool logged(LogLevel level) noexcept { return level >= log_level() && level != LogLevel::off; }

void log(LogLevel level, std::string_view line) {
  if (!logged(level)) return;
  Log& log = state();
  const std::lock_guard lock(log.mutex);
  log.write(level, line);
}

void log_once(LogLevel level, std::string_view line, std::string_view key) {
  if (!logged(level)) return;
  Log& log = state();
  const std::lock_guard lock(log.mutex);
  if (log.remembered.size() >= kMaxRemembered) log.remembered.clear();
  if (!log.remembered.insert(text::concat(key, line)).second) return;
  log.write(level, line);
}

}  // namespace fovea
