// The backends that the contract suite runs on. A new backend is one line in target.cpp.
#pragma once

#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fovea/backend.hpp"
#include "fovea/config.hpp"
#include "fovea/execution.hpp"

namespace fovea::contract {

// How a plan is run on tensors in host memory.
class Launcher {
 public:
  virtual ~Launcher() = default;
  // Provides the workspace, runs, and leaves the outputs in the given host tensors. Reports what
  // must never happen as a test failure: a byte outside the workspace is written, memory is
  // allocated during the run.
  virtual Status launch(const Plan& plan, const AttentionTensors& host) = 0;
};

struct Target {
  std::string label;  // part of the test's name
  BackendName name;
  std::shared_ptr<const Backend> backend;
  std::shared_ptr<Executor> executor;
  ExecutionContext context;
  std::shared_ptr<Launcher> launcher;
  // Runs everything the contract allows; a refusal is then a failure. Otherwise a refused case is
  // skipped once plan() has refused it as well.
  bool whole_contract = true;
  // The plan sees the tensors of the test themselves. Otherwise the launcher copies them, and tests
  // of wrong tensors and values are skipped.
  bool host_tensors = true;
  // A type of q, k and v that it takes.
  DType dtype = kF32;
  // The configuration's entry that it is reached through.
  std::optional<AttentionSpec> entry = {};

  const AttentionSpec* spec() const noexcept { return entry ? &*entry : nullptr; }
};

// Those that this machine can run: on the CPU every instruction set, on a GPU every backend that
// has a kernel for it in this binary. Labels of the latter start with "cuda_".
std::vector<Target> targets();

// For names and messages of GoogleTest.
std::ostream& operator<<(std::ostream& out, const Target& target);

}  // namespace fovea::contract
