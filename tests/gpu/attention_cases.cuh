// Cases of the numeric contract for kernels that take an AttentionCall, and one run of a case
// against the float64 oracle: strides, poisoned padding, masks of every shape and type,
// repeatability.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/gpu/attention_oracle.cuh"

namespace cases {

using namespace fovea::cuda;

enum class Layout { bshd, bhsd, fused, expanded, odd };
enum class Content {
  visible,  // boolean: all true
  random,   // two thirds visible
  prefix,   // keys 11 to 63 hidden
  stripes,  // long hidden stretches
  nothing,  // all hidden
  edges,    // additive: rows of the lowest finite value, of -inf, with NaN and with +inf
};

struct Case {
  std::string name;
  Type type = Type::bf16;
  int batch = 1, heads = 2, heads_kv = 2, seq_q = 128, seq_kv = 128, head_dim = 128, dim_v = 128;
  Layout layout = Layout::bshd;
  std::vector<int> lengths;
  bool wide_lengths = false;
  std::vector<int> docs_q, docs_kv;  // packed when not empty
  MaskType mask = MaskType::none;
  Content content = Content::random;
  bool mask_batch = true, mask_head = false, mask_query = false;  // axes that are not broadcast
  int left = -1, right = -1;
  bool out_float = false;
  float amplitude = 1;
  bool spoil = false;  // NaN and infinities in visible values
};

struct Report {
  double l2 = 0, lse = 0;
  int mismatches = 0;
  bool ok = false;
};

/// Enqueues a call; false: failed, and said why. `aligned`: all rows are whole units of 16 bytes.
using Launch = std::function<bool(Type, const AttentionCall&, bool aligned, cudaStream_t)>;

inline std::uint64_t mix(std::uint64_t x) {
  x *= 0x9E3779B97F4A7C15ull;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9ull;
  return x ^ x >> 32;
}

inline StridedTensor make_view(const Buffer& buffer, Layout layout, int rows, int heads,
                               int columns, int size) {
  StridedTensor t;
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
    t.data = static_cast<char*>(buffer.data) + std::int64_t{heads} * columns * size;
  } else {
    const int odd = layout == Layout::odd ? 1 : 0;
    t.head = columns + odd;
    t.row = heads * t.head + 2 * odd;
    t.batch = (rows + pad) * t.row + odd;
    t.data = static_cast<char*>(buffer.data) + odd * size;
  }
  return t;
}
inline std::size_t view_bytes(int batch, int rows, int heads, int columns, int size) {
  return std::size_t{3} * batch * (rows + 9) * heads * (columns + 3) * size + 4096;
}

inline void wait(cudaStream_t stream, const char* what) {
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    const cudaError_t e = cudaStreamQuery(stream);
    if (e == cudaSuccess) return;
    if (e != cudaErrorNotReady) {
      std::printf("%s: %s\n", what, cudaGetErrorString(e));
      std::fflush(stdout);
      _exit(2);
    }
    if (std::chrono::steady_clock::now() - start > std::chrono::seconds(10)) {
      std::printf("%s: HANG\n", what);
      std::fflush(stdout);
      _exit(3);
    }
  }
}

/// The mask's elements [batches, heads, rows, seq_kv] as floats: 0 or -inf for boolean ones.
inline std::vector<float> mask_values(const Case& c, int batches, int heads, int rows,
                                      std::uint64_t seed) {
  std::vector<float> values(std::size_t{1} * batches * heads * rows * c.seq_kv);
  std::size_t at = 0;
  for (int line = 0; line < batches * heads * rows; line++)
    for (int k = 0; k < c.seq_kv; k++, at++) {
      const std::uint64_t x = mix(seed * 77 + at + 1);
      bool visible = true;
      if (c.content == Content::random) visible = x % 3 != 0;
      if (c.content == Content::prefix) visible = k < 11 || k > 63;
      if (c.content == Content::stripes) visible = (k / 200) % 2 == 1 && k % 200 > 5;
      if (c.content == Content::nothing) visible = false;
      float value = visible ? 0.f : -INFINITY;
      if (c.mask != MaskType::byte && visible)
        value = static_cast<float>(static_cast<int>(x >> 40 & 0xff) - 128) / 64.f;
      if (c.content == Content::edges) {
        const float lowest = c.mask == MaskType::f16   ? -65504.f
                             : c.mask == MaskType::f32 ? -3.4028235e38f
                                                       : -3.3895314e38f;
        if (line % 7 == 1) value = lowest;
        if (line % 7 == 2) value = -INFINITY;
        if (line % 7 == 3 && k == c.seq_kv / 2) value = NAN;
        if (line % 7 == 4 && k == 1) value = INFINITY;
        if (line % 7 == 5) value = k % 2 ? lowest : -INFINITY;
      }
      values[at] = value;
    }
  return values;
}

inline Report run(const Case& c, const Launch& launch, std::uint64_t seed, cudaStream_t stream) {
  const bool packed = !c.docs_q.empty();
  int seq_q = c.seq_q, seq_kv = c.seq_kv;
  std::vector<int> cu_q{0}, cu_kv{0};
  for (int n : c.docs_q) cu_q.push_back(cu_q.back() + n);
  for (int n : c.docs_kv) cu_kv.push_back(cu_kv.back() + n);
  if (packed) seq_q = cu_q.back(), seq_kv = cu_kv.back();
  const int batch = packed ? 1 : c.batch, size = size_of(c.type);
  const int out_size = c.out_float ? 4 : size;

  Buffer qb(view_bytes(batch, seq_q, c.heads, c.head_dim, size));
  Buffer kb(view_bytes(batch, seq_kv, c.heads_kv, c.head_dim, size));
  Buffer vb(view_bytes(batch, seq_kv, c.heads_kv, c.dim_v, size));
  Buffer ob(view_bytes(batch, seq_q, c.heads, c.dim_v, out_size));
  Buffer lb((std::size_t{1} * batch * c.heads * seq_q + 64) * 4);
  AttentionCall a;
  a.q = make_view(qb, c.layout, seq_q, c.heads, c.head_dim, size);
  a.k = make_view(kb, c.layout, seq_kv, c.heads_kv, c.head_dim, size);
  a.v = make_view(vb, c.layout, seq_kv, c.heads_kv, c.dim_v, size);
  a.out = make_view(ob, c.layout == Layout::fused ? Layout::bshd : c.layout, seq_q, c.heads,
                    c.dim_v, out_size);
  a.lse = static_cast<float*>(lb.data);
  a.batch = packed ? static_cast<int>(c.docs_q.size()) : c.batch;
  a.heads = c.heads;
  a.group = c.heads / c.heads_kv;
  a.seq_q = seq_q;
  a.seq_kv = seq_kv;
  a.max_seq_q = packed ? *std::max_element(c.docs_q.begin(), c.docs_q.end()) : seq_q;
  a.head_dim = c.head_dim;
  a.dim_v = c.dim_v;
  a.scale = 1.f / std::sqrt(static_cast<float>(c.head_dim));
  a.out_float = c.out_float;
  if (c.left >= 0) a.window_left = c.left;
  if (c.right >= 0) a.window_right = c.right;

  const auto fill = [&](const StridedTensor& t, int rows, int heads, int columns, float amplitude,
                        int salt) {
    for (int b = 0; b < batch; b++) {
      int n = rows;
      if (salt && !c.lengths.empty()) n = c.lengths[b];  // keys behind the length stay NaN
      StridedTensor item = t;
      item.data = static_cast<char*>(t.data) + b * t.batch * size;
      if (n)
        oracle::fill_normal<<<256, 256>>>(item, c.type, 1, n, heads, columns, amplitude,
                                          seed * 7919 + salt * 104729 + b * 31);
    }
  };
  fill(a.q, seq_q, c.heads, c.head_dim, c.amplitude, 0);
  fill(a.k, seq_kv, c.heads_kv, c.head_dim, 1, 1);
  fill(a.v, seq_kv, c.heads_kv, c.dim_v, 1, 2);
  CHECK(cudaDeviceSynchronize());
  if (c.layout == Layout::expanded) {  // every head and batch item reads the first one's keys
    a.k.head = a.v.head = 0;
    a.k.batch = a.v.batch = 0;
  }
  Buffer lengths(8 * (c.lengths.size() + 1)), cq(4 * cu_q.size()), ckv(4 * cu_kv.size());
  if (!c.lengths.empty()) {
    const std::vector<long long> wide(c.lengths.begin(), c.lengths.end());
    a.kv_lengths_wide = c.wide_lengths;
    a.kv_lengths = lengths.data;
    if (c.wide_lengths)
      CHECK(cudaMemcpy(lengths.data, wide.data(), 8 * wide.size(), cudaMemcpyHostToDevice));
    else
      CHECK(cudaMemcpy(lengths.data, c.lengths.data(), 4 * wide.size(), cudaMemcpyHostToDevice));
  }
  if (packed) {
    CHECK(cudaMemcpy(cq.data, cu_q.data(), 4 * cu_q.size(), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(ckv.data, cu_kv.data(), 4 * cu_kv.size(), cudaMemcpyHostToDevice));
    a.cu_seqlens_q = static_cast<int*>(cq.data);
    a.cu_seqlens_kv = static_cast<int*>(ckv.data);
  }

  const int mask_batches = c.mask_batch ? batch : 1, mask_heads = c.mask_head ? c.heads : 1;
  const int mask_rows = c.mask_query ? seq_q : 1;
  const std::size_t mask_size =
      c.mask == MaskType::none ? 0
                               : std::size_t{1} * mask_batches * mask_heads * mask_rows * seq_kv;
  Buffer mb(mask_size * 4 + 16);
  if (c.mask != MaskType::none) {
    const std::vector<float> values = mask_values(c, mask_batches, mask_heads, mask_rows, seed);
    std::vector<unsigned char> bytes(mask_size * 4);
    int element = 2;
    for (std::size_t i = 0; i < mask_size; i++) {
      if (c.mask == MaskType::byte) {
        element = 1;
        bytes[i] = values[i] == 0.f ? (i % 2 ? 1 : 255) : 0;
      } else if (c.mask == MaskType::f32) {
        element = 4;
        std::memcpy(&bytes[4 * i], &values[i], 4);
      } else if (c.mask == MaskType::f16) {
        const __half h = __float2half(values[i]);
        std::memcpy(&bytes[2 * i], &h, 2);
      } else {
        const __nv_bfloat16 h = __float2bfloat16(values[i]);
        std::memcpy(&bytes[2 * i], &h, 2);
      }
    }
    CHECK(cudaMemcpy(mb.data, bytes.data(), mask_size * element, cudaMemcpyHostToDevice));
    a.mask = mb.data;
    a.mask_type = c.mask;
    if (c.mask_batch) a.mask_batch = std::int64_t{mask_heads} * mask_rows * seq_kv;
    if (c.mask_head) a.mask_head = std::int64_t{mask_rows} * seq_kv;
    if (c.mask_query) a.mask_row = seq_kv;
    if (!c.mask_head && !c.mask_query && c.mask_batch && c.layout != Layout::expanded) {
      const std::vector<unsigned char> nan(4 * (c.head_dim + c.dim_v), 0xff);
      for (int b = 0; b < batch; b++)  // poison what is hidden from everyone
        for (int k = 0; k < seq_kv; k++)
          if (values[std::size_t{1} * b * seq_kv + k] == -INFINITY)
            for (int h = 0; h < c.heads_kv; h++) {
              const auto at = [&](const StridedTensor& t) {
                return static_cast<char*>(t.data) + (b * t.batch + k * t.row + h * t.head) * size;
              };
              CHECK(
                  cudaMemcpyAsync(at(a.k), nan.data(), c.head_dim * size, cudaMemcpyHostToDevice));
              CHECK(cudaMemcpyAsync(at(a.v), nan.data(), c.dim_v * size, cudaMemcpyHostToDevice));
            }
      CHECK(cudaDeviceSynchronize());
    }
  }
  if (c.spoil) {
    const auto put = [&](int key, int column, float value) {
      if (key < 0 || key >= seq_kv) return;
      StridedTensor t = a.v;
      t.data = static_cast<char*>(t.data) + (key * t.row + column % c.dim_v) * size;
      const __nv_bfloat16 b = __float2bfloat16(value);
      const __half h = __float2half(value);
      const void* from = c.type == Type::f32    ? static_cast<const void*>(&value)
                         : c.type == Type::bf16 ? static_cast<const void*>(&b)
                                                : static_cast<const void*>(&h);
      CHECK(cudaMemcpy(t.data, from, size, cudaMemcpyHostToDevice));
    };
    put(5, 3, INFINITY);
    put(70, 0, NAN);
    put(133, c.dim_v - 1, -INFINITY);
    put(134, 3, -INFINITY);
    put(seq_kv - 1, 9, NAN);
    put(seq_kv - 2, 10, INFINITY);
  }

  // Twice, from poisoned outputs: bitwise equal.
  const std::size_t out_bytes = ob.bytes, lse_bytes = lb.bytes;
  std::vector<char> first_out(out_bytes), first_lse(lse_bytes), out(out_bytes), lse_raw(lse_bytes);
  const int unit = 16 / size;
  const bool aligned = c.layout != Layout::odd && c.head_dim % unit == 0 && c.dim_v % unit == 0;
  for (int pass = 0; pass < 2; pass++) {
    CHECK(cudaMemset(ob.data, 0xff, out_bytes));
    CHECK(cudaMemset(lb.data, 0xff, lse_bytes));
    CHECK(cudaDeviceSynchronize());
    if (!launch(c.type, a, aligned, stream)) {
      std::printf("FAIL %s: launch\n", c.name.c_str());
      return {};
    }
    wait(stream, c.name.c_str());
    CHECK(cudaMemcpy(pass ? out.data() : first_out.data(), ob.data, out_bytes,
                     cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(pass ? lse_raw.data() : first_lse.data(), lb.data, lse_bytes,
                     cudaMemcpyDeviceToHost));
  }
  const bool repeat = out == first_out && lse_raw == first_lse;

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
  Buffer scores(lines * std::max(seq_kv, 1) * 8), oo(lines * c.dim_v * 8), ol(lines * 8);
  oracle::Job job{};
  job.call = a;
  job.type = c.type;
  job.rows = static_cast<const int*>(rb.data);
  job.row_count = n_rows;
  job.scores = static_cast<double*>(scores.data);
  job.out = static_cast<double*>(oo.data);
  job.lse = static_cast<double*>(ol.data);
  std::vector<double> want_out(lines * c.dim_v), want_lse(lines);
  if (lines) {
    oracle::attention<<<static_cast<unsigned>(lines), 256>>>(job);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(want_out.data(), oo.data, want_out.size() * 8, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(want_lse.data(), ol.data, want_lse.size() * 8, cudaMemcpyDeviceToHost));
  }
  Report r;
  double num = 0, den = 0, top = 0;
  const std::int64_t base = static_cast<char*>(a.out.data) - static_cast<char*>(ob.data);
  const float* lse = reinterpret_cast<const float*>(lse_raw.data());
  for (std::size_t line = 0; line < lines; line++) {
    const int i = static_cast<int>(line % n_rows), h = static_cast<int>(line / n_rows % c.heads);
    const int b = static_cast<int>(line / n_rows / c.heads), row = rows[i];
    for (int e = 0; e < c.dim_v; e++) {
      const std::int64_t at = b * a.out.batch + row * a.out.row + h * a.out.head + e;
      const char* p = out.data() + base + at * out_size;
      double got;
      if (out_size == 4)
        got = *reinterpret_cast<const float*>(p);
      else if (c.type == Type::bf16)
        got = __bfloat162float(*reinterpret_cast<const __nv_bfloat16*>(p));
      else
        got = __half2float(*reinterpret_cast<const __half*>(p));
      const double ref = want_out[line * c.dim_v + e];
      if (!std::isfinite(ref) || !std::isfinite(got)) {
        r.mismatches += !(std::isnan(ref) ? std::isnan(got) : ref == got);
      } else {
        num += (got - ref) * (got - ref);
        den += ref * ref;
      }
    }
    const double ref = want_lse[line], got = lse[(std::size_t{1} * b * c.heads + h) * seq_q + row];
    if (!std::isfinite(ref) || !std::isfinite(got)) {
      r.mismatches += !(std::isnan(ref) ? std::isnan(got) : ref == got);
    } else if (std::fabs(ref) > 1048576) {  // rows of the lowest finite bias: relative
      r.mismatches += !(std::fabs(ref - got) <= 1e-6 * std::fabs(ref));
    } else {
      top = std::max(top, std::fabs(ref));
      r.lse = std::max(r.lse, std::fabs(ref - got));
    }
  }
  r.l2 = den > 0 ? std::sqrt(num / den) : std::sqrt(num);
  // Nothing but the output was written.
  std::size_t written = 0;
  for (std::size_t i = 0; i < out_bytes; i += out_size) {
    bool poison = true;
    for (int k = 0; k < out_size; k++) poison &= static_cast<unsigned char>(out[i + k]) == 0xff;
    written += !poison;
  }
  const std::size_t total = std::size_t{1} * batch * seq_q * c.heads * c.dim_v;
  // A NaN result may equal the poison.
  const bool may_be_nan = c.spoil || c.content == Content::edges;
  const bool guard = may_be_nan ? written <= total : written == total;
  // DESIGN section 4.14; 2^-22 per unit of the largest score beyond 16.
  const double extra = top > 16 ? top * 2.5e-7 : 0;
  const double tolerance = c.type == Type::bf16 ? 6e-3 : c.type == Type::f16 ? 1e-3 : 2e-6;
  const double lse_tolerance = c.type == Type::f32 ? 1e-5 : 1e-3;
  r.ok =
      r.l2 < tolerance + extra && r.lse < lse_tolerance + extra && !r.mismatches && repeat && guard;
  if (!r.ok || getenv("VERBOSE"))
    std::printf("%s %-40s %s d%d/%d: l2 %.2e lse %.2e nonfinite %d repeat %d written %zu/%zu\n",
                r.ok ? "ok  " : "FAIL", c.name.c_str(),
                c.type == Type::f32    ? "f32"
                : c.type == Type::bf16 ? "bf16"
                                       : "f16",
                c.head_dim, c.dim_v, r.l2, r.lse, r.mismatches, repeat, written, total);
  std::fflush(stdout);
  return r;
}

/// Every case for the given types and pairs of head dimensions.
inline std::vector<Case> make_cases(const std::vector<Type>& types,
                                    const std::vector<std::pair<int, int>>& dims) {
  std::vector<Case> cases;
  const Layout layouts[] = {Layout::bshd, Layout::bhsd, Layout::fused, Layout::expanded,
                            Layout::odd};
  int n = 0;
  const auto add = [&](Case c) {
    if (!c.docs_q.empty())
      c.layout = n % 3 == 2 ? Layout::odd : Layout::bshd;
    else
      c.layout = layouts[c.spoil ? n % 3 : n % 5];
    if (n % 6 == 4 && !c.spoil && c.content != Content::edges) c.amplitude = 4;
    c.name = std::to_string(n++) + " " + c.name;
    cases.push_back(c);
  };
  for (Type type : types)
    for (const auto& [d, dv] : dims) {
      const auto base = [&, d = d, dv = dv](const char* name, int b, int h, int hk, int sq,
                                            int sk) {
        Case c;
        c.name = name;
        c.type = type;
        c.batch = b;
        c.heads = h;
        c.heads_kv = hk;
        c.seq_q = sq;
        c.seq_kv = sk;
        c.head_dim = d;
        c.dim_v = dv;
        return c;
      };
      const int shapes[][5] = {{1, 2, 2, 128, 128},   {2, 3, 3, 1, 1},     {2, 3, 1, 63, 129},
                               {1, 5, 5, 1000, 1000}, {2, 4, 2, 257, 511}, {1, 2, 2, 300, 6000},
                               {2, 4, 4, 1025, 999}};
      for (const auto& s : shapes) add(base("plain", s[0], s[1], s[2], s[3], s[4]));
      Case c = base("float out", 2, 3, 3, 333, 777);
      c.out_float = true;
      add(c);
      c = base("lengths", 4, 4, 2, 400, 700);
      c.lengths = {700, 0, 1, 333};
      add(c);
      c.wide_lengths = true;
      c.name = "wide lengths";
      add(c);
      c = base("causal", 1, 4, 4, 500, 500);
      c.right = 0;
      add(c);
      c = base("causal n<m lengths", 2, 3, 3, 600, 500);
      c.right = 0;
      c.lengths = {500, 77};
      add(c);
      c = base("causal n>m", 1, 2, 1, 70, 300);
      c.right = 0;
      add(c);
      c = base("window", 1, 4, 2, 700, 900);
      c.left = 100;
      c.right = 37;
      add(c);
      c = base("window left only", 1, 2, 2, 400, 400);
      c.left = 3;
      add(c);
      c = base("window spoiled", 1, 1, 1, 700, 700);
      c.left = 150;
      c.right = 0;
      c.spoil = true;
      add(c);
      c = base("plain spoiled", 1, 1, 1, 200, 300);
      c.spoil = true;
      add(c);
      c = base("packed", 1, 4, 2, 0, 0);
      c.docs_q = {100, 0, 257, 300, 1, 64};
      c.docs_kv = {120, 50, 0, 300, 700, 64};
      add(c);
      c.name = "packed causal";
      c.right = 0;
      add(c);
      c.name = "packed window";
      c.left = 20;
      c.right = 20;
      add(c);
      c = base("no keys", 2, 2, 2, 100, 0);
      add(c);
      // Masks: key padding [B,Skv], [1,1,Skv], [B,Sq,Skv], [B,H,Sq,Skv], [1,H,1,Skv], ...
      const auto masked = [&](const char* name, MaskType mask, Content content, int shape) {
        Case m = base(name, 2, 4, 2, 300, 333);
        m.mask = mask;
        m.content = content;
        m.mask_batch = shape & 4;
        m.mask_head = shape & 2;
        m.mask_query = shape & 1;
        return m;
      };
      add(masked("keys", MaskType::byte, Content::random, 4));
      add(masked("keys 11-63", MaskType::byte, Content::prefix, 4));
      add(masked("keys stripes per head", MaskType::byte, Content::stripes, 6));
      add(masked("all visible", MaskType::byte, Content::visible, 0));
      add(masked("nothing visible", MaskType::byte, Content::nothing, 4));
      add(masked("bool [1,1,Sq,Skv]", MaskType::byte, Content::random, 1));
      add(masked("bool [B,1,Sq,Skv]", MaskType::byte, Content::random, 5));
      add(masked("bool [B,H,Sq,Skv]", MaskType::byte, Content::random, 7));
      add(masked("bool [1,H,1,Skv]", MaskType::byte, Content::random, 2));
      add(masked("bias f32 [B,H,Sq,Skv]", MaskType::f32, Content::random, 7));
      add(masked("bias f16 [1,H,Sq,Skv]", MaskType::f16, Content::random, 3));
      add(masked("bias bf16 [B,1,1,Skv]", MaskType::bf16, Content::random, 4));
      add(masked("bias f32 edges", MaskType::f32, Content::edges, 7));
      add(masked("bias f16 edges", MaskType::f16, Content::edges, 5));
      add(masked("bias bf16 edges", MaskType::bf16, Content::edges, 1));
      c = masked("bool spoiled", MaskType::byte, Content::random, 1);
      c.spoil = true;
      add(c);
      c = masked("bool causal lengths", MaskType::byte, Content::random, 7);
      c.right = 0;
      c.lengths = {333, 200};
      add(c);
      c = masked("bias window lengths", MaskType::f32, Content::random, 5);
      c.left = 90;
      c.right = 30;
      c.lengths = {111, 333};
      add(c);
      c = masked("keys lengths", MaskType::byte, Content::prefix, 4);
      c.lengths = {60, 333};
      add(c);
    }
  return cases;
}

struct Totals {
  int passed = 0, failed = 0;
  double worst[3] = {0, 0, 0}, worst_lse = 0;

  void add(const Case& c, const Report& r) {
    (r.ok ? passed : failed)++;
    double& w = worst[static_cast<int>(c.type)];
    w = std::max(w, r.l2);
    worst_lse = std::max(worst_lse, r.lse);
  }
  int print(const char* name, std::uint64_t seed) const {
    std::printf(
        "%s seed %llu: %d passed, %d failed; worst rel L2 bf16 %.2e f16 %.2e f32 %.2e, lse %.2e\n",
        name, static_cast<unsigned long long>(seed), passed, failed, worst[0], worst[1], worst[2],
        worst_lse);
    return failed != 0;
  }
};

}  // namespace cases
