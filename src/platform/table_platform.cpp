#include "src/platform/table_platform.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "src/core/text.hpp"
#include "src/platform/added_platforms.hpp"
#include "src/platform/assumption.hpp"
#include "src/platform/check.hpp"
#include "src/platform/package.hpp"

namespace fovea::platform {
namespace {

bool is_built_in(BackendName backend) {
  return static_cast<size_t>(backend.id()) < backend_names().size();
}

std::string provider_text(const Row& row, const DeviceFacts& facts) {
  if (row.provider != Provider::package) return std::string(name(row.provider));
  return text::concat("package ", describe(package(row.package), facts));
}

std::string registry_path(const Row& row) {
  if (row.provider != Provider::package) return std::string(row.path);
  return text::concat("package:", package(row.package).name);
}

// Who provides the name on the first platform that knows it.
std::string provider_elsewhere(BackendName backend) {
  for (const PlatformId id : platforms_of(backend))
    for (const Row& row : policy(id).rows)
      if (row.backend == backend) return provider_text(row, DeviceFacts(id));
  return {};
}

PolicyVerdict other_platform(BackendName backend, PlatformId platform) {
  std::vector<std::string_view> runs_on;
  for (const PlatformId id : platforms_of(backend)) runs_on.push_back(fovea::name(id));
  const std::string_view remedy = backend == backend::REFERENCE
                                      ? "run it on CPU tensors, or use TORCH_SDPA"
                                      : "use FLASH_ATTN or TORCH_SDPA";
  return {backend,
          provider_elsewhere(backend),
          {},
          {{ReasonCode::platform, "platform", std::string(fovea::name(platform)),
            text::join(runs_on), std::string(remedy)}}};
}

bool about_device(const Reason& reason) {
  return reason.code == ReasonCode::architecture && reason.field != kBinary;
}

// Adds `item` to a list of alternatives unless it stands there.
void add_alternative(std::vector<std::string>& list, std::string item) {
  if (!item.empty() && std::find(list.begin(), list.end(), item) == list.end())
    list.push_back(std::move(item));
}

// Where other rows fail for the same kind of reason, one reason names all that would help.
void offer_alternatives(std::vector<Reason>& reasons, std::span<const std::vector<Reason>> others) {
  for (Reason& reason : reasons) {
    if (!about_device(reason) && reason.code != ReasonCode::package) continue;
    std::vector<std::string> accepted{reason.accepted};
    std::vector<std::string> remedies{reason.remedy};
    for (const std::vector<Reason>& list : others)
      for (const Reason& other : list) {
        if (other.code != reason.code || about_device(other) != about_device(reason)) continue;
        add_alternative(accepted, other.accepted);
        add_alternative(remedies, other.remedy);
      }
    reason.accepted = text::join(accepted, reason.code == ReasonCode::package ? " or " : ", ");
    reason.remedy = text::join(remedies, ", or ");
  }
}

bool asks_for_package(const Row& row) {
  return std::any_of(row.checks.begin(), row.checks.end(),
                     [](const Check& check) { return check.kind == Check::Kind::installed; });
}

}  // namespace

TablePlatform::TablePlatform(const Policy& policy, DeviceFacts facts)
    : policy_(&policy), facts_(std::move(facts)) {}

bool TablePlatform::hidden(const Row& row) const {
  return row.provider == Provider::fovea && !facts_.flag("fovea_kernels", true);
}

TablePlatform::Opinion TablePlatform::opinion(const Row& row, const PolicyQuery& query) const {
  Opinion result{&row, 0, 0, {}, {}};
  if (std::optional<Reason> package = assumed_package(row))
    result.assumed.push_back(*std::move(package));
  for (const Check& check : row.checks) {
    if (check.kind == Check::Kind::backend) {
      PolicyVerdict inherited = judge(check.other, {query.head_dim, query.mask_free});
      std::move(inherited.reasons.begin(), inherited.reasons.end(),
                std::back_inserter(result.reasons));
      std::move(inherited.assumed.begin(), inherited.assumed.end(),
                std::back_inserter(result.assumed));
      continue;
    }
    std::optional<Reason> reason = failure(check, row.instead, facts_, query);
    if (!reason) {
      if (std::optional<Reason> taken = assumption(check, facts_))
        result.assumed.push_back(*std::move(taken));
      continue;
    }
    if (reason->code == ReasonCode::package && reason->got == kNotInstalled) ++result.missing;
    if (of_device(check.kind)) {
      ++result.device_reasons;
    } else if (result.device_reasons > 0) {
      // Neither a rebuild nor a package changes the device.
      if (check.kind == Check::Kind::embedded) continue;
      reason->remedy.clear();
    }
    result.reasons.push_back(*std::move(reason));
  }
  if (row.path.empty() && row.provider == Provider::fovea)
    result.reasons.push_back({ReasonCode::not_built, "kernel of", fovea::name(row.backend),
                              "a build that includes it", text::concat("use ", row.instead)});
  return result;
}

std::vector<TablePlatform::Opinion> TablePlatform::opinions(BackendName backend,
                                                            const PolicyQuery& query) const {
  std::vector<Opinion> list;
  bool fits = false, runs = false;  // a kernel of this project: the device, and altogether
  for (const Row& row : policy_->rows) {
    if (row.backend != backend) continue;
    if (hidden(row)) continue;
    if (!query.provider.empty() && query.provider != name(row.provider)) continue;
    // Packages stand in where this project has no kernel that can run; where it has one for the
    // device, which a build lacks, only those that are known to be there.
    if (row.provider == Provider::package && (runs || (fits && !asks_for_package(row)))) continue;
    list.push_back(opinion(row, query));
    if (row.provider != Provider::fovea) continue;
    fits = fits || list.back().device_reasons == 0;
    runs = runs || list.back().reasons.empty();
  }
  return list;
}

PolicyVerdict TablePlatform::judge(BackendName backend, const PolicyQuery& query) const {
  // Names added at run time carry no policy.
  if (!is_built_in(backend)) return {backend, {}, {}, {}};
  std::vector<Opinion> list = opinions(backend, query);
  if (list.empty()) {
    std::vector<std::string_view> providers;
    for (const Row& row : policy_->rows)
      if (row.backend == backend && !hidden(row) &&
          std::find(providers.begin(), providers.end(), name(row.provider)) == providers.end())
        providers.push_back(name(row.provider));
    if (providers.empty()) return other_platform(backend, policy_->platform);
    return {backend,
            query.provider,
            {},
            {{ReasonCode::provider, "provider", query.provider, text::join(providers),
              "remove provider, or name one of these"}}};
  }
  const auto distance = [](const Opinion& o) {
    return std::tuple(!o.reasons.empty(), o.device_reasons, o.missing, o.reasons.size());
  };
  const auto best = std::min_element(
      list.begin(), list.end(),
      [&](const Opinion& x, const Opinion& y) { return distance(x) < distance(y); });
  std::vector<std::vector<Reason>> others;
  for (const Opinion& other : list)
    if (&other != &*best && other.device_reasons == best->device_reasons)
      others.push_back(other.reasons);
  offer_alternatives(best->reasons, others);
  if (!best->reasons.empty()) best->assumed.clear();
  return {backend, provider_text(*best->row, facts_), registry_path(*best->row),
          std::move(best->reasons), std::move(best->assumed)};
}

std::vector<PolicyVerdict> TablePlatform::preference(const PolicyQuery& query) const {
  std::vector<PolicyVerdict> order;
  for (const Preference& entry : policy_->order) {
    if (failure(entry.listed, {}, facts_, query)) continue;
    PolicyVerdict verdict = judge(entry.backend, query);
    for (const Check& check : entry.automatic) {
      std::optional<Reason> reason = failure(check, {}, facts_, query);
      if (!reason) continue;
      const bool known = std::any_of(
          verdict.reasons.begin(), verdict.reasons.end(),
          [&](const Reason& r) { return r.code == reason->code && r.field == reason->field; });
      if (!known) verdict.reasons.push_back(*std::move(reason));
    }
    order.push_back(std::move(verdict));
  }
  return order;
}

}  // namespace fovea::platform

namespace fovea {

std::vector<PlatformId> platforms_of(BackendName backend) {
  std::vector<PlatformId> list;
  for (const PlatformId id : platform::kAllPlatforms) {
    const std::span<const platform::Row> rows = platform::policy(id).rows;
    if (std::any_of(rows.begin(), rows.end(),
                    [&](const platform::Row& r) { return r.backend == backend; }))
      list.push_back(id);
  }
  return list;
}

std::shared_ptr<const Platform> make_platform(DeviceFacts facts) {
  if (!is_built_in(facts.platform())) return platform::make_added(std::move(facts));
  const platform::Policy& policy = platform::policy(facts.platform());
  return std::make_shared<platform::TablePlatform>(policy, std::move(facts));
}

}  // namespace fovea
