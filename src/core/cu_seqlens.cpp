#include "src/core/cu_seqlens.hpp"

#include <algorithm>
#include <string>

#include "src/core/text.hpp"

namespace fovea {

Result<int64_t> read_cu_seqlens(std::string_view name, const TensorView& view, int64_t tokens) {
  const auto* const starts = static_cast<const int32_t*>(view.data);
  const auto wrong = [&](int64_t index, const std::string& accepted) -> Error {
    return {ErrorCode::invalid_value,
            text::concat("attention: ", name, '[', index, "] is ", starts[index],
                         " (accepted: ", accepted, ")"),
            {}};
  };
  if (starts[0] != 0) return wrong(0, "0 at the start");
  const int64_t documents = view.shape[0] - 1;
  int64_t longest = 0;
  for (int64_t i = 0; i < documents; ++i) {
    if (starts[i + 1] < starts[i])
      return wrong(i + 1, text::concat(starts[i], " or more, boundaries never fall"));
    longest = std::max(longest, int64_t{starts[i + 1]} - starts[i]);
  }
  if (starts[documents] != tokens)
    return wrong(documents, text::concat(tokens, " at the end, the number of tokens"));
  return longest;
}

}  // namespace fovea
