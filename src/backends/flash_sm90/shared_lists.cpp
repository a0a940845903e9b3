#include "src/backends/flash_sm90/shared_lists.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <iterator>

namespace fovea::flash_sm90 {
namespace {

using Row = std::span<const std::int32_t>;

// Row `row` of a plane; empty behind the last one.
Row row_of(const BlockLists& lists, std::int64_t plane, std::int64_t row) {
  if (row >= lists.rows) return {};
  const auto line = static_cast<std::size_t>(plane * lists.rows + row);
  return lists.indices.subspan(line * static_cast<std::size_t>(lists.most),
                               static_cast<std::size_t>(lists.counts[line]));
}

std::int64_t planes_of(const BlockLists& lists) {
  return lists.rows == 0 ? 0 : static_cast<std::int64_t>(lists.counts.size()) / lists.rows;
}

constexpr std::int32_t alone(std::int32_t block) { return 2 * block; }
constexpr std::int32_t together(std::int32_t block) { return 2 * block + 1; }

// One pair of rows. Blocks are taken from the back of these lists.
struct Pair {
  std::vector<std::int32_t> common;
  std::array<std::vector<std::int32_t>, 2> own;
  std::array<std::vector<std::int32_t>, 2> steps;

  Pair(const std::array<Row, 2>& rows) {
    std::set_intersection(rows[0].begin(), rows[0].end(), rows[1].begin(), rows[1].end(),
                          std::back_inserter(common));
    for (std::size_t n = 0; n < 2; n++)
      std::set_difference(rows[n].begin(), rows[n].end(), common.begin(), common.end(),
                          std::back_inserter(own[n]));
  }

  bool take_own(std::size_t row) {
    if (own[row].empty()) return false;
    steps[row].push_back(alone(own[row].back()));
    own[row].pop_back();
    return true;
  }

  // The first step where only `row` lists the partial block: the other row takes one of its own,
  // or a common one, which then is an own one of both.
  void open_alone(std::size_t row) {
    const std::size_t other = 1 - row;
    take_own(row);
    if (take_own(other) || common.empty()) return;
    own[row].insert(std::lower_bound(own[row].begin(), own[row].end(), common.back()),
                    common.back());
    steps[other].push_back(alone(common.back()));
    common.pop_back();
  }

  std::int32_t arrange(std::int32_t partial_block) {
    std::int32_t coupled = 0;
    for (std::size_t row = 0; row < 2; row++)
      if (coupled == 0 && !own[row].empty() && own[row].back() == partial_block) {
        open_alone(row);
        coupled = 1;
      }
    coupled += static_cast<std::int32_t>(common.size());
    for (std::size_t row = 0; row < 2; row++)
      for (auto block = common.rbegin(); block != common.rend(); ++block)
        steps[row].push_back(together(*block));
    for (std::size_t row = 0; row < 2; row++)
      while (take_own(row)) {
      }
    return std::max(coupled, 2);
  }
};

}  // namespace

Overlap overlap_of(const BlockLists& lists) {
  std::int64_t common = 0, waiting = 0, all = 0;
  for (std::int64_t plane = 0; plane < planes_of(lists); plane++)
    for (std::int64_t row = 0; row < lists.rows; row += 2) {
      const Row a = row_of(lists, plane, row), b = row_of(lists, plane, row + 1);
      all += static_cast<std::int64_t>(a.size() + b.size());
      waiting +=
          std::abs(static_cast<std::int64_t>(a.size()) - static_cast<std::int64_t>(b.size()));
      for (auto x = a.begin(), y = b.begin(); x != a.end() && y != b.end();) {
        common += *x == *y ? 2 : 0;
        const bool first = *x <= *y, second = *y <= *x;
        x += first;
        y += second;
      }
    }
  if (all == 0) return {};
  const auto total = static_cast<double>(all);
  return {static_cast<double>(common) / total, static_cast<double>(waiting) / total};
}

SharedLists share_lists(const BlockLists& lists, std::int32_t partial_block) {
  SharedLists out;
  out.pairs = (lists.rows + 1) / 2;
  const std::int64_t planes = planes_of(lists), pairs = planes * out.pairs;
  out.heads.reserve(static_cast<std::size_t>(4 * pairs));
  out.entries.assign(static_cast<std::size_t>(2 * pairs * lists.most), 0);
  auto entries = out.entries.begin();
  for (std::int64_t n = 0; n < pairs; n++) {
    const std::int64_t plane = n / out.pairs, row = n % out.pairs * 2;
    Pair pair({row_of(lists, plane, row), row_of(lists, plane, row + 1)});
    out.heads.push_back(pair.arrange(partial_block));
    for (const auto& steps : pair.steps) {
      out.heads.push_back(static_cast<std::int32_t>(steps.size()));
      std::copy(steps.begin(), steps.end(), entries);
      entries += lists.most;
    }
    out.heads.push_back(0);
  }
  return out;
}

}  // namespace fovea::flash_sm90
