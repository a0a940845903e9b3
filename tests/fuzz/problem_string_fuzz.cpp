// Whatever the text, reading it ends in an error with a column or in a valid problem that prints
// and reads back as itself.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fovea/problem.hpp"

namespace {

void expect(bool truth) {
  if (!truth) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const fovea::Result<fovea::Problem> problem = fovea::parse_problem(text);
  if (!problem) {
    expect(problem.error().code == fovea::ErrorCode::invalid_problem);
    expect(problem.error().message.starts_with("problem string, column "));
    return 0;
  }
  expect(fovea::validate(*problem).has_value());
  const fovea::Result<fovea::Problem> again = fovea::parse_problem(fovea::to_string(*problem));
  expect(again.has_value());
  expect(*again == *problem);
  expect(fovea::hash_value(*again) == fovea::hash_value(*problem));
  return 0;
}
