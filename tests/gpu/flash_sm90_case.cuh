// One case of the Hopper kernel's test: its tensors, two launches, the float64 oracle, what was
// written.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "src/backends/flash_sm90/launch.hpp"
#include "tests/gpu/flash_sm90_oracle.cuh"

using namespace fovea::flash_sm90;

enum class Layout { bshd, bhsd, fused, expanded };

struct Case {
  std::string name;
  Precision precision = Precision::bf16;
  int batch = 1, heads = 2, heads_kv = 2, seq_q = 128, seq_kv = 128, head_dim = 128, dim_v = 0;
  Layout layout = Layout::bshd;
  std::vector<int> lengths;
  std::vector<int> docs_q, docs_kv;  // packed when not empty
  int key_mask = 0;       // 1: random, 2: keys 11..63 hidden, 3: whole blocks hidden; +10 per head
  int list = 0;           // block list: 1 one for all, 2 per batch item and head
  int density = 0;        // of its blocks, in percent
  bool alike = false;     // rows of blocks 2n and 2n + 1 have one list
  bool unsorted = false;  // some lists do not ascend
  int block_q = 128, block_kv = 128;
  bool band = false;
  int left = -1, right = -1;
  bool out_float = false;
  float amplitude = 1;
  float growth = 0;    // later keys are this many times larger than the first
  bool spoil = false;  // NaN and infinities in visible values
  // Visible keys whose scores are -inf: 1: the first eight of every 32, 2: the last 300.
  int lost_keys = 0;
  int team = 0;  // 0: all multiprocessors
};

std::uint64_t seed = 1;

/// A tensor inside a poisoned allocation.
Tensor make_view(const Buffer& buffer, Layout layout, int rows, int heads, int columns,
                 std::size_t size) {
  Tensor t;
  t.data = buffer.data;
  const std::int64_t pad = 9;
  if (layout == Layout::bhsd) {
    t.row = columns;
    t.head = (rows + pad) * columns;
    t.batch = heads * t.head;
  } else if (layout == Layout::fused) {
    t.row = std::int64_t{3} * heads * columns;
    t.head = columns;
    t.batch = (rows + pad) * t.row;
    t.data = static_cast<char*>(buffer.data) + heads * columns * size;
  } else {
    t.row = std::int64_t{heads} * columns;
    t.head = columns;
    t.batch = (rows + pad) * t.row;
  }
  return t;
}
std::size_t view_bytes(int batch, int rows, int heads, int columns, std::size_t size) {
  return std::size_t{3} * batch * (rows + 9) * heads * columns * size + 4096;
}

void wait(cudaStream_t stream, const char* what) {
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    const cudaError_t e = cudaStreamQuery(stream);
    if (e == cudaSuccess) return;
    if (e != cudaErrorNotReady) {
      std::printf("%s: %s\n", what, cudaGetErrorString(e));
      std::fflush(stdout);
      _exit(2);
    }
    if (std::chrono::steady_clock::now() - start > std::chrono::seconds(6)) {
      std::printf("%s: HANG\n", what);
      std::fflush(stdout);
      _exit(3);
    }
  }
}

struct Report {
  double l2 = 0, lse = 0;
  int mismatches = 0;
  bool ok = false;
};

Report run(const Case& c, cudaStream_t stream) {
  const bool packed = !c.docs_q.empty();
  const int dim_v = c.dim_v ? c.dim_v : c.head_dim;
  int seq_q = c.seq_q, seq_kv = c.seq_kv;
  std::vector<int> cu_q{0}, cu_kv{0};
  for (int n : c.docs_q) cu_q.push_back(cu_q.back() + n);
  for (int n : c.docs_kv) cu_kv.push_back(cu_kv.back() + n);
  if (packed) seq_q = cu_q.back(), seq_kv = cu_kv.back();
  const int batch = packed ? 1 : c.batch;

  Problem problem;
  problem.precision = c.precision;
  problem.batch = packed ? static_cast<int>(c.docs_q.size()) : c.batch;
  problem.heads_q = c.heads;
  problem.heads_kv = c.heads_kv;
  problem.seq_q = seq_q;
  problem.seq_kv = seq_kv;
  problem.head_dim = c.head_dim;
  problem.dim_v = dim_v;
  problem.lengths = !c.lengths.empty();
  problem.packed = packed;
  problem.key_bits = c.key_mask != 0;
  const bool per_head = c.key_mask > 10;
  problem.key_mask_batches = batch;
  problem.key_mask_heads = per_head ? c.heads : 1;
  problem.band = c.band;
  problem.list = c.list != 0;
  problem.list_block_q = c.block_q;
  problem.list_block_kv = c.block_kv;
  problem.window_left = c.left;
  problem.window_right = c.right;
  problem.out_float = c.out_float;
  problem.multiprocessors = c.team;
  const Choice choice = choose(problem);
  if (choice.refusal != Refusal::none) {
    std::printf("%s refused\n", c.name.c_str());
    return {};
  }
  Buffer qb(view_bytes(batch, seq_q, c.heads, c.head_dim, 2));
  Buffer kb(view_bytes(batch, seq_kv, c.heads_kv, c.head_dim, 2));
  Buffer vb(view_bytes(batch, seq_kv, c.heads_kv, dim_v, 2));
  const std::size_t out_size = c.out_float ? 4 : 2;
  Buffer ob(view_bytes(batch, seq_q, c.heads, dim_v, out_size));
  Buffer lb((std::size_t{1} * batch * c.heads * seq_q + 64) * 4);
  Buffer work(choice.workspace_bytes);
  Arguments a;
  a.q = make_view(qb, c.layout, seq_q, c.heads, c.head_dim, 2);
  a.k = make_view(kb, c.layout, seq_kv, c.heads_kv, c.head_dim, 2);
  a.v = make_view(vb, c.layout, seq_kv, c.heads_kv, dim_v, 2);
  a.out = make_view(ob, c.layout == Layout::fused ? Layout::bshd : c.layout, seq_q, c.heads, dim_v,
                    out_size);
  const int bf16 = c.precision == Precision::bf16;
  const auto fill = [&](const Tensor& t, int rows, int heads, int columns, float amplitude,
                        float growth, int salt) {
    for (int b = 0; b < batch; b++) {
      int n = rows;
      if (salt && !c.lengths.empty()) n = c.lengths[b];  // keys behind the length stay NaN
      if (n)
        oracle::fill_normal<<<256, 256>>>(static_cast<std::uint16_t*>(t.data) + b * t.batch, bf16,
                                          t.batch, t.row, t.head, 1, n, heads, columns, amplitude,
                                          growth, seed * 7919 + salt * 104729 + b * 31);
    }
  };
  fill(a.q, seq_q, c.heads, c.head_dim, c.amplitude, 0, 0);
  fill(a.k, seq_kv, c.heads_kv, c.head_dim, 1, c.growth, 1);
  fill(a.v, seq_kv, c.heads_kv, dim_v, 1, 0, 2);
  CHECK(cudaDeviceSynchronize());
  if (c.layout == Layout::expanded) {  // every head and batch item reads the first one's keys
    a.k.head = a.v.head = 0;
    a.k.batch = a.v.batch = 0;
  }
  a.lse = static_cast<float*>(lb.data);
  a.scale = 1.f / std::sqrt(static_cast<float>(c.head_dim));
  a.workspace = work.data;

  Buffer lengths(4 * (c.lengths.size() + 1)), cq(4 * cu_q.size()), ckv(4 * cu_kv.size());
  if (!c.lengths.empty()) {
    CHECK(cudaMemcpy(lengths.data, c.lengths.data(), 4 * c.lengths.size(), cudaMemcpyHostToDevice));
    a.kv_lengths = lengths.data;
  }
  if (packed) {
    CHECK(cudaMemcpy(cq.data, cu_q.data(), 4 * cu_q.size(), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(ckv.data, cu_kv.data(), 4 * cu_kv.size(), cudaMemcpyHostToDevice));
    a.cu_seqlens_q = static_cast<int*>(cq.data);
    a.cu_seqlens_kv = static_cast<int*>(ckv.data);
  }
  const int mask_heads = per_head ? c.heads : 1;
  std::vector<std::uint8_t> mask(std::size_t{1} * batch * mask_heads * seq_kv);
  Buffer mb(mask.size() + 1);
  std::vector<std::uint16_t> nan_row(std::max(c.head_dim, dim_v), 0xffff);
  if (c.key_mask) {
    for (int r = 0; r < batch * mask_heads; r++)
      for (int k = 0; k < seq_kv; k++) {
        const int kind = c.key_mask % 10;
        std::uint64_t x = (seed + r * 977 + k + 1) * 0x9E3779B97F4A7C15ull;
        x ^= x >> 29;
        mask[std::size_t{1} * r * seq_kv + k] = kind == 1   ? x % 3 != 0
                                                : kind == 2 ? (k < 11 || k > 63)
                                                : kind == 3 ? (k / 200) % 2 == 1 && k % 200 > 5
                                                            : 0;
      }
    CHECK(cudaMemcpy(mb.data, mask.data(), mask.size(), cudaMemcpyHostToDevice));
    a.key_mask = static_cast<std::uint8_t*>(mb.data);
    a.key_mask_batch = std::int64_t{mask_heads} * seq_kv;
    a.key_mask_head = per_head ? seq_kv : 0;
    if (!per_head && c.layout != Layout::expanded)  // poison what is hidden
      for (int b = 0; b < batch; b++)
        for (int k = 0; k < seq_kv; k++)
          if (!mask[std::size_t{1} * b * seq_kv + k])
            for (int h = 0; h < c.heads_kv; h++) {
              CHECK(cudaMemcpyAsync(static_cast<std::uint16_t*>(a.k.data) + b * a.k.batch +
                                        k * a.k.row + h * a.k.head,
                                    nan_row.data(), c.head_dim * 2, cudaMemcpyHostToDevice));
              CHECK(cudaMemcpyAsync(static_cast<std::uint16_t*>(a.v.data) + b * a.v.batch +
                                        k * a.v.row + h * a.v.head,
                                    nan_row.data(), dim_v * 2, cudaMemcpyHostToDevice));
            }
  }
  // Block lists. Key block 1 is never on (its keys are NaN), every fifth row of blocks is empty.
  const int q_blocks = (seq_q + c.block_q - 1) / c.block_q;
  const int kv_blocks = (seq_kv + c.block_kv - 1) / c.block_kv;
  const int list_lines = c.list == 2 ? batch * c.heads : 1;
  std::vector<std::uint8_t> blocks;
  std::vector<int> counts, indices;
  if (c.list) {
    for (int line = 0; line < list_lines * q_blocks; line++) {
      int count = 0;
      indices.resize(indices.size() + kv_blocks, -1);
      for (int k = 0; k < kv_blocks; k++) {
        const int drawn = c.alike ? line - line % q_blocks % 2 : line;
        std::uint64_t x = (seed + drawn * 977 + k + 1) * 0x9E3779B97F4A7C15ull;
        x ^= x >> 29;
        const bool on = k != 1 && drawn % 5 != 4 && static_cast<int>(x % 100) < c.density;
        blocks.push_back(on);
        if (on) indices[std::size_t{1} * line * kv_blocks + count++] = k;
      }
      counts.push_back(count);
      if (c.unsorted && line % q_blocks % 8 > 1 && line % 3 != 0 && count > 3)
        std::swap(indices[std::size_t{1} * line * kv_blocks + line % 2],
                  indices[std::size_t{1} * line * kv_blocks + 2]);
    }
  }
  Buffer bb(blocks.size() + 1), countb(counts.size() * 4 + 4), indexb(indices.size() * 4 + 4);
  if (c.list) {
    CHECK(cudaMemcpy(bb.data, blocks.data(), blocks.size(), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(countb.data, counts.data(), counts.size() * 4, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(indexb.data, indices.data(), indices.size() * 4, cudaMemcpyHostToDevice));
    const bool own = c.list == 2;
    a.list_counts = static_cast<int*>(countb.data);
    a.list_indices = static_cast<int*>(indexb.data);
    a.list_count_head = own ? q_blocks : 0;
    a.list_count_batch = own ? c.heads * q_blocks : 0;
    a.list_index_tile = kv_blocks;
    a.list_index_head = own ? q_blocks * kv_blocks : 0;
    a.list_index_batch = own ? c.heads * q_blocks * kv_blocks : 0;
    for (int b = 0; b < batch; b++)
      for (int k = c.block_kv; k < std::min(2 * c.block_kv, seq_kv); k++)
        for (int h = 0; h < c.heads_kv; h++) {
          CHECK(cudaMemcpyAsync(
              static_cast<std::uint16_t*>(a.k.data) + b * a.k.batch + k * a.k.row + h * a.k.head,
              nan_row.data(), c.head_dim * 2, cudaMemcpyHostToDevice));
          CHECK(cudaMemcpyAsync(
              static_cast<std::uint16_t*>(a.v.data) + b * a.v.batch + k * a.v.row + h * a.v.head,
              nan_row.data(), dim_v * 2, cudaMemcpyHostToDevice));
        }
  }
  if (c.lost_keys) {  // q[0] > 0 and k[0] = -inf
    const auto put = [&](const Tensor& t, int rows, int heads, std::uint16_t value, int from,
                         int every) {
      oracle::fill_first_column<<<256, 256>>>(static_cast<std::uint16_t*>(t.data), t.batch, t.row,
                                              t.head, batch, rows, heads, value, from, every);
    };
    put(a.q, seq_q, c.heads, bf16 ? 0x3f80 : 0x3c00, 0, 8);
    put(a.k, seq_kv, c.heads_kv, bf16 ? 0xff80 : 0xfc00, c.lost_keys == 1 ? 0 : seq_kv - 300,
        c.lost_keys == 1 ? 32 : 8);
    CHECK(cudaDeviceSynchronize());
  }
  if (c.spoil) {
    const std::uint16_t inf = bf16 ? 0x7f80 : 0x7c00, minus = inf | 0x8000, nan = 0xffff;
    const auto put = [&](int key, int column, std::uint16_t value) {
      if (key < seq_kv)
        CHECK(cudaMemcpy(static_cast<std::uint16_t*>(a.v.data) + key * a.v.row + column, &value, 2,
                         cudaMemcpyHostToDevice));
    };
    put(5, 3, inf);
    put(70, 0, nan);
    put(133, dim_v - 1, minus);
    put(134, 3, minus);
    put(seq_kv - 1, 9 % dim_v, nan);
    put(seq_kv - 2, 10 % dim_v, inf);
  }

  // Twice, from poisoned outputs and the workspace the first launch left: bitwise equal.
  const std::size_t out_bytes = ob.bytes, lse_bytes = lb.bytes;
  std::vector<char> first_out(out_bytes), first_lse(lse_bytes), out(out_bytes), lse_raw(lse_bytes);
  bool repeat = true;
  DeviceCache cache;
  for (int pass = 0; pass < 2; pass++) {
    CHECK(cudaMemset(ob.data, 0xff, out_bytes));
    CHECK(cudaMemset(lb.data, 0xff, lse_bytes));
    CHECK(cudaDeviceSynchronize());
    const LaunchStatus s = launch(problem, choice, a, 0, cache, stream);
    if (s.stage) {
      std::printf("%s launch: %s (%d)\n", c.name.c_str(), describe(s), s.code);
      return {};
    }
    wait(stream, c.name.c_str());
    CHECK(cudaMemcpy(pass ? out.data() : first_out.data(), ob.data, out_bytes,
                     cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(pass ? lse_raw.data() : first_lse.data(), lb.data, lse_bytes,
                     cudaMemcpyDeviceToHost));
  }
  repeat = !std::memcmp(out.data(), first_out.data(), out_bytes) &&
           !std::memcmp(lse_raw.data(), first_lse.data(), lse_bytes);

  // Oracle on sampled rows.
  std::vector<int> rows;
  const long long cost = 1ll * seq_q * batch * c.heads * seq_kv;
  const int want =
      cost > 4000000
          ? std::max(8, static_cast<int>(4000000ll / (1ll * batch * c.heads * seq_kv + 1)))
          : seq_q;
  for (int i = 0; i < want; i++)
    rows.push_back(want >= seq_q ? i : static_cast<int>(1ll * i * (seq_q - 1) / (want - 1)));
  Buffer rb(rows.size() * 4);
  CHECK(cudaMemcpy(rb.data, rows.data(), rows.size() * 4, cudaMemcpyHostToDevice));
  const int n_rows = static_cast<int>(rows.size());
  const std::size_t lines = std::size_t{1} * batch * c.heads * n_rows;
  Buffer scores(lines * std::max(seq_kv, 1) * 8), oo(lines * dim_v * 8), ol(lines * 8);
  oracle::Job job{};
  job.q = a.q.data;
  job.k = a.k.data;
  job.v = a.v.data;
  job.q_batch = a.q.batch;
  job.q_row = a.q.row;
  job.q_head = a.q.head;
  job.k_batch = a.k.batch;
  job.k_row = a.k.row;
  job.k_head = a.k.head;
  job.v_batch = a.v.batch;
  job.v_row = a.v.row;
  job.v_head = a.v.head;
  job.bf16 = bf16;
  job.batch = batch;
  job.heads = c.heads;
  job.group = c.heads / c.heads_kv;
  job.seq_q = seq_q;
  job.seq_kv = seq_kv;
  job.head_dim = c.head_dim;
  job.dim_v = dim_v;
  job.scale = a.scale;
  job.lengths = static_cast<const int*>(a.kv_lengths);
  job.mask = a.key_mask;
  job.mask_batch = a.key_mask_batch;
  job.mask_head = a.key_mask_head;
  job.cu_q = a.cu_seqlens_q;
  job.cu_kv = a.cu_seqlens_kv;
  job.band = c.band;
  if (c.list) {
    job.blocks = static_cast<std::uint8_t*>(bb.data);
    job.block_q = c.block_q;
    job.block_kv = c.block_kv;
    job.blocks_row = kv_blocks;
    job.blocks_head = c.list == 2 ? q_blocks * kv_blocks : 0;
    job.blocks_batch = job.blocks_head * c.heads;
  }
  job.left = c.left;
  job.right = c.right;
  job.rows = static_cast<const int*>(rb.data);
  job.row_count = n_rows;
  job.scores = static_cast<double*>(scores.data);
  job.out = static_cast<double*>(oo.data);
  job.lse = static_cast<double*>(ol.data);
  std::vector<double> want_out(lines * dim_v), want_lse(lines);
  if (lines) {
    oracle::attention<<<static_cast<unsigned>(lines), 256>>>(job);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(want_out.data(), oo.data, want_out.size() * 8, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(want_lse.data(), ol.data, want_lse.size() * 8, cudaMemcpyDeviceToHost));
  }
  Report r;
  double num = 0, den = 0;
  const std::int64_t base = static_cast<char*>(a.out.data) - static_cast<char*>(ob.data);
  const float* lse = reinterpret_cast<const float*>(lse_raw.data());
  double top = 0;
  for (std::size_t line = 0; line < lines; line++) {
    const int i = static_cast<int>(line % n_rows), h = static_cast<int>(line / n_rows % c.heads);
    const int b = static_cast<int>(line / n_rows / c.heads), row = rows[i];
    for (int e = 0; e < dim_v; e++) {
      const std::int64_t at = b * a.out.batch + row * a.out.row + h * a.out.head + e;
      const char* p = out.data() + base + at * out_size;
      double got;
      if (c.out_float)
        got = *reinterpret_cast<const float*>(p);
      else if (bf16)
        got = __bfloat162float(*reinterpret_cast<const __nv_bfloat16*>(p));
      else
        got = __half2float(*reinterpret_cast<const __half*>(p));
      const double ref = want_out[line * dim_v + e];
      if (!std::isfinite(ref) || !std::isfinite(got)) {
        const bool same = std::isnan(ref) ? std::isnan(got) : ref == got;
        r.mismatches += !same;
      } else {
        num += (got - ref) * (got - ref);
        den += ref * ref;
      }
    }
    const double ref = want_lse[line], got = lse[(std::size_t{1} * b * c.heads + h) * seq_q + row];
    top = std::max(top, std::isfinite(ref) ? std::fabs(ref) : 0);
    if (!std::isfinite(ref) || !std::isfinite(got))
      r.mismatches += !(std::isnan(ref) ? std::isnan(got) : ref == got);
    else
      r.lse = std::max(r.lse, std::fabs(ref - got));
  }
  r.l2 = den > 0 ? std::sqrt(num / den) : std::sqrt(num);
  // Nothing but the output was written.
  std::size_t written = 0;
  for (std::size_t i = 0; i < out_bytes; i += out_size) {
    bool poison = true;
    for (std::size_t k = 0; k < out_size; k++)
      poison &= static_cast<unsigned char>(out[i + k]) == 0xff;
    written += !poison;
  }
  const std::size_t total = std::size_t{1} * batch * seq_q * c.heads * dim_v;
  // A NaN result may equal the poison.
  const bool guard = c.spoil ? written <= total : written == total;
  const double tolerance = bf16 ? 6e-3 : 1e-3, lse_tolerance = 1e-3 + top * 2.5e-7;
  r.ok = r.l2 < tolerance && r.lse < lse_tolerance && !r.mismatches && repeat && guard;
  if (!r.ok || getenv("VERBOSE"))
    std::printf(
        "%s %-34s %s d%d/%d bn%d: l2 %.2e lse %.2e nonfinite %d repeat %d written %zu/%zu\n",
        r.ok ? "ok  " : "FAIL", c.name.c_str(), bf16 ? "bf16" : "f16", c.head_dim, dim_v,
        choice.key.block_kv, r.l2, r.lse, r.mismatches, repeat, written, total);
  std::fflush(stdout);
  return r;
}
