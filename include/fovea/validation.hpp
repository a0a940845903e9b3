// On an accelerator a path is called supported only with a committed record of a validation run.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "fovea/backend_name.hpp"
#include "fovea/device_facts.hpp"
#include "fovea/error.hpp"
#include "fovea/problem.hpp"

namespace fovea {

// One file of docs/validation, as compiled into the library.
struct ValidationRecord {
  std::string_view file;  // name within docs/validation
  std::string_view path;  // of the report, e.g. "cuda.flash_sm90"
  std::string_view platform;
  std::string_view device_class;  // of the device it ran on
  std::string_view date;          // YYYY-MM-DD
  // Kinds of problems beyond plain and recorded ones that passed there.
  bool key_padding = false;
  bool unequal_lengths = false;
  bool packed = false;
};

// Whether the record's run holds problems like this one: bf16 in and out, heads up to 256, no
// causal, window or other mask, and every kind of it (key lengths or a key mask, seq_q != seq_kv,
// packed documents) among those that passed. Pure; thread-safe.
FOVEA_API bool covers(const ValidationRecord& record, const Problem& problem) noexcept;

// All records. Thread-safe; static storage.
FOVEA_API std::span<const ValidationRecord> validation_records() noexcept;

// Whether support on this platform is a matter of record: every built-in one but the CPU, whose
// paths the tests verify on every machine. Thread-safe.
FOVEA_API bool validated_by_record(const DeviceFacts& facts) noexcept;

// What a record covers: devices of one kind, e.g. "sm_90" or "gfx942"; the platform's name where
// its facts tell no kinds apart. Thread-safe.
FOVEA_API std::string device_class(const DeviceFacts& facts);

// The record of a path on the kind of device that the facts describe, or null. Thread-safe.
FOVEA_API const ValidationRecord* find_validation_record(std::string_view path,
                                                         const DeviceFacts& facts);

// The command that makes the missing record, to be run on such a device. Thread-safe.
FOVEA_API std::string validation_command(BackendName backend, std::string_view path,
                                         const DeviceFacts& facts);

}  // namespace fovea
