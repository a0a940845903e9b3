// Scratch memory that calls borrow and give back, so that repeated calls allocate nothing.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "fovea/error.hpp"

namespace fovea {

// CPU memory. Thread-safe. Keeps at most kMaxIdle buffers.
class WorkspacePool {
 public:
  static constexpr size_t kMaxIdle = 4;

  // A buffer in use; returns to the pool when destroyed. The pool must outlive it.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept;
    Lease& operator=(Lease&& other) noexcept;
    ~Lease();
    void* data() const noexcept { return data_.get(); }
    size_t bytes() const noexcept { return bytes_; }

   private:
    friend class WorkspacePool;
    struct Free {
      void operator()(void* p) const noexcept;
    };
    void give_back() noexcept;
    WorkspacePool* pool_ = nullptr;
    std::unique_ptr<void, Free> data_;
    size_t bytes_ = 0;
  };

  WorkspacePool();
  WorkspacePool(const WorkspacePool&) = delete;
  WorkspacePool& operator=(const WorkspacePool&) = delete;

  // At least `bytes` bytes, aligned to Plan::kWorkspaceAlignment. Error out_of_memory names the
  // size.
  Result<Lease> borrow(size_t bytes);

 private:
  std::mutex mutex_;
  std::vector<Lease> idle_;
};

}  // namespace fovea
