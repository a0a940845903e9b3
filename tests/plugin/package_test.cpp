// Kernels of packages that come through the C interface and misbehave.
#include "src/plugin/package.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "fovea/fovea.hpp"

namespace fovea {
namespace {

int32_t answer = FOVEA_OK;

int32_t run(void*, const fovea_package_call*, const fovea_plugin_sink*) { return answer; }
int32_t dims(void*, int64_t, int64_t, int64_t, const fovea_plugin_sink*) {
  throw std::runtime_error("no rule");
}
void refuse(void*, const char*, const fovea_plugin_problem*, const fovea_plugin_sink*) { throw 42; }

PackageKernel faulty() {
  fovea_package package{};
  package.struct_size = sizeof package;
  package.package = "faulty_package";
  package.run = run;
  package.validate_dims = dims;
  package.refuse = refuse;
  return *plugin::make_kernel(package);
}

TEST(PluginPackage, AnswersThatThrowAreRefusals) {
  const PackageKernel kernel = faulty();
  const auto accepted = kernel.validate_dims(64, 64, 8);
  ASSERT_TRUE(accepted.has_value());
  EXPECT_NE(accepted->find("validate_dims threw: no rule"), std::string::npos) << *accepted;
  const Problem problem = *parse_problem("bf16 b1 h1 s64 d64");
  const std::vector<Reason> reasons = kernel.refusals(backend::FLASH_ATTN_4, problem);
  ASSERT_EQ(reasons.size(), 1u);
  EXPECT_EQ(reasons[0].code, ReasonCode::plugin);
  EXPECT_NE(sentence(reasons[0]).find("refuse threw: "), std::string::npos) << sentence(reasons[0]);
}

// 65636 has the low bits of invalid_argument.
TEST(PluginPackage, UnknownCodesAreKept) {
  const PackageKernel kernel = faulty();
  const Problem problem = *parse_problem("bf16 b1 h1 s64 d64");
  const AttentionTensors tensors;
  const PackageCall call{"path", problem, tensors, nullptr, 64, 0, {}, {}, backend::FLASH_ATTN_4};
  for (const int32_t code : {65636, -1, 7}) {
    answer = code;
    const Status done = kernel.run(call);
    ASSERT_FALSE(done.has_value()) << code;
    EXPECT_EQ(done.error().code, ErrorCode::device_error) << code;
    EXPECT_NE(done.error().message.find(std::to_string(code)), std::string::npos)
        << done.error().message;
  }
  answer = static_cast<int32_t>(ErrorCode::unsupported);
  EXPECT_EQ(kernel.run(call).error().code, ErrorCode::unsupported);
}

}  // namespace
}  // namespace fovea
