// Random questions to a backend: valid problems, of which a good part lies outside what a backend
// with the whole contract runs.
#pragma once

#include <random>
#include <string>

#include "fovea/backend.hpp"
#include "fovea/config.hpp"
#include "fovea/execution.hpp"
#include "tests/core/random_problem.hpp"

namespace fovea::property {

struct Question {
  Problem problem;
  ExecutionContext context;
  std::optional<AttentionSpec> spec;

  std::string text() const {
    return to_string(problem) + " [" + context.facts.text() +
           (context.paged_kv ? " paged_kv" : "") +
           (context.kv_cache_dtype.empty() ? "" : " kv_cache_dtype") +
           (context.laser_input_scale ? " laser_input_scale" : "") +
           (spec ? " provider=" + spec->provider : "") + "]";
  }
};

class Questions {
 public:
  // `base` gives facts and executor. `plain`: most problems are dense ones with few extras, for
  // backends that run little else.
  Questions(uint64_t seed, const ExecutionContext& base, bool plain)
      : problems_(seed), random_(seed ^ 0x51ed270b), base_(base), plain_(plain) {}

  Question next() {
    Question q{problems_.next(), base_, {}};
    shrink(q.problem);
    if (q.problem.sparse && below(2) == 0) q.problem.sparse.reset();
    if (plain_ && below(5) < 4) {
      make_plain(q.problem);
      if (below(8) == 0) break_something(q);
    } else if (below(5) < 2) {
      break_something(q);
    }
    fill_strides(q.problem);
    return q;
  }

 private:
  size_t below(size_t count) { return random_() % count; }

  int64_t size(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(below(static_cast<size_t>(most - least + 1)));
  }

  // Few heads and strides that keep the memory of a problem small.
  void shrink(Problem& p) {
    p.heads_kv = size(1, 2);
    p.heads_q = p.heads_kv * size(1, 3);
    if (p.strides_kind != StridesKind::custom) return;
    for (Strides* s : {&p.q_strides, &p.k_strides, &p.v_strides})
      *s = {s->batch % 700, s->seq % 300, s->head % 200};
  }

  // Keeps dtype, batch and lengths; then adds at most one extra from the random problem.
  void make_plain(Problem& p) {
    const Problem random = p;
    Problem dense;
    dense.dtype = dense.out_dtype = random.dtype;
    dense.batch = random.batch;
    dense.heads_q = dense.heads_kv = random.heads_kv;
    dense.seq_q = dense.seq_kv = random.seq_q;
    dense.head_dim = dense.dim_v = 16 * size(1, 4);
    const bool packed = random.layout == Layout::packed;
    if (packed) dense.batch = 2;
    switch (below(20)) {
      case 0:
        dense.out_dtype = kF32;
        break;
      case 1:
        dense.head_dim = dense.dim_v = below(2) == 0 ? 4 * size(1, 3) : random.head_dim;
        break;
      case 2:
        dense.dim_v = random.dim_v;
        break;
      case 3:
        dense.heads_q = random.heads_q;
        break;
      case 4:
      case 5:
        dense.mask = random.mask;
        break;
      case 6:
        dense.causal = true;
        break;
      case 7:
        dense.window = {size(-1, 9), size(0, 9)};
        break;
      case 8:
        dense.has_kv_lengths = true;
        break;
      case 9:
        dense.lse = true;
        break;
      case 10:
        dense.sparse = random.sparse;
        break;
      case 11:
        dense.strides_kind = StridesKind::expanded;
        break;
      case 12:
        dense.alignment = random.alignment;
        break;
      case 13:
        dense.strides_kind = StridesKind::custom;
        dense.q_strides = dense.k_strides =
            dense.v_strides = {size(0, 700), size(0, 300), size(0, 200)};
        break;
      case 14:
        if (packed) {
          p.head_dim = p.dim_v = dense.head_dim;
          return;
        }
        break;
      default:
        break;
    }
    p = dense;
  }

  void break_something(Question& q) {
    switch (below(7)) {
      case 0:
        q.problem.head_dim = 513 + static_cast<int64_t>(below(600));
        break;
      case 1:
        q.problem.dim_v = 513 + static_cast<int64_t>(below(600));
        break;
      case 2:
        q.context.paged_kv = true;
        break;
      case 3:
        q.context.kv_cache_dtype = "fp8_e4m3";
        break;
      case 4:
        q.context.laser_input_scale = 0.5;
        break;
      case 5:
        q.context.facts = DeviceFacts(PlatformId::rocm);
        q.context.facts.set("gfx", "gfx942");
        break;
      default:
        q.spec.emplace();
        q.spec->provider = below(2) == 0 ? "cudnn" : "fovea";
        break;
    }
  }

  RandomProblems problems_;
  std::mt19937_64 random_;
  ExecutionContext base_;
  bool plain_;
};

}  // namespace fovea::property
