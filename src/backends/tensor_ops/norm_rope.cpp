#include <cmath>
#include <vector>

#include "fovea/tensor_ops.hpp"
#include "src/backends/tensor_ops/call.hpp"
#include "src/core/element.hpp"
#include "src/core/tensor_memory.hpp"
#include "src/core/text.hpp"

namespace fovea {
namespace {

using namespace tensor_ops;

// A table of angles [B|1,S,R/2].
struct Angles {
  const void* data = nullptr;
  int64_t batch = 0, seq = 0;  // strides
  int64_t pairs = 0;

  double at(int64_t b, int64_t s, int64_t pair) const {
    return load_element(data, kF32, b * batch + s * seq + pair);
  }
};

Result<Angles> angles(std::string_view name, const TensorView& t, const HeadsView& x) {
  if (t.rank != 2 && t.rank != 3) return wrong(name, "has to be [S,R/2] or [B,S,R/2]");
  FOVEA_CHECK(check_memory(name, t));
  FOVEA_CHECK(check_same_device(name, t, x.device));
  if (t.dtype != kF32) return wrong(name, "has to be f32");
  const auto last = static_cast<size_t>(t.rank - 1);
  if (t.rank == 3 && t.shape[0] != x.batch) return wrong(name, "has not the batch size of x");
  if (t.shape[last - 1] != x.seq) return wrong(name, "has not the length of x");
  if (2 * t.shape[last] > x.dim) return wrong(name, "rotates more columns than x has");
  if (t.shape[last] > 1 && t.stride[last] != 1)
    return wrong(name, "has a last axis that is not contiguous");
  return Angles{t.data, t.rank == 3 ? t.stride[0] : 0, t.stride[last - 1], t.shape[last]};
}

struct Work {
  HeadsView x, out;
  Angles cos, sin;
};

Result<Work> check(const TensorView& x, const NormRope& what, const TensorView& out,
                   Layout layout) {
  if (layout == Layout::packed) return wrong("layout", "is packed; view the tokens as [1,T,H,D]");
  Work w;
  FOVEA_TRY(w.x, heads_view("x", x, layout));
  FOVEA_TRY(w.out, heads_view("out", out, layout));
  FOVEA_CHECK(check_float("x", x.dtype));
  FOVEA_CHECK(check_same_device("out", out, x.device));
  if (!w.out.same_shape(w.x) || out.dtype != x.dtype)
    return wrong("out", "has not the shape and dtype of x");
  const bool itself = x.data == out.data && x.stride == out.stride;
  if (!itself && may_overlap(x, out)) return wrong("out", "overlaps x");
  if (what.weight.present()) {
    const int64_t size = what.norm == NormAxis::head ? w.x.dim : w.x.heads * w.x.dim;
    FOVEA_CHECK(check_memory("weight", what.weight));
    FOVEA_CHECK(check_same_device("weight", what.weight, x.device));
    FOVEA_CHECK(check_float("weight", what.weight.dtype));
    if (what.weight.rank != 1 || what.weight.shape[0] != size || !what.weight.contiguous())
      return wrong("weight", text::concat("has to be contiguous with ", size, " elements"));
    if (!(what.epsilon >= 0) || !std::isfinite(what.epsilon))
      return Error{
          ErrorCode::invalid_argument, "norm_rope: epsilon has to be finite and not negative", {}};
  }
  if (what.cos.present() != what.sin.present())
    return wrong("cos and sin", "have to be given together");
  if (what.cos.present()) {
    FOVEA_TRY(w.cos, angles("cos", what.cos, w.x));
    FOVEA_TRY(w.sin, angles("sin", what.sin, w.x));
    if (w.cos.pairs != w.sin.pairs) return wrong("sin", "has not the shape of cos");
    if (may_overlap(out, what.cos) || may_overlap(out, what.sin))
      return wrong("out", "overlaps cos or sin");
  }
  if (what.weight.present() && may_overlap(out, what.weight))
    return wrong("out", "overlaps weight");
  return w;
}

void norm_token(const Work& w, const NormRope& what, int64_t b, int64_t s, std::vector<double>& y) {
  const HeadsView& x = w.x;
  const auto dim = static_cast<size_t>(x.dim);
  for (int64_t h = 0; h < x.heads; ++h)
    for (int64_t d = 0; d < x.dim; ++d)
      y[static_cast<size_t>(h) * dim + static_cast<size_t>(d)] =
          load_element(x.data, x.dtype, x.offset(b, s, h) + d);
  if (what.weight.present()) {
    const size_t span = what.norm == NormAxis::head ? dim : y.size();
    for (size_t from = 0; from < y.size(); from += span) {
      double sum = 0;
      for (size_t i = from; i < from + span; ++i) sum += y[i] * y[i];
      const double scale = 1 / std::sqrt(sum / static_cast<double>(span) + what.epsilon);
      for (size_t i = from; i < from + span; ++i)
        y[i] *= scale *
                load_element(what.weight.data, what.weight.dtype, static_cast<int64_t>(i - from));
    }
  }
  const auto pairs = static_cast<size_t>(w.cos.pairs);
  const bool half = what.pairs == RotaryPairs::half;
  for (size_t from = 0; from < y.size(); from += dim)
    for (size_t i = 0; i < pairs; ++i) {
      double& first = y[from + (half ? i : 2 * i)];
      double& second = y[from + (half ? i + pairs : 2 * i + 1)];
      const double cos = w.cos.at(b, s, static_cast<int64_t>(i));
      const double sin = w.sin.at(b, s, static_cast<int64_t>(i));
      const double rotated = first * cos - second * sin;
      second = first * sin + second * cos;
      first = rotated;
    }
  for (int64_t h = 0; h < x.heads; ++h)
    for (int64_t d = 0; d < x.dim; ++d)
      store_element(w.out.data, w.out.dtype, w.out.offset(b, s, h) + d,
                    y[static_cast<size_t>(h) * dim + static_cast<size_t>(d)]);
}

#if FOVEA_CUDA_PORTABLE
Status norm_on_device(const Work& w, const NormRope& what, Stream stream) {
  FOVEA_CHECK(check_kernel_sizes("x", w.x));
  const bool norm = what.weight.present();
  NormRopeJob job;
  job.x = data_of(w.x);
  job.out = data_of(w.out);
  job.weight = norm ? what.weight.data : nullptr;
  job.whole_token = norm && what.norm == NormAxis::token;
  if (w.x.dim > NormRopeJob::kMaxToken / 2 ||
      (job.whole_token && w.x.heads * w.x.dim > NormRopeJob::kMaxToken))
    return Error{
        ErrorCode::unsupported,
        text::concat("norm_rope: ", w.x.heads, " heads of ", w.x.dim,
                     " elements; on a GPU a head takes at most ", NormRopeJob::kMaxToken / 2,
                     ", and a norm over all of a token ", NormRopeJob::kMaxToken),
        {}};
  job.epsilon = static_cast<float>(what.epsilon);
  job.cos = static_cast<const float*>(w.cos.data);
  job.sin = static_cast<const float*>(w.sin.data);
  job.cos_batch = w.cos.batch;
  job.cos_seq = w.cos.seq;
  job.sin_batch = w.sin.batch;
  job.sin_seq = w.sin.seq;
  job.rotary = static_cast<int>(2 * w.cos.pairs);
  job.half = what.pairs == RotaryPairs::half;
  job.batch = static_cast<int>(w.x.batch);
  job.seq = static_cast<int>(w.x.seq);
  job.heads = static_cast<int>(w.x.heads);
  job.dim = static_cast<int>(w.x.dim);
  return launch_status("norm_rope",
                       launch_norm_rope(job, element_of(w.x.dtype),
                                        norm ? element_of(what.weight.dtype) : Element::f32,
                                        w.x.device.index, handle_of(stream)));
}
#endif

}  // namespace

Status norm_rope(const TensorView& x, const NormRope& what, const TensorView& out, Layout layout,
                 [[maybe_unused]] Stream stream) {
  FOVEA_TRY(const Work w, check(x, what, out, layout));
  if (x.device.type == DeviceType::cuda) {
#if FOVEA_CUDA_PORTABLE
    return norm_on_device(w, what, stream);
#else
    return not_built("norm_rope");
#endif
  }
  std::vector<double> token(static_cast<size_t>(w.x.heads * w.x.dim));
  for (int64_t b = 0; b < w.x.batch; ++b)
    for (int64_t s = 0; s < w.x.seq; ++s) norm_token(w, what, b, s, token);
  return {};
}

}  // namespace fovea
