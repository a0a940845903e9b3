#include <gtest/gtest.h>

#include <set>
#include <string>

#include "fovea/device_facts.hpp"

namespace fovea {
namespace {

TEST(DevicePresets, EveryPublishedNameReads) {
  std::set<std::string_view> names;
  for (const DevicePreset& preset : device_presets()) {
    const Result<DeviceFacts> facts = preset_facts(preset.name);
    ASSERT_TRUE(facts) << facts.error().message;
    EXPECT_EQ(facts->platform(), preset.platform);
    EXPECT_FALSE(preset.summary.empty());
    EXPECT_TRUE(names.insert(preset.name).second) << preset.name;
  }
  EXPECT_EQ(names, (std::set<std::string_view>{"h100", "h200", "b200", "a100", "l40s", "rtx4090",
                                               "mi300x", "ascend910b", "cpu"}));
}

TEST(DevicePresets, ArchitecturesAreThoseOfTheDevices) {
  const std::pair<const char*, int64_t> cases[] = {{"h100", 90}, {"h200", 90}, {"b200", 100},
                                                   {"a100", 80}, {"l40s", 89}, {"rtx4090", 89}};
  for (const auto& [device, sm] : cases) EXPECT_EQ(preset_facts(device)->integer("sm"), sm);
  EXPECT_EQ(preset_facts("mi300x")->get("gfx"), "gfx942");
  EXPECT_EQ(preset_facts(" H200 ").value(), preset_facts("h200").value());
}

TEST(DevicePresets, UnknownNameListsAndSuggests) {
  const Result<DeviceFacts> result = preset_facts("h20");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::invalid_facts);
  EXPECT_NE(result.error().message.find("h100, h200, b200"), std::string::npos);
  EXPECT_NE(result.error().message.find("did you mean"), std::string::npos);
}

}  // namespace
}  // namespace fovea
