// The validation run of fovea check --contract: what a path must show on a device before its
// answers there count as supported.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fovea/fovea.hpp"
#include "src/validation/cases.hpp"
#include "src/validation/device.hpp"

namespace fovea::validation {

// One case and what it showed.
struct CaseResult {
  std::string kind;
  Problem problem;  // without the LSE where the path does not return it
  AttentionMetadata metadata;
  ExecutionPathResult report;  // unsupported: the case was refused and nothing was run
  double max_abs = 0;
  double rel_l2 = 0;
  double lse_error = 0;
  int64_t outside = 0;  // elements beyond atol + rtol * |reference|
  bool form = false;    // shape, dtype and device of the output are those of the contract
  bool finite = false;
  bool inputs_unchanged = false;
  bool pass = false;
  std::string error;  // what the kernel reported instead of running

  bool ran() const noexcept { return report.support != SupportStatus::unsupported; }
};

struct ContractRun {
  BackendName backend;
  std::string provider;
  std::string path;  // of the first case that ran
  DeviceFacts facts;
  std::string device;
  std::string driver;
  bool captured = false;  // replayed cases were captured by the device
  std::vector<CaseResult> cases;

  // Every case that ran passes, and some path has a replayed one. What else was refused, the record
  // does not cover.
  bool pass() const;
  // The kinds that ran on a path, in the order of the run.
  std::vector<std::string> kinds(std::string_view on) const;
  // The paths that ran, in the order of the run.
  std::vector<std::string> paths() const;
};

// Called before each case: how many are done, how many there are.
using Progress = std::function<void(size_t done, size_t total, const std::string& problem)>;

// Runs all cases with the configuration's entry for the layer's role; `executor` runs CPU kernels
// and the oracle. Errors: those of the layer, except that a refused case is part of the result.
Result<ContractRun> run_contract(const AttentionConfig& config, const LayerOptions& layer,
                                 RunDevice& device, Executor& executor, const Progress& progress);

}  // namespace fovea::validation
