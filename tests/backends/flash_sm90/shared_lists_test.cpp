// Lists arranged for two rows at once: what is visited, in which order, and what is loaded once.
#include "src/backends/flash_sm90/shared_lists.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "src/backends/flash_sm90/config.hpp"

namespace fovea::flash_sm90 {
namespace {

using Rows = std::vector<std::vector<int32_t>>;

// Lists in one piece of memory; -1 behind the end of a row.
struct Memory {
  std::vector<int32_t> counts, indices;
  BlockLists lists;

  Memory(const Rows& rows, int64_t rows_of_plane) {
    size_t most = 1;
    for (const auto& row : rows) most = std::max(most, row.size());
    for (const auto& row : rows) {
      counts.push_back(static_cast<int32_t>(row.size()));
      indices.insert(indices.end(), row.begin(), row.end());
      indices.resize(counts.size() * most, -1);
    }
    lists = {counts, indices, rows_of_plane, static_cast<int64_t>(most)};
  }
};

struct Tile {
  int32_t coupled;
  std::vector<int32_t> steps[2];
};
Tile tile_of(const SharedLists& shared, int64_t most, size_t pair) {
  Tile tile{shared.heads[4 * pair], {}};
  for (size_t row = 0; row < 2; row++) {
    const auto from = shared.entries.begin() + static_cast<std::ptrdiff_t>(2 * pair + row) *
                                                   static_cast<std::ptrdiff_t>(most);
    tile.steps[row].assign(from, from + shared.heads[4 * pair + 1 + row]);
  }
  return tile;
}

// A pair of rows, as text: entries of the steps, * where they are loaded once.
std::string arranged(const std::vector<int32_t>& a, const std::vector<int32_t>& b,
                     int32_t partial_block = -1) {
  const Memory memory({a, b}, 2);
  const Tile tile = tile_of(share_lists(memory.lists, partial_block), memory.lists.most, 0);
  std::string text = std::to_string(tile.coupled);
  for (const auto& steps : tile.steps) {
    text += " |";
    for (const int32_t entry : steps)
      text += " " + std::to_string(entry / 2) + (entry % 2 != 0 ? "*" : "");
  }
  return text;
}

TEST(SharedLists, CommonBlocksComeFirstAndFromTheEnd) {
  EXPECT_EQ(arranged({0, 1, 4, 7}, {0, 4, 5, 7}), "3 | 7* 4* 0* 1 | 7* 4* 0* 5");
  EXPECT_EQ(arranged({0, 1, 2}, {0, 1, 2}), "3 | 2* 1* 0* | 2* 1* 0*");
  EXPECT_EQ(arranged({3, 8, 9}, {3}), "2 | 3* 9 8 | 3*");
  EXPECT_EQ(arranged({1, 3}, {2, 4}), "2 | 3 1 | 4 2");
}

TEST(SharedLists, ATileHasTwoCoupledSteps) {
  EXPECT_EQ(arranged({5}, {5}), "2 | 5* | 5*");
  EXPECT_EQ(arranged({5}, {6}), "2 | 5 | 6");
  EXPECT_EQ(arranged({}, {}), "2 | |");
  EXPECT_EQ(arranged({}, {1, 2, 3}), "2 | | 3 2 1");
}

TEST(SharedLists, TheBlockThatEndsTheKeysComesFirst) {
  EXPECT_EQ(arranged({0, 4, 9}, {0, 4, 9}, 9), "3 | 9* 4* 0* | 9* 4* 0*");
  EXPECT_EQ(arranged({0, 4, 9}, {0, 4, 7}, 9), "3 | 9 4* 0* | 7 4* 0*");
  EXPECT_EQ(arranged({0, 4, 7}, {0, 4, 9}, 9), "3 | 7 4* 0* | 9 4* 0*");
  // The other row has common blocks only: one of them is loaded by each.
  EXPECT_EQ(arranged({0, 1, 4, 9}, {0, 4}, 9), "2 | 9 0* 4 1 | 4 0*");
  EXPECT_EQ(arranged({2, 9}, {2}, 9), "2 | 9 2 | 2");
  EXPECT_EQ(arranged({2, 9}, {}, 9), "2 | 9 2 |");
}

TEST(SharedLists, AnOddLastRowIsAlone) {
  const Memory memory({{0, 1}, {1}, {0, 2, 3}}, 3);
  const SharedLists shared = share_lists(memory.lists, -1);
  EXPECT_EQ(shared.pairs, 2);
  EXPECT_EQ(shared.heads, (std::vector<int32_t>{2, 2, 1, 0, 2, 3, 0, 0}));
  EXPECT_EQ(shared.entries, (std::vector<int32_t>{3, 0, 0, 3, 0, 0, 6, 4, 0, 0, 0, 0}));
}

TEST(SharedLists, OverlapCountsNeighboursOnly) {
  EXPECT_EQ(overlap_of(Memory({{0, 1, 2}, {1, 2, 3}, {7}, {1}}, 4).lists).common, 0.5);
  EXPECT_EQ(overlap_of(Memory({{0, 1}, {2, 3}, {2, 3}, {0, 1}}, 4).lists).common, 0);
  EXPECT_EQ(overlap_of(Memory({{0, 1}, {0, 1}}, 2).lists).common, 1);
  EXPECT_EQ(overlap_of(Memory({{0, 1}, {0, 1}}, 1).lists).common, 0) << "two planes of one row";
  EXPECT_EQ(overlap_of(Memory({{0, 1, 2}, {1}}, 2).lists).waiting, 0.5);
  EXPECT_EQ(overlap_of(Memory({{}, {}}, 2).lists).common, 0);
}

// What the kernel relies on, for random lists of all densities.
TEST(SharedLists, EveryRowVisitsItsBlocksOnceInStep) {
  const unsigned seed = 20261;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 400; round++) {
    const int64_t columns = 1 + static_cast<int64_t>(random() % 40);
    const int64_t planes = 1 + static_cast<int64_t>(random() % 3);
    const int64_t rows_of_plane = 1 + static_cast<int64_t>(random() % 5);
    const auto density = static_cast<int>(random() % 101);
    const int32_t partial = random() % 2 != 0 ? static_cast<int32_t>(columns - 1) : -1;
    Rows rows(static_cast<size_t>(planes * rows_of_plane));
    for (auto& row : rows) {
      const bool like_the_first = random() % 2 != 0;
      for (int32_t k = 0; k < columns; k++) {
        const bool in_first = std::find(rows[0].begin(), rows[0].end(), k) != rows[0].end();
        const bool on = static_cast<int>(random() % 100) < density;
        if (like_the_first && random() % 8 != 0 ? in_first : on) row.push_back(k);
      }
    }
    const Memory memory(rows, rows_of_plane);
    const SharedLists shared = share_lists(memory.lists, partial);
    ASSERT_EQ(shared.pairs, (rows_of_plane + 1) / 2);
    for (int64_t plane = 0; plane < planes; plane++)
      for (int64_t pair = 0; pair < shared.pairs; pair++) {
        const Tile tile =
            tile_of(shared, memory.lists.most, static_cast<size_t>(plane * shared.pairs + pair));
        const auto coupled = static_cast<size_t>(tile.coupled);
        ASSERT_GE(coupled, 2U);
        ASSERT_LE(coupled,
                  std::max<size_t>(2, std::min(tile.steps[0].size(), tile.steps[1].size())));
        Rows listed(2);
        size_t loaded_once = 0;
        for (size_t row = 0; row < 2; row++) {
          const int64_t r = 2 * pair + static_cast<int64_t>(row);
          if (r < rows_of_plane) listed[row] = rows[static_cast<size_t>(plane * rows_of_plane + r)];
          std::vector<int32_t> visited;
          for (size_t i = 0; i < tile.steps[row].size(); i++) {
            const int32_t entry = tile.steps[row][i];
            visited.push_back(entry / 2);
            if (entry % 2 == 0) continue;
            ASSERT_LT(i, coupled);
            ASSERT_LT(i, tile.steps[1 - row].size());
            ASSERT_EQ(tile.steps[1 - row][i], entry);
            loaded_once++;
          }
          if (std::find(listed[row].begin(), listed[row].end(), partial) != listed[row].end()) {
            ASSERT_EQ(visited.front(), partial);
          }
          std::sort(visited.begin(), visited.end());
          ASSERT_EQ(visited, listed[row]);
        }
        Rows common(1);
        std::set_intersection(listed[0].begin(), listed[0].end(), listed[1].begin(),
                              listed[1].end(), std::back_inserter(common[0]));
        ASSERT_GE(loaded_once + 2, 2 * common[0].size()) << "at most one common block is not";
      }
  }
}

TEST(SharedLists, TheInstanceTakesWholeBlocksWithoutLengths) {
  Problem problem;
  problem.seq_q = problem.seq_kv = 1000;
  problem.list = true;
  EXPECT_TRUE(can_share_lists(problem));
  EXPECT_EQ(choose(problem).key.source, Source::list) << "only where the lists are arranged";
  problem.list_shared = true;
  const Choice choice = choose(problem);
  EXPECT_EQ(choice.key.source, Source::shared_list);
  EXPECT_EQ(decode(encode(choice.key)), choice.key);
  EXPECT_EQ(schedule(choice.key).cluster, 2);
  EXPECT_EQ(block_q(choice.key), 128);
  for (const auto& change : std::vector<void (*)(Problem&)>{
           [](Problem& p) { p.lengths = true; }, [](Problem& p) { p.list_block_q = 64; },
           [](Problem& p) { p.list_block_kv = 64; }, [](Problem& p) { p.list = false; },
           [](Problem& p) { p.head_dim = 192; }}) {
    Problem other = problem;
    change(other);
    EXPECT_FALSE(can_share_lists(other));
    EXPECT_EQ(choose(other).refusal, Refusal::combination);
  }
}

TEST(SharedLists, KeysOfAllInstancesHaveTheirOwnCodes) {
  std::vector<uint32_t> codes;
  for (const Key& key : kInstances) {
    EXPECT_EQ(decode(encode(key)), key);
    codes.push_back(encode(key));
  }
  std::sort(codes.begin(), codes.end());
  EXPECT_EQ(std::adjacent_find(codes.begin(), codes.end()), codes.end());
}

}  // namespace
}  // namespace fovea::flash_sm90
