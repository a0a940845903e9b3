// The materialised softmax over OpenBLAS: scores = Q K^T, softmax by rows, O = P V, head by head,
// float32 [B,S,H,D] in and out. Build:
//   g++ -std=c++20 -O3 -march=native -ffast-math -fopenmp -I. bench/compare/openblas_worker.cpp
//       -lopenblas -o openblas_worker
#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "bench/compare/worker.hpp"

namespace {

struct Call {
  compare::Shape shape;
  std::vector<float> q, k, v, out, scores;

  void softmax() {
    const long keys = shape.seq_kv;
#pragma omp parallel for schedule(static)
    for (long i = 0; i < shape.seq_q; ++i) {
      float* const row = scores.data() + i * keys;
      float largest = row[0];
#pragma omp simd reduction(max : largest)
      for (long j = 0; j < keys; ++j) largest = std::max(largest, row[j]);
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (long j = 0; j < keys; ++j) sum += row[j] = std::exp(row[j] - largest);
      const float inverse = 1 / sum;
#pragma omp simd
      for (long j = 0; j < keys; ++j) row[j] *= inverse;
    }
  }

  void run() {
    const int rows = static_cast<int>(shape.seq_q), keys = static_cast<int>(shape.seq_kv);
    const int dim = static_cast<int>(shape.head_dim);
    const int stride = static_cast<int>(shape.heads * shape.head_dim);
    const float scale = 1 / std::sqrt(static_cast<float>(dim));
    for (long b = 0; b < shape.batch; ++b) {
      for (long h = 0; h < shape.heads; ++h) {
        const long at_q = b * shape.seq_q * stride + h * dim;
        const long at_kv = b * shape.seq_kv * stride + h * dim;
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, keys, dim, scale,
                    q.data() + at_q, stride, k.data() + at_kv, stride, 0, scores.data(), keys);
        softmax();
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, dim, keys, 1, scores.data(),
                    keys, v.data() + at_kv, stride, 0, out.data() + at_q, stride);
      }
    }
  }
};

std::function<void()> prepare(const std::string& problem) {
  auto call = std::make_shared<Call>();
  call->shape = compare::parse_shape(problem);
  const compare::Shape& shape = call->shape;
  if (shape.dtype != "f32") throw std::runtime_error("float32 only");
  const long width = shape.batch * shape.heads * shape.head_dim;
  call->q = compare::normal_values(width * shape.seq_q, 1);
  call->k = compare::normal_values(width * shape.seq_kv, 2);
  call->v = compare::normal_values(width * shape.seq_kv, 3);
  call->out.resize(call->q.size());
  call->scores.resize(static_cast<size_t>(shape.seq_q * shape.seq_kv));
  return [call] { call->run(); };
}

}  // namespace

int main() { compare::serve(prepare); }
