// The Hopper kernel against a float64 oracle on the GPU: shapes, strides, masks, poisoned padding,
// packed documents, repeatability, graph replay, order between launches. Standalone:
// flash_sm90_test [seed] [first case] [one]
#include <array>

#include "tests/gpu/flash_sm90_case.cuh"
#include "tests/gpu/flash_sm90_order.cuh"

std::vector<Case> make_cases() {
  std::vector<Case> cases;
  const Layout layouts[] = {Layout::bshd, Layout::bhsd, Layout::fused, Layout::expanded};
  int n = 0;
  const auto add = [&](Case c) {
    c.layout = !c.docs_q.empty() ? Layout::bshd : layouts[n % (c.spoil ? 3 : 4)];
    if (n % 5 == 4 && !c.spoil && c.growth <= 40) c.amplitude = 4;
    c.name = std::to_string(n) + " " + c.name;
    n++;
    cases.push_back(c);
  };
  const Precision both[] = {Precision::bf16, Precision::f16};
  for (Precision p : both)
    for (int d : {64, 96, 128, 256, 80, 40, 192, 8}) {
      const int dv = d == 80 ? 48 : d == 192 ? 128 : d == 40 ? 200 : d;
      const auto base = [&](const char* name, int b, int h, int hk, int sq, int sk) {
        Case c;
        c.name = name;
        c.precision = p;
        c.batch = b;
        c.heads = h;
        c.heads_kv = hk;
        c.seq_q = sq;
        c.seq_kv = sk;
        c.head_dim = d;
        c.dim_v = dv;
        return c;
      };
      const int shapes[][5] = {{1, 2, 2, 128, 128},     {2, 3, 3, 1, 1},      {2, 3, 1, 63, 129},
                               {1, 5, 5, 1000, 1000},   {2, 4, 2, 257, 511},  {1, 2, 2, 300, 6000},
                               {2, 12, 12, 2049, 2047}, {1, 7, 7, 2500, 3100}};
      for (const auto& s : shapes) add(base("plain", s[0], s[1], s[2], s[3], s[4]));
      // Every row's maximum grows by far more than one block's probabilities may.
      for (const auto& s :
           {std::array{2, 4, 2, 257, 1500}, {1, 2, 2, 300, 6000}, {1, 7, 7, 1300, 4800}}) {
        Case c = base("growing", s[0], s[1], s[2], s[3], s[4]);
        c.growth = 40;
        add(c);
      }
      // The same within a tile's first block, of which a part makes the reference: several tiles to
      // a thread block, and no block that needs masking.
      for (const float growth : {40.f, 300.f}) {
        Case c = base("growing, whole blocks", 1, 4, 2, 1000, 1920);
        c.growth = growth;
        c.team = 4;
        add(c);
      }
      Case c = base("float out", 2, 3, 3, 333, 777);
      c.out_float = true;
      add(c);
      c = base("lengths", 4, 4, 2, 400, 700);
      c.lengths = {700, 0, 1, 333};
      add(c);
      c = base("lengths split", 2, 8, 8, 1500, 1500);
      c.lengths = {1500, 1111};
      add(c);
      c = base("lengths growing", 2, 8, 8, 1500, 1500);
      c.lengths = {1500, 1111};
      c.growth = 40;
      add(c);
      c = base("key bits random", 2, 4, 4, 300, 600);
      c.key_mask = 1;
      add(c);
      c = base("key bits prefix + lengths", 2, 8, 8, 1300, 1300);
      c.key_mask = 2;
      c.lengths = {1300, 903};
      add(c);
      c = base("key bits blocks per head", 2, 4, 2, 1000, 1400);
      c.key_mask = 13;
      add(c);
      c = base("key bits growing", 2, 4, 2, 700, 2400);
      c.key_mask = 13;
      c.growth = 40;
      add(c);
      c = base("key bits nothing visible", 1, 2, 2, 200, 200);
      c.key_mask = 4;
      add(c);
      {
        const bool large = std::max(d, dv) > 128;
        const std::vector<int> rows = large ? std::vector{128} : std::vector{128, 64};
        for (const int block_q : rows)
          for (const int block_kv : {128, 64}) {
            const auto list = [&](const char* name, int kind, int density) {
              c.name += name;
              c.list = kind;
              c.density = density;
              c.block_q = block_q;
              c.block_kv = block_kv;
              c.name += " " + std::to_string(block_q) + "x" + std::to_string(block_kv);
              add(c);
            };
            c = base("list ", 2, 4, 2, 1000, 1400);
            list("one for all", 1, 40);
            c = base("list ", 2, 6, 6, 2500, 2500);
            list("per head", 2, 30);
            c = base("list ", 2, 4, 2, 1000, 2400);
            c.growth = 40;
            list("growing", 2, 50);
            c = base("list ", 2, 4, 2, 1000, 2560);
            c.growth = 300;
            c.team = 4;
            list("growing, whole blocks", 2, 50);
            c = base("list ", 3, 4, 4, 700, 1500);
            c.lengths = {1500, 0, 700};
            list("+ lengths", 2, 60);
            c = base("list ", 1, 2, 2, 300, 300);
            list("of nothing", 1, 0);
            if (block_q != 64) continue;
            for (const int density : {100, 70, 20}) {
              c = base("list ", 2, 4, 2, 1000, density == 100 ? 2560 : 1400);
              c.alike = true;
              c.team = density == 20 ? 3 : 0;
              list("alike", 2, density);
            }
            c = base("list ", 3, 4, 4, 700, 1500);
            c.alike = true;
            c.lengths = {1500, 0, 700};
            list("alike + lengths", 2, 60);
            c = base("list ", 1, 2, 2, 1000, 2560);
            c.alike = true;
            c.growth = 300;
            c.team = 4;
            list("alike growing", 2, 50);
            c = base("list ", 2, 4, 2, 1000, 1400);
            c.alike = c.unsorted = true;
            list("unsorted", 2, 50);
            // More entries than are compared.
            c = base("list ", 1, 1, 1, 200, block_kv * 2300);
            c.alike = d == 64;
            if (d == 64 || d == 128) list("long", 2, 97);
          }
      }
      c = base("causal", 1, 4, 4, 1000, 1000);
      c.band = true;
      c.right = 0;
      add(c);
      c = base("causal growing", 1, 4, 2, 1500, 1700);
      c.band = true;
      c.right = 0;
      c.growth = 40;
      add(c);
      c = base("window growing", 1, 4, 2, 1500, 1700);
      c.band = true;
      c.left = 900;
      c.right = 127;  // some tiles' first row sees no key of a partial block
      c.growth = 40;
      add(c);
      c = base("causal n<m lengths", 2, 3, 3, 600, 500);
      c.band = true;
      c.right = 0;
      c.lengths = {500, 77};
      add(c);
      c = base("window", 1, 4, 2, 1100, 1300);
      c.band = true;
      c.left = 100;
      c.right = 37;
      add(c);
      c = base("window spoiled", 1, 1, 1, 700, 700);
      c.band = true;
      c.left = 150;
      c.right = 0;
      c.spoil = true;
      add(c);
      c = base("causal key bits", 2, 3, 3, 500, 500);
      c.band = true;
      c.right = 0;
      c.key_mask = 1;
      add(c);
      c = base("plain spoiled", 1, 1, 1, 200, 300);
      c.spoil = true;
      add(c);
      c = base("packed", 1, 4, 2, 0, 0);
      c.docs_q = {100, 0, 257, 300, 1, 64};
      c.docs_kv = {120, 50, 0, 300, 1000, 64};
      add(c);
      c = base("packed causal", 1, 4, 4, 0, 0);
      c.docs_q = {100, 257, 300, 1, 129};
      c.docs_kv = {120, 257, 150, 1000, 129};
      c.band = true;
      c.right = 0;
      add(c);
      // Scores of -inf where a part of a tile's first block makes the reference, and in all of it.
      for (const int lost : {1, 2}) {
        const char* name = lost == 1 ? "lost keys" : "lost blocks";
        const auto lose = [&](const char* mask) {
          c.name += std::string(" ") + mask;
          c.lost_keys = lost;
          c.team = 4;
          add(c);
        };
        c = base(name, 1, 4, 2, 1000, 1920);
        lose("whole blocks");
        c = base(name, 2, 4, 2, 700, 1300);
        c.lengths = {1300, 1280};
        lose("lengths");
        c = base(name, 1, 4, 2, 1000, 1280);
        c.key_mask = 3;
        lose("key bits");
        c = base(name, 1, 4, 2, 1000, 1000);
        c.band = true;
        c.right = 0;
        lose("causal");
        c = base(name, 1, 4, 2, 1000, 1920);
        c.list = 2;
        c.density = 50;
        lose("list");
      }
      c = base("no keys", 2, 2, 2, 100, 0);
      add(c);
      c = base("small team", 1, 3, 3, 900, 2000);
      c.team = 4;
      add(c);
    }
  Case big;
  big.name = "long keys";
  big.heads = big.heads_kv = 2;
  big.seq_q = 3000;
  big.seq_kv = 32760;
  for (Precision p : both)
    for (int dim : {128, 96, 72}) {
      big.precision = p;
      big.head_dim = big.dim_v = dim;
      add(big);
    }
  big.head_dim = big.dim_v = 128;
  big.name = "long keys growing";
  big.seq_kv = 32640;
  big.growth = 300;
  big.team = 8;
  for (Precision p : both) {
    big.precision = p;
    add(big);
  }
  return cases;
}

__global__ void empty_kernel() {}

/// Microseconds of host time per call: the median over groups of a launch of this kernel and of an
/// empty one, neither waiting for the device.
void host_cost(cudaStream_t stream) {
  Problem problem;
  problem.seq_q = problem.seq_kv = 128;
  const Choice choice = choose(problem);
  Buffer q(128 * 128 * 2), k(128 * 128 * 2), v(128 * 128 * 2), out(128 * 128 * 2), lse(128 * 4);
  Buffer work(choice.workspace_bytes);
  Arguments a;
  const Tensor shape{nullptr, 128 * 128, 128, 128};
  a.q = a.k = a.v = a.out = shape;
  a.q.data = q.data;
  a.k.data = k.data;
  a.v.data = v.data;
  a.out.data = out.data;
  a.lse = static_cast<float*>(lse.data);
  a.scale = 0.1f;
  a.workspace = work.data;
  DeviceCache cache;
  const auto median = [&](auto&& call) {
    std::vector<double> times;
    for (int group = 0; group < 100; group++) {
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < 100; i++) call();
      times.push_back(
          std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
              .count() /
          100);
      CHECK(cudaStreamSynchronize(stream));
    }
    std::sort(times.begin(), times.end());
    return times[50];
  };
  const double ours = median([&] {
    const LaunchStatus s = launch(problem, choice, a, 0, cache, stream);
    if (s.stage) _exit(2);
  });
  const double empty = median([&] { empty_kernel<<<1, 32, 0, stream>>>(); });
  std::printf("host cost: %.2f us per launch, %.2f us for an empty kernel\n", ours, empty);
}

/// A captured launch replayed with changing inputs equals the eager one, bitwise.
bool graph_replay(cudaStream_t stream, bool lists) {
  Problem problem;
  problem.heads_q = problem.heads_kv = 9;
  problem.seq_q = problem.seq_kv = 2100;
  problem.list = lists;
  const Choice choice = choose(problem);
  const std::size_t bytes = std::size_t{9} * 2100 * 128 * 2;
  Buffer q(bytes), k(bytes), v(bytes), out(bytes), eager(bytes), lse(9 * 2100 * 4),
      work(choice.workspace_bytes);
  Arguments a;
  const Tensor shape{nullptr, 0, 9 * 128, 128};
  a.q = a.k = a.v = a.out = shape;
  a.q.data = q.data;
  a.k.data = k.data;
  a.v.data = v.data;
  a.lse = static_cast<float*>(lse.data);
  a.scale = 0.088f;
  a.workspace = work.data;
  // Row r of blocks lists all but block r.
  constexpr int kRows = 17;
  std::vector<int> counts(kRows, kRows - 1), indices;
  for (int row = 0; row < kRows; row++)
    for (int block = 0; block < kRows; block++)
      if (block != row) indices.push_back(block);
  Buffer on_device(counts.size() * 4), entries(indices.size() * 4);
  CHECK(cudaMemcpy(on_device.data, counts.data(), on_device.bytes, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(entries.data, indices.data(), entries.bytes, cudaMemcpyHostToDevice));
  a.list_counts = static_cast<int*>(on_device.data);
  a.list_indices = static_cast<int*>(entries.data);
  a.list_index_tile = kRows - 1;
  DeviceCache cache;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  a.out.data = out.data;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  LaunchStatus s = launch(problem, choice, a, 0, cache, stream);
  CHECK(cudaStreamEndCapture(stream, &graph));
  if (s.stage) return false;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  std::vector<char> x(bytes), y(bytes);
  for (int i = 0; i < 50; i++) {
    for (Buffer* b : {&q, &k, &v})
      oracle::fill_normal<<<256, 256, 0, stream>>>(b->data, 1, 0, 9 * 128, 128, 1, 2100, 9, 128,
                                                   1.f, 0.f, seed + i);
    CHECK(cudaMemsetAsync(out.data, 0xff, bytes, stream));
    CHECK(cudaMemsetAsync(eager.data, 0xff, bytes, stream));
    CHECK(cudaGraphLaunch(exec, stream));
    a.out.data = eager.data;
    s = launch(problem, choice, a, 0, cache, stream);
    wait(stream, "9999 graph replay");
    CHECK(cudaMemcpy(x.data(), out.data, bytes, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(y.data(), eager.data, bytes, cudaMemcpyDeviceToHost));
    if (s.stage || std::memcmp(x.data(), y.data(), bytes)) return false;
  }
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  return true;
}

int main(int argc, char** argv) {
  if (argc > 1) seed = std::strtoull(argv[1], nullptr, 10);
  const int from = argc > 2 ? std::atoi(argv[2]) : 0;
  const bool one = argc > 3;
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const std::vector<Case> cases = make_cases();
  int passed = 0, failed = 0;
  double worst[2] = {0, 0}, worst_lse = 0;
  for (std::size_t i = from; i < cases.size(); i++) {
    const Report r = run(cases[i], stream);
    (r.ok ? passed : failed)++;
    double& w = worst[cases[i].precision == Precision::f16];
    w = std::max(w, r.l2);
    worst_lse = std::max(worst_lse, r.lse);
    if (one) break;
  }
  if (!one) {
    for (const bool lists : {false, true}) {
      const bool same = graph_replay(stream, lists);
      (same ? passed : failed)++;
      if (!same) std::printf("FAIL graph replay%s\n", lists ? ", lists" : "");
    }
    passed += order::check(seed, failed);
    host_cost(stream);
  }
  std::printf(
      "flash_sm90_test seed %llu: %d passed, %d failed; worst rel L2 bf16 %.2e f16 %.2e, lse "
      "%.2e\n",
      static_cast<unsigned long long>(seed), passed, failed, worst[0], worst[1], worst_lse);
  return failed != 0;
}
