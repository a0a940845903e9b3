#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "fovea/tensor_ops.hpp"
#include "src/backends/tensor_ops/call.hpp"
#include "src/core/element.hpp"
#include "src/core/tensor_memory.hpp"
#include "src/core/text.hpp"

namespace fovea {
namespace {

using namespace tensor_ops;

static_assert(kMaxPartials == MergeJob::kMaxParts);

struct Views {
  std::array<HeadsView, kMaxPartials> out, lse;
  size_t count = 0;
  HeadsView merged, merged_lse;
};

Result<Views> views(std::span<const PartialAttention> parts, const TensorView& out,
                    const TensorView& lse, Layout layout) {
  if (parts.empty() || parts.size() > size_t{kMaxPartials})
    return Error{
        ErrorCode::invalid_argument,
        text::concat("merge_partials: ", parts.size(), " parts; accepted: 1 to ", kMaxPartials),
        {}};
  Views v;
  v.count = parts.size();
  FOVEA_TRY(v.merged, heads_view("out", out, layout));
  FOVEA_TRY(v.merged_lse, lse_view("lse", lse, layout));
  FOVEA_CHECK(check_float("out", out.dtype));
  const auto fits = [&](const HeadsView& x) {
    return x.batch == v.merged.batch && x.seq == v.merged.seq && x.heads == v.merged.heads;
  };
  FOVEA_CHECK(check_same_device("lse", lse, out.device));
  if (!fits(v.merged_lse)) return wrong("lse", "does not fit the shape of out");
  for (size_t i = 0; i < v.count; ++i) {
    const std::string name = text::concat("part ", i, " out");
    const std::string lse_name = text::concat("part ", i, " lse");
    FOVEA_TRY(v.out[i], heads_view(name, parts[i].out, layout));
    FOVEA_TRY(v.lse[i], lse_view(lse_name, parts[i].lse, layout));
    FOVEA_CHECK(check_same_device(name, parts[i].out, out.device));
    FOVEA_CHECK(check_same_device(lse_name, parts[i].lse, out.device));
    FOVEA_CHECK(check_float(name, parts[i].out.dtype));
    if (!v.out[i].same_shape(v.merged)) return wrong(name, "has not the shape of out");
    if (!fits(v.lse[i])) return wrong(lse_name, "does not fit the shape of out");
    if (v.out[i].dtype != v.out[0].dtype) return wrong(name, "has not the dtype of part 0");
    const bool itself = parts[i].out.data == out.data && parts[i].out.stride == out.stride &&
                        parts[i].out.dtype == out.dtype;
    if (!itself && may_overlap(out, parts[i].out)) return wrong("out", "overlaps " + name);
    if (may_overlap(out, parts[i].lse)) return wrong("out", "overlaps " + lse_name);
    if (may_overlap(lse, parts[i].lse)) return wrong("lse", "overlaps " + lse_name);
    if (may_overlap(lse, parts[i].out)) return wrong("lse", "overlaps " + name);
  }
  if (may_overlap(out, lse)) return wrong("lse", "overlaps out");
  return v;
}

void merge_row(const Views& v, int64_t b, int64_t s, int64_t h) {
  constexpr double kNothing = -std::numeric_limits<double>::infinity();
  std::array<double, kMaxPartials> weight{};
  double largest = kNothing;
  for (size_t i = 0; i < v.count; ++i) {
    weight[i] = load_element(v.lse[i].data, kF32, v.lse[i].offset(b, s, h));
    if (weight[i] > largest) largest = weight[i];
  }
  double sum = 0;
  std::array<bool, kMaxPartials> seen{};
  for (size_t i = 0; i < v.count; ++i) {
    seen[i] = weight[i] != kNothing;
    if (!seen[i]) continue;
    weight[i] = std::exp(weight[i] - (largest == kNothing ? 0 : largest));
    sum += weight[i];
  }
  const double lse = sum == 0 ? kNothing : largest + std::log(sum);
  for (int64_t d = 0; d < v.merged.dim; ++d) {
    double value = 0;
    for (size_t i = 0; i < v.count; ++i)
      if (seen[i])
        value +=
            weight[i] * load_element(v.out[i].data, v.out[i].dtype, v.out[i].offset(b, s, h) + d);
    store_element(v.merged.data, v.merged.dtype, v.merged.offset(b, s, h) + d,
                  sum == 0 ? 0 : value / sum);
  }
  store_element(v.merged_lse.data, kF32, v.merged_lse.offset(b, s, h), lse);
}

#if FOVEA_CUDA_PORTABLE
Status merge_on_device(const Views& v, Stream stream) {
  FOVEA_CHECK(check_kernel_sizes("out", v.merged));
  MergeJob job;
  for (size_t i = 0; i < v.count; ++i) {
    job.out[i] = data_of(v.out[i]);
    job.lse[i] = data_of(v.lse[i]);
  }
  job.merged = data_of(v.merged);
  job.merged_lse = data_of(v.merged_lse);
  job.parts = static_cast<int>(v.count);
  job.batch = static_cast<int>(v.merged.batch);
  job.seq = static_cast<int>(v.merged.seq);
  job.heads = static_cast<int>(v.merged.heads);
  job.dim = static_cast<int>(v.merged.dim);
  job.seq_inner = v.merged.seq_stride < v.merged.head_stride;
  return launch_status("merge_partials",
                       launch_merge(job, element_of(v.out[0].dtype), element_of(v.merged.dtype),
                                    v.merged.device.index, handle_of(stream)));
}
#endif

}  // namespace

Status merge_partials(std::span<const PartialAttention> parts, const TensorView& out,
                      const TensorView& lse, Layout layout, [[maybe_unused]] Stream stream) {
  FOVEA_TRY(const Views v, views(parts, out, lse, layout));
  if (out.device.type == DeviceType::cuda) {
#if FOVEA_CUDA_PORTABLE
    return merge_on_device(v, stream);
#else
    return not_built("merge_partials");
#endif
  }
  for (int64_t b = 0; b < v.merged.batch; ++b)
    for (int64_t s = 0; s < v.merged.seq; ++s)
      for (int64_t h = 0; h < v.merged.heads; ++h) merge_row(v, b, s, h);
  return {};
}

}  // namespace fovea
