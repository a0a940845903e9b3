#include "src/core/workspace_pool.hpp"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

namespace fovea {
namespace {

constexpr size_t kAlignment = 256;

}  // namespace

void WorkspacePool::Lease::Free::operator()(void* p) const noexcept { std::free(p); }

WorkspacePool::Lease::Lease(Lease&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      data_(std::move(other.data_)),
      bytes_(std::exchange(other.bytes_, 0)) {}

WorkspacePool::Lease& WorkspacePool::Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    give_back();
    pool_ = std::exchange(other.pool_, nullptr);
    data_ = std::move(other.data_);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

WorkspacePool::Lease::~Lease() { give_back(); }

void WorkspacePool::Lease::give_back() noexcept {
  WorkspacePool* pool = std::exchange(pool_, nullptr);
  if (pool == nullptr || data_ == nullptr) return;
  std::lock_guard lock(pool->mutex_);
  if (pool->idle_.size() < kMaxIdle) {
    Lease idle;
    idle.data_ = std::move(data_);
    idle.bytes_ = bytes_;
    pool->idle_.push_back(std::move(idle));  // capacity is reserved: cannot throw
  }
}

WorkspacePool::WorkspacePool() { idle_.reserve(kMaxIdle); }

Result<WorkspacePool::Lease> WorkspacePool::borrow(size_t bytes) {
  Lease lease;
  {
    std::lock_guard lock(mutex_);
    const auto fits =
        std::find_if(idle_.begin(), idle_.end(), [&](const Lease& l) { return l.bytes_ >= bytes; });
    if (fits != idle_.end()) {
      lease = std::move(*fits);
      idle_.erase(fits);
    } else if (!idle_.empty()) {
      idle_.erase(idle_.begin());  // too small: make room for a larger one
    }
  }
  if (lease.data_ == nullptr) {
    const size_t rounded = (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
    lease.data_.reset(rounded >= bytes ? std::aligned_alloc(kAlignment, rounded) : nullptr);
    if (lease.data_ == nullptr)
      return Error{ErrorCode::out_of_memory,
                   "no memory for a workspace of " + std::to_string(bytes) + " bytes",
                   {}};
    lease.bytes_ = rounded;
  }
  lease.pool_ = this;
  return lease;
}

}  // namespace fovea
