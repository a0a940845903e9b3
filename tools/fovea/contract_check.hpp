// The validation run of fovea check --contract: what a path must show on a device before its
// answers there count as supported.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fovea/fovea.hpp"
#include "tools/fovea/contract_device.hpp"
#include "tools/fovea/terminal.hpp"

namespace fovea::cli {

// One problem of the run.
struct ContractCase {
  std::string kind;  // dense, key padding, unequal lengths, packed, replay
  Problem problem;
  ExecutionPathResult report;  // unsupported: the case was refused and nothing was run
  double max_abs = 0;
  double rel_l2 = 0;
  double lse_error = 0;
  int64_t outside = 0;  // elements beyond atol + rtol * |reference|
  bool form = false;    // shape, dtype and device of the output are those of the contract
  bool finite = false;
  bool inputs_unchanged = false;
  bool pass = false;
};

struct ContractRun {
  BackendName backend;
  std::string provider;
  std::string path;  // of the first case that ran: what the run is about
  DeviceFacts facts;
  std::string device;
  std::string driver;
  bool captured = false;  // replayed cases were captured by the device
  std::vector<ContractCase> cases;

  // Every case that ran passes, and the kinds dense and replay have one that ran on `path`. What
  // else the path refuses, the record does not cover.
  bool pass() const;
};

// The kinds, in order.
const std::vector<std::string>& contract_kinds();

// Runs all cases with the configuration's entry for the layer's role; `executor` runs CPU kernels
// and the oracle. Errors: those of the layer, except that a refused case is part of the result.
Result<ContractRun> run_contract(const AttentionConfig& config, const LayerOptions& layer,
                                 ContractDevice& device, Executor& executor,
                                 const Terminal& terminal);

}  // namespace fovea::cli
