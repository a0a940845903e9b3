#include <algorithm>
#include <string>
#include <utility>

#include "fovea/platform.hpp"
#include "src/core/text.hpp"
#include "src/platform/check.hpp"

namespace fovea {
namespace {

using State = Availability::State;

constexpr std::string_view kPackageScheme = "package:";

State state_of(const Reason& reason) {
  switch (reason.code) {
    case ReasonCode::platform:
    case ReasonCode::isa:
      return State::wrong_device;
    case ReasonCode::architecture:
      return reason.field == platform::kBinary ? State::not_built : State::wrong_device;
    case ReasonCode::package:
      return reason.got == platform::kNotInstalled ? State::package_missing : State::package_broken;
    case ReasonCode::version:
      return State::package_broken;
    default:
      return State::not_built;
  }
}

// What has to be settled first.
int rank(State state) {
  switch (state) {
    case State::wrong_device:
      return 0;
    case State::not_built:
      return 1;
    case State::package_missing:
      return 2;
    case State::package_broken:
      return 3;
    case State::available:
      break;
  }
  return 4;
}

}  // namespace

std::string_view name(Availability::State state) noexcept {
  switch (state) {
    case State::available:
      return "runs here";
    case State::not_built:
      return "not built";
    case State::wrong_device:
      return "not for this device";
    case State::package_missing:
      return "package missing";
    case State::package_broken:
      break;
  }
  return "package broken";
}

Availability availability(BackendName backend, const Platform& platform) {
  PolicyVerdict verdict = platform.judge(backend, {});
  Availability result{backend, State::available, std::move(verdict.provider), {}, {}};
  if (verdict.reasons.empty()) {
    const bool by_package = verdict.path.starts_with(kPackageScheme);
    if (!verdict.path.empty() && !by_package) return result;
    result.state = State::not_built;
    result.cause =
        by_package
            ? text::concat(result.provider, " runs it once a binding is registered behind the name")
            : text::concat("nothing is registered behind ", name(backend));
    return result;
  }
  result.cause = sentence(verdict.reasons);
  for (const Reason& reason : verdict.reasons)
    if (rank(state_of(reason)) < rank(result.state)) {
      result.state = state_of(reason);
      result.install = result.state == State::wrong_device ? std::string() : reason.remedy;
    }
  return result;
}

}  // namespace fovea
