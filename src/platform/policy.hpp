// Compatibility policy as data: rows of checks over device facts, one table per platform.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string_view>

#include "fovea/backend_name.hpp"
#include "fovea/device_facts.hpp"

namespace fovea::platform {

// GPU kernels of this project by the instructions they need.
enum class Family : uint8_t {
  portable,  // any GPU from sm_75
  sm80,      // Ampere and newer
  sm90,      // Hopper only
};

// One condition; made by the functions below.
struct Check {
  enum class Kind : uint8_t {
    none,
    // Of the device.
    sm_range,
    sm_set,
    sm_ranges,
    fact_in,
    fact_not_in,
    name_without,
    fact_at_least,
    // Of the software.
    embedded,
    installed,
    toolkit,
    not_older,
    // Of the query.
    head_set,
    head_multiple,
    // Of an automatic choice only.
    head_known,
    understood_at_least,
    mask_free,
    // Of another name.
    backend,
  };

  Kind kind = Kind::none;
  std::string_view key = {};
  int64_t min = 0;
  int64_t max = 0;
  std::array<int64_t, 8> numbers = {};         // ends at the first 0
  std::array<std::string_view, 4> words = {};  // ends at the first empty one
  Version version = {};
  Family family = Family::portable;
  BackendName other = {};
};

inline constexpr int64_t kAnyNewer = std::numeric_limits<int64_t>::max();

// min <= sm <= max.
constexpr Check sm_range(int64_t min, int64_t max = kAnyNewer) {
  Check check{Check::Kind::sm_range};
  check.min = min;
  check.max = max;
  return check;
}

constexpr Check number_check(Check::Kind kind, std::initializer_list<int64_t> numbers) {
  Check check{kind};
  size_t i = 0;
  for (const int64_t number : numbers) check.numbers[i++] = number;
  return check;
}
constexpr Check sm_set(std::initializer_list<int64_t> numbers) {
  return number_check(Check::Kind::sm_set, numbers);
}
struct Range {
  int64_t min;
  int64_t max;
};
// sm lies in one of these; at most four.
constexpr Check sm_ranges(std::initializer_list<Range> ranges) {
  Check check{Check::Kind::sm_ranges};
  size_t i = 0;
  for (const Range& range : ranges) {
    check.numbers[i++] = range.min;
    check.numbers[i++] = range.max;
  }
  return check;
}
// head_dim is one of these, or unknown.
constexpr Check head_set(std::initializer_list<int64_t> numbers) {
  return number_check(Check::Kind::head_set, numbers);
}
// head_dim is known and one of these.
constexpr Check head_known(std::initializer_list<int64_t> numbers) {
  return number_check(Check::Kind::head_known, numbers);
}
// head_dim is a multiple of `multiple` up to `max`, or unknown.
constexpr Check head_multiple(int64_t multiple, int64_t max) {
  Check check{Check::Kind::head_multiple};
  check.min = multiple;
  check.max = max;
  return check;
}

constexpr Check word_check(Check::Kind kind, std::string_view key,
                           std::initializer_list<std::string_view> words) {
  Check check{kind, key};
  size_t i = 0;
  for (const std::string_view word : words) check.words[i++] = word;
  return check;
}
constexpr Check fact_in(std::string_view key, std::initializer_list<std::string_view> words) {
  return word_check(Check::Kind::fact_in, key, words);
}
constexpr Check fact_not_in(std::string_view key, std::initializer_list<std::string_view> words) {
  return word_check(Check::Kind::fact_not_in, key, words);
}
// The device name contains none of these words.
constexpr Check name_without(std::initializer_list<std::string_view> words) {
  return word_check(Check::Kind::name_without, "name", words);
}

constexpr Check version_check(Check::Kind kind, std::string_view key, Version version) {
  Check check{kind, key};
  check.version = version;
  return check;
}
// A version that describes the device; it must be given.
constexpr Check fact_at_least(std::string_view key, Version version) {
  return version_check(Check::Kind::fact_at_least, key, version);
}
// The CUDA toolkit, when given.
constexpr Check toolkit(Version version) {
  return version_check(Check::Kind::toolkit, "cuda", version);
}
// The package is not known to be older.
constexpr Check not_older(std::string_view key, Version version) {
  return version_check(Check::Kind::not_older, key, version);
}
// The version, when given, is understood.
constexpr Check understood_at_least(std::string_view key, Version version) {
  return version_check(Check::Kind::understood_at_least, key, version);
}

// This binary holds code of the family for the device.
constexpr Check embedded(Family family) {
  Check check{Check::Kind::embedded, "kernels"};
  check.family = family;
  return check;
}
// A package by its id.
constexpr Check installed(std::string_view id) { return {Check::Kind::installed, id}; }
// The model passes no masks.
constexpr Check mask_free() { return {Check::Kind::mask_free}; }
// Whatever another name needs.
constexpr Check same_as(BackendName other) {
  Check check{Check::Kind::backend};
  check.other = other;
  return check;
}

enum class Provider : uint8_t { fovea, cudnn, package };

// "fovea", "cudnn", "package".
constexpr std::string_view name(Provider provider) noexcept {
  switch (provider) {
    case Provider::fovea:
      return "fovea";
    case Provider::cudnn:
      return "cudnn";
    case Provider::package:
      break;
  }
  return "package";
}

// One way to run a backend. Rows of one backend stand in order of preference.
struct Row {
  BackendName backend;
  Provider provider;
  std::string_view package;  // id of what provides it; empty for fovea
  std::string_view path;     // registry path; packages take theirs from their name
  std::string_view instead;  // backends to use where this one cannot run
  std::array<Check, 6> checks = {};
  std::string_view tried = {};  // where it has run: "yes" or kinds of devices; empty: nowhere
};

// A kernel of this project.
template <class... Checks>
constexpr Row own(BackendName backend, std::string_view path, std::string_view instead,
                  Checks... checks) {
  return {backend, Provider::fovea, {}, path, instead, {checks...}};
}
// A vendor library that this tree calls.
template <class... Checks>
constexpr Row library(BackendName backend, Provider provider, std::string_view path,
                      std::string_view instead, Checks... checks) {
  return {backend, provider, name(provider), path, instead, {checks...}};
}
// A package that a binding or plugin calls; it need not be installed unless a check says so.
template <class... Checks>
constexpr Row by_package(BackendName backend, std::string_view package, std::string_view instead,
                         Checks... checks) {
  return {backend, Provider::package, package, {}, instead, {checks...}};
}
// A package that must be installed.
template <class... Checks>
constexpr Row with_package(BackendName backend, std::string_view package, std::string_view instead,
                           Checks... checks) {
  return by_package(backend, package, instead, checks..., installed(package));
}
constexpr Row tried(Row row, std::string_view where = "yes") {
  row.tried = where;
  return row;
}

// An entry of the automatic order, with what an automatic choice needs beyond an explicit one.
struct Preference {
  BackendName backend;
  Check listed = {};  // devices whose order holds the entry; none: all
  std::array<Check, 2> automatic = {};
};

struct Policy {
  PlatformId platform;
  std::span<const Row> rows;
  std::span<const Preference> order;
};

inline constexpr PlatformId kAllPlatforms[] = {PlatformId::cpu, PlatformId::cuda, PlatformId::rocm,
                                               PlatformId::npu, PlatformId::xpu,  PlatformId::musa};

// The table of a platform. Static storage.
const Policy& policy(PlatformId platform) noexcept;

const Policy& cpu_policy() noexcept;
const Policy& cuda_policy() noexcept;
const Policy& rocm_policy() noexcept;
const Policy& npu_policy() noexcept;
const Policy& xpu_policy() noexcept;
const Policy& musa_policy() noexcept;

}  // namespace fovea::platform
