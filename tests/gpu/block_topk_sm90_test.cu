// Scores and choices of block_topk_sm90 against float64, and the time of its three kernels.
// Standalone: block_topk_sm90_test [seed], or block_topk_sm90_test bench [heads seq dim block]
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "src/backends/block_topk_sm90/cells.hpp"
#include "src/backends/block_topk_sm90/select.hpp"

#define CHECK(x)                                                                     \
  do {                                                                               \
    const auto e_ = static_cast<cudaError_t>(x);                                     \
    if (e_ != cudaSuccess) {                                                         \
      std::printf("%s:%d %s: %s\n", __FILE__, __LINE__, #x, cudaGetErrorString(e_)); \
      std::fflush(stdout);                                                           \
      _exit(2);                                                                      \
    }                                                                                \
  } while (0)

namespace topk = fovea::block_topk_sm90;

namespace {

struct Case {
  int batch, heads_q, heads_kv, seq_q, seq_kv, dim, block;
  double scale, sparsity;
  bool f16;
  double spread;  // tokens are normal numbers times 2^[-spread, 0], the same for 32 neighbours
  int length;     // of the last batch item; 0: all keys, -1: none
  double mean = 0;
  int prefix = 0;  // protected keys
};

int most_of(const topk::Call& c, int columns) {
  const int first = static_cast<int>((c.protected_prefix + c.block - 1) / c.block);
  const int free = std::max(columns - first, 0);
  if (free == 0) return columns;
  const int wanted =
      std::max(static_cast<int>(std::ceil((1.0 - c.sparsity) * free - 1e-9 * free)), 1);
  return std::min(columns, first) + std::min(free, (wanted + 7) / 8 * 8);
}

topk::Call call_of(const Case& t) {
  topk::Call c;
  c.f16 = t.f16;
  c.batch = t.batch, c.heads_q = t.heads_q, c.heads_kv = t.heads_kv;
  c.seq_q = t.seq_q, c.seq_kv = t.seq_kv, c.head_dim = t.dim;
  const auto heads = [&](int count, int seq) {
    const std::int64_t row = std::int64_t{count} * t.dim;
    return topk::Heads{nullptr, row * seq, row, t.dim};
  };
  c.q = heads(t.heads_q, t.seq_q);
  c.k = heads(t.heads_kv, t.seq_kv);
  c.scale = static_cast<float>(t.scale);
  c.block = t.block;
  c.sparsity = t.sparsity;
  c.has_lengths = t.length != 0;
  c.protected_prefix = t.prefix;
  c.most = most_of(c, topk::ceil_div(t.seq_kv, t.block));
  return c;
}

double widen(std::uint16_t bits, bool f16) {
  if (f16) return __half2float(__half(__half_raw{bits}));
  return __bfloat162float(__nv_bfloat16(__nv_bfloat16_raw{bits}));
}
std::uint16_t narrow(double x, bool f16) {
  if (f16) return __half_raw(__double2half(x)).x;
  return __nv_bfloat16_raw(__double2bfloat16(x)).x;
}

/// Memory on the device that starts as NaN.
struct Buffer {
  void* data = nullptr;
  explicit Buffer(std::size_t bytes) {
    CHECK(cudaMalloc(&data, bytes + 16));
    CHECK(cudaMemset(data, 0xff, bytes + 16));
  }
  ~Buffer() { cudaFree(data); }
  Buffer(const Buffer&) = delete;
};

/// Averages of the cells of one head, and the largest norm of each block.
struct Cells {
  std::vector<std::vector<double>> mean;
  std::vector<double> norm;
};
Cells cells_of(const std::vector<std::uint16_t>& x, const topk::Heads& h, int batch, int head,
               int tokens, const Case& t) {
  Cells out;
  const int per_block = t.block / topk::kCellTokens;
  for (int first = 0; first < tokens; first += topk::kCellTokens) {
    const int last = std::min(first + topk::kCellTokens, tokens);
    std::vector<double> mean(static_cast<std::size_t>(t.dim));
    double norm = 0;
    for (int d = 0; d < t.dim; d++) {
      double sum = 0;
      for (int i = first; i < last; i++)
        sum += widen(x[static_cast<std::size_t>(batch * h.batch + i * h.row + head * h.head + d)],
                     t.f16);
      mean[static_cast<std::size_t>(d)] = sum / (last - first);
      norm += mean[static_cast<std::size_t>(d)] * mean[static_cast<std::size_t>(d)];
    }
    const auto block = out.mean.size() / static_cast<std::size_t>(per_block);
    if (block == out.norm.size()) out.norm.push_back(0);
    out.norm[block] = std::max(out.norm[block], std::sqrt(norm));
    out.mean.push_back(std::move(mean));
  }
  return out;
}

int failures = 0, cases = 0;

void expect(bool ok, const std::string& what) {
  if (!ok && ++failures <= 20) std::printf("FAIL %s\n", what.c_str());
}

void run_case(const Case& t, unsigned long long seed) {
  cases++;
  topk::Call c = call_of(t);
  std::mt19937_64 bits(seed);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> spread(-t.spread, 0);
  const auto fill = [&](const topk::Heads& h, int seq) {
    std::vector<std::uint16_t> x(static_cast<std::size_t>(t.batch * h.batch));
    double factor = 1;
    for (std::size_t i = 0; i < x.size(); i++) {
      if (i % static_cast<std::size_t>(32 * h.row) == 0) factor = std::exp2(spread(bits));
      x[i] = narrow((normal(bits) + t.mean) * factor, t.f16);
    }
    // The second block of keys and queries repeats at the end of what fills whole blocks.
    const int repeated = seq / t.block * t.block - t.block;
    if (repeated > t.block)
      for (int b = 0; b < t.batch; b++)
        std::copy_n(x.begin() + b * h.batch + t.block * h.row, t.block * h.row,
                    x.begin() + b * h.batch + repeated * h.row);
    return x;
  };
  const auto q = fill(c.q, t.seq_q), k = fill(c.k, t.seq_kv);
  std::vector<int> lengths(static_cast<std::size_t>(t.batch), t.seq_kv);
  if (t.length != 0) lengths.back() = std::max(t.length, 0);
  const topk::WorkspaceLayout layout = topk::workspace_layout(c);
  Buffer dq(q.size() * 2), dk(k.size() * 2), dl(lengths.size() * 4);
  CHECK(cudaMemcpy(dq.data, q.data(), q.size() * 2, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(dk.data, k.data(), k.size() * 2, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(dl.data, lengths.data(), lengths.size() * 4, cudaMemcpyHostToDevice));
  c.q.data = dq.data, c.k.data = dk.data;
  if (c.has_lengths) c.kv_lengths = dl.data;
  const auto choose = [&](int most_blocks) {
    Buffer workspace(layout.total);
    CHECK(topk::select(c, workspace.data, nullptr, most_blocks));
    CHECK(cudaDeviceSynchronize());
    std::vector<char> out(layout.total);
    CHECK(cudaMemcpy(out.data(), workspace.data, layout.total, cudaMemcpyDeviceToHost));
    return out;
  };
  const std::vector<char> got = choose(0);

  const std::string name = "h" + std::to_string(t.heads_q) + " s" + std::to_string(t.seq_q) + 'x' +
                           std::to_string(t.seq_kv) + " d" + std::to_string(t.dim) + " block " +
                           std::to_string(t.block) + " scale " + std::to_string(t.scale);
  const int rows = topk::ceil_div(t.seq_q, t.block), stride = topk::ceil_div(t.seq_kv, t.block);
  const int per_block = t.block / topk::kCellTokens;
  const double unit = t.scale * 1.4426950408889634;
  double worst_of_case = 0;
  // Thread blocks with many groups of keys, tiles of queries and heads each write the same bytes.
  for (const int most_blocks : {1, 2, 3, 7})
    expect(choose(most_blocks) == got,
           name + ": not the same with " + std::to_string(most_blocks) + " thread blocks");
  for (int b = 0; b < t.batch; b++)
    for (int h = 0; h < t.heads_q; h++) {
      const int length = lengths[static_cast<std::size_t>(b)];
      const Cells queries = cells_of(q, c.q, b, h, t.seq_q, t);
      const Cells keys = cells_of(k, c.k, b, h / (t.heads_q / t.heads_kv), length, t);
      const int columns = topk::ceil_div(length, t.block);
      const int kept = std::min(most_of(c, columns), c.most);
      for (int row = 0; row < rows; row++) {
        const std::size_t at = static_cast<std::size_t>((b * t.heads_q + h) * rows + row);
        int count = 0;
        std::memcpy(&count, got.data() + layout.counts + at * 4, 4);
        expect(count == kept, name + ": " + std::to_string(count) + " blocks of " +
                                  std::to_string(kept) + " in row " + std::to_string(row));
        std::vector<int> list(static_cast<std::size_t>(kept));
        std::memcpy(list.data(),
                    got.data() + layout.indices + at * static_cast<std::size_t>(c.most) * 4,
                    list.size() * 4);
        if (kept == columns) {
          for (int n = 0; n < kept; n++)
            expect(list[static_cast<std::size_t>(n)] == n, name + ": not every block");
          continue;
        }
        std::vector<float> scores(static_cast<std::size_t>(columns));
        std::memcpy(scores.data(),
                    got.data() + layout.scores + at * static_cast<std::size_t>(stride) * 4,
                    scores.size() * 4);
        for (int column = 0; column < columns; column++) {
          std::vector<double> x;
          for (int i = row * per_block;
               i < std::min((row + 1) * per_block, static_cast<int>(queries.mean.size())); i++)
            for (int j = column * per_block;
                 j < std::min((column + 1) * per_block, static_cast<int>(keys.mean.size())); j++) {
              double dot = 0;
              for (std::size_t d = 0; d < static_cast<std::size_t>(t.dim); d++)
                dot += queries.mean[static_cast<std::size_t>(i)][d] *
                       keys.mean[static_cast<std::size_t>(j)][d];
              x.push_back(dot * unit);
            }
          const double largest = *std::max_element(x.begin(), x.end());
          double sum = 0;
          for (double term : x) sum += std::exp2(term - largest);
          const double score = largest + std::log2(sum);
          // Either average is rounded to eleven bits, 2^-12 of its norm; elements that f16 holds
          // less well add at most sqrt(128) 2^-20 of the largest of their block. The float32 sums
          // of the product (2^-17), and exponentials, their sum and the logarithm (2^-19) are on
          // top.
          const double norms = std::fabs(unit) * queries.norm[static_cast<std::size_t>(row)] *
                               keys.norm[static_cast<std::size_t>(column)];
          const double bound = norms * (2.1 * 0x1p-12 + 0x1p-17) + 0x1p-19 * (8 + std::fabs(score));
          const double error = std::fabs(scores[static_cast<std::size_t>(column)] - score);
          worst_of_case = std::max(worst_of_case, error / bound);
          expect(error <= bound, name + ": row " + std::to_string(row) + " column " +
                                     std::to_string(column) + " scores " +
                                     std::to_string(scores[static_cast<std::size_t>(column)]) +
                                     ", not " + std::to_string(score));
        }
        const int repeated = t.seq_kv / t.block - 1;
        if (repeated > 1 && length >= (repeated + 1) * t.block)
          expect(std::memcmp(&scores[1], &scores[static_cast<std::size_t>(repeated)], 4) == 0,
                 name + ": equal blocks do not tie in row " + std::to_string(row));
        // The list follows from these very scores.
        std::vector<int> order(static_cast<std::size_t>(columns));
        for (int n = 0; n < columns; n++) order[static_cast<std::size_t>(n)] = n;
        std::stable_sort(order.begin(), order.end(), [&](int l, int r) {
          return scores[static_cast<std::size_t>(l)] > scores[static_cast<std::size_t>(r)];
        });
        const int first = std::min(columns, topk::ceil_div(t.prefix, t.block));
        std::stable_partition(order.begin(), order.end(), [&](int n) { return n < first; });
        order.resize(static_cast<std::size_t>(kept));
        std::sort(order.begin(), order.end());
        expect(order == list, name + ": not the best of row " + std::to_string(row));
      }
    }
  std::printf("%-52s largest error %.3f of its bound\n", name.c_str(), worst_of_case);
}

/// What reading Q and K takes.
__global__ void __launch_bounds__(256)
    read_kernel(const uint4* from, long long count, uint32_t* to) {
  constexpr int kAhead = 8;
  uint32_t all = 0;
  const long long first = static_cast<long long>(blockIdx.x) * 256 * kAhead + threadIdx.x;
  uint4 x[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; i++)
    x[i] = first + i * 256 < count ? __ldcs(from + first + i * 256) : uint4{};
#pragma unroll
  for (int i = 0; i < kAhead; i++) all |= x[i].x ^ x[i].y ^ x[i].z ^ x[i].w;
  if (all == 0x12345678u) *to = all;
}

/// Keeps the device busy while the host enqueues what is timed.
__global__ void hold_kernel(unsigned long long ns) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  while (now - start < ns);
}

/// Time on the device; with `idle`, and of the host's launches, from an empty stream.
float time_us(const std::function<void()>& enqueue, bool idle = false) {
  cudaEvent_t start, stop;
  CHECK(cudaEventCreate(&start));
  CHECK(cudaEventCreate(&stop));
  std::vector<float> times;
  for (int i = 0; i < 60; i++) {
    if (!idle) hold_kernel<<<1, 1>>>(60000);
    CHECK(cudaEventRecord(start));
    enqueue();
    CHECK(cudaEventRecord(stop));
    CHECK(cudaEventSynchronize(stop));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, start, stop));
    if (i >= 10) times.push_back(1e3f * ms);
  }
  CHECK(cudaEventDestroy(start));
  CHECK(cudaEventDestroy(stop));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void bench(int heads, int seq, int dim, int block) {
  topk::Call c =
      call_of({1, heads, heads, seq, seq, dim, block, 1 / std::sqrt(dim), 0.8, false, 0, 0, 0});
  const std::size_t elements = static_cast<std::size_t>(seq) * heads * dim;
  std::vector<std::uint16_t> x(elements);
  std::mt19937 bits(1);
  for (auto& v : x) v = static_cast<std::uint16_t>(0x3f00 | (bits() & 0x80ff));
  const topk::WorkspaceLayout layout = topk::workspace_layout(c);
  Buffer q(2 * elements), k(2 * elements), workspace(layout.total);
  CHECK(cudaMemcpy(q.data, x.data(), 2 * elements, cudaMemcpyHostToDevice));
  std::rotate(x.begin(), x.begin() + 12345, x.end());
  CHECK(cudaMemcpy(k.data, x.data(), 2 * elements, cudaMemcpyHostToDevice));
  c.q.data = q.data, c.k.data = k.data;
  const double bytes = 4.0 * static_cast<double>(elements);
  const double cells = topk::ceil_div(seq, topk::kCellTokens);
  const auto count = static_cast<long long>(elements) / 8;
  const float read = time_us([&] {
    const auto blocks = static_cast<unsigned>((count + 2047) / 2048);
    for (const void* from : {q.data, k.data})
      read_kernel<<<blocks, 256>>>(static_cast<const uint4*>(from), count,
                                   static_cast<uint32_t*>(workspace.data));
  });
  const float pool = time_us([&] { CHECK(topk::pool(c, workspace.data, nullptr)); });
  const float score = time_us([&] { CHECK(topk::score(c, workspace.data, nullptr)); });
  const float choose = time_us([&] { CHECK(topk::choose(c, workspace.data, nullptr)); });
  const auto select = [&] { CHECK(topk::select(c, workspace.data, nullptr)); };
  const float both = time_us(select), idle = time_us(select, true);
  std::printf(
      "H%d S%d D%d block %d: reading %.1f us %.2f TB/s, pool %.1f us %.2f TB/s, score %.1f us %.0f "
      "TFLOP/s, choice %.1f us, together %.1f us, %.2f of reading (%.1f us from an empty stream)\n",
      heads, seq, dim, block, read, bytes / read * 1e-6, pool, bytes / pool * 1e-6, score,
      2 * heads * cells * cells * dim / score * 1e-6, choose, both, both / read, idle);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  CHECK(topk::prepare());
  if (argc > 1 && std::string(argv[1]) == "bench") {
    if (argc == 6) {
      bench(std::atoi(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]), std::atoi(argv[5]));
      return 0;
    }
    for (const int block : {128, 64})
      for (const int heads : {12, 40}) bench(heads, 32760, 128, block);
    bench(24, 4608, 128, 128);
    bench(40, 75600, 128, 128);
    bench(24, 32768, 64, 128);
    return 0;
  }
  const unsigned long long seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  const Case all[] = {
      {1, 2, 2, 2048, 4096, 128, 128, 0.09, 0.8, false, 0, 0},
      {1, 2, 1, 1000, 2500, 128, 128, 2, 0.7, false, 4, 0},
      {2, 4, 2, 700, 5003, 64, 128, 3, 0.7, true, 2, 3333},
      {1, 3, 1, 517, 2600, 40, 128, 2, 0.9, false, 12, 0},
      {2, 2, 2, 333, 1999, 72, 64, 2, 0.5, true, 3, 700},
      {1, 2, 2, 1100, 4100, 128, 64, 0.5, 0.75, false, 0, 0},
      {1, 1, 1, 129, 2100, 128, 128, 0.1, 0.6, false, 0, 0},
      {1, 1, 1, 18000, 3000, 64, 128, 0.2, 0.6, false, 0, 0},  // many tiles of queries
      {1, 2, 2, 2048, 4096, 128, 128, 400, 0.8, false, 0, 0},  // sums that float32 does not hold
      {1, 2, 2, 2048, 4096, 128, 64, -300, 0.8, false, 1, 0},
      {1, 2, 2, 2048, 4096, 128, 128, -2, 0.8, false, 0, 0,
       1},  // and those it does not tell from 0
      {1, 2, 2, 2048, 4096, 128, 64, -2, 0.8, true, 0, 0, 1},
      {1, 1, 1, 16, 20000, 64, 128, 4, 0.95, false, 0, 0},
      {1, 2, 2, 600, 900, 128, 128, 1, 0.1, false, 0, 0},        // every block
      {1, 10, 10, 3000, 4000, 128, 128, 0.2, 0.7, false, 0, 0},  // many heads
      {3, 9, 3, 1300, 2700, 64, 64, 0.3, 0.6, true, 2, 1500},
      {1, 6, 3, 300, 9000, 128, 64, 0.1, 0.8, false, 0, 0},         // rows longer than 128 scores
      {1, 1, 1, 200, 40000, 64, 128, 0.1, 0.8, false, 0, 0},        // than 256
      {1, 1, 1, 100, 75000, 64, 64, 0.1, 0.9, false, 0, 0},         // than 1024
      {2, 2, 1, 257, 36001, 64, 64, 0.3, 0.7, true, 2, 34001},      // than 512
      {1, 2, 2, 500, 3000, 128, 128, 0.001, 0.8, false, 30, 0},     // averages that need factors
      {1, 1, 1, 400, 2500, 128, 64, 1e-9, 0.8, true, 1, 0, 40000},  // above 2^15
      {3, 2, 2, 300, 6000, 128, 128, 0.2, 0.7, false, 1, 900},  // an item that keeps every block
      {2, 2, 1, 300, 3000, 64, 64, 0.2, 0.7, true, 1, -1},      // and one without keys
      {2, 2, 2, 500, 5000, 128, 128, 0.2, 0.8, false, 1, 3100, 0, 700},  // protected keys
  };
  unsigned long long next = seed;
  for (const Case& t : all) run_case(t, next++);
  std::printf("block_topk_sm90_test seed %llu: %d cases, %d failures\n", seed, cases, failures);
  return failures != 0;
}
