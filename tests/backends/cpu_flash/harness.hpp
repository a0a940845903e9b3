// One attention call as the tests state it, and the float64 answer with an explicit mask.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "fovea/executor.hpp"
#include "src/backends/cpu_flash/cpu_flash.hpp"
#include "src/backends/cpu_flash/kernel_table.hpp"

namespace fovea::cpu_flash::testing {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInf = std::numeric_limits<float>::infinity();

// Runs every task in order and pretends to have `workers` of them.
class CountedExecutor final : public Executor {
 public:
  explicit CountedExecutor(int workers) : workers_(workers) {}
  int workers() const noexcept override { return workers_; }
  void parallel_for(int64_t count, TaskRef task) noexcept override {
    for (int64_t i = 0; i < count; ++i) task(i, static_cast<int>(i % workers_));
  }

 private:
  int workers_;
};

inline uint16_t to_bf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if (std::isnan(x)) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  bits += 0x7fffu + ((bits >> 16) & 1u);
  return static_cast<uint16_t>(bits >> 16);
}
inline float from_bf16(uint16_t x) {
  const uint32_t bits = static_cast<uint32_t>(x) << 16;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}
inline float from_f16(uint16_t x) {
  const int exponent = x >> 10 & 31;
  const float fraction = static_cast<float>(x & 1023);
  const float sign = x & 0x8000 ? -1.f : 1.f;
  if (exponent == 31) return fraction == 0.f ? sign * kInf : kNan;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024.f + fraction, exponent - 25);
}
inline uint16_t to_f16(float x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const float a = std::fabs(x);
  if (std::isnan(x)) return 0x7e00;
  if (a >= 65520.f) return static_cast<uint16_t>(sign | 0x7c00);
  if (a < 0x1p-14f)
    return static_cast<uint16_t>(sign | static_cast<int>(std::nearbyint(a * 0x1p24f)));
  int exponent;
  std::frexp(a, &exponent);  // a = m * 2^exponent, m in [1/2, 1)
  const int mantissa = static_cast<int>(std::nearbyint(std::ldexp(a, 11 - exponent)));
  return static_cast<uint16_t>(sign | ((exponent + 13) * 1024 + mantissa));
}

inline int64_t element_bytes(FloatType type) { return type == FloatType::f32 ? 4 : 2; }

inline float read(const std::vector<char>& memory, FloatType type, int64_t index) {
  const char* p = memory.data() + index * element_bytes(type);
  if (type == FloatType::f32) {
    float f;
    std::memcpy(&f, p, 4);
    return f;
  }
  uint16_t half;
  std::memcpy(&half, p, 2);
  return type == FloatType::bf16 ? from_bf16(half) : from_f16(half);
}

inline void write(std::vector<char>& memory, FloatType type, int64_t index, float value) {
  char* p = memory.data() + index * element_bytes(type);
  if (type == FloatType::f32) {
    std::memcpy(p, &value, 4);
    return;
  }
  const uint16_t half = type == FloatType::bf16 ? to_bf16(value) : to_f16(value);
  std::memcpy(p, &half, 2);
}

// A mask tensor [batch|1, heads|1, rows|1, keys], stored as its type.
struct MaskData {
  MaskType type = MaskType::boolean;
  bool per_batch = false, per_head = false, per_row = false;
  std::vector<char> memory;
  int64_t row_stride = 0;  // elements between rows (at least the number of keys)

  static int64_t bytes(MaskType type) {
    switch (type) {
      case MaskType::boolean:
      case MaskType::uint8:
        return 1;
      case MaskType::int64:
        return 8;
      case MaskType::int32:
      case MaskType::f32:
        return 4;
      default:
        return 2;
    }
  }
  bool additive() const {
    return type == MaskType::f32 || type == MaskType::f16 || type == MaskType::bf16;
  }
  // The additive term, -inf where hidden.
  float term(int64_t index) const {
    const char* p = memory.data() + index * bytes(type);
    if (type == MaskType::f32) return read(memory, FloatType::f32, index);
    if (type == MaskType::f16) return read(memory, FloatType::f16, index);
    if (type == MaskType::bf16) return read(memory, FloatType::bf16, index);
    bool nonzero = false;
    for (int64_t i = 0; i < bytes(type); ++i) nonzero |= p[i] != 0;
    return nonzero ? 0.f : -kInf;
  }
  void set(int64_t index, float value) {
    if (type == MaskType::f32) return write(memory, FloatType::f32, index, value);
    if (type == MaskType::f16) return write(memory, FloatType::f16, index, value);
    if (type == MaskType::bf16) return write(memory, FloatType::bf16, index, value);
    char* p = memory.data() + index * bytes(type);
    std::memset(p, 0, static_cast<size_t>(bytes(type)));
    if (value != -kInf) p[0] = 1;
  }
};

struct Call {
  FloatType dtype = FloatType::f32;
  FloatType out_dtype = FloatType::f32;
  int64_t batch = 1, heads_q = 1, heads_kv = 1, seq_q = 1, seq_kv = 1, head_dim = 8, dim_v = 8;
  double scale = 0.0;  // 0: head_dim^-0.5
  int64_t left = -1, right = -1;
  bool heads_first = false;  // BHSD
  int64_t padding = 0;       // extra elements between rows
  bool expand_kv_heads = false;
  std::vector<int32_t> cu_q, cu_kv;
  std::vector<int32_t> lengths;
  bool lengths_64 = false;
  std::vector<MaskData> masks;
  // Block lists.
  int32_t block_q = 0, block_kv = 0;
  std::vector<int32_t> counts, indices;
  bool lists_per_head = false, lists_per_batch = false;

  std::vector<char> q, k, v, out;
  std::vector<float> lse;
  int64_t q_strides[3] = {}, kv_strides[3] = {}, v_strides[3] = {}, out_strides[3] = {};

  bool packed() const { return !cu_q.empty(); }
  int64_t items() const { return packed() ? 1 : batch; }
  int64_t query_blocks() const { return block_q == 0 ? 0 : (seq_q + block_q - 1) / block_q; }
  int64_t key_blocks() const { return block_kv == 0 ? 0 : (seq_kv + block_kv - 1) / block_kv; }

  void strides(int64_t (&s)[3], int64_t seq, int64_t heads, int64_t dim) const {
    const int64_t row = dim + padding;
    if (heads_first) {
      s[0] = heads * seq * row, s[1] = row, s[2] = seq * row;
    } else {
      s[0] = seq * heads * row, s[1] = heads * row, s[2] = row;
    }
  }
  int64_t at(const int64_t (&s)[3], int64_t b, int64_t i, int64_t h) const {
    return b * s[0] + i * s[1] + h * s[2];
  }

  // Fills every tensor with N(0,1) and the padding between rows, and the output, with NaN.
  void fill(std::mt19937& random) {
    std::normal_distribution<float> normal;
    strides(q_strides, seq_q, heads_q, head_dim);
    strides(kv_strides, seq_kv, expand_kv_heads ? 1 : heads_kv, head_dim);
    strides(v_strides, seq_kv, expand_kv_heads ? 1 : heads_kv, dim_v);
    strides(out_strides, seq_q, heads_q, dim_v);
    const int64_t kv_items = expand_kv_heads ? 1 : heads_kv;
    const auto make = [&](std::vector<char>& memory, const int64_t(&s)[3], int64_t seq,
                          int64_t heads, int64_t dim) {
      const int64_t total = items() * seq * heads * (dim + padding);
      memory.assign(static_cast<size_t>(total * element_bytes(dtype)), 0);
      for (int64_t i = 0; i < total; ++i) write(memory, dtype, i, kNan);
      for (int64_t b = 0; b < items(); ++b)
        for (int64_t i = 0; i < seq; ++i)
          for (int64_t h = 0; h < heads; ++h)
            for (int64_t d = 0; d < dim; ++d)
              write(memory, dtype, at(s, b, i, h) + d, normal(random));
    };
    make(q, q_strides, seq_q, heads_q, head_dim);
    make(k, kv_strides, seq_kv, kv_items, head_dim);
    make(v, v_strides, seq_kv, kv_items, dim_v);
    if (expand_kv_heads) kv_strides[2] = v_strides[2] = 0;
    const int64_t out_total = items() * seq_q * heads_q * (dim_v + padding);
    out.assign(static_cast<size_t>(out_total * element_bytes(out_dtype)), 0);
    for (int64_t i = 0; i < out_total; ++i) write(out, out_dtype, i, kNan);
    lse.assign(static_cast<size_t>(items() * heads_q * seq_q), kNan);
  }

  void add_mask(std::mt19937& random, MaskType type, bool per_batch, bool per_head, bool per_row,
                double hidden_share) {
    MaskData mask;
    mask.type = type;
    mask.per_batch = per_batch, mask.per_head = per_head, mask.per_row = per_row;
    mask.row_stride = seq_kv + 3;
    const int64_t total = (per_batch ? batch : 1) * (per_head ? heads_q : 1) *
                          (per_row ? seq_q : 1) * mask.row_stride;
    mask.memory.assign(static_cast<size_t>(total * MaskData::bytes(type)), 0);
    std::normal_distribution<float> normal;
    std::bernoulli_distribution hide(hidden_share);
    for (int64_t i = 0; i < total; ++i) {
      mask.set(i, hide(random) ? -kInf : mask.additive() ? normal(random) : 0.f);
    }
    masks.push_back(std::move(mask));
  }

  void add_lists(std::mt19937& random, int32_t q_block, int32_t kv_block, double density,
                 bool per_batch, bool per_head) {
    block_q = q_block, block_kv = kv_block;
    lists_per_batch = per_batch, lists_per_head = per_head;
    const int64_t rows = (per_batch ? batch : 1) * (per_head ? heads_q : 1) * query_blocks();
    counts.assign(static_cast<size_t>(rows), 0);
    indices.assign(static_cast<size_t>(rows * key_blocks()), -1);
    std::bernoulli_distribution keep(density);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t j = 0; j < key_blocks(); ++j) {
        if (!keep(random)) continue;
        int32_t& count = counts[static_cast<size_t>(r)];
        indices[static_cast<size_t>(r * key_blocks() + count)] = static_cast<int32_t>(j);
        ++count;
      }
    }
  }

  int64_t mask_index(const MaskData& m, int64_t b, int64_t h, int64_t i, int64_t j) const {
    const int64_t rows = m.per_row ? seq_q : 1;
    const int64_t heads = m.per_head ? heads_q : 1;
    return (((m.per_batch ? b : 0) * heads + (m.per_head ? h : 0)) * rows + (m.per_row ? i : 0)) *
               m.row_stride +
           j;
  }

  Params params() {
    Params p;
    p.dtype = dtype, p.out_dtype = out_dtype;
    p.batch = batch, p.heads_q = heads_q, p.heads_kv = heads_kv;
    p.seq_q = seq_q, p.seq_kv = seq_kv, p.head_dim = head_dim, p.dim_v = dim_v;
    p.scale = static_cast<float>(effective_scale());
    p.left = left, p.right = right;
    p.q = {q.data(), q_strides[0], q_strides[1], q_strides[2]};
    p.k = {k.data(), kv_strides[0], kv_strides[1], kv_strides[2]};
    p.v = {v.data(), v_strides[0], v_strides[1], v_strides[2]};
    p.out = out.data();
    p.out_batch = out_strides[0], p.out_seq = out_strides[1], p.out_head = out_strides[2];
    p.lse = lse.data();
    p.lse_rows = seq_q;
    if (packed()) {
      p.cu_seqlens_q = cu_q.data(), p.cu_seqlens_kv = cu_kv.data();
      p.documents = static_cast<int64_t>(cu_q.size()) - 1;
    }
    if (!lengths.empty()) {
      lengths_wide.assign(lengths.begin(), lengths.end());
      p.kv_lengths = lengths_64 ? static_cast<const void*>(lengths_wide.data()) : lengths.data();
      p.kv_lengths_64 = lengths_64;
    }
    for (const MaskData& m : masks) {
      Mask& mask = p.masks[p.num_masks++];
      mask.data = m.memory.data(), mask.type = m.type;
      const int64_t rows = m.per_row ? seq_q : 1;
      const int64_t heads = m.per_head ? heads_q : 1;
      mask.row = m.per_row ? m.row_stride : 0;
      mask.head = m.per_head ? rows * m.row_stride : 0;
      mask.batch = m.per_batch ? heads * rows * m.row_stride : 0;
    }
    if (block_q != 0) {
      p.blocks.counts = counts.data(), p.blocks.indices = indices.data();
      p.blocks.head = lists_per_head ? query_blocks() : 0;
      p.blocks.batch = lists_per_batch ? (lists_per_head ? heads_q : 1) * query_blocks() : 0;
      p.blocks.max_count = key_blocks();
      p.blocks.block_q = block_q, p.blocks.block_kv = block_kv;
    }
    return p;
  }
  double effective_scale() const {
    return scale != 0.0 ? scale : 1.0 / std::sqrt(static_cast<double>(head_dim));
  }

  void run(const KernelTable& kernels, int workers = 1) {
    const Params p = params();
    CountedExecutor executor(workers);
    const size_t bytes = workspace_bytes(p, kernels, workers);
    // Poisoned, so that reading anything not written this call shows.
    std::unique_ptr<char[]> memory(new char[bytes + 64]);
    std::memset(memory.get(), 0xff, bytes + 64);
    char* aligned = memory.get() + (64 - reinterpret_cast<uintptr_t>(memory.get()) % 64) % 64;
    cpu_flash::run(p, kernels, aligned, executor);
  }

  std::vector<int64_t> lengths_wide;
};

struct Answer {
  std::vector<double> out;      // [item][row][head][dim_v]
  std::vector<double> lse;      // [item][head][row]
  std::vector<double> largest;  // the row's largest visible |score|, [item][head][row]
};

// Row `i`, key `j` of the whole tensors; the sum of terms or -inf.
inline double visible_term(const Call& call, int64_t b, int64_t h, int64_t i, int64_t j) {
  int64_t q0 = 0, n_q = call.seq_q, k0 = 0, n_kv = call.seq_kv;
  if (call.packed()) {
    size_t document = 0;
    while (i >= call.cu_q[document + 1]) ++document;
    q0 = call.cu_q[document], n_q = call.cu_q[document + 1] - q0;
    k0 = call.cu_kv[document], n_kv = call.cu_kv[document + 1] - k0;
    if (j < k0 || j >= k0 + n_kv) return -kInf;
  } else if (!call.lengths.empty()) {
    n_kv = call.lengths[static_cast<size_t>(b)];
    if (j >= n_kv) return -kInf;
  }
  const int64_t diagonal = (i - q0) + n_kv - n_q, key = j - k0;
  if (call.right >= 0 && key > diagonal + call.right) return -kInf;
  if (call.left >= 0 && key < diagonal - call.left) return -kInf;
  double term = 0.0;
  for (const MaskData& m : call.masks) {
    const float t = m.term(call.mask_index(m, b, h, i, j));
    if (t == -kInf) return -kInf;
    term += static_cast<double>(t);
  }
  if (call.block_q != 0) {
    const int64_t heads = call.lists_per_head ? call.heads_q : 1;
    const int64_t row = ((call.lists_per_batch ? b : 0) * heads + (call.lists_per_head ? h : 0)) *
                            call.query_blocks() +
                        i / call.block_q;
    bool listed = false;
    for (int32_t n = 0; n < call.counts[static_cast<size_t>(row)]; ++n) {
      listed |= call.indices[static_cast<size_t>(row * call.key_blocks() + n)] == j / call.block_kv;
    }
    if (!listed) return -kInf;
  }
  return term;
}

inline Answer answer(const Call& call) {
  Answer a;
  const int64_t group = call.heads_q / call.heads_kv;
  const size_t rows = static_cast<size_t>(call.items() * call.heads_q * call.seq_q);
  a.out.assign(rows * static_cast<size_t>(call.dim_v), 0.0);
  a.lse.assign(rows, -std::numeric_limits<double>::infinity());
  a.largest.assign(rows, 0.0);
  std::vector<double> score(static_cast<size_t>(call.seq_kv));
  for (int64_t b = 0; b < call.items(); ++b)
    for (int64_t h = 0; h < call.heads_q; ++h)
      for (int64_t i = 0; i < call.seq_q; ++i) {
        const size_t row = static_cast<size_t>((b * call.heads_q + h) * call.seq_q + i);
        std::vector<int64_t> keys;
        double max = -std::numeric_limits<double>::infinity();
        bool nan = false;
        for (int64_t j = 0; j < call.seq_kv; ++j) {
          const double term = visible_term(call, b, h, i, j);
          if (term == -kInf) continue;
          double s = 0.0;
          for (int64_t d = 0; d < call.head_dim; ++d) {
            s += static_cast<double>(
                     read(call.q, call.dtype, call.at(call.q_strides, b, i, h) + d)) *
                 static_cast<double>(
                     read(call.k, call.dtype, call.at(call.kv_strides, b, j, h / group) + d));
          }
          s = s * call.effective_scale() + term;
          score[static_cast<size_t>(j)] = s;
          keys.push_back(j);
          nan |= std::isnan(s) || s == std::numeric_limits<double>::infinity();
          max = std::max(max, s);
          if (std::isfinite(s)) a.largest[row] = std::max(a.largest[row], std::fabs(s));
        }
        if (max == -std::numeric_limits<double>::infinity() && !nan)
          continue;  // nothing has weight
        double* out = a.out.data() +
                      static_cast<size_t>(((b * call.seq_q + i) * call.heads_q + h) * call.dim_v);
        double sum = 0.0;
        for (int64_t j : keys) {
          const double p = nan ? std::numeric_limits<double>::quiet_NaN()
                               : std::exp(score[static_cast<size_t>(j)] - max);
          sum += p;
          for (int64_t d = 0; d < call.dim_v; ++d) {
            out[d] += p * static_cast<double>(read(call.v, call.dtype,
                                                   call.at(call.v_strides, b, j, h / group) + d));
          }
        }
        for (int64_t d = 0; d < call.dim_v; ++d) out[d] /= sum;
        a.lse[row] = max + std::log(sum);
      }
  return a;
}

struct Difference {
  double relative_l2 = 0.0;  // over rows whose answer is finite
  double max_abs = 0.0;
  double max_lse = 0.0;
  int64_t nonfinite_mismatches = 0;
  int64_t padding_written = 0;
  double largest = 0.0;
};

inline int kind_of(double x) { return std::isnan(x) ? 3 : std::isinf(x) ? (x > 0 ? 2 : 1) : 0; }

inline Difference compare(const Call& call, const Answer& a) {
  Difference r;
  double error = 0.0, norm = 0.0;
  std::vector<bool> used(call.out.size() / static_cast<size_t>(element_bytes(call.out_dtype)));
  for (int64_t b = 0; b < call.items(); ++b)
    for (int64_t h = 0; h < call.heads_q; ++h)
      for (int64_t i = 0; i < call.seq_q; ++i) {
        for (int64_t d = 0; d < call.dim_v; ++d) {
          const double want = a.out[static_cast<size_t>(
              ((b * call.seq_q + i) * call.heads_q + h) * call.dim_v + d)];
          const int64_t at = call.at(call.out_strides, b, i, h) + d;
          used[static_cast<size_t>(at)] = true;
          const double got = static_cast<double>(read(call.out, call.out_dtype, at));
          if (kind_of(want) != kind_of(got)) ++r.nonfinite_mismatches;
          if (kind_of(want) != 0 || kind_of(got) != 0) continue;
          error += (want - got) * (want - got);
          norm += want * want;
          r.max_abs = std::max(r.max_abs, std::fabs(want - got));
        }
        const size_t row = static_cast<size_t>((b * call.heads_q + h) * call.seq_q + i);
        const double got = static_cast<double>(call.lse[row]);
        if (kind_of(a.lse[row]) != kind_of(got)) {
          ++r.nonfinite_mismatches;
        } else if (kind_of(got) == 0) {
          r.max_lse = std::max(r.max_lse, std::fabs(a.lse[row] - got));
        }
        if (a.largest[row] < 1e30) r.largest = std::max(r.largest, a.largest[row]);
      }
  for (size_t i = 0; i < used.size(); ++i) {
    if (!used[i] && !std::isnan(read(call.out, call.out_dtype, static_cast<int64_t>(i)))) {
      ++r.padding_written;
    }
  }
  r.relative_l2 = norm > 0.0 ? std::sqrt(error / norm) : r.max_abs;
  return r;
}

}  // namespace fovea::cpu_flash::testing
