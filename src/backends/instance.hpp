// The table of kernel instances: support answers and dispatch both read it, so they cannot
// disagree.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "fovea/config.hpp"
#include "fovea/device_facts.hpp"
#include "fovea/error.hpp"
#include "fovea/execution.hpp"
#include "fovea/problem.hpp"
#include "fovea/receipt.hpp"

namespace fovea::backends {

// A set of small enumerators.
template <class E>
class Set {
 public:
  constexpr Set() = default;
  constexpr Set(std::initializer_list<E> members) {
    for (E member : members) bits_ |= bit(member);
  }
  constexpr bool has(E member) const noexcept { return (bits_ & bit(member)) != 0; }

 private:
  static constexpr uint32_t bit(E member) { return 1u << static_cast<uint32_t>(member); }
  uint32_t bits_ = 0;
};

// Multiples of `multiple` in [min, max].
struct SizeRange {
  int64_t min = 1;
  int64_t max = 512;
  int64_t multiple = 1;

  constexpr bool has(int64_t size) const noexcept {
    return size >= min && size <= max && size % multiple == 0;
  }
};

// Element types as set members.
enum class Element : uint8_t { f32, f16, bf16, boolean, u8, i32, i64 };
std::optional<Element> element(DType dtype) noexcept;

// One kernel that exists. Defaults describe a kernel with the whole contract; a table row narrows
// them.
struct Instance {
  std::string_view name;  // unique within its table, e.g. "f32"
  std::string_view path;  // what receipts print, e.g. "cpu.avx2"
  Set<Element> dtypes = {Element::f32, Element::f16, Element::bf16};
  SizeRange head_dim = {};
  SizeRange dim_v = {};
  bool equal_dims = false;  // needs dim_v == head_dim
  Set<MaskKind> masks = {MaskKind::none, MaskKind::keys, MaskKind::boolean, MaskKind::bias};
  Set<Element> mask_dtypes = {Element::boolean, Element::u8,  Element::i32, Element::i64,
                              Element::f32,     Element::f16, Element::bf16};
  bool causal = true;
  bool window = true;
  bool kv_lengths = true;
  bool packed = true;
  bool gqa = true;
  bool lse = true;
  bool piecewise = false;  // runs Problem::pieces
  bool prepared = false;   // reads tensors prepared ahead of the call
  bool sparse = false;     // runs the pattern of Problem::sparse
  bool f32_out = true;
  bool expanded_strides = true;  // stride 0 is read in place
  int32_t alignment = 1;         // bytes that every base address must be divisible by
  int32_t stride_multiple = 1;   // elements that batch, seq and head strides must be divisible by
  bool deterministic = true;
  bool lossy = false;
  std::string_view compute_qk = "f32";
  std::string_view compute_pv = "f32";
  CompilationMode compilation_mode = CompilationMode::custom_op;
  // What the device lacks, or nothing. Reads facts only. nullptr: any device of the platform.
  std::optional<Reason> (*device)(const DeviceFacts& facts) = nullptr;
  // Whether a verified record exists for these facts; nullptr: verified everywhere (CPU, tested by
  // CI).
  bool (*verified)(const DeviceFacts& facts) = nullptr;
  bool built = true;  // this binary holds the kernel
};

// Everything that keeps `instance` from running the problem, in a fixed order; empty when it can.
std::vector<Reason> refusals(const Instance& instance, const Problem& problem,
                             const ExecutionContext& context);

// Appends why a kernel that reads boundaries and lengths on its device cannot take those that were
// made from metadata and lie in host memory.
void refuse_host_numbers(std::vector<Reason>& out, const ExecutionContext& context);

// The first row without refusals, or null with the reasons of the row that came closest (fewest
// reasons, earlier row on a tie). A row that is not built is passed over for a built one.
struct Choice {
  const Instance* instance = nullptr;
  std::vector<Reason> reasons;
};
Choice choose(std::span<const Instance> table, const Problem& problem,
              const ExecutionContext& context);

// The report of a choice: status, path, instance, modes. Supported on a verified row, unmigrated
// otherwise.
ExecutionPathResult report(BackendName name, std::string_view provider, const Choice& choice,
                           const Problem& problem, const ExecutionContext& context);

// Turns a report into a refusal when `spec` (null: platform default) asks for another provider.
void apply_provider(ExecutionPathResult& report, const AttentionSpec* spec);
// The same, and when it asks to skip tiles, for paths that cannot.
void apply_spec(ExecutionPathResult& report, const AttentionSpec* spec);

// Success when a plan can be made from `report`: supported or unmigrated, and the context is local.
// Otherwise the error that plan() returns; codes unsupported, not_built or not_available.
Status admit(const ExecutionPathResult& report, const Problem& problem,
             const ExecutionContext& context);

// The receipt of a chosen row, without padding, density and workspace, which the plan fills in.
Receipt make_receipt(const ExecutionPathResult& report, const Instance& instance);

}  // namespace fovea::backends
