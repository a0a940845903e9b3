// A user's calls with tensors on a GPU: C++ and C, streams, captured graphs, two devices.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>
#include <vector>

#include "fovea/c_api.h"
#include "fovea/fovea.hpp"
#include "src/backends/reference/agreement.hpp"
#include "src/core/random_inputs.hpp"
#include "src/cuda_device/device.hpp"
#include "src/cuda_device/device_tensors.hpp"
#include "src/cuda_device/stream.hpp"

namespace fovea {
namespace {

using cuda::DeviceTensors;
using cuda::OwnedStream;

constexpr int kReplays = 1000;

template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(result).value();
}
void must(const Status& status) {
  ASSERT_TRUE(status.has_value()) << (status ? "" : status.error().message);
}
void must(cudaError_t error) { ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error); }

CallOptions options_of(const Problem& p, Stream stream) {
  CallOptions options;
  options.input_layout = p.layout;
  options.is_causal = p.causal;
  options.return_lse = p.lse;
  options.stream = stream;
  return options;
}

// A problem with its tensors in host memory and on a device.
struct Case {
  Case(const char* text, Device where)
      : problem(*parse_problem(text)),
        inputs(must(make_random_inputs(problem))),
        stream(must(OwnedStream::create(where))),
        device(must(DeviceTensors::upload(inputs.tensors(), where, stream.get()))) {}

  CallOptions options() const { return options_of(problem, stream.get()); }
  void expect_agrees() const {
    must(device.download(inputs.tensors()));
    EXPECT_EQ(must(device.damage(inputs.tensors())), "");
    const auto agreement = must(backends::reference::agree_with_oracle(
        problem, inputs.tensors(), serial_executor(), DataKind::random, 1e9));
    EXPECT_TRUE(agreement.pass) << agreement.out.rel_l2;
  }

  Problem problem;
  RandomInputs inputs;
  OwnedStream stream;
  DeviceTensors device;
};

constexpr const char* kProblem = "bf16 b2 h4 s300 d128 kvlen=300,77 lse=1";

// Every backend that runs kProblem on the device.
std::vector<BackendName> backends_here() {
  std::vector<BackendName> names;
  const auto facts = probe_cuda(0);
  if (!facts) return names;
  for (const BackendName name : {backend::FLASH_ATTN, backend::FLASH_ATTN_2, backend::FLASH_ATTN_3,
                                 backend::TORCH_SDPA, backend::CUDNN_ATTN}) {
    AttentionConfig config;
    config.default_spec.emplace().backend = name;
    const Attention layer = must(Attention::create({}, config, nullptr, *facts));
    if (layer.resolve(*parse_problem(kProblem))->report.support != SupportStatus::unsupported)
      names.push_back(name);
  }
  return names;
}

class GpuApi : public testing::Test {
 protected:
  void SetUp() override {
    const auto count = cuda::device_count();
    if (!count) GTEST_SKIP() << count.error().message;
    if (backends_here().empty()) GTEST_SKIP() << "no backend of this binary runs on cuda:0";
  }
  static AttentionConfig config(BackendName name) {
    AttentionConfig config;
    config.default_spec.emplace().backend = name;
    return config;
  }
};

constexpr Device kDevice{DeviceType::cuda, 0};

TEST_F(GpuApi, RunsOnTheStreamAndSaysWhere) {
  for (const BackendName name : backends_here()) {
    SCOPED_TRACE(fovea::name(name));
    const Case c(kProblem, kDevice);
    const Attention layer = must(Attention::create({}, config(name)));
    const auto receipt = must(layer.run(c.device.tensors(), c.options()));
    EXPECT_EQ(receipt->device, "cuda:0");
    EXPECT_EQ(receipt->backend, name);
    c.expect_agrees();
  }
}

TEST_F(GpuApi, ConvenienceCallAllocatesOnTheDevice) {
  const Case c(kProblem, kDevice);
  const Attention layer = must(Attention::create({}, {}));
  for (int round = 0; round < 3; ++round) {
    const AttentionResult result = must(layer(c.device.tensors(), c.options()));
    EXPECT_EQ(result.out.view().device, kDevice);
    AttentionTensors outputs;
    outputs.q = result.out.view();
    outputs.lse = result.lse.view();
    EXPECT_TRUE(cuda::check_pointers(outputs, kDevice).has_value());
    must(cudaMemcpyAsync(c.device.tensors().out.data, result.out.view().data,
                         static_cast<size_t>(result.out.view().numel()) * 2, cudaMemcpyDefault,
                         static_cast<cudaStream_t>(c.stream.get().handle)));
    must(cudaMemcpyAsync(c.device.tensors().lse.data, result.lse.view().data,
                         static_cast<size_t>(result.lse.view().numel()) * 4, cudaMemcpyDefault,
                         static_cast<cudaStream_t>(c.stream.get().handle)));
    c.expect_agrees();
  }
}

TEST_F(GpuApi, MemoryThatIsElsewhereIsNamed) {
  const Case c(kProblem, kDevice);
  const Attention layer = must(Attention::create({}, {}));
  AttentionTensors wrong = c.device.tensors();
  wrong.k.data = c.inputs.tensors().k.data;
  const auto result = layer.run(wrong, c.options());
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::invalid_tensor);
  EXPECT_NE(result.error().message.find("k "), std::string::npos) << result.error().message;
}

// The plan and the layer are gone before the first replay.
TEST_F(GpuApi, CapturedPlansReplayBitForBitAndOutliveTheirOwner) {
  for (const BackendName name : backends_here()) {
    SCOPED_TRACE(fovea::name(name));
    const Case c("bf16 b2 h4 s300 d128 lse=1", kDevice);
    const AttentionTensors& t = c.device.tensors();
    const auto stream = static_cast<cudaStream_t>(c.stream.get().handle);
    const auto out_bytes = static_cast<size_t>(t.out.numel()) * 2;
    const auto lse_bytes = static_cast<size_t>(t.lse.numel()) * 4;
    const auto q_bytes = static_cast<size_t>(t.q.numel()) * 2;

    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    const Attention eager_layer = must(Attention::create({}, config(name)));
    const auto eager = must(eager_layer.plan(c.problem, kDevice));
    const auto eager_workspace =
        must(cuda::Memory::allocate(eager->workspace_bytes(), kDevice, c.stream.get()));
    const auto workspace =
        must(cuda::Memory::allocate(eager->workspace_bytes(), kDevice, c.stream.get()));
    const auto eager_out = must(cuda::Memory::allocate(out_bytes, kDevice, c.stream.get()));
    const auto eager_lse = must(cuda::Memory::allocate(lse_bytes, kDevice, c.stream.get()));
    {
      const Attention layer = must(Attention::create({}, config(name)));
      const auto plan = must(layer.plan(c.problem, kDevice));
      must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
      const Status status = plan->run(t, {workspace.data(), workspace.bytes()}, c.stream.get());
      must(cudaStreamEndCapture(stream, &graph));
      must(status);
    }
    must(cudaGraphInstantiate(&exec, graph, 0));
    must(cudaGraphDestroy(graph));

    AttentionTensors eager_tensors = t;
    eager_tensors.out.data = eager_out.data();
    eager_tensors.lse.data = eager_lse.data();
    std::vector<char> a(out_bytes + lse_bytes), b(out_bytes + lse_bytes);
    for (int replay = 0; replay < kReplays; ++replay) {
      // Another q each time: rotated by one row.
      const size_t shift = 2 * 128 * 4;
      must(cudaMemcpyAsync(static_cast<char*>(t.q.data) + (replay % 64) * shift,
                           static_cast<const char*>(t.k.data) + (replay * 7 % 64) * shift, shift,
                           cudaMemcpyDefault, stream));
      must(cudaMemsetAsync(t.out.data, 0xff, out_bytes, stream));
      must(cudaMemsetAsync(t.lse.data, 0xff, lse_bytes, stream));
      must(cudaGraphLaunch(exec, stream));
      must(eager->run(eager_tensors, {eager_workspace.data(), eager_workspace.bytes()},
                      c.stream.get()));
      if (replay % 50 != 0) continue;
      must(cudaMemcpyAsync(a.data(), t.out.data, out_bytes, cudaMemcpyDefault, stream));
      must(cudaMemcpyAsync(a.data() + out_bytes, t.lse.data, lse_bytes, cudaMemcpyDefault, stream));
      must(cudaMemcpyAsync(b.data(), eager_out.data(), out_bytes, cudaMemcpyDefault, stream));
      must(cudaMemcpyAsync(b.data() + out_bytes, eager_lse.data(), lse_bytes, cudaMemcpyDefault,
                           stream));
      must(cudaStreamSynchronize(stream));
      ASSERT_EQ(std::memcmp(a.data(), b.data(), a.size()), 0) << "replay " << replay;
    }
    EXPECT_GT(q_bytes, size_t{64} * 2 * 128 * 4);
    must(cudaGraphExecDestroy(exec));
  }
}

TEST_F(GpuApi, ConvenienceCallCanBeCaptured) {
  const Case c(kProblem, kDevice);
  const Attention layer = must(Attention::create({}, {}));
  must(layer.run(c.device.tensors(), c.options()));
  const auto stream = static_cast<cudaStream_t>(c.stream.get().handle);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  const auto captured = layer.run(c.device.tensors(), c.options());
  must(cudaStreamEndCapture(stream, &graph));
  ASSERT_TRUE(captured.has_value()) << captured.error().message;
  must(cudaGraphInstantiate(&exec, graph, 0));
  must(cudaMemsetAsync(c.device.tensors().out.data, 0xff,
                       static_cast<size_t>(c.device.tensors().out.numel()) * 2, stream));
  must(cudaGraphLaunch(exec, stream));
  c.expect_agrees();
  must(cudaGraphExecDestroy(exec));
  must(cudaGraphDestroy(graph));
}

fovea_tensor c_tensor(const TensorView& view) {
  fovea_tensor t{};
  t.data = view.data;
  t.device_type = static_cast<int32_t>(view.device.type);
  t.device_index = view.device.index;
  t.dtype_code = view.dtype.code;
  t.dtype_bits = view.dtype.bits;
  t.dtype_lanes = view.dtype.lanes;
  t.rank = view.rank;
  std::copy(view.shape.begin(), view.shape.end(), t.shape);
  std::copy(view.stride.begin(), view.stride.end(), t.stride);
  return t;
}

TEST_F(GpuApi, C) {
  const Case c(kProblem, kDevice);
  const AttentionTensors& t = c.device.tensors();
  fovea_call call{};
  call.struct_size = sizeof call;
  call.q = c_tensor(t.q);
  call.k = c_tensor(t.k);
  call.v = c_tensor(t.v);
  call.out = c_tensor(t.out);
  call.lse = c_tensor(t.lse);
  call.kv_lengths = c_tensor(t.kv_lengths);
  call.window_left = call.window_right = -1;
  call.stream = c.stream.get().handle;
  fovea_layer_options options{};
  options.struct_size = sizeof options;
  fovea_attention* layer = nullptr;
  fovea_error* error = nullptr;
  ASSERT_EQ(fovea_attention_create(&options, nullptr, &layer, &error), FOVEA_OK);

  fovea_tensor out{};
  ASSERT_EQ(fovea_output_spec(&call, &out, nullptr, &error), FOVEA_OK);
  EXPECT_EQ(out.device_type, 2);

  fovea_receipt* receipt = nullptr;
  ASSERT_EQ(fovea_attention_run(layer, &call, &receipt, &error), FOVEA_OK)
      << fovea_error_message(error);
  EXPECT_NE(std::strstr(fovea_receipt_json(receipt), "\"cuda:0\""), nullptr);
  fovea_receipt_free(receipt);
  c.expect_agrees();

  fovea_plan* plan = nullptr;
  ASSERT_EQ(fovea_attention_plan(layer, &call, &plan, &error), FOVEA_OK)
      << fovea_error_message(error);
  const auto workspace =
      must(cuda::Memory::allocate(fovea_plan_workspace_bytes(plan), kDevice, c.stream.get()));
  must(cuda::fill(t.out.data, 0xff, static_cast<size_t>(t.out.numel()) * 2, c.stream.get()));
  ASSERT_EQ(fovea_plan_run(plan, &call, workspace.data(), workspace.bytes(), &error), FOVEA_OK)
      << fovea_error_message(error);
  c.expect_agrees();
  fovea_plan_free(plan);
  fovea_attention_free(layer);
}

TEST_F(GpuApi, PlansRefuseTensorsOfAnotherDevice) {
  const Case c(kProblem, kDevice);
  const Attention layer = must(Attention::create({}, {}));
  const auto plan = must(layer.plan(c.problem, kDevice));
  AttentionTensors elsewhere = c.device.tensors();
  for (TensorView* view : {&elsewhere.q, &elsewhere.k, &elsewhere.v, &elsewhere.out, &elsewhere.lse,
                           &elsewhere.kv_lengths})
    view->device.index = 1;
  const Status status = plan->run(elsewhere, {}, c.stream.get());
  ASSERT_FALSE(status.has_value());
  EXPECT_NE(status.error().message.find("cuda:1"), std::string::npos) << status.error().message;
}

TEST_F(GpuApi, SecondDeviceWhileTheFirstIsCurrent) {
  if (must(cuda::device_count()) < 2) GTEST_SKIP() << "this machine has one GPU";
  must(cudaSetDevice(0));
  const Device second{DeviceType::cuda, 1};
  for (const BackendName name : backends_here()) {
    SCOPED_TRACE(fovea::name(name));
    const Attention layer = must(Attention::create({}, config(name)));
    for (const Device device : {second, kDevice, second}) {
      const Case c(kProblem, device);
      const auto receipt = must(layer.run(c.device.tensors(), c.options()));
      EXPECT_EQ(receipt->device, to_string(device));
      c.expect_agrees();
      int current = -1;
      must(cudaGetDevice(&current));
      EXPECT_EQ(current, 0);
    }
  }
}

}  // namespace
}  // namespace fovea
