#include <gtest/gtest.h>

#include <set>
#include <string>

#include "fovea/device_facts.hpp"
#include "src/platform/preset_data.hpp"

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

TEST(DevicePresets, EveryFileIsReadAndStatesItsSources) {
  EXPECT_EQ(platform::device_files().size(), device_presets().size());
  for (const platform::PresetFile& file : platform::device_files()) {
    const auto preset = parse_device_preset(file.text, file.path);
    ASSERT_TRUE(preset) << preset.error().message;
    EXPECT_NE(file.text.find("\"sources\": {"), std::string_view::npos) << file.path;
    EXPECT_EQ(file.path, "data/devices/" + preset->name + ".json");
  }
}

TEST(DevicePresets, AnOwnDeviceReadsLikeAPreset) {
  const auto preset = parse_device_preset(
      R"({"name": "box", "platform": "CUDA", "facts": {"sm": "9.0", "flashinfer": true, "trtllm": false,
          "cudnn": 90500}})",
      "box.json");
  ASSERT_TRUE(preset) << preset.error().message;
  EXPECT_EQ(preset->facts, "sm=9.0,flashinfer=1,trtllm=0,cudnn=90500");
  EXPECT_EQ(parse_facts(preset->platform, preset->facts)->text(),
            "cuda: cudnn=9.5.0,flashinfer=1,sm=90,trtllm=0");
}

TEST(DevicePresets, WhatIsWrongWithAnOwnDeviceIsSaidByPlace) {
  const struct {
    std::string_view json, message;
    ErrorCode code = ErrorCode::invalid_config;
  } cases[] = {
      {"{}",
       "box.json: 3 problems\n"
       "  the top level: lacks name\n"
       "  the top level: lacks platform\n"
       "  the top level: lacks facts"},
      {R"({"name": "box", "platform": "cpu", "facts": []})",
       "box.json: facts: expected a map, found a list"},
      {R"({"name": "box", "platform": "cpu", "facts": {"isa": "avx2", "isa": "avx512"}})",
       "box.json: facts.isa: duplicate key; write it once"},
      {R"({"name": "box", "platform": "cpu", "facts": {"isa": "avx2,avx512"}})",
       "box.json: facts.isa: expected a text without commas, an integer, true or false, found the "
       "string 'avx2,avx512'"},
      {R"({"name": "box", "platform": "cpu", "facts": {"isa": 1.5}})",
       "box.json: facts.isa: expected a text without commas, an integer, true or false, found 1.5"},
      {R"({"name": "box", "platform": "cpu", "facts": {}, "fact": {}})",
       "box.json: fact: unknown key; known here: name, summary, platform, facts, sources; did you "
       "mean 'facts'?"},
      {R"({"name": "box", "platform": "cpu", "facts": {"isa": "avx2"}, "sources": {}})",
       "box.json: sources: lacks isa"},
      {R"({"name": "box", "platform": "cpu", "facts": {}, "sources": {"isa": "x"}})",
       "box.json: sources.isa: unknown key; known here: none"},
      {R"({"name": "box", "platform": "gpu", "facts": {}})",
       "box.json: unknown platform 'gpu'; platforms are cpu, cuda, rocm, npu, xpu, musa; did you "
       "mean 'cpu'?",
       ErrorCode::invalid_facts},
      {R"({"name": "box", "platform": "cuda", "facts": {"cudnn": "9.19"}})",
       "box.json: cuda facts: required key 'sm' is missing (compute capability: 90 (also 9.0 and "
       "sm_90))",
       ErrorCode::invalid_facts},
      {R"({"name": "box", "platform": "rocm", "facts": {"sm": 90}})",
       "box.json: rocm facts: unknown key 'sm'; keys are gfx, aiter, name, driver",
       ErrorCode::invalid_facts},
  };
  for (const auto& c : cases) {
    const auto preset = parse_device_preset(c.json, "box.json");
    ASSERT_FALSE(preset) << c.message;
    EXPECT_EQ(preset.error().code, c.code);
    EXPECT_EQ(preset.error().message, c.message);
  }
}

}  // namespace
}  // namespace fovea
