// Errors as values: nothing in the library throws, prints, aborts or exits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "fovea/reason.hpp"

#define FOVEA_API __attribute__((visibility("default")))

namespace fovea {

// Stable numbers, in groups of a hundred. The group decides the exit code of the command line.
enum class ErrorCode : uint16_t {
  // 1xx: the caller's argument, configuration, file or tensor is wrong.
  invalid_argument = 100,
  invalid_config = 110,
  invalid_problem = 111,
  invalid_facts = 112,
  invalid_file = 120,
  invalid_tensor = 121,
  invalid_value = 122,
  // 2xx: the request is well formed but no admitted path can run it.
  unsupported = 200,
  not_built = 201,
  not_available = 202,
  // 3xx: device or driver.
  device_error = 300,
  // 4xx: resources.
  out_of_memory = 400,
  workspace_too_small = 401,
  // 5xx: communication between ranks.
  communication_error = 500,
  // 9xx: a fault of this library.
  internal = 900,
};

// The stable lower-case name of a code, e.g. "invalid_config". Thread-safe; static storage.
FOVEA_API std::string_view name(ErrorCode code) noexcept;

// What went wrong, for people (`message`) and for programs (`code`, `reasons`).
struct Error {
  ErrorCode code = ErrorCode::internal;
  std::string message;
  std::vector<Reason> reasons;
};

// A value or an Error. Accessing the value of a failed result is a precondition violation.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool has_value() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }

  T& value() & { return *std::get_if<0>(&state_); }
  const T& value() const& { return *std::get_if<0>(&state_); }
  T&& value() && { return std::move(*std::get_if<0>(&state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return std::get_if<0>(&state_); }
  const T* operator->() const { return std::get_if<0>(&state_); }

  Error& error() & { return *std::get_if<1>(&state_); }
  const Error& error() const& { return *std::get_if<1>(&state_); }
  Error&& error() && { return std::move(*std::get_if<1>(&state_)); }

  T value_or(T other) const& { return has_value() ? value() : std::move(other); }

 private:
  std::variant<T, Error> state_;
};

// Success or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  bool has_value() const noexcept { return !error_.has_value(); }
  explicit operator bool() const noexcept { return has_value(); }
  Error& error() & { return *error_; }
  const Error& error() const& { return *error_; }
  Error&& error() && { return std::move(*error_); }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace fovea

#define FOVEA_CONCAT_INNER(a, b) a##b
#define FOVEA_CONCAT(a, b) FOVEA_CONCAT_INNER(a, b)

// FOVEA_TRY(auto plan, backend.plan(problem)); binds the value or returns the error to the caller.
#define FOVEA_TRY(declaration, expression) \
  FOVEA_TRY_NAMED(FOVEA_CONCAT(fovea_try_, __COUNTER__), declaration, expression)
#define FOVEA_TRY_NAMED(result, declaration, expression) \
  auto result = (expression);                            \
  if (!result) return std::move(result).error();         \
  declaration = std::move(result).value()

// FOVEA_CHECK(validate(x)); returns the error of a Status to the caller.
#define FOVEA_CHECK(expression) \
  FOVEA_CHECK_NAMED(FOVEA_CONCAT(fovea_check_, __COUNTER__), expression)
#define FOVEA_CHECK_NAMED(status, expression) \
  if (auto status = (expression); !status) return std::move(status).error()
