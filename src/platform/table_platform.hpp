// A platform whose policy is one table.
#pragma once

#include <vector>

#include "fovea/platform.hpp"
#include "src/platform/policy.hpp"

namespace fovea::platform {

class TablePlatform final : public Platform {
 public:
  TablePlatform(const Policy& policy, DeviceFacts facts);

  const DeviceFacts& facts() const noexcept override { return facts_; }
  PolicyVerdict judge(BackendName backend, const PolicyQuery& query) const override;
  std::vector<PolicyVerdict> preference(const PolicyQuery& query) const override;

 private:
  // What a row says: how far it is from running.
  struct Opinion {
    const Row* row = nullptr;
    size_t device_reasons = 0;
    size_t missing = 0;  // packages
    std::vector<Reason> reasons;
    std::vector<Reason> assumed;
  };
  // The facts leave this project's kernels out.
  bool hidden(const Row& row) const;
  Opinion opinion(const Row& row, const PolicyQuery& query) const;
  std::vector<Opinion> opinions(BackendName backend, const PolicyQuery& query) const;

  const Policy* policy_;
  DeviceFacts facts_;
};

}  // namespace fovea::platform
