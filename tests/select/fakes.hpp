// A platform and backends that tests script.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "fovea/platform.hpp"
#include "fovea/registry.hpp"

namespace fovea::test {

// Refuses head sizes above `max_head_dim`; its plans fill the output with `value`.
class FakeBackend final : public Backend {
 public:
  FakeBackend(std::string path, int64_t max_head_dim = 512,
              SupportStatus support = SupportStatus::supported, float value = 0)
      : path_(std::move(path)), max_head_dim_(max_head_dim), support_(support), value_(value) {}

  std::string_view path() const noexcept override { return path_; }

  ExecutionPathResult resolve(BackendName backend, const Problem& problem, const AttentionSpec*,
                              const ExecutionContext&) const override {
    ++resolves;
    ExecutionPathResult r;
    r.backend = backend;
    r.provider = "fovea";
    r.path = path_;
    r.built = true;
    if (problem.head_dim > max_head_dim_)
      r.reasons.push_back({ReasonCode::head_dim,
                           "head_dim",
                           std::to_string(problem.head_dim),
                           "1.." + std::to_string(max_head_dim_),
                           {}});
    else
      r.support = support_;
    return r;
  }

  Result<std::unique_ptr<Plan>> plan(BackendName backend, const Problem& problem,
                                     const AttentionSpec* spec,
                                     const ExecutionContext& context) const override {
    ++plans;
    ExecutionPathResult r = resolve(backend, problem, spec, context);
    if (r.support == SupportStatus::unsupported)
      return Error{ErrorCode::unsupported, "refused", r.reasons};
    return std::unique_ptr<Plan>(new FillPlan(r, value_));
  }

  mutable std::atomic<int> resolves{0};
  mutable std::atomic<int> plans{0};

 private:
  class FillPlan final : public Plan {
   public:
    FillPlan(const ExecutionPathResult& report, float value) : value_(value) {
      receipt_.backend = report.backend;
      receipt_.provider = report.provider;
      receipt_.path = report.path;
    }
    size_t workspace_bytes() const noexcept override { return 1000; }
    const Receipt& receipt() const noexcept override { return receipt_; }
    Status run(const AttentionTensors& tensors, Workspace workspace,
               Stream) const noexcept override {
      if (workspace.bytes < 1000) return Error{ErrorCode::workspace_too_small, "too small", {}};
      std::memset(workspace.data, 0xff, 1000);
      std::fill_n(static_cast<float*>(tensors.out.data), tensors.out.numel(), value_);
      return {};
    }

   private:
    Receipt receipt_;
    float value_;
  };

  std::string path_;
  int64_t max_head_dim_;
  SupportStatus support_;
  float value_;
};

// Order and refusals as given. Counts its calls.
class FakePlatform final : public Platform {
 public:
  const DeviceFacts& facts() const noexcept override { return facts_; }

  PolicyVerdict judge(BackendName backend, const PolicyQuery& query) const override {
    ++calls;
    {
      std::lock_guard lock(mutex_);
      last_query = query;
    }
    PolicyVerdict verdict{backend, "fovea", "", {}};
    if (auto found = providers.find(backend); found != providers.end())
      verdict.provider = found->second;
    if (auto found = refusals.find(backend); found != refusals.end())
      verdict.reasons = found->second;
    return verdict;
  }

  std::vector<PolicyVerdict> preference(const PolicyQuery& query) const override {
    std::vector<PolicyVerdict> list;
    for (BackendName backend : order) list.push_back(judge(backend, query));
    return list;
  }

  std::vector<BackendName> order;
  std::map<BackendName, std::vector<Reason>> refusals;
  std::map<BackendName, std::string> providers;
  mutable std::atomic<int> calls{0};
  mutable PolicyQuery last_query;

 private:
  mutable std::mutex mutex_;
  DeviceFacts facts_;
};

// Puts a backend behind a name for the life of a test.
class Registered {
 public:
  Registered(BackendName name, std::shared_ptr<FakeBackend> backend)
      : name_(name), backend_(std::move(backend)) {
    EXPECT_TRUE(register_backend(name_, backend_).has_value());
  }
  ~Registered() { clear_override(name_); }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;
  FakeBackend* operator->() const { return backend_.get(); }

 private:
  BackendName name_;
  std::shared_ptr<FakeBackend> backend_;
};

inline Problem problem_with(int64_t head_dim) {
  Problem p;
  p.head_dim = p.dim_v = head_dim;
  fill_strides(p);
  return p;
}

}  // namespace fovea::test
