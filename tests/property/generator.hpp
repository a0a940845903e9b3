// Random questions to a backend: valid problems, of which a good part lies outside what a backend
// with the whole contract runs.
#pragma once

#include <random>
#include <string>

#include "core/random_problem.hpp"
#include "fovea/backend.hpp"
#include "fovea/config.hpp"
#include "fovea/execution.hpp"

namespace fovea::property {

struct Question {
  Problem problem;
  ExecutionContext context;
  std::optional<AttentionSpec> spec;

  std::string text() const {
    return to_string(problem) + " [" + context.facts.text() +
           (context.paged_kv ? " paged_kv" : "") +
           (context.kv_cache_dtype.empty() ? "" : " kv_cache_dtype") +
           (spec ? " provider=" + spec->provider : "") + "]";
  }
};

class Questions {
 public:
  // `base` gives facts and executor.
  Questions(uint64_t seed, const ExecutionContext& base)
      : problems_(seed), random_(seed ^ 0x51ed270b), base_(base) {}

  Question next() {
    Question q{problems_.next(), base_, {}};
    shrink_strides(q.problem);
    if (q.problem.sparse && below(2) == 0) q.problem.sparse.reset();
    if (below(5) < 2) break_something(q);
    return q;
  }

 private:
  size_t below(size_t count) { return random_() % count; }

  // Random strides that keep the memory of a problem small.
  void shrink_strides(Problem& p) {
    if (p.strides_kind != StridesKind::custom) return;
    for (Strides* s : {&p.q_strides, &p.k_strides, &p.v_strides})
      *s = {s->batch % 700, s->seq % 300, s->head % 200};
  }

  void break_something(Question& q) {
    switch (below(6)) {
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
        q.context.facts = DeviceFacts(PlatformId::rocm);
        q.context.facts.set("gfx", "gfx942");
        break;
      default:
        q.spec.emplace();
        q.spec->provider = below(2) == 0 ? "cudnn" : "fovea";
        break;
    }
    fill_strides(q.problem);
  }

  RandomProblems problems_;
  std::mt19937_64 random_;
  ExecutionContext base_;
};

}  // namespace fovea::property
