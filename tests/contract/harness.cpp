#include "tests/contract/harness.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "src/core/compare.hpp"
#include "src/core/element.hpp"

namespace fovea::contract {
namespace {

constexpr size_t kGuard = 64;
constexpr unsigned char kPoison = 0xff;

std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t axis = shape.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * shape[axis];
  return strides;
}

// "UNSUPPORTED: ..." skips the test of a target that need not run everything.
void refused(const Target& target, const Error& error) {
  if (target.whole_contract)
    ADD_FAILURE() << "refused: " << error.message;
  else
    GTEST_SKIP() << "refused: " << error.message;
}

bool has_nan_poison(const TensorView& view) {
  bool found = false;
  for_each_element(view, [&](int64_t, int64_t offset) {
    const auto* bytes = static_cast<const unsigned char*>(view.data) +
                        static_cast<size_t>(offset) * size_bytes(view.dtype);
    found = found || std::all_of(bytes, bytes + size_bytes(view.dtype),
                                 [](unsigned char byte) { return byte == kPoison; });
  });
  return found;
}

// An element of a [B,S,H,D] tensor, whatever its layout.
double row_value(const Tensor& t, Layout layout, int64_t b, int64_t i, int64_t h, int64_t d) {
  if (layout == Layout::packed) return t.at(i, h, d);
  return layout == Layout::bhsd ? t.at(b, h, i, d) : t.at(b, i, h, d);
}

int64_t items(const Problem& p) { return p.layout == Layout::packed ? 1 : p.batch; }

}  // namespace

Tensor::Tensor(DType dtype, std::initializer_list<int64_t> shape)
    : Tensor(dtype, std::vector<int64_t>(shape)) {}

Tensor::Tensor(DType dtype, const std::vector<int64_t>& shape)
    : Tensor(dtype, shape, contiguous_strides(shape)) {}

Tensor::Tensor(DType dtype, const std::vector<int64_t>& shape,
               const std::vector<int64_t>& strides) {
  int64_t extent = 1;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == 0) extent = 0;
    if (extent > 0) extent += (shape[axis] - 1) * strides[axis];
  }
  const size_t bytes = static_cast<size_t>(extent) * size_bytes(dtype);
  memory_ = std::make_shared<std::vector<unsigned char>>(bytes + 2 * kGuard, kPoison);
  view_ = make_view(memory_->data() + kGuard, dtype, shape);
  std::copy(strides.begin(), strides.end(), view_.stride.begin());
}

int64_t Tensor::offset(int64_t a, int64_t b, int64_t c, int64_t d) const {
  const int64_t index[] = {a, b, c, d};
  int64_t at = 0;
  for (size_t axis = 0; axis < static_cast<size_t>(view_.rank); ++axis)
    at += index[axis] * view_.stride[axis];
  return at;
}

double Tensor::at(int64_t a, int64_t b, int64_t c, int64_t d) const {
  return load_element(view_.data, view_.dtype, offset(a, b, c, d));
}

void Tensor::set(double value, int64_t a, int64_t b, int64_t c, int64_t d) {
  store_element(view_.data, view_.dtype, offset(a, b, c, d), value);
}

Tensor& Tensor::fill(const Value& value) {
  for_each_element(view_, [&](int64_t position, int64_t at) {
    int64_t index[4] = {};
    for (size_t axis = static_cast<size_t>(view_.rank); axis-- > 0;) {
      index[axis] = position % view_.shape[axis];
      position /= view_.shape[axis];
    }
    store_element(view_.data, view_.dtype, at, value(index[0], index[1], index[2], index[3]));
  });
  return *this;
}

Tensor& Tensor::fill(double value) {
  return fill([=](int64_t, int64_t, int64_t, int64_t) { return value; });
}

Tensor& Tensor::fill(std::initializer_list<double> values) {
  EXPECT_EQ(static_cast<int64_t>(values.size()), view_.numel());
  for_each_element(view_, [&](int64_t position, int64_t at) {
    store_element(view_.data, view_.dtype, at, values.begin()[position]);
  });
  return *this;
}

Tensor& Tensor::random(uint64_t seed) {
  for_each_element(view_, [&](int64_t position, int64_t at) {
    store_element(view_.data, view_.dtype, at,
                  random_normal(seed, 77, static_cast<uint64_t>(position)));
  });
  return *this;
}

uint64_t Tensor::hash() const {
  uint64_t hash = 0xcbf29ce484222325u;
  if (memory_)
    for (unsigned char byte : *memory_) hash = (hash ^ byte) * 0x100000001b3u;
  return hash;
}

AttentionTensors Inputs::tensors() const {
  AttentionTensors t;
  t.q = q.view();
  t.k = k.view();
  t.v = v.view();
  t.mask = mask.view();
  t.kv_lengths = kv_lengths.view();
  t.cu_seqlens_q = cu_seqlens_q.view();
  t.cu_seqlens_kv = cu_seqlens_kv.view();
  return t;
}

Inputs index_inputs(DType dtype, const Shape& s) {
  Inputs in;
  in.q = Tensor(dtype, {s.batch, s.seq_q, s.heads_q, s.head_dim}).fill(0.0);
  in.k = Tensor(dtype, {s.batch, s.seq_kv, s.heads_kv, s.head_dim}).fill(0.0);
  in.v = Tensor(dtype, {s.batch, s.seq_kv, s.heads_kv, s.dim_v})
             .fill([](int64_t, int64_t j, int64_t, int64_t) { return static_cast<double>(j); });
  return in;
}

Inputs random_inputs(DType dtype, const Shape& s, uint64_t seed) {
  Inputs in;
  in.q = Tensor(dtype, {s.batch, s.seq_q, s.heads_q, s.head_dim}).random(3 * seed);
  in.k = Tensor(dtype, {s.batch, s.seq_kv, s.heads_kv, s.head_dim}).random(3 * seed + 1);
  in.v = Tensor(dtype, {s.batch, s.seq_kv, s.heads_kv, s.dim_v}).random(3 * seed + 2);
  return in;
}

std::unique_ptr<Plan> plan(const Target& target, const Problem& problem) {
  const ExecutionPathResult report =
      target.backend->resolve(target.name, problem, target.spec(), target.context);
  auto made = target.backend->plan(target.name, problem, target.spec(), target.context);
  if (report.support == SupportStatus::unsupported) {
    EXPECT_FALSE(report.reasons.empty());
    EXPECT_FALSE(made.has_value()) << "refused by resolve, accepted by plan";
    if (!made) refused(target, made.error());
    return nullptr;
  }
  EXPECT_TRUE(made.has_value()) << "accepted by resolve, refused by plan: "
                                << (made ? "" : made.error().message);
  if (!made) return nullptr;
  std::unique_ptr<Plan> plan = std::move(made).value();
  EXPECT_EQ(plan->workspace_bytes(), report.workspace_bytes);
  EXPECT_EQ(plan->receipt().path, report.path);
  EXPECT_EQ(plan->receipt().instance, report.instance);
  EXPECT_EQ(plan->receipt().backend, target.name);
  return plan;
}

Answer attend(const Target& target, const Inputs& inputs, CallOptions options) {
  Answer answer;
  options.return_lse = true;
  AttentionTensors tensors = inputs.tensors();
  auto problem = describe(tensors, options);
  EXPECT_TRUE(problem.has_value()) << (problem ? "" : problem.error().message);
  if (!problem) return answer;
  answer.problem = *problem;
  auto specs = output_spec(*problem);
  EXPECT_TRUE(specs.has_value());
  if (!specs) return answer;
  answer.out = Tensor(specs->out.dtype, specs->out.shape, specs->out.strides);
  answer.lse = Tensor(specs->lse.dtype, specs->lse.shape, specs->lse.strides);
  EXPECT_TRUE(answer.out.view().contiguous());
  tensors.out = answer.out.view();
  tensors.lse = answer.lse.view();
  const auto hash = [&] {
    return inputs.q.hash() ^ inputs.k.hash() ^ inputs.v.hash() ^ inputs.mask.hash() ^
           inputs.kv_lengths.hash() ^ inputs.cu_seqlens_q.hash() ^ inputs.cu_seqlens_kv.hash();
  };
  const uint64_t before = hash();
  const AttentionMetadata nothing;
  const AttentionMetadata& metadata = options.metadata != nullptr ? *options.metadata : nothing;
  const auto form = normalise(*problem, metadata);
  EXPECT_TRUE(form.has_value()) << (form ? "" : form.error().message);
  if (!form) return answer;
  Target in_context = target;
  describe_context(*form, metadata, in_context.context);
  const std::unique_ptr<Plan> ready = plan(in_context, form->problem);
  if (!ready) return answer;
  answer.receipt = ready->receipt();
  const Status status = target.launcher->launch(*ready, apply(*form, tensors));
  EXPECT_TRUE(status.has_value()) << status.error().message;
  if (!status) return answer;
  EXPECT_EQ(hash(), before) << "an input was written";
  EXPECT_FALSE(has_nan_poison(answer.out.view())) << "an output element was not written";
  EXPECT_FALSE(has_nan_poison(answer.lse.view())) << "an LSE element was not written";
  answer.ran = true;
  return answer;
}

void expect_agrees(const Target& target, const Problem& problem, const RandomOptions& options) {
  SCOPED_TRACE(to_string(problem) + " seed=" + std::to_string(problem.seed));
  const std::unique_ptr<Plan> ready = plan(target, problem);
  if (!ready) return;
  auto inputs = make_random_inputs(problem, options);
  ASSERT_TRUE(inputs.has_value()) << inputs.error().message;
  const uint64_t before = inputs->input_hash();
  const Status status = target.launcher->launch(*ready, inputs->tensors());
  ASSERT_TRUE(status.has_value()) << status.error().message;
  EXPECT_EQ(inputs->input_hash(), before) << "an input was written";
  EXPECT_TRUE(inputs->output_guards_intact()) << "memory around an output was written";
  EXPECT_FALSE(has_nan_poison(inputs->tensors().out)) << "an output element was not written";
  auto oracle = backends::reference::compute_oracle(problem, inputs->tensors(), *target.executor);
  ASSERT_TRUE(oracle.has_value()) << oracle.error().message;
  const auto agreement =
      backends::reference::compare_to_oracle(problem, inputs->tensors(), *oracle, DataKind::random);
  EXPECT_TRUE(agreement.pass) << "relative L2 " << agreement.out.rel_l2 << " (bound "
                              << agreement.tolerance.rel_l2 << "), LSE " << agreement.lse.max_abs
                              << " (bound " << agreement.tolerance.lse
                              << "), non-finite mismatches " << agreement.out.nonfinite_mismatches
                              << " and " << agreement.lse.nonfinite_mismatches;
}

void expect_agrees(const Target& target, const Inputs& inputs, CallOptions options, DataKind data) {
  const Answer answer = attend(target, inputs, options);
  if (!answer.ran) return;
  AttentionTensors tensors = inputs.tensors();
  tensors.out = answer.out.view();
  tensors.lse = answer.lse.view();
  auto oracle = backends::reference::compute_oracle(answer.problem, tensors, *target.executor);
  ASSERT_TRUE(oracle.has_value()) << oracle.error().message;
  const auto agreement =
      backends::reference::compare_to_oracle(answer.problem, tensors, *oracle, data);
  EXPECT_TRUE(agreement.pass) << to_string(answer.problem) << ": relative L2 "
                              << agreement.out.rel_l2 << " (bound " << agreement.tolerance.rel_l2
                              << "), LSE " << agreement.lse.max_abs << " (bound "
                              << agreement.tolerance.lse << "), non-finite mismatches "
                              << agreement.out.nonfinite_mismatches << " and "
                              << agreement.lse.nonfinite_mismatches;
  EXPECT_EQ(agreement.rows_left_out, 0) << "rows of deep biases need a closed form";
}

double relative_tolerance(DType dtype) {
  return exact_tolerance(dtype, dtype, DataKind::structured, 0).rel_l2;
}

namespace {

// Equal including the kind of non-finite value; `bound` is absolute.
void expect_value(double got, double expected, double bound, const std::string& where) {
  if (std::isnan(expected))
    EXPECT_TRUE(std::isnan(got)) << where << ": " << got << ", expected NaN";
  else if (std::isinf(expected))
    EXPECT_EQ(got, expected) << where;
  else
    EXPECT_NEAR(got, expected, bound) << where;
}

std::string place(int64_t b, int64_t i, int64_t h) {
  return "item " + std::to_string(b) + ", row " + std::to_string(i) + ", head " + std::to_string(h);
}

}  // namespace

void expect_rows(const Answer& answer,
                 const std::function<double(int64_t, int64_t, int64_t)>& expected) {
  if (!answer.ran) return;
  const Problem& p = answer.problem;
  double largest = 0;
  for (int64_t b = 0; b < items(p); ++b)
    for (int64_t i = 0; i < p.seq_q; ++i)
      for (int64_t h = 0; h < p.heads_q; ++h)
        if (const double e = expected(b, i, h); std::isfinite(e))
          largest = std::max(largest, std::abs(e));
  const double bound = relative_tolerance(p.out_dtype) * largest;
  for (int64_t b = 0; b < items(p); ++b)
    for (int64_t i = 0; i < p.seq_q; ++i)
      for (int64_t h = 0; h < p.heads_q; ++h)
        for (int64_t d = 0; d < p.dim_v; ++d)
          expect_value(row_value(answer.out, p.out_layout, b, i, h, d), expected(b, i, h), bound,
                       place(b, i, h));
}

void expect_lse(const Answer& answer,
                const std::function<double(int64_t, int64_t, int64_t)>& expected) {
  if (!answer.ran) return;
  const Problem& p = answer.problem;
  for (int64_t b = 0; b < items(p); ++b)
    for (int64_t i = 0; i < p.seq_q; ++i)
      for (int64_t h = 0; h < p.heads_q; ++h) {
        const double e = expected(b, i, h);
        const double magnitude = std::isfinite(e) ? std::abs(e) : 0;
        const double got =
            p.layout == Layout::packed ? answer.lse.at(h, i) : answer.lse.at(b, h, i);
        expect_value(got, e, exact_tolerance(p.dtype, kF32, DataKind::structured, magnitude).lse,
                     "LSE of " + place(b, i, h));
      }
}

std::string label_of(const testing::TestParamInfo<Target>& target) { return target.param.label; }

void expect_same_bits(const Answer& a, const Answer& b) {
  if (!a.ran || !b.ran) return;
  EXPECT_EQ(a.out.hash(), b.out.hash());
  EXPECT_EQ(a.lse.hash(), b.lse.hash());
}

void expect_close(const Answer& a, const Answer& b) {
  if (!a.ran || !b.ran) return;
  // Both are within the bound of the truth.
  const Tolerance bound =
      exact_tolerance(a.problem.dtype, a.problem.out_dtype, DataKind::random, 0);
  const Comparison out = compare(a.out.view(), b.out.view());
  EXPECT_TRUE(within(out, 2 * bound.rel_l2)) << out.rel_l2;
  const Comparison lse = compare(a.lse.view(), b.lse.view());
  EXPECT_EQ(lse.nonfinite_mismatches, 0);
  EXPECT_LE(lse.max_abs, 2 * bound.lse);
}

}  // namespace fovea::contract
