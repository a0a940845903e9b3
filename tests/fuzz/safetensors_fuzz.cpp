// Whatever the bytes, a header that is accepted describes memory inside the file, without overlaps
// or holes, and prints and reads back as itself.
//
// The first byte of an input says how to read the rest: even, a whole file; odd, the next byte is a
// number of data bytes and the rest is a header, to which the length is added.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "src/core/safetensors_header.hpp"

namespace {

using fovea::SafetensorsEntry;
using fovea::SafetensorsHeader;

void expect(bool truth) {
  if (!truth) __builtin_trap();
}

std::vector<std::byte> file_of(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::vector<std::byte> file(sizeof length + header.size() + data_bytes);
  std::memcpy(file.data(), &length, sizeof length);
  std::memcpy(file.data() + sizeof length, header.data(), header.size());
  return file;
}

// Every byte of the data belongs to exactly one tensor of the right size.
void check(const SafetensorsHeader& header, size_t file_bytes) {
  expect(header.data_start <= file_bytes);
  std::vector<int> owners(file_bytes - header.data_start);
  for (const SafetensorsEntry& entry : header.entries) {
    size_t bytes = fovea::size_bytes(entry.dtype);
    for (int64_t size : entry.shape) bytes *= static_cast<size_t>(size);
    expect(bytes == entry.end - entry.begin);
    expect(entry.begin <= entry.end && entry.end <= owners.size());
    for (size_t i = entry.begin; i < entry.end; ++i) ++owners[i];
  }
  expect(std::all_of(owners.begin(), owners.end(), [](int n) { return n == 1; }));
}

bool same(const SafetensorsEntry& a, const SafetensorsEntry& b) {
  return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape && a.begin == b.begin &&
         a.end == b.end;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const auto* const text = reinterpret_cast<const char*>(data);
  const bool whole = data[0] % 2 == 0;
  const std::vector<std::byte> file =
      whole ? std::vector<std::byte>(reinterpret_cast<const std::byte*>(data) + 1,
                                     reinterpret_cast<const std::byte*>(data) + size)
            : file_of(std::string(text + 2, size - 2), data[1]);
  const fovea::Result<SafetensorsHeader> header = fovea::parse_safetensors(file);
  if (!header) {
    expect(header.error().code == fovea::ErrorCode::invalid_file);
    expect(!header.error().message.empty());
    return 0;
  }
  check(*header, file.size());
  const std::string printed = fovea::print_safetensors_header(header->entries, header->metadata);
  const fovea::Result<SafetensorsHeader> again =
      fovea::parse_safetensors(file_of(printed, file.size() - header->data_start));
  expect(again.has_value());
  expect(std::equal(header->entries.begin(), header->entries.end(), again->entries.begin(),
                    again->entries.end(), same));
  expect(header->metadata == again->metadata);
  return 0;
}
