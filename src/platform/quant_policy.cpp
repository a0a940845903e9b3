#include "src/platform/quant_policy.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "src/core/text.hpp"
#include "src/platform/package.hpp"

namespace fovea::platform {
namespace {

// A value of a field of the block, where it runs, and the FlashInfer that brought it.
struct Row {
  BackendName backend;
  std::string_view field;
  std::string_view value;
  std::span<const int64_t> devices;  // compute capabilities; empty: those of the backend
  Version flashinfer;
};

constexpr int64_t kOnlySm100[] = {100};
constexpr int64_t kSm100And103[] = {100, 103};
constexpr std::string_view kInt8 = "int8";
constexpr std::string_view kFp8 = "fp8_e4m3";

constexpr Row kRows[] = {
    {backend::TRTLLM_ATTN, "dtype_qk", kInt8, kOnlySm100, {0, 6, 18}},
    {backend::TRTLLM_ATTN, "dtype_qk", kFp8, kSm100And103, {0, 6, 18}},
    {backend::FLASHINFER_ATTN, "dtype_vo", kFp8, {}, {0, 6, 15}},
};

}  // namespace

std::vector<Reason> quant_refusals(BackendName backend, const QuantOptions& quant,
                                   const DeviceFacts& facts) {
  std::vector<Reason> reasons;
  for (const Row& row : kRows) {
    const std::optional<std::string>& given =
        row.field == "dtype_qk" ? quant.dtype_qk : quant.dtype_vo;
    if (row.backend != backend || given != row.value) continue;
    const int64_t sm = facts.integer("sm").value_or(0);
    if (!row.devices.empty() &&
        std::find(row.devices.begin(), row.devices.end(), sm) == row.devices.end()) {
      std::vector<std::string> accepted;
      for (const int64_t device : row.devices) accepted.push_back(text::concat("sm_", device));
      reasons.push_back({ReasonCode::option_value, text::concat("quant.", row.field),
                         text::concat(row.value, " on sm_", sm),
                         text::concat(row.value, " on ", text::join(accepted)),
                         row.value == kInt8 ? "use fp8_e4m3, or remove quant" : "remove quant"});
    }
    if (const auto version = facts.version("flashinfer"); version && *version < row.flashinfer)
      reasons.push_back(
          {ReasonCode::version, "flashinfer", std::string(*facts.get("flashinfer")),
           text::concat(">= ", row.flashinfer.major, '.', row.flashinfer.minor, '.',
                        row.flashinfer.patch, " for quant.", row.field, ' ', row.value),
           std::string(package("flashinfer").install)});
  }
  return reasons;
}

}  // namespace fovea::platform
