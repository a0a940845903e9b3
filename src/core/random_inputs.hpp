// Tensors for a problem: the same seed gives the same values on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "fovea/backend.hpp"
#include "fovea/error.hpp"
#include "fovea/problem.hpp"

namespace fovea {

// The i-th value of stream `stream`. Pure; good for any order of access.
uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t i) noexcept;
// Normal with mean 0 and variance 1, bounded by 4.4.
double random_normal(uint64_t seed, uint64_t stream, uint64_t i) noexcept;

struct RandomOptions {
  // NaN around every buffer, in the gaps between strided elements, and in K and V of keys that no
  // row of their item sees.
  bool poison = true;
  // Share of keys that a generated mask hides.
  double hidden = 0.25;
  // Off: no mask and no generated length leaves a row empty that causal, window, lengths and
  // documents let see something.
  bool empty_rows = false;
};

// All tensors of one call, with their memory. Outputs are filled with NaN.
class RandomInputs {
 public:
  const AttentionTensors& tensors() const noexcept { return tensors_; }
  // A fingerprint of every byte of the inputs, padding included.
  uint64_t input_hash() const noexcept;
  // False when a byte before or behind an output was written.
  bool output_guards_intact() const noexcept;

 private:
  friend Result<RandomInputs> make_random_inputs(const Problem&, const RandomOptions&);

  struct Buffer {
    std::shared_ptr<std::byte> memory;
    size_t bytes = 0;  // with guards
    bool output = false;
  };

  Result<std::byte*> allocate(size_t bytes, bool output);
  Result<TensorView> tensor(DType dtype, const std::vector<int64_t>& shape, bool output);

  AttentionTensors tensors_;
  std::vector<Buffer> buffers_;
};

// q, k, v from N(0,1) with the strides of the problem; the mask, lengths and cumulative lengths it
// asks for: stated values where it states them, else random ones. Padding masks have holes.
// Errors: as validate(problem); out_of_memory.
Result<RandomInputs> make_random_inputs(const Problem& problem, const RandomOptions& options = {});

}  // namespace fovea
