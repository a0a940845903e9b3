#include "src/core/bound_packages.hpp"

#include <atomic>
#include <mutex>

namespace fovea {
namespace {

// Process-wide, like the registry of the kernels; every access holds the lock.
struct Notes {
  std::mutex mutex;
  std::map<std::string, std::string, std::less<>> versions;
  std::atomic<uint64_t> epoch{1};
};

Notes& notes() {
  static Notes instance;
  return instance;
}

std::string release_of(std::string_view version) {
  std::string release(version.substr(0, version.find_first_not_of("0123456789.")));
  while (!release.empty() && release.back() == '.') release.pop_back();
  return release.empty() ? "unknown" : release;
}

}  // namespace

void note_bound_package(std::string_view package, std::string_view version) {
  Notes& n = notes();
  std::lock_guard lock(n.mutex);
  n.versions[std::string(package)] = release_of(version);
  ++n.epoch;
}

void forget_bound_package(std::string_view package) {
  Notes& n = notes();
  std::lock_guard lock(n.mutex);
  const auto found = n.versions.find(package);
  if (found == n.versions.end()) return;
  n.versions.erase(found);
  ++n.epoch;
}

std::map<std::string, std::string, std::less<>> bound_packages() {
  std::lock_guard lock(notes().mutex);
  return notes().versions;
}

uint64_t bound_packages_epoch() noexcept { return notes().epoch.load(); }

}  // namespace fovea
