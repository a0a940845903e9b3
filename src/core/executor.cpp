#include "fovea/executor.hpp"

#include <algorithm>

#include "src/core/env.hpp"
#include "src/core/log.hpp"
#include "src/core/text.hpp"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace fovea {
namespace {

constexpr int kMaxThreads = 1024;

class SerialExecutor final : public Executor {
 public:
  int workers() const noexcept override { return 1; }
  void parallel_for(int64_t count, TaskRef task) noexcept override {
    for (int64_t index = 0; index < count; ++index) task(index, 0);
  }
};

#ifdef _OPENMP
class OpenMpExecutor final : public Executor {
 public:
  explicit OpenMpExecutor(int threads) : threads_(threads) {}
  int workers() const noexcept override { return threads_; }
  void parallel_for(int64_t count, TaskRef task) noexcept override {
    if (count <= 0) return;
    const int threads = static_cast<int>(std::min<int64_t>(count, threads_));
    // A team of one costs as much as a small call.
    if (threads == 1) return serial_executor().parallel_for(count, task);
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t index = 0; index < count; ++index) task(index, omp_get_thread_num());
  }

 private:
  int threads_;
};

// FOVEA_NUM_THREADS, or 0.
int threads_from_environment() {
  const std::optional<std::string> asked = env::read(env::Variable::num_threads);
  if (!asked) return 0;
  const std::optional<int64_t> count = text::parse_integer(*asked);
  if (count && *count >= 1 && *count <= kMaxThreads) return static_cast<int>(*count);
  log(LogLevel::warning, text::concat("FOVEA_NUM_THREADS ", text::quote(*asked),
                                      " is not a thread count (accepted: 1..", kMaxThreads,
                                      "), all processors are used"));
  return 0;
}
#endif

}  // namespace

Executor& serial_executor() noexcept {
  static SerialExecutor instance;
  return instance;
}

std::unique_ptr<Executor> make_openmp_executor([[maybe_unused]] int threads) {
#ifdef _OPENMP
  if (threads <= 0) threads = threads_from_environment();
  if (threads <= 0) threads = omp_get_max_threads();
  return std::make_unique<OpenMpExecutor>(std::clamp(threads, 1, kMaxThreads));
#else
  return std::make_unique<SerialExecutor>();
#endif
}

}  // namespace fovea
