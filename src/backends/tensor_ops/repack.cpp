#include <algorithm>
#include <cstring>

#include "fovea/tensor_ops.hpp"
#include "src/backends/tensor_ops/call.hpp"
#include "src/core/tensor_memory.hpp"

namespace fovea {
namespace {

using namespace tensor_ops;
using Kind = RepackJob::Kind;

struct Copy {
  HeadsView from, to;
  Kind kind = Kind::copy;
  const int32_t* cu_seqlens = nullptr;

  const HeadsView& padded() const { return kind == Kind::unpack ? to : from; }
  const HeadsView& packed() const { return kind == Kind::unpack ? from : to; }
};

Status check_pair(const TensorView& from, const TensorView& to) {
  FOVEA_CHECK(check_same_device("the target", to, from.device));
  if (from.dtype != to.dtype) return wrong("the target", "has another dtype");
  if (may_overlap(from, to)) return wrong("the target", "overlaps the source");
  return {};
}

Status check_documents(const Copy& c, const TensorView& cu_seqlens, const TensorView& target) {
  FOVEA_CHECK(check_memory("cu_seqlens", cu_seqlens));
  FOVEA_CHECK(check_same_device("cu_seqlens", cu_seqlens, target.device));
  if (cu_seqlens.rank != 1 || cu_seqlens.dtype != kI32 || !cu_seqlens.contiguous() ||
      cu_seqlens.shape[0] != c.padded().batch + 1)
    return wrong("cu_seqlens", "has to be contiguous int32 [batch + 1]");
  if (may_overlap(target, cu_seqlens)) return wrong("the target", "overlaps cu_seqlens");
  if (c.padded().heads != c.packed().heads || c.padded().dim != c.packed().dim)
    return wrong("the packed tensor", "has not the heads and columns of the padded one");
  if (target.device.type == DeviceType::cuda) return {};
  for (int64_t b = 0; b < c.padded().batch; ++b) {
    const int64_t begin = c.cu_seqlens[b], end = c.cu_seqlens[b + 1];
    if (begin < 0 || end < begin || end > c.packed().seq || end - begin > c.padded().seq)
      return Error{ErrorCode::invalid_value,
                   "cu_seqlens has to begin at 0 or more, not fall, stay within the packed tensor, "
                   "and name no document longer than the padded tensor",
                   {}};
  }
  return {};
}

#if FOVEA_CUDA_PORTABLE
Status copy_on_device(const Copy& c, Stream stream) {
  const HeadsView& shape = c.padded();
  FOVEA_CHECK(check_kernel_sizes("the tensor", shape));
  RepackJob job;
  job.from = data_of(c.from);
  job.to = data_of(c.to);
  job.kind = c.kind;
  job.cu_seqlens = c.cu_seqlens;
  job.packed_rows = static_cast<int>(c.packed().seq);
  job.batch = static_cast<int>(shape.batch);
  job.seq = static_cast<int>(shape.seq);
  job.heads = static_cast<int>(shape.heads);
  job.dim = static_cast<int>(shape.dim);
  job.element_bytes = static_cast<int>(size_bytes(shape.dtype));
  job.seq_inner = c.to.seq_stride < c.to.head_stride;
  return launch_status("repack", launch_repack(job, shape.device.index, handle_of(stream)));
}
#endif

Status run(const Copy& c, [[maybe_unused]] Stream stream) {
  const HeadsView& shape = c.padded();
  if (shape.device.type == DeviceType::cuda) {
#if FOVEA_CUDA_PORTABLE
    return copy_on_device(c, stream);
#else
    return not_built("repack");
#endif
  }
  const auto size = static_cast<int64_t>(size_bytes(shape.dtype));
  const auto row_bytes = static_cast<size_t>(shape.dim * size);
  for (int64_t b = 0; b < shape.batch; ++b) {
    const int64_t begin = c.cu_seqlens == nullptr ? 0 : c.cu_seqlens[b];
    const int64_t length = c.cu_seqlens == nullptr ? shape.seq : c.cu_seqlens[b + 1] - begin;
    for (int64_t s = 0; s < shape.seq; ++s)
      for (int64_t h = 0; h < shape.heads; ++h) {
        const bool inside = s < length;
        if (!inside && c.kind == Kind::pack) continue;
        const int64_t to =
            c.kind == Kind::pack ? c.to.offset(0, begin + s, h) : c.to.offset(b, s, h);
        auto* target = static_cast<char*>(c.to.data) + to * size;
        if (!inside) {
          std::memset(target, 0, row_bytes);
          continue;
        }
        const int64_t from =
            c.kind == Kind::unpack ? c.from.offset(0, begin + s, h) : c.from.offset(b, s, h);
        std::memcpy(target, static_cast<const char*>(c.from.data) + from * size, row_bytes);
      }
  }
  return {};
}

}  // namespace

Status copy_layout(const TensorView& from, Layout from_layout, const TensorView& to,
                   Layout to_layout, Stream stream) {
  if (from_layout == Layout::packed || to_layout == Layout::packed)
    return wrong("layout", "is packed; use pack_documents or unpack_documents");
  Copy c;
  FOVEA_TRY(c.from, heads_view("the source", from, from_layout));
  FOVEA_TRY(c.to, heads_view("the target", to, to_layout));
  FOVEA_CHECK(check_pair(from, to));
  if (!c.from.same_shape(c.to)) return wrong("the target", "has not the shape of the source");
  return run(c, stream);
}

Status pack_documents(const TensorView& padded, Layout layout, const TensorView& cu_seqlens,
                      const TensorView& packed, Stream stream) {
  if (layout == Layout::packed) return wrong("layout", "of the padded tensor is packed");
  Copy c;
  c.kind = Kind::pack;
  FOVEA_TRY(c.from, heads_view("the padded tensor", padded, layout));
  FOVEA_TRY(c.to, heads_view("the packed tensor", packed, Layout::packed));
  c.cu_seqlens = static_cast<const int32_t*>(cu_seqlens.data);
  FOVEA_CHECK(check_pair(padded, packed));
  FOVEA_CHECK(check_documents(c, cu_seqlens, packed));
  return run(c, stream);
}

Status unpack_documents(const TensorView& packed, const TensorView& cu_seqlens,
                        const TensorView& padded, Layout layout, Stream stream) {
  if (layout == Layout::packed) return wrong("layout", "of the padded tensor is packed");
  Copy c;
  c.kind = Kind::unpack;
  FOVEA_TRY(c.from, heads_view("the packed tensor", packed, Layout::packed));
  FOVEA_TRY(c.to, heads_view("the padded tensor", padded, layout));
  c.cu_seqlens = static_cast<const int32_t*>(cu_seqlens.data);
  FOVEA_CHECK(check_pair(packed, padded));
  FOVEA_CHECK(check_documents(c, cu_seqlens, padded));
  return run(c, stream);
}

}  // namespace fovea
