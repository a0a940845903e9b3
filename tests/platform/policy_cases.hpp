// Asks a platform about faked facts.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/platform.hpp"

namespace fovea::policy_cases {

inline std::shared_ptr<const Platform> platform_for(PlatformId id, std::string_view facts) {
  Result<DeviceFacts> parsed = parse_facts(id, facts);
  if (!parsed) {
    ADD_FAILURE() << parsed.error().message;
    return make_platform(DeviceFacts(id));
  }
  return make_platform(std::move(*parsed));
}

// The name that runs when nothing is chosen; empty when nothing can.
inline std::string chosen(const Platform& platform, const PolicyQuery& query) {
  for (const PolicyVerdict& verdict : platform.preference(query))
    if (verdict.reasons.empty()) return name(verdict.backend);
  return {};
}

inline std::vector<std::string> order(const Platform& platform, const PolicyQuery& query) {
  std::vector<std::string> names;
  for (const PolicyVerdict& verdict : platform.preference(query))
    names.push_back(name(verdict.backend));
  return names;
}

inline std::optional<Reason> find(const std::vector<Reason>& reasons, ReasonCode code) {
  const auto it = std::find_if(reasons.begin(), reasons.end(),
                               [&](const Reason& reason) { return reason.code == code; });
  return it == reasons.end() ? std::nullopt : std::optional(*it);
}

// A refusal says what was judged, what it is, what would do, and what to do about it.
inline void expect_complete(const PolicyVerdict& verdict) {
  ASSERT_FALSE(verdict.reasons.empty());
  bool remedy = false;
  for (const Reason& reason : verdict.reasons) {
    EXPECT_FALSE(reason.field.empty()) << sentence(reason);
    EXPECT_FALSE(reason.got.empty()) << sentence(reason);
    EXPECT_FALSE(reason.accepted.empty()) << sentence(reason);
    remedy = remedy || !reason.remedy.empty();
  }
  EXPECT_TRUE(remedy) << sentence(verdict.reasons);
}

// An explicit choice: accepted when `code` is empty, else refused with a reason of that code whose
// sentence holds every piece.
struct Explicit {
  const char* facts;
  BackendName backend;
  int64_t head_dim = 128;
  std::optional<ReasonCode> code = {};
  std::vector<std::string> pieces = {};
};

inline void expect_explicit(PlatformId id, const Explicit& c) {
  SCOPED_TRACE(std::string(c.facts) + " " + name(c.backend) + " head " +
               std::to_string(c.head_dim));
  const PolicyVerdict verdict =
      platform_for(id, c.facts)->judge(c.backend, {c.head_dim, false, {}});
  EXPECT_EQ(verdict.backend, c.backend);
  if (!c.code) {
    EXPECT_TRUE(verdict.reasons.empty()) << sentence(verdict.reasons);
    EXPECT_FALSE(verdict.provider.empty());
    EXPECT_FALSE(verdict.path.empty());
    return;
  }
  expect_complete(verdict);
  const std::optional<Reason> reason = find(verdict.reasons, *c.code);
  ASSERT_TRUE(reason) << sentence(verdict.reasons);
  for (const std::string& piece : c.pieces)
    EXPECT_NE(sentence(*reason).find(piece), std::string::npos)
        << "'" << piece << "' is not in: " << sentence(*reason);
}

}  // namespace fovea::policy_cases
