// How CPU kernels use threads: through the caller's pool, OpenMP, or none.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

#include "fovea/error.hpp"

namespace fovea {

// A non-owning reference to a callable void(int64_t index, int worker).
class TaskRef {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, TaskRef>) TaskRef(F&& task)
  noexcept
      : object_(const_cast<void*>(static_cast<const void*>(&task))),
        call_([](void* object, int64_t index, int worker) {
          (*static_cast<std::remove_reference_t<F>*>(object))(index, worker);
        }) {}
  void operator()(int64_t index, int worker) const { call_(object_, index, worker); }

 private:
  void* object_;
  void (*call_)(void*, int64_t, int);
};

// Implementations must be usable from several threads at once. Calls may not nest.
class Executor {
 public:
  virtual ~Executor() = default;
  // Largest number of workers one parallel_for uses; constant for the life of the object, at
  // least 1.
  virtual int workers() const noexcept = 0;
  // Runs task(index, worker) once for every index in [0, count), dynamically scheduled, and returns
  // when all are done. worker is in [0, workers()); no two tasks with the same worker run at once
  // within one call.
  virtual void parallel_for(int64_t count, TaskRef task) noexcept = 0;
};

// Runs everything on the calling thread. Thread-safe.
FOVEA_API Executor& serial_executor() noexcept;

// OpenMP threads; threads <= 0 means FOVEA_NUM_THREADS, else the OpenMP default (all processors).
// In a build without OpenMP it is the serial one.
FOVEA_API std::unique_ptr<Executor> make_openmp_executor(int threads = 0);

}  // namespace fovea
