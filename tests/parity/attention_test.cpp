// Attention inputs captured from real model blocks give what the models' own attention gave.
#include <filesystem>

#include "src/core/compare.hpp"
#include "src/core/safetensors.hpp"
#include "src/core/tolerance.hpp"
#include "tests/contract/harness.hpp"

namespace fovea::contract {
namespace {

FOVEA_CONTRACT_SUITE(Parity);

// The views of a file have memory of their own; the harness wants tensors that it may hash.
Tensor copy(const TensorView& view) {
  const auto rank = static_cast<size_t>(view.rank);
  Tensor tensor(view.dtype, std::vector<int64_t>(view.shape.begin(), view.shape.begin() + rank));
  std::copy_n(static_cast<const char*>(view.data),
              static_cast<size_t>(view.numel()) * size_bytes(view.dtype),
              static_cast<char*>(tensor.view().data));
  return tensor;
}

Result<SafetensorsFile> open(const std::string& name) {
  const auto folder = std::filesystem::path(FOVEA_SOURCE_DIR) / "examples" / "data";
  return SafetensorsFile::open(folder / (name + "_attention.safetensors"));
}

void expect_parity(const Target& target, const std::string& name, int taps) {
  auto file = open(name);
  ASSERT_TRUE(file.has_value()) << file.error().message;
  int found = 0;
  for (int n = 0; n < 4; ++n) {
    const std::string tap = "tap.attn." + std::to_string(n) + ".";
    if (!file->has(tap + "q")) continue;
    SCOPED_TRACE(name + " " + tap);
    ++found;
    Inputs in;
    in.q = copy(file->tensor(tap + "q").value());
    in.k = copy(file->tensor(tap + "k").value());
    in.v = copy(file->tensor(tap + "v").value());
    if (file->has(tap + "mask")) in.mask = copy(file->tensor(tap + "mask").value());
    const Answer answer = attend(target, in);
    if (!answer.ran) continue;
    const Comparison c = compare(answer.out.view(), file->tensor(tap + "out").value());
    EXPECT_TRUE(within(c, kParityRelL2)) << "relative L2 " << c.rel_l2;
    EXPECT_EQ(c.compared, answer.out.view().numel());
  }
  EXPECT_EQ(found, taps);
}

TEST_P(Parity, WanTextToVideo) { expect_parity(GetParam(), "wan_t2v", 2); }
TEST_P(Parity, WanImageToVideo) { expect_parity(GetParam(), "wan_i2v", 3); }
TEST_P(Parity, QwenImageWithAHoleInItsPadding) { expect_parity(GetParam(), "qwen_image", 1); }
TEST_P(Parity, ZImage) { expect_parity(GetParam(), "z_image", 2); }

TEST_P(Parity, TheBoundSeesAMaskThatIsIgnored) {
  auto file = open("qwen_image");
  ASSERT_TRUE(file.has_value()) << file.error().message;
  Inputs in;
  in.q = copy(file->tensor("tap.attn.0.q").value());
  in.k = copy(file->tensor("tap.attn.0.k").value());
  in.v = copy(file->tensor("tap.attn.0.v").value());
  const Answer answer = attend(GetParam(), in);
  if (!answer.ran) return;
  const Comparison c = compare(answer.out.view(), file->tensor("tap.attn.0.out").value());
  EXPECT_FALSE(within(c, kParityRelL2));
}

}  // namespace
}  // namespace fovea::contract
