// Laws that hold for every input: permuting items and heads, hiding keys by any means, splitting
// the keys and merging by LSE.
#include <algorithm>
#include <numeric>
#include <random>

#include "tests/contract/harness.hpp"
#include "tests/contract/merge.hpp"

namespace fovea::contract {
namespace {

constexpr int kRounds = 150;
constexpr uint64_t kSeed = 7061;

FOVEA_CONTRACT_SUITE(AlgebraProperty);

class Random {
 public:
  explicit Random(uint64_t seed) : random_(seed) {}
  int64_t between(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random_);
  }
  DType dtype() { return kFloatTypes[between(0, 2)]; }
  Shape shape() {
    Shape s;
    s.batch = between(1, 3);
    s.seq_q = between(1, 40);
    s.seq_kv = between(1, 150);
    s.heads_kv = between(1, 3);
    s.heads_q = s.heads_kv * between(1, 3);
    s.head_dim = between(1, 70);
    s.dim_v = between(1, 70);
    return s;
  }
  std::vector<int64_t> permutation(int64_t size) {
    std::vector<int64_t> p(static_cast<size_t>(size));
    std::iota(p.begin(), p.end(), 0);
    std::shuffle(p.begin(), p.end(), random_);
    return p;
  }

 private:
  std::mt19937_64 random_;
};

std::string describe_round(int round, DType dtype, const Shape& s) {
  return "seed " + std::to_string(kSeed) + ", round " + std::to_string(round) + ": " +
         std::string(name(dtype)) + " b" + std::to_string(s.batch) + " h" +
         std::to_string(s.heads_q) + " s" + std::to_string(s.seq_q) + " d" +
         std::to_string(s.head_dim) + " hk=" + std::to_string(s.heads_kv) +
         " sk=" + std::to_string(s.seq_kv) + " dv=" + std::to_string(s.dim_v);
}

// The elements of `from` at changed indices; `shape` is the new shape.
Tensor gather(const Tensor& from, const std::vector<int64_t>& shape,
              const std::function<double(const Tensor&, int64_t, int64_t, int64_t, int64_t)>& at) {
  return Tensor(from.view().dtype, shape).fill([&](int64_t b, int64_t s, int64_t h, int64_t d) {
    return at(from, b, s, h, d);
  });
}

std::vector<int64_t> shape_of(const Tensor& t) {
  return {t.view().shape.begin(), t.view().shape.begin() + t.view().rank};
}

TEST_P(AlgebraProperty, PermutingItemsAndHeadGroupsPermutesTheOutput) {
  Random random(kSeed);
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    const DType dtype = random.dtype();
    const Shape s = random.shape();
    SCOPED_TRACE(describe_round(round, dtype, s));
    const Inputs in = random_inputs(dtype, s, static_cast<uint64_t>(round));
    const std::vector<int64_t> items = random.permutation(s.batch);
    const std::vector<int64_t> groups = random.permutation(s.heads_kv);
    const int64_t group = s.heads_q / s.heads_kv;
    const auto permute = [&](const Tensor& t, int64_t size) {
      return gather(t, shape_of(t),
                    [&](const Tensor& from, int64_t b, int64_t i, int64_t h, int64_t d) {
                      return from.at(items[static_cast<size_t>(b)], i,
                                     groups[static_cast<size_t>(h / size)] * size + h % size, d);
                    });
    };
    Inputs moved;
    moved.q = permute(in.q, group);
    moved.k = permute(in.k, 1);
    moved.v = permute(in.v, 1);
    Answer plain = attend(GetParam(), in);
    const Answer permuted = attend(GetParam(), moved);
    if (!plain.ran) continue;
    plain.out = permute(plain.out, group);
    plain.lse = Tensor(kF32, shape_of(permuted.lse))
                    .fill([&, lse = plain.lse](int64_t b, int64_t h, int64_t i, int64_t) {
                      return lse.at(items[static_cast<size_t>(b)],
                                    groups[static_cast<size_t>(h / group)] * group + h % group, i);
                    });
    expect_close(plain, permuted);
  }
}

TEST_P(AlgebraProperty, HidingKeysEqualsDroppingThem) {
  Random random(kSeed + 1);
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    const DType dtype = random.dtype();
    Shape s = random.shape();
    s.batch = 1;
    SCOPED_TRACE(describe_round(round, dtype, s));
    Inputs in = random_inputs(dtype, s, static_cast<uint64_t>(round));
    std::vector<int64_t> kept;
    const int64_t share = random.between(1, 9);
    for (int64_t j = 0; j < s.seq_kv; ++j)
      if (random.between(0, 9) < share) kept.push_back(j);
    std::vector<bool> visible(static_cast<size_t>(s.seq_kv));
    for (int64_t j : kept) visible[static_cast<size_t>(j)] = true;
    Inputs dropped = in;
    const auto keep = [&](const Tensor& t) {
      std::vector<int64_t> shape = shape_of(t);
      shape[1] = static_cast<int64_t>(kept.size());
      return gather(t, shape, [&](const Tensor& from, int64_t b, int64_t j, int64_t h, int64_t d) {
        return from.at(b, kept[static_cast<size_t>(j)], h, d);
      });
    };
    dropped.k = keep(in.k);
    dropped.v = keep(in.v);
    const bool additive = round % 2 == 0;
    const bool full = round % 3 == 0;
    in.mask = full ? Tensor(additive ? kF32 : kBool, {1, s.heads_q, s.seq_q, s.seq_kv})
                   : Tensor(additive ? kF32 : kBool, {1, s.seq_kv});
    in.mask.fill([&](int64_t, int64_t a, int64_t, int64_t d) {
      const bool on = visible[static_cast<size_t>(full ? d : a)];
      if (additive) return on ? 0.0 : -std::numeric_limits<double>::infinity();
      return on ? 1.0 : 0.0;
    });
    expect_close(attend(GetParam(), in), attend(GetParam(), dropped));
  }
}

TEST_P(AlgebraProperty, SplitKeysMergeToTheWhole) {
  Random random(kSeed + 2);
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    const DType dtype = random.dtype();
    const Shape s = random.shape();
    SCOPED_TRACE(describe_round(round, dtype, s));
    const Inputs in = random_inputs(dtype, s, static_cast<uint64_t>(round));
    CallOptions options;
    options.out_dtype = kF32;
    const int64_t parts = random.between(1, 4);
    std::vector<int64_t> cuts = {0, s.seq_kv};
    for (int64_t n = 1; n < parts; ++n) cuts.push_back(random.between(0, s.seq_kv));
    std::sort(cuts.begin(), cuts.end());
    std::vector<Answer> answers;
    for (size_t n = 0; n + 1 < cuts.size(); ++n) {
      const auto cut = [&](const Tensor& t) {
        std::vector<int64_t> shape = shape_of(t);
        shape[1] = cuts[n + 1] - cuts[n];
        return gather(t, shape,
                      [&](const Tensor& from, int64_t b, int64_t j, int64_t h, int64_t d) {
                        return from.at(b, cuts[n] + j, h, d);
                      });
      };
      Inputs part = in;
      part.k = cut(in.k);
      part.v = cut(in.v);
      answers.push_back(attend(GetParam(), part, options));
    }
    expect_merged(merge(answers), attend(GetParam(), in, options));
  }
}

}  // namespace
}  // namespace fovea::contract
