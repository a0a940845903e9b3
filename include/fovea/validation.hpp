// On an accelerator a path is called supported only with a committed record of a validation run.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/backend_name.hpp"
#include "fovea/device_facts.hpp"
#include "fovea/error.hpp"
#include "fovea/problem.hpp"

namespace fovea {

// What a run has shown of one path of one backend: a row per file and path. Nothing is owned.
struct ValidationRecord {
  std::string_view file;      // name within docs/validation
  std::string_view backend;   // canonical name
  std::string_view provider;  // "fovea", "cudnn", "package fa4", "plugin x"
  std::string_view library;   // version of the provider's library; empty for fovea
  std::string_view fovea;     // version of fovea that ran
  std::string_view path;      // of the report, e.g. "cuda.flash_sm90"
  std::string_view platform;
  std::string_view device_class;  // of the device it ran on
  std::string_view date;          // YYYY-MM-DD
  // The kinds that passed, each with its head sizes of queries/values: "dense 64/64 80/48, key
  // padding 64/64".
  std::string_view passed;
};

// The kinds of cases that must have passed for a problem like this one to be verified; empty when
// no run holds such problems: other than bf16 in and out, causal, windows, masks other than of
// keys, pieces. Pure; thread-safe.
FOVEA_API std::vector<std::string> validation_kinds(const Problem& problem);

// Who says that a kernel takes the head sizes of a problem beside those that ran: nobody, or a rule
// that its package publishes and that has accepted them.
enum class HeadRule : uint8_t { none, published };

// Whether the record's path has passed every kind of this problem with its head sizes; under a
// published rule, with sizes of which none is larger and with sizes of which none is smaller.
// Without a pattern, problems of SPARGE_ATTN and BLOCK_SPARSE_ATTN are of the kind top-k. Pure;
// thread-safe.
FOVEA_API bool covers(const ValidationRecord& record, const Problem& problem,
                      HeadRule rule = HeadRule::none);

// Whether a record can make calls on this path count as verified. Not where nobody has inspected
// what the path runs (docs/execution.md), whatever ran there. Pure; thread-safe.
FOVEA_API bool can_be_verified(std::string_view path) noexcept;

// All committed records. Thread-safe; static storage.
FOVEA_API std::span<const ValidationRecord> validation_records() noexcept;

// A record that the caller has made and not committed.
class ValidationFile {
 public:
  // What `fovea check --contract --record` or `python -m fovea.check` wrote. Error invalid_file: it
  // cannot be read; invalid_argument: it does not count, with the causes.
  FOVEA_API static Result<std::shared_ptr<const ValidationFile>> open(const std::string& file);
  // The same from its text; `name` is for messages.
  FOVEA_API static Result<std::shared_ptr<const ValidationFile>> parse(std::string_view text,
                                                                       std::string name);

  std::span<const ValidationRecord> records() const noexcept { return rows_; }

 private:
  std::vector<std::unique_ptr<const std::string>> texts_;
  std::vector<ValidationRecord> rows_;
};

// Whether support on this platform is a matter of record: every built-in one but the CPU, whose
// paths the tests verify on every machine. Thread-safe.
FOVEA_API bool validated_by_record(const DeviceFacts& facts) noexcept;

// What a record covers: devices of one kind, e.g. "sm_90" or "gfx942"; the platform's name where
// its facts tell no kinds apart. Thread-safe.
FOVEA_API std::string device_class(const DeviceFacts& facts);

// Which path is asked for: `provider` as in reports ("package fa4 4.0.0"). Nothing is owned.
struct ValidatedPath {
  BackendName backend;
  std::string_view provider;
  std::string_view path;
};

// The record among `records` of this path, with this version of the provider's library and of
// fovea, on the kind of device that the facts describe; null without one. Thread-safe.
FOVEA_API const ValidationRecord* find_validation_record(
    const ValidatedPath& path, const DeviceFacts& facts,
    std::span<const ValidationRecord> records = validation_records());

// What is missing for the path to count as verified for this problem: "without a validation
// record", or in what its record differs. Thread-safe.
FOVEA_API std::string missing_validation(
    const ValidatedPath& path, const Problem& problem, const DeviceFacts& facts,
    std::span<const ValidationRecord> records = validation_records(),
    HeadRule rule = HeadRule::none);

// What to do about it: the command that makes the record, or how to compare a problem that no run
// holds. Thread-safe.
FOVEA_API std::string validation_remedy(
    const ValidatedPath& path, const Problem& problem, const DeviceFacts& facts,
    std::span<const ValidationRecord> records = validation_records(),
    HeadRule rule = HeadRule::none);

// BACKEND-CLASS.json, with the package between them where one provides the path. Thread-safe.
FOVEA_API std::string validation_file_name(BackendName backend, std::string_view provider,
                                           const DeviceFacts& facts);

// The command that makes the missing record, to be run on such a device: of the program, or of the
// Python module where a package provides the kernel. Thread-safe.
FOVEA_API std::string validation_command(BackendName backend, std::string_view provider,
                                         const DeviceFacts& facts);

}  // namespace fovea
