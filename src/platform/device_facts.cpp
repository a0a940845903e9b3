#include "fovea/device_facts.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "src/core/text.hpp"
#include "src/platform/added_platforms.hpp"

namespace fovea {
namespace {

// In the order of PlatformId.
constexpr std::string_view kPlatforms[] = {"cpu", "cuda", "rocm", "npu", "xpu", "musa"};

// Reads digits from the front of `text`. False when there are none or they do not fit.
bool take_number(std::string_view& text, int64_t& number) noexcept {
  if (text.empty() || text.front() < '0' || text.front() > '9') return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

}  // namespace

std::string_view name(PlatformId platform) noexcept {
  const auto index = static_cast<size_t>(platform);
  if (index < std::size(kPlatforms)) return kPlatforms[index];
  const platform::AddedPlatform* added = platform::find_added(platform);
  return added != nullptr ? std::string_view(added->name) : "unknown";
}

Result<PlatformId> parse_platform(std::string_view text) {
  const std::string_view word = text::trim(text);
  for (size_t i = 0; i < std::size(kPlatforms); ++i)
    if (text::equal_folded(word, kPlatforms[i])) return static_cast<PlatformId>(i);
  if (const auto added = platform::parse_added(word)) return *added;
  std::vector<std::string_view> names(std::begin(kPlatforms), std::end(kPlatforms));
  for (const std::string_view name : platform::added_names()) names.push_back(name);
  return Error{ErrorCode::invalid_facts,
               text::concat("unknown platform ", text::quote(word), "; platforms are ",
                            text::join(names), text::suggestion(word, names)),
               {}};
}

std::optional<Version> parse_version(std::string_view text) noexcept {
  Version version;
  if (!take_number(text, version.major)) return std::nullopt;
  for (int64_t* part : {&version.minor, &version.patch}) {
    if (text.size() < 2 || text.front() != '.') break;
    std::string_view rest = text.substr(1);
    if (!take_number(rest, *part)) break;
    text = rest;
  }
  return version;
}

std::optional<std::string_view> DeviceFacts::get(std::string_view key) const noexcept {
  const auto it = std::lower_bound(entries_.begin(), entries_.end(), key,
                                   [](const auto& e, std::string_view k) { return e.first < k; });
  if (it == entries_.end() || it->first != key) return std::nullopt;
  return it->second;
}

std::optional<Version> DeviceFacts::version(std::string_view key) const noexcept {
  const std::optional<std::string_view> text = get(key);
  if (!text || *text == "0" || *text == "1") return std::nullopt;
  return parse_version(*text);
}

bool DeviceFacts::flag(std::string_view key, bool fallback) const noexcept {
  const std::optional<std::string_view> text = get(key);
  return text ? *text != "0" && !fault(key) : fallback;
}

std::optional<std::string_view> DeviceFacts::fault(std::string_view key) const noexcept {
  constexpr std::string_view kBroken = "broken";
  const std::optional<std::string_view> text = get(key);
  if (!text || !text->starts_with(kBroken)) return std::nullopt;
  const std::string_view rest = text->substr(kBroken.size());
  if (!rest.empty() && !rest.starts_with(':')) return std::nullopt;
  return text::trim(rest.substr(rest.empty() ? 0 : 1));
}

std::optional<int64_t> DeviceFacts::integer(std::string_view key) const noexcept {
  const std::optional<std::string_view> text = get(key);
  return text ? text::parse_integer(*text) : std::nullopt;
}

void DeviceFacts::set(std::string key, std::string value) {
  const auto it = std::lower_bound(entries_.begin(), entries_.end(), key,
                                   [](const auto& e, const std::string& k) { return e.first < k; });
  if (it != entries_.end() && it->first == key)
    it->second = std::move(value);
  else
    entries_.emplace(it, std::move(key), std::move(value));
}

std::string overlay_facts(std::string_view facts, std::string_view changes) {
  const auto key_of = [](std::string_view entry) {
    return text::trim(entry.substr(0, entry.find('=')));
  };
  const std::vector<std::string_view> given = text::split(changes, ',');
  std::string merged(text::trim(changes));
  for (const std::string_view entry : text::split(facts, ',')) {
    const bool replaced = std::any_of(given.begin(), given.end(), [&](std::string_view other) {
      return text::equal_folded(key_of(other), key_of(entry));
    });
    if (!replaced && !text::trim(entry).empty())
      merged += text::concat(merged.empty() ? "" : ",", entry);
  }
  return merged;
}

std::string DeviceFacts::text() const {
  std::string out(name(platform_));
  out += ':';
  char separator = ' ';
  for (const auto& [key, value] : entries_) {
    out += separator;
    out += key;
    out += '=';
    out += value;
    separator = ',';
  }
  return out;
}

}  // namespace fovea
