#include "fovea/dtype.hpp"

#include "src/core/text.hpp"

namespace fovea {
namespace {

struct DTypeName {
  std::string_view text;
  DType dtype;
};

// The first entry of a type is its canonical name.
constexpr DTypeName kNames[] = {
    {"f64", kF64},   {"float64", kF64}, {"double", kF64},    {"f32", kF32},     {"float32", kF32},
    {"float", kF32}, {"fp32", kF32},    {"f16", kF16},       {"float16", kF16}, {"half", kF16},
    {"fp16", kF16},  {"bf16", kBF16},   {"bfloat16", kBF16}, {"bool", kBool},   {"boolean", kBool},
    {"u8", kU8},     {"uint8", kU8},    {"i32", kI32},       {"int32", kI32},   {"i64", kI64},
    {"int64", kI64},
};

}  // namespace

std::string_view name(DType dtype) noexcept {
  for (const DTypeName& entry : kNames)
    if (entry.dtype == dtype) return entry.text;
  return "unknown";
}

std::optional<DType> parse_dtype(std::string_view text) noexcept {
  for (const DTypeName& entry : kNames)
    if (text::equal_folded(entry.text, text)) return entry.dtype;
  return std::nullopt;
}

}  // namespace fovea
