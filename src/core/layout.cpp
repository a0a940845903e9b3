#include "fovea/layout.hpp"

#include "src/core/text.hpp"

namespace fovea {
namespace {

struct LayoutName {
  std::string_view text;
  Layout layout;
};

// The first entry of a layout is its canonical name.
constexpr LayoutName kNames[] = {
    {"bshd", Layout::bshd},     {"bsnd", Layout::bshd},  {"nhd", Layout::bshd},
    {"bhsd", Layout::bhsd},     {"bnsd", Layout::bhsd},  {"hnd", Layout::bhsd},
    {"packed", Layout::packed}, {"thd", Layout::packed}, {"tnd", Layout::packed}};

}  // namespace

std::string_view name(Layout layout) noexcept {
  for (const LayoutName& entry : kNames)
    if (entry.layout == layout) return entry.text;
  return "unknown";
}

std::optional<Layout> parse_layout(std::string_view text) noexcept {
  for (const LayoutName& entry : kNames)
    if (text::equal_folded(entry.text, text)) return entry.layout;
  return std::nullopt;
}

}  // namespace fovea
