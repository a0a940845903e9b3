#include "src/platform/check.hpp"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "src/core/text.hpp"
#include "src/platform/package.hpp"

namespace fovea::platform {
namespace {

constexpr std::string_view kDefaultKernels = "sm_80+sm_90a";

std::span<const int64_t> numbers(const Check& check) {
  const auto end = std::find(check.numbers.begin(), check.numbers.end(), 0);
  return {check.numbers.begin(), end};
}

std::span<const std::string_view> words(const Check& check) {
  const auto end = std::find(check.words.begin(), check.words.end(), std::string_view{});
  return {check.words.begin(), end};
}

template <class T>
bool contains(std::span<const T> list, const T& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

std::string number_list(std::span<const int64_t> list, std::string_view prefix) {
  std::vector<std::string> items;
  for (const int64_t number : list) items.push_back(text::concat(prefix, number));
  return text::join(items);
}

// "sm_90", "sm_10x", "sm_80 to sm_89".
std::string range_text(int64_t min, int64_t max) {
  if (max == kAnyNewer) return text::concat("sm_", min, " or newer");
  if (max == min) return text::concat("sm_", min);
  if (min % 10 == 0 && max == min + 9) return text::concat("sm_", min / 10, 'x');
  return text::concat("sm_", min, " to sm_", max);
}

// Whether sm is what a check of the device's compute capability accepts.
bool holds_sm(const Check& check, int64_t sm) {
  const std::span<const int64_t> list = numbers(check);
  if (check.kind == Check::Kind::sm_range) return sm >= check.min && sm <= check.max;
  if (check.kind == Check::Kind::sm_set) return contains(list, sm);
  for (size_t i = 0; i + 1 < list.size(); i += 2)
    if (sm >= list[i] && sm <= list[i + 1]) return true;
  return false;
}

std::string print(const Version& version) {
  std::string out = text::concat(version.major, '.', version.minor);
  if (version.patch != 0) out += text::concat('.', version.patch);
  return out;
}

std::string at_least(const Version& version) { return text::concat(">= ", print(version)); }

// The text of a fact for messages.
std::string stated(const DeviceFacts& facts, std::string_view key) {
  const std::optional<std::string_view> value = facts.get(key);
  if (!value) return "not given";
  if (!facts.version(key)) return text::concat(text::quote(*value), " (version not understood)");
  return std::string(*value);
}

std::string use(std::string_view instead) {
  return instead.empty() ? std::string() : text::concat("use ", instead);
}

Reason wrong_device(std::string got, const Check& check, std::string_view instead) {
  return {ReasonCode::architecture, "device", std::move(got), accepted_devices(check),
          use(instead)};
}

std::string device(const DeviceFacts& facts) {
  const std::optional<int64_t> sm = facts.integer("sm");
  if (sm) return text::concat("sm_", *sm);
  return facts.has("sm") ? "of unknown compute capability" : "of no stated compute capability";
}

// Code for one embedded architecture, as "sm_80" or "sm_90a".
bool runs(std::string_view architecture, Family family, int64_t sm) {
  const bool hopper_only = architecture.ends_with('a') || architecture.ends_with('f');
  if (hopper_only) architecture.remove_suffix(1);
  const std::optional<int64_t> number = text::parse_integer(architecture.substr(3));
  if (!number) return false;
  if (family == Family::sm90) return hopper_only && *number == 90 && sm == 90;
  if (hopper_only) return *number == sm;
  // A build for sm_80 also embeds PTX, which every newer GPU compiles.
  const int64_t oldest = family == Family::portable ? 75 : 80;
  if (*number == 80 && sm >= oldest) return true;
  return *number >= oldest && *number / 10 == sm / 10 && *number <= sm;
}

std::optional<Reason> embedded_failure(const Check& check, const DeviceFacts& facts) {
  std::string_view kernels = facts.get("kernels").value_or(kDefaultKernels);
  if (kernels == "unknown") kernels = kDefaultKernels;
  const std::optional<int64_t> sm = facts.integer("sm");
  if (!sm) return std::nullopt;  // the device check has refused it
  if (kernels != "none")
    for (const std::string_view architecture : text::split(kernels, '+'))
      if (runs(architecture, check.family, *sm)) return std::nullopt;
  const bool sm90 = check.family == Family::sm90;
  return Reason{
      ReasonCode::architecture, std::string(kBinary),
      text::concat("built for ", kernels == "none" ? "no GPU" : kernels, ", device is sm_", *sm),
      sm90 ? "sm_90a" : "sm_80",
      sm90 ? "rebuild with ./dev build --cuda sm90" : "rebuild with ./dev build --cuda sm80"};
}

std::optional<Reason> installed_failure(const Check& check, const DeviceFacts& facts) {
  const Package& wanted_package = package(check.key);
  std::string install(wanted_package.install);
  switch (state(wanted_package, facts)) {
    case PackageState::present:
      return std::nullopt;
    case PackageState::missing:
      return Reason{ReasonCode::package, std::string(wanted_package.fact),
                    std::string(kNotInstalled), wanted(wanted_package), std::move(install)};
    case PackageState::broken:
      break;
  }
  const bool own = wanted_package.part_of.empty() || facts.fault(wanted_package.fact);
  return Reason{ReasonCode::package,
                std::string(own ? wanted_package.fact : wanted_package.part_of),
                fault(wanted_package, facts), wanted(wanted_package), std::move(install)};
}

Reason wrong_version(const Check& check, const DeviceFacts& facts, std::string remedy) {
  return {ReasonCode::version, std::string(check.key), stated(facts, check.key),
          at_least(check.version), std::move(remedy)};
}

std::optional<Reason> head_failure(const Check& check, std::string_view instead, int64_t head_dim) {
  std::string accepted;
  bool holds = false;
  if (check.kind == Check::Kind::head_multiple) {
    holds = head_dim <= 0 || (head_dim % check.min == 0 && head_dim <= check.max);
    accepted = text::concat("multiples of ", check.min, " up to ", check.max);
  } else {
    const bool unknown_holds = check.kind == Check::Kind::head_set;
    holds = head_dim <= 0 ? unknown_holds : contains(numbers(check), head_dim);
    accepted = number_list(numbers(check), "");
  }
  if (holds) return std::nullopt;
  if (head_dim <= 0)
    return Reason{ReasonCode::head_dim, "head_dim", "unknown", std::move(accepted),
                  "state the head size"};
  return Reason{ReasonCode::head_dim, "head_dim", std::to_string(head_dim), std::move(accepted),
                use(instead)};
}

}  // namespace

bool of_device(Check::Kind kind) noexcept {
  switch (kind) {
    case Check::Kind::sm_range:
    case Check::Kind::sm_set:
    case Check::Kind::sm_ranges:
    case Check::Kind::fact_in:
    case Check::Kind::fact_not_in:
    case Check::Kind::name_without:
    case Check::Kind::fact_at_least:
      return true;
    default:
      return false;
  }
}

std::string accepted_devices(const Check& check) {
  switch (check.kind) {
    case Check::Kind::sm_range:
      return range_text(check.min, check.max);
    case Check::Kind::sm_ranges: {
      std::vector<std::string> items;
      const std::span<const int64_t> list = numbers(check);
      for (size_t i = 0; i + 1 < list.size(); i += 2)
        items.push_back(range_text(list[i], list[i + 1]));
      return text::join(items);
    }
    case Check::Kind::sm_set:
      return number_list(numbers(check), "sm_");
    case Check::Kind::fact_in:
      return text::join(words(check));
    case Check::Kind::fact_not_in:
      return text::concat(check.key, " other than ", text::join(words(check)));
    case Check::Kind::name_without:
      return text::concat("a device whose name has none of ", text::join(words(check)));
    case Check::Kind::fact_at_least:
      return text::concat(check.key, ' ', at_least(check.version));
    default:
      return {};
  }
}

std::optional<Reason> failure(const Check& check, std::string_view instead,
                              const DeviceFacts& facts, const PolicyQuery& query) {
  using Kind = Check::Kind;
  const std::optional<std::string_view> value = facts.get(check.key);
  switch (check.kind) {
    case Kind::none:
    case Kind::backend:
      return std::nullopt;
    case Kind::sm_range:
    case Kind::sm_set:
    case Kind::sm_ranges: {
      const std::optional<int64_t> sm = facts.integer("sm");
      if (sm && holds_sm(check, *sm)) return std::nullopt;
      Reason reason = wrong_device(device(facts), check, instead);
      if (!sm) reason.remedy = "state the compute capability, such as sm=90";
      return reason;
    }
    case Kind::fact_in:
      if (value && contains(words(check), *value)) return std::nullopt;
      return wrong_device(value ? std::string(*value) : text::concat("of no stated ", check.key),
                          check, instead);
    case Kind::fact_not_in:
      if (!value || !contains(words(check), *value)) return std::nullopt;
      return wrong_device(text::concat(check.key, ' ', *value), check, instead);
    case Kind::name_without:
      for (const std::string_view word : words(check))
        if (value && value->find(word) != std::string_view::npos)
          return wrong_device(std::string(*value), check, instead);
      return std::nullopt;
    case Kind::fact_at_least: {
      const std::optional<Version> version = facts.version(check.key);
      if (version && *version >= check.version) return std::nullopt;
      return wrong_device(text::concat(check.key, ' ', stated(facts, check.key)), check, instead);
    }
    case Kind::embedded:
      return embedded_failure(check, facts);
    case Kind::installed:
      return installed_failure(check, facts);
    case Kind::toolkit:
    case Kind::not_older:
    case Kind::understood_at_least: {
      const std::optional<Version> version = facts.version(check.key);
      if (!value || (version && *version >= check.version)) return std::nullopt;
      if (!version && check.kind == Kind::not_older) return std::nullopt;
      return wrong_version(check, facts,
                           check.kind == Kind::toolkit
                               ? text::concat("install CUDA ", print(check.version), " or newer")
                               : std::string(package(check.key).install));
    }
    case Kind::head_set:
    case Kind::head_multiple:
    case Kind::head_known:
      return head_failure(check, instead, query.head_dim);
    case Kind::mask_free:
      if (query.mask_free) return std::nullopt;
      return Reason{ReasonCode::mask_free, "mask_free", "0", "1", "declare the model mask-free"};
  }
  return std::nullopt;
}

}  // namespace fovea::platform
