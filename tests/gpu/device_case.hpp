// A problem with its tensors in host memory and on a device.
#pragma once

#include <gtest/gtest.h>

#include <stdexcept>
#include <utility>

#include "fovea/fovea.hpp"
#include "src/core/random_inputs.hpp"
#include "src/cuda_device/device_tensors.hpp"
#include "src/cuda_device/stream.hpp"

namespace fovea::gpu_test {

inline constexpr Device kDevice{DeviceType::cuda, 0};

template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(result).value();
}
inline void must(const Status& status) {
  ASSERT_TRUE(status.has_value()) << (status ? "" : status.error().message);
}

struct DeviceCase {
  DeviceCase(const Problem& of, Device where)
      : problem(of),
        inputs(must(make_random_inputs(problem))),
        stream(must(cuda::OwnedStream::create(where))),
        device(must(cuda::DeviceTensors::upload(inputs.tensors(), where, stream.get()))) {}

  CallOptions options() const {
    CallOptions options;
    options.input_layout = problem.layout;
    options.output_layout = problem.out_layout;
    options.scale = problem.scale;
    options.is_causal = problem.causal;
    options.window = problem.window;
    options.out_dtype = problem.out_dtype;
    options.return_lse = problem.lse;
    options.stream = stream.get();
    return options;
  }
  // Brings the outputs to the host; nothing else may have been written.
  void download() const {
    must(device.download(inputs.tensors()));
    EXPECT_EQ(must(device.damage(inputs.tensors())), "");
  }

  Problem problem;
  RandomInputs inputs;
  cuda::OwnedStream stream;
  cuda::DeviceTensors device;
};

}  // namespace fovea::gpu_test
