#include "src/backends/cudnn/graph.hpp"

#include <cudnn_frontend.h>

#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/core/text.hpp"
#include "src/cuda_device/cudnn_library.hpp"
#include "src/cuda_device/device_guard.hpp"
#include "src/cuda_device/graph_retention.hpp"
#include "src/cuda_device/runtime_error.hpp"

namespace fovea::cudnn {
namespace {

namespace fe = cudnn_frontend;

// Names of the tensors inside a graph.
enum Uid : int64_t { kQ = 1, kK, kV, kOut, kLse, kQLengths, kKvLengths };

// A cuDNN handle of one device, shared by all graphs on it. Calls lock it: a handle has one stream.
struct Handle {
  ~Handle() {
    if (handle != nullptr) cudnnDestroy(handle);
  }
  cudnnHandle_t handle = nullptr;
  std::mutex mutex;
};

Error failure(ErrorCode code, std::string_view doing, std::string_view why) {
  return {code, text::concat("cuDNN: ", doing, ": ", why), {}};
}

class Handles {
 public:
  Result<std::shared_ptr<Handle>> get(int device) {
    const std::lock_guard lock(mutex_);
    std::weak_ptr<Handle>& known = handles_[device];
    if (auto handle = known.lock()) return handle;
    auto made = std::make_shared<Handle>();
    if (const cudnnStatus_t status = cudnnCreate(&made->handle); status != CUDNN_STATUS_SUCCESS)
      return failure(ErrorCode::device_error, "creating a handle", cudnnGetErrorString(status));
    known = made;
    return made;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<int, std::weak_ptr<Handle>> handles_;
};

Handles& handles() {
  static Handles instance;
  return instance;
}

std::shared_ptr<fe::graph::Tensor_attributes> input(fe::graph::Graph& graph, const char* name,
                                                    Uid uid, std::vector<int64_t> dim,
                                                    std::vector<int64_t> stride) {
  return graph.tensor(fe::graph::Tensor_attributes()
                          .set_name(name)
                          .set_uid(uid)
                          .set_dim(std::move(dim))
                          .set_stride(std::move(stride)));
}

// [batch, heads, seq, dim], the order of cuDNN's axes. A stride that is never used is made valid.
std::vector<int64_t> strides(const Strides& s, int64_t batch, int64_t heads, int64_t seq,
                             int64_t dim) {
  const int64_t head = heads > 1 ? s.head : dim;
  const int64_t row = seq > 1 ? s.seq : dim;
  return {batch > 1 ? s.batch : std::max(heads * head, seq * row), head, row, 1};
}

Strides output_strides(const Problem& p) {
  if (p.out_layout == Layout::bhsd)
    return {p.heads_q * p.seq_q * p.dim_v, p.dim_v, p.seq_q * p.dim_v};
  return {p.seq_q * p.heads_q * p.dim_v, p.heads_q * p.dim_v, p.dim_v};
}

std::shared_ptr<fe::graph::Graph> describe(const Problem& p) {
  auto graph = std::make_shared<fe::graph::Graph>();
  graph->set_io_data_type(p.dtype == kF16 ? fe::DataType_t::HALF : fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  const auto tensor = [&](const char* name, Uid uid, const Strides& s, int64_t heads, int64_t seq,
                          int64_t dim) {
    return input(*graph, name, uid, {p.batch, heads, seq, dim},
                 strides(s, p.batch, heads, seq, dim));
  };
  const auto q = tensor("q", kQ, p.q_strides, p.heads_q, p.seq_q, p.head_dim);
  const auto k = tensor("k", kK, p.k_strides, p.heads_kv, p.seq_kv, p.head_dim);
  const auto v = tensor("v", kV, p.v_strides, p.heads_kv, p.seq_kv, p.dim_v);
  auto options = fe::graph::SDPA_attributes()
                     .set_name("attention")
                     .set_generate_stats(p.lse)
                     .set_attn_scale(static_cast<float>(p.effective_scale()));
  if (p.causal) {
    options.set_diagonal_alignment(fe::DiagonalAlignment_t::BOTTOM_RIGHT)
        .set_diagonal_band_right_bound(0);
  }
  if (p.has_kv_lengths) {
    const auto lengths = [&](const char* name, Uid uid) {
      return graph->tensor(fe::graph::Tensor_attributes()
                               .set_name(name)
                               .set_uid(uid)
                               .set_dim({p.batch, 1, 1, 1})
                               .set_stride({1, 1, 1, 1})
                               .set_data_type(fe::DataType_t::INT32));
    };
    options.set_padding_mask(true)
        .set_seq_len_q(lengths("q_lengths", kQLengths))
        .set_seq_len_kv(lengths("kv_lengths", kKvLengths));
  }
  auto [out, lse] = graph->sdpa(q, k, v, options);
  out->set_output(true)
      .set_uid(kOut)
      .set_dim({p.batch, p.heads_q, p.seq_q, p.dim_v})
      .set_stride(strides(output_strides(p), p.batch, p.heads_q, p.seq_q, p.dim_v));
  if (p.lse)
    lse->set_output(true)
        .set_uid(kLse)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim({p.batch, p.heads_q, p.seq_q, 1})
        .set_stride({p.heads_q * p.seq_q, p.seq_q, 1, 1});
  return graph;
}

class BuiltGraph final : public Graph {
 public:
  // What a captured CUDA graph has to keep: the plan holds the kernels' code.
  struct State {
    std::shared_ptr<Handle> handle;
    std::shared_ptr<fe::graph::Graph> graph;
  };

  BuiltGraph(std::shared_ptr<const State> state, Device device)
      : state_(std::move(state)), device_(device) {}

  Status run(const Pointers& p, Stream stream) const noexcept override {
    try {
      const cuda::DeviceGuard guard(device_.index);
      FOVEA_CHECK(cuda::check(guard.error(), "choosing a device"));
      FOVEA_CHECK(cuda::keep_while_captured(state_, stream));
      std::unordered_map<int64_t, void*> pack = {{kQ, const_cast<void*>(p.q)},
                                                 {kK, const_cast<void*>(p.k)},
                                                 {kV, const_cast<void*>(p.v)},
                                                 {kOut, p.out}};
      if (p.lse != nullptr) pack[kLse] = p.lse;
      if (p.kv_lengths != nullptr) {
        pack[kQLengths] = const_cast<int32_t*>(p.q_lengths);
        pack[kKvLengths] = const_cast<int32_t*>(p.kv_lengths);
      }
      Handle& handle = *state_->handle;
      const std::lock_guard lock(handle.mutex);
      const cudnnStatus_t status =
          cudnnSetStream(handle.handle, static_cast<cudaStream_t>(stream.handle));
      if (status != CUDNN_STATUS_SUCCESS)
        return failure(ErrorCode::device_error, "setting the stream", cudnnGetErrorString(status));
      fe::error_t error = state_->graph->execute(handle.handle, pack, p.workspace);
      if (error.is_good()) return {};
      return failure(ErrorCode::device_error, "running the graph", error.get_message());
    } catch (const std::exception& error) {
      return failure(ErrorCode::device_error, "running the graph", error.what());
    }
  }

 private:
  std::shared_ptr<const State> state_;
  Device device_;
};

Result<std::shared_ptr<const Graph>> build(const Problem& problem, Device device) {
  constexpr std::string_view kDoing = "building a graph";
  const cuda::DeviceGuard guard(device.index);
  FOVEA_CHECK(cuda::check(guard.error(), "choosing a device"));
  auto state = std::make_shared<BuiltGraph::State>();
  FOVEA_TRY(state->handle, handles().get(device.index));
  const std::lock_guard lock(state->handle->mutex);
  state->graph = describe(problem);
  fe::graph::Graph& graph = *state->graph;
  const cudnnHandle_t handle = state->handle->handle;
  fe::error_t error = graph.validate();
  if (error.is_good()) error = graph.build_operation_graph(handle);
  if (error.is_good()) error = graph.create_execution_plans({fe::HeurMode_t::A});
  if (error.is_good()) {
    graph.deselect_workspace_greater_than(static_cast<int64_t>(kWorkspaceBytes));
    error = graph.check_support(handle);
  }
  if (error.is_good()) error = graph.build_plans(handle);
  if (error.is_bad()) return failure(ErrorCode::unsupported, kDoing, error.get_message());
  return std::shared_ptr<const Graph>(std::make_shared<BuiltGraph>(std::move(state), device));
}

}  // namespace

Result<std::shared_ptr<const Graph>> build_graph(const Problem& problem, Device device) {
  if (auto library = cuda::load_cudnn(); !library) return std::move(library).error();
  cuda::drop_released_states();
  try {
    return build(problem, device);
  } catch (const std::exception& error) {
    return failure(ErrorCode::unsupported, "building a graph", error.what());
  }
}

}  // namespace fovea::cudnn
