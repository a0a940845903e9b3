// The kernel instances that exist, as data. Host code without CUDA headers: every build answers
// from the table that the launcher and the instantiations use.
#pragma once

#include <array>
#include <cstdint>

namespace fovea::flash_sm80 {

enum class Precision : std::uint8_t { bf16, f16, f32 };
/// plain: 16-byte aligned rows, no mask tensor (lengths, documents, causal and window it has).
/// any: every input of the contract; elements are loaded one by one where rows are not aligned.
enum class Form : std::uint8_t { plain, any };

struct Key {
  Precision precision;
  int head_dim;  // bucket: both head dimensions are at most this
  Form form;
  friend constexpr bool operator==(const Key&, const Key&) = default;
};

/// How a thread block is laid out.
struct Schedule {
  int row_tiles;  // query tiles of 16 rows per warp
  int warps;
  int block_kv;         // keys per step
  int stages;           // buffers of K and of V
  bool q_in_registers;  // otherwise read from shared memory in every step
  int blocks;           // thread blocks per multiprocessor that registers must leave room for
};

/// What the code of an instance is compiled for: Hopper has more shared memory than the others.
enum class Generation : std::uint8_t { ampere, hopper };

/// For the 16-bit types. The wide rows per warp halve what each product reads from shared memory.
constexpr Schedule schedule(int head_dim, Form form, Generation generation) {
  const bool hopper = generation == Generation::hopper;
  if (form == Form::any) return {1, 4, 64, 1, false, head_dim > 128 ? 1 : 2};
  if (head_dim == 64) return {2, 4, 64, 2, true, 2};
  if (head_dim == 256)
    return hopper ? Schedule{1, 4, 64, 1, false, 2} : Schedule{1, 8, 64, 1, false, 1};
  return {2, 4, 64, hopper ? 2 : 1, false, 2};
}
/// float32: 128 threads, each with 8 rows; products by fused multiply-adds.
inline constexpr int kFloatRows = 64, kFloatKeys = 64, kFloatThreads = 128;

constexpr int block_q(const Key& key, Generation generation) {
  if (key.precision == Precision::f32) return kFloatRows;
  const Schedule s = schedule(key.head_dim, key.form, generation);
  return 16 * s.row_tiles * s.warps;
}

inline constexpr std::array kInstances = {
    Key{Precision::bf16, 64, Form::plain},  Key{Precision::bf16, 96, Form::plain},
    Key{Precision::bf16, 128, Form::plain}, Key{Precision::bf16, 256, Form::plain},
    Key{Precision::f16, 64, Form::plain},   Key{Precision::f16, 96, Form::plain},
    Key{Precision::f16, 128, Form::plain},  Key{Precision::f16, 256, Form::plain},
    Key{Precision::bf16, 64, Form::any},    Key{Precision::bf16, 128, Form::any},
    Key{Precision::bf16, 256, Form::any},   Key{Precision::f16, 64, Form::any},
    Key{Precision::f16, 128, Form::any},    Key{Precision::f16, 256, Form::any},
    Key{Precision::f32, 64, Form::any},     Key{Precision::f32, 128, Form::any},
    Key{Precision::f32, 256, Form::any},
};

/// The smallest bucket that holds both head dimensions (1 to 256).
constexpr Key choose(Precision precision, Form form, std::int64_t head_dim, std::int64_t dim_v) {
  for (const Key& key : kInstances)
    if (key.precision == precision && key.form == form && head_dim <= key.head_dim &&
        dim_v <= key.head_dim)
      return key;
  return {};
}

}  // namespace fovea::flash_sm80
