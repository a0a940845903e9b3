// More than 2^31 elements, strides and rows. The mappings reserve nothing: pages that are only read
// stay the shared page of zeros.
#include <sys/mman.h>

#include <cmath>

#include "src/core/element.hpp"
#include "tests/contract/harness.hpp"

namespace fovea::contract {
namespace {

FOVEA_CONTRACT_SUITE(ContractLarge);

class Mapping {
 public:
  explicit Mapping(size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  ~Mapping() {
    if (ok()) munmap(data_, bytes_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  bool ok() const { return data_ != MAP_FAILED; }
  void* data() const { return data_; }

 private:
  void* data_;
  size_t bytes_;
};

Status run(const Target& target, const AttentionTensors& tensors, const CallOptions& options) {
  FOVEA_TRY(const Problem problem, describe(tensors, options));
  const auto ready = plan(target, problem);
  if (!ready) return Error{ErrorCode::unsupported, "refused", {}};
  return target.launcher->launch(*ready, tensors);
}

// v in [rows, ..., dim] with a huge row stride; every row and element is its own value.
TEST_P(ContractLarge, BugRow24_RowStridesBeyond32Bits) {
  const int64_t rows = 9;
  const int64_t stride = (int64_t{1} << 28) + 64;
  for (DType dtype : kFloatTypes) {
    const Shape shape{.seq_q = rows, .seq_kv = rows, .heads_q = 2, .heads_kv = 2};
    const Inputs in = random_inputs(dtype, shape);
    const auto bytes = static_cast<size_t>(rows * stride) * size_bytes(dtype);
    const Mapping q(bytes);
    const Mapping k(bytes);
    const Mapping v(bytes);
    if (!q.ok() || !k.ok() || !v.ok()) GTEST_SKIP() << "no address space";
    AttentionTensors tensors = in.tensors();
    const auto move = [&](TensorView& view, const Mapping& to, const Tensor& from) {
      view.data = to.data();
      view.stride[1] = stride;
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t h = 0; h < 2; ++h)
          for (int64_t d = 0; d < 8; ++d)
            store_element(to.data(), dtype, i * stride + h * 8 + d, from.at(0, i, h, d));
    };
    move(tensors.q, q, in.q);
    move(tensors.k, k, in.k);
    move(tensors.v, v, in.v);
    Answer far;
    far.out = Tensor(dtype, {1, rows, 2, 8});
    far.lse = Tensor(kF32, {1, 2, rows});
    tensors.out = far.out.view();
    tensors.lse = far.lse.view();
    CallOptions options;
    options.return_lse = true;
    const Status status = run(GetParam(), tensors, options);
    ASSERT_TRUE(status.has_value()) << status.error().message;
    const Answer near = attend(GetParam(), in);
    far.problem = near.problem;
    far.ran = true;
    expect_close(far, near);
  }
}

// q has 299,604 rows of 56 heads x 128: 2^31 + 79,000 elements. Only the last row is not zero.
TEST_P(ContractLarge, BugRow25_MoreThanTwoToThe31Elements) {
  const int64_t rows = 299605;
  const int64_t heads = 56;
  const int64_t dim = 128;
  const int64_t elements = rows * heads * dim;
  ASSERT_GT(elements, int64_t{1} << 31);
  const Mapping q(static_cast<size_t>(elements) * 2);
  const Mapping out(static_cast<size_t>(rows * heads) * 2);
  const Mapping lse(static_cast<size_t>(rows * heads) * 4);
  if (!q.ok() || !out.ok() || !lse.ok()) GTEST_SKIP() << "no address space";
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t d = 0; d < dim; ++d)
      store_element(q.data(), kBF16, ((rows - 1) * heads + h) * dim + d, 1.0);
  const Tensor k = Tensor(kBF16, {1, 1, 1, dim}).fill(0.5);
  const Tensor v = Tensor(kBF16, {1, 1, 1, 1}).fill(3.0);
  AttentionTensors tensors;
  tensors.q = make_view(q.data(), kBF16, {1, rows, heads, dim});
  tensors.k = k.view();
  tensors.v = v.view();
  tensors.out = make_view(out.data(), kBF16, {1, rows, heads, 1});
  tensors.lse = make_view(lse.data(), kF32, {1, heads, rows});
  CallOptions options;
  options.return_lse = true;
  options.scale = 1.0;
  const Status status = run(GetParam(), tensors, options);
  ASSERT_TRUE(status.has_value()) << status.error().message;
  const double bound = exact_tolerance(kBF16, kF32, DataKind::structured, 64).lse;
  int64_t wrong = 0;
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t i = 0; i < rows; ++i) {
      wrong += load_element(out.data(), kBF16, i * heads + h) != 3.0;
      const double sum = load_element(lse.data(), kF32, h * rows + i);
      wrong += std::abs(sum - (i == rows - 1 ? 64.0 : 0.0)) > bound;
    }
  EXPECT_EQ(wrong, 0);
}

// Batch 65,536: beyond the grid limit of many kernels. All items share queries and keys, each has
// one value row of its own.
TEST_P(ContractLarge, BugRow50_SixtyFiveThousandItems) {
  const int64_t batch = 65536;
  const Tensor qk = Tensor(kBF16, {1, 16, 1, 64}).fill(0.0);
  const Tensor v = Tensor(kBF16, {batch, 1, 1, 64}).fill([](int64_t b, int64_t, int64_t, int64_t) {
    return static_cast<double>(b % 251);
  });
  const Tensor out(kBF16, {batch, 16, 1, 64});
  AttentionTensors tensors;
  tensors.q = qk.view();
  tensors.q.shape[0] = batch;
  tensors.q.stride[0] = 0;
  tensors.k = tensors.q;
  tensors.v = v.view();
  tensors.v.shape[1] = 16;
  tensors.v.stride[1] = 0;
  tensors.out = out.view();
  const Status status = run(GetParam(), tensors, {});
  ASSERT_TRUE(status.has_value()) << status.error().message;
  int64_t wrong = 0;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = 0; i < 16; ++i) wrong += out.at(b, i, 0, 63) != static_cast<double>(b % 251);
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace fovea::contract
