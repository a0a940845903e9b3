// Fovea as a contender of compare.py. FOVEA_ISA and FOVEA_NUM_THREADS apply.
#include <memory>

#include "bench/compare/worker.hpp"
#include "src/core/random_inputs.hpp"
#include "tools/fovea/layer_run.hpp"

namespace {

struct Call {
  fovea::RandomInputs inputs;
  fovea::Attention layer;
  fovea::CallOptions options;
};

std::function<void()> prepare(const std::string& text, fovea::Executor& executor) {
  auto problem = fovea::parse_problem(text);
  if (!problem) throw std::runtime_error(problem.error().message);
  auto inputs = fovea::make_random_inputs(*problem, {.poison = false});
  if (!inputs) throw std::runtime_error(inputs.error().message);
  auto layer = fovea::Attention::create({}, {}, &executor);
  if (!layer) throw std::runtime_error(layer.error().message);
  auto call = std::make_shared<Call>(
      Call{std::move(*inputs), std::move(*layer), fovea::cli::call_options(*problem)});
  return [call] {
    const auto receipt = call->layer.run(call->inputs.tensors(), call->options);
    if (!receipt) throw std::runtime_error(receipt.error().message);
  };
}

}  // namespace

int main() {
  const std::unique_ptr<fovea::Executor> executor = fovea::make_openmp_executor();
  compare::serve([&](const std::string& problem) { return prepare(problem, *executor); });
}
