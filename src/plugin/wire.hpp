// What crosses the plugin interface, in both directions: nothing a plugin hands over is believed
// unread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/backend.hpp"
#include "fovea/plugin.h"
#include "fovea/problem.hpp"
#include "fovea/reason.hpp"

namespace fovea::plugin {

// Longest string taken from a plugin.
inline constexpr size_t kMaxText = 4095;
// Most reasons kept of one call.
inline constexpr size_t kMaxReasons = 32;
// More scratch memory than this no machine has.
inline constexpr uint64_t kMaxWorkspaceBytes = uint64_t{1} << 46;
// A struct that claims to be this many times larger than ours is not a newer version of it.
inline constexpr size_t kMaxGrowth = 16;

// A copy of a plugin's string: cut at kMaxText, bytes that are not UTF-8 replaced by '?'.
// `fallback` for NULL.
std::string read_text(const char* text, std::string_view fallback = {});

// The error of everything that a plugin does wrong.
Error misbehaved(std::string_view who, std::string what);

// A struct of a plugin as far as it reaches; fields beyond are zero. `required` bytes must be
// there. `what` names it in the error.
template <class T>
Result<T> read_struct(const T* given, size_t required, std::string_view who,
                      std::string_view what) {
  if (given == nullptr) return misbehaved(who, std::string(what) + " is NULL");
  size_t size = 0;
  std::memcpy(&size, given, sizeof size);
  if (size < required || size > kMaxGrowth * sizeof(T))
    return misbehaved(who, std::string(what) + " has struct_size " + std::to_string(size) +
                               ", which is not in " + std::to_string(required) + ".." +
                               std::to_string(kMaxGrowth * sizeof(T)));
  T copy{};
  std::memcpy(&copy, given, std::min(size, sizeof(T)));
  return copy;
}

// Collects what a plugin says during one call.
class Sink {
 public:
  Sink();
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  const fovea_plugin_sink* get() const noexcept { return &sink_; }
  const std::string& message() const noexcept { return message_; }
  std::vector<Reason>& reasons() noexcept { return reasons_; }

 private:
  static void add_reason(const fovea_plugin_sink* sink, const fovea_plugin_reason* reason) noexcept;
  static void set_message(const fovea_plugin_sink* sink, const char* message) noexcept;

  fovea_plugin_sink sink_;
  std::vector<Reason> reasons_;
  std::string message_;
};

// A problem for a plugin; its strings live in this object.
class WireProblem {
 public:
  explicit WireProblem(const Problem& problem);
  WireProblem(const WireProblem&) = delete;
  WireProblem& operator=(const WireProblem&) = delete;
  const fovea_plugin_problem* get() const noexcept { return &wire_; }

 private:
  std::string text_, sparse_;
  fovea_plugin_problem wire_{};
};

// The context of a call for a plugin; its strings live in this object.
class WireContext {
 public:
  WireContext(BackendName backend, const Problem& problem, const AttentionSpec* spec,
              const ExecutionContext& context);
  WireContext(const WireContext&) = delete;
  WireContext& operator=(const WireContext&) = delete;
  const fovea_plugin_context* get() const noexcept { return &wire_; }

 private:
  std::string backend_, platform_, facts_, spec_, mask_, packing_, parallel_, kv_cache_, skip_;
  fovea_plugin_context wire_{};
};

fovea_tensor to_wire(const TensorView& view) noexcept;

}  // namespace fovea::plugin
