#include "fovea/backend_name.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <mutex>
#include <optional>

#include "src/core/text.hpp"

namespace fovea {
namespace {

using std::string_view;

constexpr string_view kTorchSdpa[] = {"SDPA"};
constexpr string_view kCudnn[] = {"TORCH_CUDNN"};
constexpr string_view kFlash[] = {"FA"};
constexpr string_view kFlash2[] = {"FA2"};
constexpr string_view kFlash3[] = {"FA3"};
constexpr string_view kFlash4[] = {"FA4"};
constexpr string_view kReference[] = {"REF"};

constexpr std::array kTable = {
    BackendNameInfo{backend::TORCH_SDPA, "TORCH_SDPA", kTorchSdpa,
                    "exact portable attention on the CPU and any GPU"},
    BackendNameInfo{backend::CUDNN_ATTN, "CUDNN_ATTN", kCudnn, "exact attention by a cuDNN graph"},
    BackendNameInfo{backend::FLASH_ATTN, "FLASH_ATTN", kFlash,
                    "the best exact flash kernel of the platform"},
    BackendNameInfo{backend::FLASH_ATTN_2, "FLASH_ATTN_2", kFlash2,
                    "exact flash attention for GPUs from sm_80"},
    BackendNameInfo{backend::FLASH_ATTN_3, "FLASH_ATTN_3", kFlash3,
                    "exact flash attention for Hopper"},
    BackendNameInfo{backend::FLASH_ATTN_4, "FLASH_ATTN_4", kFlash4,
                    "exact flash attention by the CuTe package"},
    BackendNameInfo{backend::SAGE_ATTN, "SAGE_ATTN", {}, "the best quantised path of the device"},
    BackendNameInfo{backend::SAGE_ATTN_2_8_8, "SAGE_ATTN_2_8_8", {}, "int8 scores, fp8 values"},
    BackendNameInfo{backend::SAGE_ATTN_2_8_16, "SAGE_ATTN_2_8_16", {}, "int8 scores, f16 values"},
    BackendNameInfo{backend::SAGE_ATTN_2_8_8_SM90,
                    "SAGE_ATTN_2_8_8_SM90",
                    {},
                    "int8 scores, fp8 values on Hopper"},
    BackendNameInfo{backend::SAGE_ATTN_3, "SAGE_ATTN_3", {}, "4-bit scores and values"},
    BackendNameInfo{backend::RADIAL_ATTN,
                    "RADIAL_ATTN",
                    {},
                    "sparse: radial mask over frames, density falls with distance in time"},
    BackendNameInfo{
        backend::LOCAL_SPARSE_ATTN, "LOCAL_SPARSE_ATTN", {}, "sparse: local windows and top-k"},
    BackendNameInfo{backend::SPARGE_ATTN, "SPARGE_ATTN", {}, "sparse: blocks chosen from the data"},
    BackendNameInfo{backend::BLOCK_SPARSE_ATTN,
                    "BLOCK_SPARSE_ATTN",
                    {},
                    "sparse: a block mask or the strongest blocks"},
    BackendNameInfo{
        backend::RAINFUSION_ATTN, "RAINFUSION_ATTN", {}, "sparse: per-head patterns for video"},
    BackendNameInfo{backend::FASTVIDEO_VSA, "FASTVIDEO_VSA", {}, "sparse: video tiles, top-k"},
    BackendNameInfo{backend::FLASHINFER_ATTN, "FLASHINFER_ATTN", {}, "vendor package FlashInfer"},
    BackendNameInfo{backend::TRTLLM_ATTN, "TRTLLM_ATTN", {}, "vendor package TensorRT-LLM"},
    BackendNameInfo{
        backend::FLASH_ATTN_HUB, "FLASH_ATTN_HUB", {}, "FlashAttention 2 from the kernels hub"},
    BackendNameInfo{
        backend::FLASH_ATTN_3_HUB, "FLASH_ATTN_3_HUB", {}, "FlashAttention 3 from the kernels hub"},
    BackendNameInfo{
        backend::AITER_QUANT_ATTN, "AITER_QUANT_ATTN", {}, "vendor package AITER, quantised"},
    BackendNameInfo{backend::VDNH3_ATTN, "VDNH3_ATTN", {}, "vendor path VDN-H3"},
    BackendNameInfo{backend::REFERENCE, "REFERENCE", kReference,
                    "float64 oracle on the CPU, never chosen automatically"},
};

constexpr bool in_order() {
  for (size_t i = 0; i < kTable.size(); ++i)
    if (kTable[i].name.id() != i) return false;
  return true;
}
static_assert(in_order(), "kTable is indexed by the id of a name");

// Names added at run time; their ids follow those of kTable.
struct AddedNames {
  std::mutex mutex;
  std::vector<std::string> names;
};
AddedNames& added() {
  static AddedNames instance;
  return instance;
}

std::optional<BackendName> find_built_in(string_view word) noexcept {
  for (const BackendNameInfo& row : kTable) {
    if (text::equal_folded(row.canonical, word)) return row.name;
    for (string_view alias : row.aliases)
      if (text::equal_folded(alias, word)) return row.name;
  }
  return std::nullopt;
}

BackendName added_name(size_t index) noexcept {
  return BackendName(static_cast<uint16_t>(kTable.size() + index));
}

std::optional<BackendName> find_added(const std::vector<std::string>& names, string_view word) {
  for (size_t i = 0; i < names.size(); ++i)
    if (text::equal_folded(names[i], word)) return added_name(i);
  return std::nullopt;
}

bool well_formed(string_view word) noexcept {
  const auto upper = [](char c) { return c >= 'A' && c <= 'Z'; };
  return !word.empty() && upper(word.front()) && std::all_of(word.begin(), word.end(), [&](char c) {
    return upper(c) || c == '_' || (c >= '0' && c <= '9');
  });
}

}  // namespace

std::span<const BackendNameInfo> backend_names() noexcept { return kTable; }

std::string name(BackendName backend) {
  if (backend.id() < kTable.size()) return std::string(kTable[backend.id()].canonical);
  AddedNames& registry = added();
  const std::lock_guard lock(registry.mutex);
  const size_t index = backend.id() - kTable.size();
  return index < registry.names.size() ? registry.names[index]
                                       : text::concat("unknown backend ", backend.id());
}

Result<BackendName> parse_backend(string_view text) {
  const string_view word = text::trim(text);
  if (const auto found = find_built_in(word)) return *found;
  std::vector<std::string> known;
  std::vector<std::string> accepted;
  for (const BackendNameInfo& row : kTable) {
    known.emplace_back(row.canonical);
    accepted.emplace_back(row.canonical);
    accepted.insert(accepted.end(), row.aliases.begin(), row.aliases.end());
  }
  {
    AddedNames& registry = added();
    const std::lock_guard lock(registry.mutex);
    if (const auto found = find_added(registry.names, word)) return *found;
    known.insert(known.end(), registry.names.begin(), registry.names.end());
    accepted.insert(accepted.end(), registry.names.begin(), registry.names.end());
  }
  return Error{ErrorCode::invalid_config,
               text::concat("backend ", text::quote(word), " is not known",
                            text::suggestion(word, accepted), " (known: ", text::join(known), ")"),
               {}};
}

Result<BackendName> add_backend_name(string_view text) {
  if (!well_formed(text))
    return Error{ErrorCode::invalid_argument,
                 text::concat("backend name ", text::quote(text),
                              " is not well formed (accepted: a capital letter, then capital "
                              "letters, digits and underscores)"),
                 {}};
  if (const auto taken = find_built_in(text))
    return Error{ErrorCode::invalid_argument,
                 text::concat("backend name ", text::quote(text), " is built in as ", name(*taken),
                              ", choose another name or register_backend(", name(*taken), ")"),
                 {}};
  AddedNames& registry = added();
  const std::lock_guard lock(registry.mutex);
  if (const auto found = find_added(registry.names, text)) return *found;
  if (kTable.size() + registry.names.size() > std::numeric_limits<uint16_t>::max())
    return Error{ErrorCode::invalid_argument, "no more backend names can be added", {}};
  registry.names.emplace_back(text);
  return added_name(registry.names.size() - 1);
}

std::vector<BackendName> all_backends() {
  std::vector<BackendName> all;
  for (const BackendNameInfo& row : kTable) all.push_back(row.name);
  AddedNames& registry = added();
  const std::lock_guard lock(registry.mutex);
  for (size_t i = 0; i < registry.names.size(); ++i) all.push_back(added_name(i));
  return all;
}

}  // namespace fovea
