// Reading and writing safetensors files: an 8-byte little-endian header length, a JSON header, then
// the tensors' bytes.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fovea/error.hpp"
#include "fovea/tensor_view.hpp"

namespace fovea {

// One tensor as the header describes it.
struct SafetensorsEntry {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;
  size_t begin = 0;  // bytes from the start of the data
  size_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;                      // sorted by name
  std::vector<std::pair<std::string, std::string>> metadata;  // sorted by key
  size_t data_start = 0;                                      // bytes from the start of the file
};

// Reads and checks the header of a file given as bytes: afterwards every entry lies within the
// data, entries neither overlap nor leave holes, sizes fit in 64 bits and agree with the shapes,
// names are unique. Error invalid_file naming tensor and field. Pure.
Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> file);

// A file mapped into memory, read-only. Thread-safe after opening. The file must not shrink while
// it is open.
class SafetensorsFile {
 public:
  // Errors: invalid_file (cannot be opened, or malformed).
  static Result<SafetensorsFile> open(const std::string& path);

  const std::vector<SafetensorsEntry>& entries() const noexcept { return header_.entries; }
  const std::vector<std::pair<std::string, std::string>>& metadata() const noexcept {
    return header_.metadata;
  }
  bool has(std::string_view name) const noexcept { return find(name) != nullptr; }

  // A view that must not be written to, valid as long as this object. Data that the file does not
  // align to the element size is copied when the file is opened. Error invalid_file: no such tensor
  // (lists what exists, suggests the nearest), rank not in 1..5.
  Result<TensorView> tensor(std::string_view name) const;

 private:
  struct Unmap {
    size_t bytes;
    void operator()(const std::byte* data) const noexcept;
  };

  SafetensorsFile() = default;
  const SafetensorsEntry* find(std::string_view name) const noexcept;

  std::string path_;
  std::unique_ptr<const std::byte, Unmap> mapping_;
  SafetensorsHeader header_;
  std::vector<std::unique_ptr<std::byte[]>> copies_;  // by entry; null: read in place
};

struct NamedTensor {
  std::string name;
  TensorView view;
};

// Writes contiguous CPU tensors to a temporary file next to `path`, then renames it: a failed write
// leaves what was there. The data starts on a multiple of 64 bytes. Errors: invalid_argument
// (tensor not on the CPU, not contiguous, element type without a name in the format, duplicate
// name), invalid_file (cannot be written).
Status write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                         std::span<const std::pair<std::string, std::string>> metadata = {});

}  // namespace fovea
