#include "src/core/list_shape.hpp"

#include <string>

#include "src/core/text.hpp"

namespace fovea {

SparsePattern to_pattern(const ListShape& lists) {
  SparsePattern pattern{std::string(ListShape::kName),
                        {{"q", std::to_string(lists.block_q)},
                         {"kv", std::to_string(lists.block_kv)},
                         {"most", std::to_string(lists.most)},
                         {"batch", std::to_string(lists.batch)},
                         {"heads", std::to_string(lists.heads)}}};
  if (lists.partial) pattern.parameters.emplace_back("partial", "1");
  return pattern;
}

std::optional<ListShape> list_shape(const Problem& problem) noexcept {
  if (!problem.sparse || problem.sparse->name != ListShape::kName) return std::nullopt;
  ListShape lists;
  for (const auto& [key, value] : problem.sparse->parameters) {
    const int64_t number = text::parse_integer(value).value_or(0);
    if (key == "q") lists.block_q = static_cast<int32_t>(number);
    if (key == "kv") lists.block_kv = static_cast<int32_t>(number);
    if (key == "most") lists.most = number;
    if (key == "batch") lists.batch = number;
    if (key == "heads") lists.heads = number;
    if (key == "partial") lists.partial = number == 1;
  }
  return lists;
}

}  // namespace fovea
