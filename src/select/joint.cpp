#include "fovea/joint.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "src/core/text.hpp"

namespace fovea {
namespace {

using text::concat;

size_t sequence_axis(Layout layout) noexcept { return layout == Layout::bhsd ? 2 : 1; }

Error misfit(std::string_view name, const TensorView& got, const TensorView& other) {
  return {ErrorCode::invalid_tensor,
          concat("joint ", name, ' ', to_string(got), " does not fit ", name, ' ', to_string(other),
                 ": type, device and every axis but the sequence are the same"),
          {}};
}

Error unsupported(ReasonCode code, std::string field, std::string got, std::string accepted,
                  std::string remedy) {
  Reason reason{code, std::move(field), std::move(got), std::move(accepted), std::move(remedy)};
  return {ErrorCode::unsupported, concat("joint attention: ", sentence(reason)), {reason}};
}

Status check_pair(std::string_view name, const TensorView& own, const TensorView& joint,
                  Layout layout) {
  if (!own.present() || !joint.present())
    return Error{ErrorCode::invalid_tensor,
                 concat(own.present() ? "joint " : "", name,
                        " is missing; joint attention takes q, k and v of both streams"),
                 {}};
  const size_t seq = sequence_axis(layout);
  bool fits =
      own.rank == 4 && joint.rank == 4 && own.dtype == joint.dtype && own.device == joint.device;
  for (size_t axis = 0; fits && axis < 4; ++axis)
    fits = axis == seq || own.shape[axis] == joint.shape[axis];
  if (!fits) return misfit(name, joint, own);
  return {};
}

// `from`, whose rows are contiguous, as the tokens of `to` from `first` on.
void place(const TensorView& from, const TensorView& to, size_t seq, int64_t first) {
  const auto size = static_cast<int64_t>(size_bytes(from.dtype));
  const auto row = static_cast<size_t>(from.shape[3] * size);
  const auto* source = static_cast<const char*>(from.data);
  auto* target = static_cast<char*>(to.data) + first * to.stride[seq] * size;
  for (int64_t a = 0; a < from.shape[0]; ++a)
    for (int64_t b = 0; b < from.shape[1]; ++b)
      for (int64_t c = 0; c < from.shape[2]; ++c)
        std::memcpy(target + (a * to.stride[0] + b * to.stride[1] + c * to.stride[2]) * size,
                    source + (a * from.stride[0] + b * from.stride[1] + c * from.stride[2]) * size,
                    row);
}

Result<OwnedTensor> join(const TensorView& own, const TensorView& joint, Layout layout,
                         JointStrategy strategy) {
  const size_t seq = sequence_axis(layout);
  std::array<int64_t, 4> shape{};
  std::copy_n(own.shape.begin(), 4, shape.begin());
  shape[seq] += joint.shape[seq];
  FOVEA_TRY(OwnedTensor all, OwnedTensor::allocate(own.dtype, shape));
  const bool front = strategy == JointStrategy::front;
  place(joint, all.view(), seq, front ? 0 : own.shape[seq]);
  place(own, all.view(), seq, front ? joint.shape[seq] : 0);
  return Result<OwnedTensor>(std::move(all));
}

bool additive(DType dtype) noexcept { return dtype == kF32 || dtype == kF16 || dtype == kBF16; }

// Why a mask of one stream cannot be joined, or nothing.
Status check_key_mask(std::string_view name, const TensorView& mask, const TensorView& other,
                      int64_t batch, int64_t keys) {
  if (!mask.present()) return {};
  const bool fits = mask.rank == 2 && (mask.shape[0] == 1 || mask.shape[0] == batch) &&
                    mask.shape[1] == keys && mask.dtype == other.dtype &&
                    mask.device == other.device && (keys <= 1 || mask.stride[1] == 1);
  if (fits) return {};
  return Error{ErrorCode::invalid_tensor,
               concat(name, ' ', to_string(mask), " does not fit beside a joint mask (accepted: ",
                      batch == 1 ? "" : "1|", batch, " rows of ", keys,
                      " keys, contiguous, both masks of one type on one device)"),
               {}};
}

// Key padding of both streams as that of the joined keys. A stream without a mask hides nothing.
Result<OwnedTensor> join_masks(const TensorView& own, int64_t own_keys, const JointTensors& joint,
                               int64_t joint_keys) {
  const DType dtype = joint.mask.dtype;
  const auto size = static_cast<int64_t>(size_bytes(dtype));
  const int64_t rows = std::max(joint.mask.shape[0], own.present() ? own.shape[0] : int64_t{1});
  const int64_t shape[] = {rows, joint_keys + own_keys};
  FOVEA_TRY(OwnedTensor all, OwnedTensor::allocate(dtype, shape));
  auto* to = static_cast<char*>(all.view().data);
  const auto put = [&](const TensorView& mask, int64_t row, int64_t keys) {
    const auto bytes = static_cast<size_t>(keys * size);
    if (mask.present()) {
      const int64_t from = mask.shape[0] == 1 ? 0 : row * mask.stride[0] * size;
      if (bytes > 0) std::memcpy(to, static_cast<const char*>(mask.data) + from, bytes);
    } else {
      // 0 is added; integers and truth values are little-endian ones.
      std::memset(to, 0, bytes);
      for (int64_t key = 0; key < keys && !additive(dtype); ++key) to[key * size] = 1;
    }
    to += bytes;
  };
  const bool front = joint.strategy == JointStrategy::front;
  for (int64_t row = 0; row < rows; ++row) {
    if (front) put(joint.mask, row, joint_keys);
    put(own, row, own_keys);
    if (!front) put(joint.mask, row, joint_keys);
  }
  return Result<OwnedTensor>(std::move(all));
}

// Tokens first .. first + count - 1 of an output.
TensorView part(TensorView out, size_t seq, int64_t first, int64_t count) noexcept {
  const auto offset = first * out.stride[seq] * static_cast<int64_t>(size_bytes(out.dtype));
  out.data = static_cast<char*>(out.data) + offset;
  out.shape[seq] = count;
  return out;
}

// The tensors of a call on the joined sequence, and the memory of q, k and v.
struct Joined {
  OwnedTensor q, k, v, mask;  // the mask only where the joint tokens have one
  AttentionTensors tensors;
};

Result<Joined> join(const AttentionTensors& tensors, const JointTensors& joint, Layout layout) {
  if (layout == Layout::packed)
    return unsupported(ReasonCode::packed, "layout", "packed", "bshd, bhsd",
                       "put the joint tokens into the documents");
  FOVEA_CHECK(check_pair("q", tensors.q, joint.q, layout));
  FOVEA_CHECK(check_pair("k", tensors.k, joint.k, layout));
  FOVEA_CHECK(check_pair("v", tensors.v, joint.v, layout));
  if (tensors.q.device.type != DeviceType::cpu)
    return unsupported(ReasonCode::platform, "device", to_string(tensors.q.device), "cpu",
                       "join the tensors on the device before the call");
  // What keeps each stream from being a call keeps them from being joined.
  AttentionTensors own, other;
  own.q = tensors.q, own.k = tensors.k, own.v = tensors.v;
  other.q = joint.q, other.k = joint.k, other.v = joint.v;
  CallOptions shape_only;
  shape_only.input_layout = layout;
  const bool join_mask = joint.mask.present();
  const size_t in = sequence_axis(layout);
  const int64_t own_keys = tensors.k.shape[in], joint_keys = joint.k.shape[in];
  if (join_mask) {
    const int64_t batch = tensors.q.shape[0];
    FOVEA_CHECK(check_key_mask("mask", tensors.mask, joint.mask, batch, own_keys));
    FOVEA_CHECK(check_key_mask("joint mask", joint.mask, joint.mask, batch, joint_keys));
    own.mask = tensors.mask;
    other.mask = joint.mask;
  }
  FOVEA_CHECK(describe(own, shape_only));
  FOVEA_CHECK(describe(other, shape_only));
  Joined all;
  FOVEA_TRY(all.q, join(tensors.q, joint.q, layout, joint.strategy));
  FOVEA_TRY(all.k, join(tensors.k, joint.k, layout, joint.strategy));
  FOVEA_TRY(all.v, join(tensors.v, joint.v, layout, joint.strategy));
  all.tensors = tensors;
  all.tensors.q = all.q.view();
  all.tensors.k = all.k.view();
  all.tensors.v = all.v.view();
  if (join_mask) {
    FOVEA_TRY(all.mask, join_masks(tensors.mask, own_keys, joint, joint_keys));
    all.tensors.mask = all.mask.view();
  }
  return Result<Joined>(std::move(all));
}

std::shared_ptr<const Receipt> with_copies(const Receipt& ran, const JointTensors& joint) {
  auto receipt = std::make_shared<Receipt>(ran);
  for (const char* name : {"q", "k", "v"}) receipt->copies.emplace_back(name);
  if (joint.mask.present()) receipt->copies.emplace_back("mask");
  return receipt;
}

}  // namespace

std::string_view name(JointStrategy strategy) noexcept {
  switch (strategy) {
    case JointStrategy::front:
      return "front";
    case JointStrategy::rear:
      return "rear";
  }
  return "unknown";
}

Result<JointResult> attend_jointly(const Attention& layer, const AttentionTensors& tensors,
                                   const JointTensors& joint, const CallOptions& options) {
  const Layout layout = options.input_layout;
  FOVEA_TRY(const Joined all, join(tensors, joint, layout));
  FOVEA_TRY(AttentionResult ran, layer(all.tensors, options));

  const size_t seq = sequence_axis(options.output_layout.value_or(layout));
  const size_t in = sequence_axis(layout);
  const int64_t count = tensors.q.shape[in], joint_count = joint.q.shape[in];
  const bool front = joint.strategy == JointStrategy::front;
  JointResult result;
  result.tokens = part(ran.out.view(), seq, front ? joint_count : 0, count);
  result.joint = part(ran.out.view(), seq, front ? 0 : count, joint_count);
  result.receipt = with_copies(*ran.receipt, joint);
  result.out = std::move(ran.out);
  result.lse = std::move(ran.lse);
  return Result<JointResult>(std::move(result));
}

Result<std::shared_ptr<const Receipt>> run_jointly(const Attention& layer,
                                                   const AttentionTensors& tensors,
                                                   const JointTensors& joint,
                                                   const CallOptions& options) {
  FOVEA_TRY(const Joined all, join(tensors, joint, options.input_layout));
  FOVEA_TRY(const std::shared_ptr<const Receipt> ran, layer.run(all.tensors, options));
  return with_copies(*ran, joint);
}

}  // namespace fovea
