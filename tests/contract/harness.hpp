// Calls a backend as a user does, resolve, plan, run, and checks at every call what holds for every
// call: resolve and plan agree, inputs and everything around the outputs stay as they were, every
// output element is written, outputs have the promised shape.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fovea/attention.hpp"
#include "src/backends/reference/agreement.hpp"
#include "src/core/random_inputs.hpp"
#include "tests/contract/target.hpp"

namespace fovea::contract {

// An owned tensor; NaN-poisoned memory around it and between strided elements.
class Tensor {
 public:
  using Value = std::function<double(int64_t, int64_t, int64_t, int64_t)>;

  Tensor() = default;
  Tensor(DType dtype, std::initializer_list<int64_t> shape);
  Tensor(DType dtype, const std::vector<int64_t>& shape);
  // Any strides, in elements; the memory covers the extent.
  Tensor(DType dtype, const std::vector<int64_t>& shape, const std::vector<int64_t>& strides);

  const TensorView& view() const { return view_; }
  double at(int64_t a, int64_t b = 0, int64_t c = 0, int64_t d = 0) const;
  void set(double value, int64_t a, int64_t b = 0, int64_t c = 0, int64_t d = 0);
  // Calls value(a, b, c, d) for every element; missing axes are 0.
  Tensor& fill(const Value& value);
  Tensor& fill(double value);
  Tensor& fill(std::initializer_list<double> values);  // row-major
  // N(0,1).
  Tensor& random(uint64_t seed);
  // Every byte, padding included.
  uint64_t hash() const;

 private:
  int64_t offset(int64_t a, int64_t b, int64_t c, int64_t d) const;

  std::shared_ptr<std::vector<unsigned char>> memory_;
  TensorView view_;
};

// The tensors of a call that is written by hand.
struct Inputs {
  Tensor q, k, v;
  Tensor mask;
  Tensor kv_lengths;
  Tensor cu_seqlens_q, cu_seqlens_kv;
  Tensor block_counts, block_indices;

  AttentionTensors tensors() const;
};

// q = k = 0 and v[j] = j (in every head and dimension): the output is the mean index of the keys
// that were read, the LSE the logarithm of their number.
struct Shape {
  int64_t batch = 1, seq_q = 1, seq_kv = 1, heads_q = 1, heads_kv = 1, head_dim = 8, dim_v = 8;
};
Inputs index_inputs(DType dtype, const Shape& shape);
Inputs random_inputs(DType dtype, const Shape& shape, uint64_t seed = 1);

struct Answer {
  bool ran = false;  // false: refused, or failed (then the test has failed as well)
  Problem problem;
  Tensor out;
  Tensor lse;  // always asked for unless options say otherwise
  Receipt receipt;
};

// Whether the target takes the problem. A refusal by a target with the whole contract fails the
// test; plan() must agree with resolve() either way.
std::unique_ptr<Plan> plan(const Target& target, const Problem& problem);

// Runs `target` on tensors with LSE and returns its outputs.
Answer attend(const Target& target, const Inputs& inputs, CallOptions options = {});

// Runs a problem with random inputs and compares with the oracle.
void expect_agrees(const Target& target, const Problem& problem, const RandomOptions& options = {});
// The same for tensors written by hand.
void expect_agrees(const Target& target, const Inputs& inputs, CallOptions options = {},
                   DataKind data = DataKind::random);

// All output rows [b, i, h] equal `expected(b, i, h)` in every dimension, to the tolerance of the
// dtype times the largest expected value.
void expect_rows(const Answer& answer,
                 const std::function<double(int64_t, int64_t, int64_t)>& expected);
void expect_lse(const Answer& answer,
                const std::function<double(int64_t, int64_t, int64_t)>& expected);
// Rounding of one output of this dtype, relative.
double relative_tolerance(DType dtype);

// Two answers are the same to the bit.
void expect_same_bits(const Answer& a, const Answer& b);
// Two answers to the same question: each within the bound of its dtype from the truth.
void expect_close(const Answer& a, const Answer& b);

inline constexpr DType kFloatTypes[] = {kF32, kF16, kBF16};

// The base of every suite: one parameter, the target.
class ContractTest : public testing::TestWithParam<Target> {};

std::string label_of(const testing::TestParamInfo<Target>& target);

// A suite for the backends that read block lists.
#define FOVEA_CONTRACT_BLOCK_SUITE(Suite)                                                       \
  class Suite : public fovea::contract::ContractTest {};                                        \
  INSTANTIATE_TEST_SUITE_P(Backend, Suite, testing::ValuesIn(fovea::contract::block_targets()), \
                           fovea::contract::label_of)

#define FOVEA_CONTRACT_SUITE(Suite)                                                       \
  class Suite : public fovea::contract::ContractTest {};                                  \
  INSTANTIATE_TEST_SUITE_P(Backend, Suite, testing::ValuesIn(fovea::contract::targets()), \
                           fovea::contract::label_of)

}  // namespace fovea::contract
