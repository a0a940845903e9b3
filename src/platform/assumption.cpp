#include "src/platform/assumption.hpp"

#include "src/core/text.hpp"
#include "src/platform/check.hpp"
#include "src/platform/package.hpp"

namespace fovea::platform {
namespace {

constexpr std::string_view kNotGiven = "not given";

Reason not_given(const Check& check, std::string accepted) {
  return {ReasonCode::assumed, std::string(check.key), std::string(kNotGiven), std::move(accepted),
          text::concat("state ", check.key)};
}

}  // namespace

std::optional<Reason> assumption(const Check& check, const DeviceFacts& facts) {
  using Kind = Check::Kind;
  const bool given = facts.has(check.key);
  switch (check.kind) {
    case Kind::toolkit: {
      if (given) return std::nullopt;
      DeviceFacts none = facts;
      none.set(std::string(check.key), "unknown");
      return not_given(check, failure(check, {}, none, {})->accepted);
    }
    case Kind::not_older: {
      if (!given || facts.version(check.key)) return std::nullopt;
      Check strict = check;
      strict.kind = Kind::understood_at_least;
      Reason reason = *failure(strict, {}, facts, {});
      reason.code = ReasonCode::assumed;
      reason.remedy = text::concat("state the version of ", check.key);
      return reason;
    }
    case Kind::fact_not_in:
      if (given && facts.get(check.key) != "unknown") return std::nullopt;
      return not_given(check, accepted_devices(check));
    case Kind::embedded:
      if (facts.get(check.key) != "unknown") return std::nullopt;
      return Reason{ReasonCode::assumed, std::string(check.key), "unknown",
                    "everything that the source tree builds", "state kernels"};
    default:
      return std::nullopt;
  }
}

std::optional<Reason> assumed_package(const Row& row) {
  if (row.provider != Provider::package) return std::nullopt;
  const Package& known = package(row.package);
  if (!known.fact.empty()) return std::nullopt;
  return Reason{ReasonCode::assumed, std::string(known.name), "not among the facts", "installed",
                std::string(known.install)};
}

}  // namespace fovea::platform
