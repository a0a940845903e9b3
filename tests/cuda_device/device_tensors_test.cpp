#include "src/cuda_device/device_tensors.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "src/core/random_inputs.hpp"
#include "src/cuda_device/device.hpp"
#include "src/cuda_device/stream.hpp"

namespace fovea::cuda {
namespace {

constexpr Device kDevice{DeviceType::cuda, 0};

class DeviceTensorsTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto count = device_count();
    if (!count) GTEST_SKIP() << count.error().message;
    auto stream = OwnedStream::create(kDevice);
    ASSERT_TRUE(stream.has_value()) << stream.error().message;
    stream_ = *stream;
    auto inputs = make_random_inputs(
        *parse_problem("bf16 b2 h3 s20 d24 mask=keys kvlen=20,7 lse=1 strides=fused_qkv align=8"));
    ASSERT_TRUE(inputs.has_value());
    inputs_ = std::make_unique<RandomInputs>(*inputs);
    auto copies = DeviceTensors::upload(host(), kDevice, stream_.get());
    ASSERT_TRUE(copies.has_value()) << copies.error().message;
    copies_ = std::make_unique<DeviceTensors>(std::move(*copies));
  }

  const AttentionTensors& host() const { return inputs_->tensors(); }
  const AttentionTensors& device() const { return copies_->tensors(); }
  std::string damage() const {
    auto found = copies_->damage(host());
    EXPECT_TRUE(found.has_value());
    return found ? *found : "";
  }
  void write(void* at) const {
    const unsigned char byte = 7;
    ASSERT_TRUE(copy_to_device(at, &byte, 1, stream_.get()).has_value());
  }

  OwnedStream stream_;
  std::unique_ptr<RandomInputs> inputs_;
  std::unique_ptr<DeviceTensors> copies_;
};

TEST_F(DeviceTensorsTest, KeepStridesAndAlignment) {
  EXPECT_EQ(device().q.device, kDevice);
  EXPECT_EQ(device().q.stride, host().q.stride);
  for (const auto view : {&AttentionTensors::q, &AttentionTensors::mask, &AttentionTensors::out})
    EXPECT_EQ(reinterpret_cast<uintptr_t>((device().*view).data) % 256,
              reinterpret_cast<uintptr_t>((host().*view).data) % 256);
  EXPECT_FALSE(device().cu_seqlens_q.present());
  EXPECT_TRUE(check_pointers(device(), kDevice).has_value());
}

TEST_F(DeviceTensorsTest, OutputsComeBack) {
  auto* const row = static_cast<uint16_t*>(device().out.data);
  const uint16_t value = 0x3f80;
  ASSERT_TRUE(copy_to_device(row + 5, &value, 2, stream_.get()).has_value());
  ASSERT_TRUE(copies_->download(host()).has_value());
  EXPECT_EQ(static_cast<const uint16_t*>(host().out.data)[5], value);
  EXPECT_EQ(static_cast<const uint16_t*>(host().out.data)[4], 0xffff) << "poison";
  EXPECT_EQ(damage(), "");
}

TEST_F(DeviceTensorsTest, DamageIsNamed) {
  EXPECT_EQ(damage(), "");
  write(static_cast<char*>(device().lse.data) - 1);
  EXPECT_EQ(damage(), "memory before lse was written");
}

TEST_F(DeviceTensorsTest, DamageBehindIsNamed) {
  write(static_cast<char*>(device().out.data) + 2 * 20 * 3 * 24 * 2);
  EXPECT_EQ(damage(), "memory behind out was written");
}

TEST_F(DeviceTensorsTest, WrittenInputIsNamed) {
  write(static_cast<char*>(device().k.data) + 3);
  EXPECT_EQ(damage(), "k was written");
}

TEST_F(DeviceTensorsTest, PointersThatAreElsewhereAreNamed) {
  AttentionTensors wrong = device();
  wrong.v.data = host().v.data;
  const Status status = check_pointers(wrong, kDevice);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::invalid_tensor);
  EXPECT_NE(status.error().message.find("v "), std::string::npos) << status.error().message;
  EXPECT_NE(status.error().message.find("the host"), std::string::npos) << status.error().message;
}

TEST_F(DeviceTensorsTest, NoMemoryIsAnErrorAndLeavesTheDeviceUsable) {
  const auto memory = Memory::allocate(size_t{1} << 50, kDevice, stream_.get());
  ASSERT_FALSE(memory.has_value());
  EXPECT_EQ(memory.error().code, ErrorCode::out_of_memory) << memory.error().message;
  EXPECT_NE(memory.error().message.find("bytes are free"), std::string::npos);
  EXPECT_TRUE(Memory::allocate(1024, kDevice, stream_.get()).has_value());
}

}  // namespace
}  // namespace fovea::cuda
