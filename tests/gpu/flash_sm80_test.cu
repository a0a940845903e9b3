// The portable kernels against a float64 oracle on the GPU, graph replay, and speed. Standalone:
// flash_sm80_test [seed] [first case] [one], or flash_sm80_test bench [seconds per shape]
#include "src/backends/flash_sm80/launch.hpp"
#include "tests/gpu/attention_cases.cuh"

using namespace fovea;
using namespace fovea::flash_sm80;

namespace {

DeviceCache caches[kInstances.size()];

bool launch_key(const Key& key, const cuda::AttentionCall& call, cudaStream_t stream) {
  std::size_t index = 0;
  while (index < kInstances.size() && !(kInstances[index] == key)) index++;
  if (index == kInstances.size()) return false;
  const LaunchStatus s = launch(key, call, 0, caches[index], stream);
  if (s.stage) std::printf("launch: %s (%d)\n", describe(s), s.code);
  return s.stage == 0;
}

Precision precision_of(Type type) {
  return type == Type::f32 ? Precision::f32 : type == Type::bf16 ? Precision::bf16 : Precision::f16;
}

/// The instance that the backend's table chooses.
bool launch_chosen(Type type, const cuda::AttentionCall& call, bool aligned, cudaStream_t stream) {
  const bool plain = type != Type::f32 && aligned && call.mask_type == cuda::MaskType::none;
  return launch_key(
      choose(precision_of(type), plain ? Form::plain : Form::any, call.head_dim, call.dim_v), call,
      stream);
}
/// The instance for anything, whatever is asked.
bool launch_any(Type type, const cuda::AttentionCall& call, bool, cudaStream_t stream) {
  return launch_key(choose(precision_of(type), Form::any, call.head_dim, call.dim_v), call, stream);
}

struct Dense {
  Buffer q, k, v, out, lse;
  cuda::AttentionCall call;

  Dense(Type type, int heads, int seq_q, int seq_kv, int dim)
      : q(bytes(type, heads, seq_q, dim)),
        k(bytes(type, heads, seq_kv, dim)),
        v(bytes(type, heads, seq_kv, dim)),
        out(bytes(type, heads, seq_q, dim)),
        lse(std::size_t{4} * heads * seq_q) {
    const std::int64_t row = std::int64_t{heads} * dim;
    call.q = {q.data, seq_q * row, row, dim};
    call.k = {k.data, seq_kv * row, row, dim};
    call.v = {v.data, seq_kv * row, row, dim};
    call.out = {out.data, seq_q * row, row, dim};
    call.lse = static_cast<float*>(lse.data);
    call.batch = 1;
    call.heads = heads;
    call.seq_q = call.max_seq_q = seq_q;
    call.seq_kv = seq_kv;
    call.head_dim = call.dim_v = dim;
    call.scale = 1.f / std::sqrt(static_cast<float>(dim));
  }
  static std::size_t bytes(Type type, int heads, int seq, int dim) {
    return std::size_t{1} * heads * seq * dim * size_of(type);
  }
  void fill(Type type, std::uint64_t seed, cudaStream_t stream) const {
    const auto normal = [&](const cuda::StridedTensor& t, int rows, std::uint64_t salt) {
      oracle::fill_normal<<<1024, 256, 0, stream>>>(t, type, 1, rows, call.heads, call.head_dim,
                                                    1.f, seed * 3 + salt);
    };
    normal(call.q, call.seq_q, 0);
    normal(call.k, call.seq_kv, 1);
    normal(call.v, call.seq_kv, 2);
  }
};

/// A captured launch replayed with changing inputs equals the eager one, bitwise.
bool graph_replay(Type type, Form form, cudaStream_t stream) {
  Dense d(type, 5, 700, 900, 128);
  const std::size_t bytes = Dense::bytes(type, 5, 700, 128);
  Buffer eager(bytes);
  const Key key = choose(precision_of(type), form, 128, 128);
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  bool ok = launch_key(key, d.call, stream);
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  std::vector<char> x(bytes), y(bytes);
  for (int i = 0; ok && i < 50; i++) {
    d.fill(type, 100 + i, stream);
    CHECK(cudaMemsetAsync(d.out.data, 0xff, bytes, stream));
    CHECK(cudaMemsetAsync(eager.data, 0xff, bytes, stream));
    CHECK(cudaGraphLaunch(exec, stream));
    cuda::AttentionCall call = d.call;
    call.out.data = eager.data;
    ok = launch_key(key, call, stream);
    cases::wait(stream, "graph replay");
    CHECK(cudaMemcpy(x.data(), d.out.data, bytes, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(y.data(), eager.data, bytes, cudaMemcpyDeviceToHost));
    ok = ok && x == y;
  }
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  return ok;
}

void bench(double seconds, cudaStream_t stream) {
  struct Shape {
    const char* name;
    Type type;
    int heads, seq_q, seq_kv, dim;
    Form form;
    bool causal;
  };
  const Shape shapes[] = {
      {"bf16 h40 s32760 d128", Type::bf16, 40, 32760, 32760, 128, Form::plain, false},
      {"f16 h40 s32760 d128", Type::f16, 40, 32760, 32760, 128, Form::plain, false},
      {"bf16 h24 s7400 d128", Type::bf16, 24, 7400, 7400, 128, Form::plain, false},
      {"bf16 h24 s4608 d128", Type::bf16, 24, 4608, 4608, 128, Form::plain, false},
      {"bf16 h24 s1024 d128", Type::bf16, 24, 1024, 1024, 128, Form::plain, false},
      {"bf16 h40 s32760x512 d128", Type::bf16, 40, 32760, 512, 128, Form::plain, false},
      {"bf16 h24 s32768 d64", Type::bf16, 24, 32768, 32768, 64, Form::plain, false},
      {"bf16 h24 s8192 d96", Type::bf16, 24, 8192, 8192, 96, Form::plain, false},
      {"bf16 h12 s8192 d256", Type::bf16, 12, 8192, 8192, 256, Form::plain, false},
      {"bf16 h24 s8192 d128 causal", Type::bf16, 24, 8192, 8192, 128, Form::plain, true},
      {"bf16 h24 s8192 d128 any", Type::bf16, 24, 8192, 8192, 128, Form::any, false},
      {"f32 h24 s4096 d128", Type::f32, 24, 4096, 4096, 128, Form::any, false},
      {"f32 h24 s4096 d64", Type::f32, 24, 4096, 4096, 64, Form::any, false},
  };
  cudaEvent_t start, stop;
  CHECK(cudaEventCreate(&start));
  CHECK(cudaEventCreate(&stop));
  for (const Shape& s : shapes) {
    Dense d(s.type, s.heads, s.seq_q, s.seq_kv, s.dim);
    d.fill(s.type, 1, stream);
    if (s.causal) d.call.window_right = 0;
    const Key key = choose(precision_of(s.type), s.form, s.dim, s.dim);
    std::vector<float> times;
    const auto begin = std::chrono::steady_clock::now();
    while (times.size() < 5 ||
           std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() <
               seconds) {
      CHECK(cudaEventRecord(start, stream));
      if (!launch_key(key, d.call, stream)) return;
      CHECK(cudaEventRecord(stop, stream));
      CHECK(cudaEventSynchronize(stop));
      float ms = 0;
      CHECK(cudaEventElapsedTime(&ms, start, stop));
      times.push_back(ms);
    }
    std::sort(times.begin() + static_cast<long>(times.size() / 3), times.end());  // warm-up first
    const float ms = times[times.size() / 3 + times.size() / 3];
    double flop = 4.0 * s.heads * s.seq_q * s.seq_kv * s.dim;
    if (s.causal) flop /= 2;
    std::printf("%-28s %8.3f ms %7.1f TFLOP/s\n", s.name, ms, flop / ms * 1e-9);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  if (argc > 1 && std::string(argv[1]) == "bench") {
    bench(argc > 2 ? std::atof(argv[2]) : 1.0, stream);
    return 0;
  }
  const std::uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  const std::size_t from = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0;
  const bool one = argc > 3;
  const std::vector<cases::Case> all =
      cases::make_cases({Type::bf16, Type::f16, Type::f32}, {{128, 128},
                                                             {64, 64},
                                                             {96, 96},
                                                             {256, 256},
                                                             {80, 48},
                                                             {40, 200},
                                                             {8, 8},
                                                             {33, 5},
                                                             {130, 129}});
  cases::Totals totals;
  for (std::size_t i = from; i < all.size(); i++) {
    totals.add(all[i], cases::run(all[i], launch_chosen, seed, stream));
    if (one) return totals.print("flash_sm80_test", seed);
    // The instances for anything also take what is aligned and has no mask.
    if (all[i].type != Type::f32 && all[i].mask == cuda::MaskType::none && i % 3 == 0)
      totals.add(all[i], cases::run(all[i], launch_any, seed, stream));
  }
  for (Type type : {Type::bf16, Type::f16, Type::f32})
    for (Form form : {Form::plain, Form::any}) {
      if (type == Type::f32 && form == Form::plain) continue;
      const bool same = graph_replay(type, form, stream);
      (same ? totals.passed : totals.failed)++;
      if (!same) std::printf("FAIL graph replay\n");
    }
  return totals.print("flash_sm80_test", seed);
}
