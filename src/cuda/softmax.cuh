// Online softmax on wgmma score accumulators (layout: wgmma.cuh). Each thread owns two rows (h = 0,
// 1) and a quarter of their columns; maxima are completed over the quad, sums stay per thread until
// the end.
#pragma once

#include "src/cuda/wgmma.cuh"

namespace fovea::cuda {

/// When the outputs are rescaled: every block, or only when a row maximum of the warp grew by more
/// than 2^8 since the last time (the maximum in use may then be stale by that factor, which is
/// exact in float32 and in the exponent range of either 16-bit type).
enum class Rescale { always, on_growth };

/// This thread's part of the row sums of one block.
struct Sums {
  float sum[2] = {0.f, 0.f};
};

struct Rows {
  float maximum[2];  // of the raw scores, as used in the exponent
  float sum[2];      // this thread's part
  FOVEA_DEVICE void add(const Sums& block) {
    sum[0] += block.sum[0];
    sum[1] += block.sum[1];
  }
};

struct Correction {
  float factor[2];   // for everything accumulated so far
  float maximum[2];  // in use, times scale * log2(e)
  bool grew;         // warp-uniform: the outputs have to be rescaled
};

/// Largest of this thread's scores in every kStep-th group of eight columns, per row.
template <int kStep, int kScores>
FOVEA_DEVICE void thread_maximum(const float (&s)[kScores], float (&top)[2]) {
  static_assert(kScores / 4 > kStep);
  float a[2], b[2];
#pragma unroll
  for (int h = 0; h < 2; h++) {
    a[h] = fmaxf(s[2 * h], s[2 * h + 1]);
    b[h] = fmaxf(s[4 * kStep + 2 * h], s[4 * kStep + 2 * h + 1]);
  }
#pragma unroll
  for (int j = 2; j * kStep < kScores / 4; j++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float& x = (j & 1) ? b[h] : a[h];
      x = fmaxf(x, fmaxf(s[4 * kStep * j + 2 * h], s[4 * kStep * j + 2 * h + 1]));
    }
#pragma unroll
  for (int h = 0; h < 2; h++) top[h] = fmaxf(a[h], b[h]);
}

/// The rows start with a reference that at least one of their scores attains: the largest of the
/// quad's `top`. kMasked: keys are hidden, and whole rows may be. (Otherwise infinite keys may make
/// all of a row's scores -inf; against a finite reference their exponents stay that.)
template <bool kMasked>
FOVEA_DEVICE void start_rows(const float (&top)[2], Rows& rows, Correction& c, float scale_log2) {
  c.grew = true;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    rows.maximum[h] = kMasked ? quad_max(top[h]) : fmaxf(quad_max(top[h]), -0x1p110f);
    rows.sum[h] = 0.f;
    // A row without a visible key: exponents are taken against 0, so that they stay -inf.
    c.maximum[h] = (kMasked && rows.maximum[h] == -INFINITY ? 0.f : rows.maximum[h]) * scale_log2;
  }
}

/// The maximum of rows under way. kMasked: whole rows may be -inf.
template <bool kMasked, Rescale kRescale, int kScores>
FOVEA_DEVICE void row_maximum(float (&s)[kScores], Rows& rows, Correction& c, float scale_log2) {
  float a[2];
  thread_maximum<1>(s, a);
#pragma unroll
  for (int h = 0; h < 2; h++) a[h] = quad_max(a[h]);
  c.grew = true;
  if (kRescale == Rescale::on_growth) {
    // Written so that -inf - -inf = NaN counts as no growth.
    c.grew =
        __any_sync(~0u, fmaxf(a[0] - rows.maximum[0], a[1] - rows.maximum[1]) * scale_log2 > 8.f);
  }
#pragma unroll
  for (int h = 0; h < 2; h++) {
    float used = rows.maximum[h];
    if (kRescale == Rescale::always || c.grew) used = fmaxf(a[h], used);
    // A row without a visible key so far: exponents are taken against 0, so that they stay -inf.
    const float reference = kMasked && used == -INFINITY ? 0.f : used;
    c.maximum[h] = reference * scale_log2;
    c.factor[h] = exp2_fast((rows.maximum[h] - reference) * scale_log2);
    rows.sum[h] *= c.factor[h];
    rows.maximum[h] = used;
  }
}

/// Scores kFrom..kTo-1 become probabilities; their sums are added to those of the block so far.
template <int kFrom, int kTo, int kScores>
FOVEA_DEVICE void exponentials(float (&s)[kScores], Sums& block, const Correction& c,
                               float scale_log2) {
  float sum[2] = {0.f, 0.f};
#pragma unroll
  for (int j = kFrom; j < kTo; j++) {
    const int h = (j >> 1) & 1;
    s[j] = exp2_fast(fmaf(s[j], scale_log2, -c.maximum[h]));
    sum[h] += s[j];
  }
  block.sum[0] += sum[0];
  block.sum[1] += sum[1];
}

/// Probabilities s, at most 2^100, against a reference that was too low: it rises by whole powers
/// of two until none of a row exceeds 2. `here` holds the sums of s, `rows` those before them.
template <int kScores>
FOVEA_DEVICE void raise_reference(float (&s)[kScores], Rows& rows, Sums& here, Correction& c,
                                  float scale_log2) {
#pragma unroll
  for (int h = 0; h < 2; h++) {
    float largest = s[2 * h];
#pragma unroll
    for (int j = 0; j < kScores / 4; j++)
      largest = fmaxf(largest, fmaxf(s[4 * j + 2 * h], s[4 * j + 2 * h + 1]));
    const uint32_t exponent = max(__float_as_uint(quad_max(largest)) >> 23, 127u);
    c.factor[h] = __uint_as_float((254u - exponent) << 23);
    c.maximum[h] += static_cast<float>(exponent - 127u);
    rows.maximum[h] = c.maximum[h] / scale_log2;
    rows.sum[h] *= c.factor[h];
    here.sum[h] *= c.factor[h];
#pragma unroll
    for (int j = 0; j < kScores / 4; j++)
#pragma unroll
      for (int e = 0; e < 2; e++) s[4 * j + 2 * h + e] *= c.factor[h];
  }
}

/// Keeps the first kCount exponentials before what follows in the compiler's order; ptxas may still
/// move them behind a later wait.
template <int kCount, int kScores>
FOVEA_DEVICE void pin_exponentials(float (&s)[kScores]) {
#pragma unroll
  for (int j = 0; j < kCount; j++) asm volatile("" : "+f"(s[j])::"memory");
}
template <class Type, int kScores>
FOVEA_DEVICE void pack(const float (&s)[kScores], uint32_t (&p)[kScores / 2]) {
#pragma unroll
  for (int i = 0; i < kScores / 2; i++) p[i] = Type::pack(s[2 * i], s[2 * i + 1]);
}

template <Rescale kRescale, int kOutputs>
FOVEA_DEVICE void rescale(float (&o)[kOutputs], const Correction& c) {
  if (kRescale == Rescale::on_growth && !c.grew) return;
#pragma unroll
  for (int i = 0; i < kOutputs; i++) o[i] *= c.factor[(i >> 1) & 1];
}

}  // namespace fovea::cuda
