// The names users type. One enum with two vocabularies; plugins may add names at run time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/error.hpp"

namespace fovea {

// A stable name of a backend. A small value: copy and compare freely.
class BackendName {
 public:
  constexpr BackendName() = default;
  constexpr explicit BackendName(uint16_t id) : id_(id) {}
  constexpr uint16_t id() const noexcept { return id_; }
  constexpr auto operator<=>(const BackendName&) const = default;

  // The guide's spelling: AttnImplType::RADIAL_ATTN is the same value as backend::RADIAL_ATTN.
  static const BackendName TORCH_SDPA, TORCH_CUDNN, FLASH_ATTN_2, FLASH_ATTN_3, FLASH_ATTN_4,
      SAGE_ATTN_2_8_8, SAGE_ATTN_2_8_16, SAGE_ATTN_2_8_8_SM90, SPARGE_ATTN, RADIAL_ATTN,
      LOCAL_SPARSE_ATTN;

 private:
  uint16_t id_ = 0;
};

using AttnImplType = BackendName;

namespace backend {
inline constexpr BackendName TORCH_SDPA{0};
inline constexpr BackendName CUDNN_ATTN{1};
inline constexpr BackendName FLASH_ATTN{2};
inline constexpr BackendName FLASH_ATTN_2{3};
inline constexpr BackendName FLASH_ATTN_3{4};
inline constexpr BackendName FLASH_ATTN_4{5};
inline constexpr BackendName SAGE_ATTN{6};
inline constexpr BackendName SAGE_ATTN_2_8_8{7};
inline constexpr BackendName SAGE_ATTN_2_8_16{8};
inline constexpr BackendName SAGE_ATTN_2_8_8_SM90{9};
inline constexpr BackendName SAGE_ATTN_3{10};
inline constexpr BackendName RADIAL_ATTN{11};
inline constexpr BackendName LOCAL_SPARSE_ATTN{12};
inline constexpr BackendName SPARGE_ATTN{13};
inline constexpr BackendName BLOCK_SPARSE_ATTN{14};
inline constexpr BackendName RAINFUSION_ATTN{15};
inline constexpr BackendName FASTVIDEO_VSA{16};
inline constexpr BackendName FLASHINFER_ATTN{17};
inline constexpr BackendName TRTLLM_ATTN{18};
inline constexpr BackendName FLASH_ATTN_HUB{19};
inline constexpr BackendName FLASH_ATTN_3_HUB{20};
inline constexpr BackendName AITER_QUANT_ATTN{21};
inline constexpr BackendName VDNH3_ATTN{22};
inline constexpr BackendName REFERENCE{23};
}  // namespace backend

inline constexpr BackendName BackendName::TORCH_SDPA = backend::TORCH_SDPA;
inline constexpr BackendName BackendName::TORCH_CUDNN = backend::CUDNN_ATTN;
inline constexpr BackendName BackendName::FLASH_ATTN_2 = backend::FLASH_ATTN_2;
inline constexpr BackendName BackendName::FLASH_ATTN_3 = backend::FLASH_ATTN_3;
inline constexpr BackendName BackendName::FLASH_ATTN_4 = backend::FLASH_ATTN_4;
inline constexpr BackendName BackendName::SAGE_ATTN_2_8_8 = backend::SAGE_ATTN_2_8_8;
inline constexpr BackendName BackendName::SAGE_ATTN_2_8_16 = backend::SAGE_ATTN_2_8_16;
inline constexpr BackendName BackendName::SAGE_ATTN_2_8_8_SM90 = backend::SAGE_ATTN_2_8_8_SM90;
inline constexpr BackendName BackendName::SPARGE_ATTN = backend::SPARGE_ATTN;
inline constexpr BackendName BackendName::RADIAL_ATTN = backend::RADIAL_ATTN;
inline constexpr BackendName BackendName::LOCAL_SPARSE_ATTN = backend::LOCAL_SPARSE_ATTN;

// One row per built-in name, in canonical order.
struct BackendNameInfo {
  BackendName name;
  std::string_view canonical;                 // printed everywhere
  std::span<const std::string_view> aliases;  // also accepted
  std::string_view summary;                   // one line
};

// The table of built-in names, ordered by id. Thread-safe; static storage.
FOVEA_API std::span<const BackendNameInfo> backend_names() noexcept;

// The canonical spelling, also for names added at run time. Thread-safe.
FOVEA_API std::string name(BackendName backend);

// Reads a canonical name or alias, case-insensitive and trimmed. Error invalid_config lists the
// names and suggests the nearest. Thread-safe.
FOVEA_API Result<BackendName> parse_backend(std::string_view text);

// Makes a name known (for plugins that add a backend). The same text gives the same name again.
// Error invalid_argument when the text is not [A-Z][A-Z0-9_]* or spells a built-in name.
// Thread-safe.
FOVEA_API Result<BackendName> add_backend_name(std::string_view text);

// Built-in names followed by added ones. Thread-safe.
FOVEA_API std::vector<BackendName> all_backends();

}  // namespace fovea
