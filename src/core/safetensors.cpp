#include "src/core/safetensors.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include "src/core/checked_math.hpp"
#include "src/core/safetensors_header.hpp"
#include "src/core/text.hpp"

namespace fovea {
namespace {

using text::concat;
using text::quote;

static_assert(std::endian::native == std::endian::little,
              "safetensors files hold little-endian numbers");

constexpr size_t kDataAlignment = 64;

Error file_error(std::string_view path, std::string_view message) {
  return {ErrorCode::invalid_file, concat("file ", quote(path), ": ", message), {}};
}

// A file descriptor that is closed at the end of the scope.
class Descriptor {
 public:
  explicit Descriptor(int number) noexcept : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  bool open() const noexcept { return number_ >= 0; }
  int number() const noexcept { return number_; }
  // False when the system reports a late write error.
  bool close() noexcept { return ::close(std::exchange(number_, -1)) == 0; }

 private:
  int number_;
};

bool write_all(int descriptor, const void* data, size_t bytes) noexcept {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor, at, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    at += written;
    bytes -= static_cast<size_t>(written);
  }
  return true;
}

size_t byte_count(const TensorView& view) noexcept {
  return static_cast<size_t>(view.numel()) * size_bytes(view.dtype);
}

Status check_writable(std::span<const NamedTensor> tensors) {
  const auto refuse = [](const NamedTensor& t, std::string_view what) -> Error {
    return {ErrorCode::invalid_argument,
            concat("writing tensor ", quote(t.name), ' ', to_string(t.view), ": ", what),
            {}};
  };
  for (size_t i = 0; i < tensors.size(); ++i) {
    const NamedTensor& t = tensors[i];
    if (!t.view.present()) return refuse(t, "it is absent");
    if (t.view.device.type != DeviceType::cpu) return refuse(t, "copy it to the CPU first");
    if (!t.view.contiguous()) return refuse(t, "make it contiguous first");
    if (safetensors_name(t.view.dtype).empty())
      return refuse(t, "its element type has no name in the format");
    if (t.name == kSafetensorsMetadata || !text::valid_utf8(t.name))
      return refuse(t, "a name is UTF-8 and not __metadata__");
    for (size_t j = 0; j < i; ++j)
      if (tensors[j].name == t.name) return refuse(t, "the name is given twice");
  }
  return {};
}

// Writes header and data; false on a system error, with errno set.
bool write_content(int descriptor, std::string_view header,
                   const std::vector<const NamedTensor*>& order) noexcept {
  const uint64_t length = header.size();
  if (!write_all(descriptor, &length, sizeof length)) return false;
  if (!write_all(descriptor, header.data(), header.size())) return false;
  for (const NamedTensor* t : order)
    if (!write_all(descriptor, t->view.data, byte_count(t->view))) return false;
  return true;
}

// The file behind symbolic links, so that a link stays a link; `path` itself when there is none.
std::string resolved(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr),
                                                         &std::free);
  return real ? std::string(real.get()) : path;
}

}  // namespace

void SafetensorsFile::Unmap::operator()(const std::byte* data) const noexcept {
  ::munmap(const_cast<std::byte*>(data), bytes);
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  const Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!descriptor.open() || ::fstat(descriptor.number(), &status) != 0)
    return file_error(path, concat("cannot be opened: ", std::strerror(errno)));
  if (!S_ISREG(status.st_mode)) return file_error(path, "is not a regular file");
  const auto bytes = static_cast<size_t>(status.st_size);
  if (bytes == 0) return file_error(path, "is empty, a safetensors file was expected");
  void* const memory = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, descriptor.number(), 0);
  if (memory == MAP_FAILED)
    return file_error(path, concat("cannot be mapped into memory: ", std::strerror(errno)));

  SafetensorsFile file;
  file.path_ = path;
  file.mapping_ = {static_cast<const std::byte*>(memory), Unmap{bytes}};
  Result<SafetensorsHeader> header = parse_safetensors({file.mapping_.get(), bytes});
  if (!header) return file_error(path, header.error().message);
  file.header_ = *std::move(header);
  for (const SafetensorsEntry& entry : file.header_.entries) {
    const std::byte* const data = file.mapping_.get() + file.header_.data_start + entry.begin;
    file.copies_.emplace_back();
    if (reinterpret_cast<uintptr_t>(data) % size_bytes(entry.dtype) == 0) continue;
    const size_t size = entry.end - entry.begin;
    file.copies_.back() = std::make_unique<std::byte[]>(size);
    std::copy_n(data, size, file.copies_.back().get());
  }
  return file;
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const noexcept {
  const auto at =
      std::lower_bound(header_.entries.begin(), header_.entries.end(), name,
                       [](const SafetensorsEntry& e, std::string_view n) { return e.name < n; });
  return at != header_.entries.end() && at->name == name ? &*at : nullptr;
}

Result<TensorView> SafetensorsFile::tensor(std::string_view name) const {
  const SafetensorsEntry* const entry = find(name);
  if (entry == nullptr) {
    constexpr size_t kShown = 20;
    std::vector<std::string_view> names;
    for (const SafetensorsEntry& e : header_.entries) names.push_back(e.name);
    const std::string hint = text::suggestion(name, names);
    const size_t hidden = names.size() > kShown ? names.size() - kShown : 0;
    names.resize(names.size() - hidden);
    return file_error(path_, concat("has no tensor ", quote(name), hint, " (it has: ",
                                    text::join(std::span<const std::string_view>(names)),
                                    hidden > 0 ? concat(" and ", hidden, " more") : "", ")"));
  }
  const size_t rank = entry->shape.size();
  if (rank < 1 || rank > static_cast<size_t>(kMaxRank))
    return file_error(path_, concat("tensor ", quote(name), " has rank ", rank, " (accepted: 1..",
                                    kMaxRank, ")"));
  const auto index = static_cast<size_t>(entry - header_.entries.data());
  const std::byte* const data =
      copies_[index] ? copies_[index].get() : mapping_.get() + header_.data_start + entry->begin;
  return make_view(const_cast<std::byte*>(data), entry->dtype, entry->shape);
}

Status write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                         std::span<const std::pair<std::string, std::string>> metadata) {
  FOVEA_CHECK(check_writable(tensors));
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& t : tensors) order.push_back(&t);
  // Wide elements first keeps every tensor aligned to its elements.
  std::stable_sort(order.begin(), order.end(), [](const NamedTensor* a, const NamedTensor* b) {
    return size_bytes(a->view.dtype) > size_bytes(b->view.dtype);
  });
  std::vector<SafetensorsEntry> entries;
  size_t at = 0;
  for (const NamedTensor* t : order) {
    const TensorView& v = t->view;
    entries.push_back({t->name, v.dtype, {v.shape.begin(), v.shape.begin() + v.rank}, at, 0});
    entries.back().end = at += byte_count(v);
  }
  std::string header = print_safetensors_header(entries, metadata);
  const size_t tail = (sizeof(uint64_t) + header.size()) % kDataAlignment;
  if (tail != 0) header.append(kDataAlignment - tail, ' ');

  const std::string target = resolved(path);
  struct stat status {};
  const bool exists = ::stat(target.c_str(), &status) == 0;
  const bool in_place = exists && !S_ISREG(status.st_mode);  // a pipe or a device such as /dev/null
  const std::string written =
      in_place ? target : concat(target, ".tmp.", static_cast<int64_t>(::getpid()));
  const auto fail = [&](std::string_view what) {
    const std::string cause = std::strerror(errno);
    if (!in_place) ::unlink(written.c_str());
    return file_error(path, concat(what, ": ", cause));
  };
  const int flags = O_WRONLY | O_CLOEXEC | (in_place ? 0 : O_CREAT | O_TRUNC);
  Descriptor descriptor(::open(written.c_str(), flags, 0666));
  if (!descriptor.open()) return fail("cannot be written");
  if (!write_content(descriptor.number(), header, order)) return fail("cannot be written");
  if (in_place) return {};
  if (exists && ::fchmod(descriptor.number(), status.st_mode & 07777) != 0)
    return fail("cannot keep its access rights");
  if (::fsync(descriptor.number()) != 0 || !descriptor.close()) return fail("cannot be written");
  if (::rename(written.c_str(), target.c_str()) != 0) return fail("cannot be replaced");
  return {};
}

}  // namespace fovea
