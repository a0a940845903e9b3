#include "src/core/problem_names.hpp"

#include <array>
#include <cstddef>

namespace fovea {
namespace {

constexpr std::array<std::string_view, 4> kMasks = {"none", "keys", "bool", "bias"};
constexpr std::array<std::string_view, 5> kStrides = {"contig", "fused_qkv", "bhsd_view",
                                                      "expanded", "custom"};

}  // namespace

std::string_view name(MaskKind kind) noexcept {
  const auto index = static_cast<size_t>(kind);
  return index < kMasks.size() ? kMasks[index] : "unknown";
}

std::string_view name(StridesKind kind) noexcept {
  const auto index = static_cast<size_t>(kind);
  return index < kStrides.size() ? kStrides[index] : "unknown";
}

std::optional<StridesKind> parse_strides_kind(std::string_view text) noexcept {
  for (size_t i = 0; i < kStrides.size(); ++i)
    if (kStrides[i] == text) return static_cast<StridesKind>(i);
  return std::nullopt;
}

}  // namespace fovea
