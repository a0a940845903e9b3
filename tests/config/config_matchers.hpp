// Shorthand for the configuration tests.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "fovea/config.hpp"

namespace fovea {

// The config, or a failed test that shows the message.
inline AttentionConfig parsed(const ConfigSources& sources) {
  auto config = build_config(sources);
  if (config) return *config;
  ADD_FAILURE() << config.error().message;
  return {};
}

inline AttentionConfig parsed(std::string_view json) {
  ConfigSources sources;
  sources.text = json;
  return parsed(sources);
}

// The default entry of a text, which must have one.
inline AttentionSpec parsed_default(std::string_view json) {
  const auto config = parsed(json);
  EXPECT_TRUE(config.default_spec) << json;
  return config.default_spec.value_or(AttentionSpec{});
}

// The message of a refusal, or a failed test.
inline std::string refused(const ConfigSources& sources) {
  const auto config = build_config(sources);
  if (!config) {
    EXPECT_EQ(ErrorCode::invalid_config, config.error().code);
    return config.error().message;
  }
  ADD_FAILURE() << "accepted as " << to_json(*config);
  return {};
}

inline std::string refused(std::string_view json) {
  ConfigSources sources;
  sources.text = json;
  return refused(sources);
}

inline bool has(std::string_view text, std::string_view piece) {
  return text.find(piece) != std::string_view::npos;
}

}  // namespace fovea

#define EXPECT_HAS(text, piece)                                                               \
  EXPECT_PRED2([](const std::string& t, const std::string& p) { return ::fovea::has(t, p); }, \
               text, piece)
