// The tensor operations on the GPU against their reference form on the CPU, and their bandwidth.
// Standalone: tensor_ops_test [seed], or tensor_ops_test bench
#include <cuda_runtime.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "fovea/tensor_ops.hpp"
#include "src/core/element.hpp"

#define CHECK(x)                                                                     \
  do {                                                                               \
    const cudaError_t e_ = (x);                                                      \
    if (e_ != cudaSuccess) {                                                         \
      std::printf("%s:%d %s: %s\n", __FILE__, __LINE__, #x, cudaGetErrorString(e_)); \
      std::fflush(stdout);                                                           \
      _exit(2);                                                                      \
    }                                                                                \
  } while (0)

using namespace fovea;

namespace {

constexpr Device kGpu{DeviceType::cuda, 0};
std::mt19937_64 random_bits;

/// A strided tensor in host memory and its copy on the GPU. Everything starts as NaN.
struct Twin {
  TensorView host, device;
  std::vector<unsigned char> bytes;
  void* memory = nullptr;

  /// Strides by `order` (axes from the outermost), with `gap` elements after each row.
  Twin(DType dtype, std::vector<int64_t> shape, std::vector<size_t> order, int64_t gap) {
    host.dtype = dtype;
    host.rank = static_cast<int32_t>(shape.size());
    int64_t stride = 1;
    for (size_t i = order.size(); i-- > 0;) {
      host.shape[order[i]] = shape[order[i]];
      host.stride[order[i]] = stride;
      stride *= shape[order[i]];
      if (i + 1 == order.size()) stride += gap;
    }
    bytes.assign(static_cast<size_t>(stride) * size_bytes(dtype) + 64, 0xff);
    CHECK(cudaMalloc(&memory, bytes.size()));
    const size_t shift = gap % 8 ? size_bytes(dtype) : 0;  // and an address that is not aligned
    host.data = bytes.data() + shift;
    device = host;
    device.device = kGpu;
    device.data = static_cast<char*>(memory) + shift;
    upload();
  }
  ~Twin() { cudaFree(memory); }
  Twin(const Twin&) = delete;

  template <class F>
  void each(F&& f) {
    std::vector<int64_t> at(static_cast<size_t>(host.rank), 0);
    if (host.numel() == 0) return;
    for (;;) {
      int64_t offset = 0;
      for (size_t i = 0; i < at.size(); i++) offset += at[i] * host.stride[i];
      f(offset);
      size_t i = at.size();
      while (i-- > 0 && ++at[i] == host.shape[i]) at[i] = 0;
      if (i == size_t(-1)) return;
    }
  }
  void fill(double amplitude = 1) {
    std::normal_distribution<double> normal;
    each([&](int64_t at) {
      store_element(host.data, host.dtype, at, amplitude * normal(random_bits));
    });
    upload();
  }
  void upload() { CHECK(cudaMemcpy(memory, bytes.data(), bytes.size(), cudaMemcpyHostToDevice)); }
  /// Largest difference from the device's copy; infinity when NaN or infinities differ, or bytes
  /// outside the elements.
  double difference() {
    std::vector<unsigned char> got(bytes.size());
    CHECK(cudaMemcpy(got.data(), memory, got.size(), cudaMemcpyDeviceToHost));
    const size_t shift = static_cast<size_t>(static_cast<unsigned char*>(host.data) - bytes.data());
    const size_t size = size_bytes(host.dtype);
    double worst = 0;
    std::vector<unsigned char> outside = bytes, outside_got = got;
    each([&](int64_t at) {
      const double a = load_element(host.data, host.dtype, at);
      const double b = load_element(got.data() + shift, host.dtype, at);
      const bool same = a == b || (std::isnan(a) && std::isnan(b));
      if (!same)
        worst = std::max(worst, std::isfinite(a) && std::isfinite(b)
                                    ? std::fabs(a - b) / (1 + std::fabs(a))
                                    : std::numeric_limits<double>::infinity());
      std::memset(outside.data() + shift + static_cast<size_t>(at) * size, 0, size);
      std::memset(outside_got.data() + shift + static_cast<size_t>(at) * size, 0, size);
    });
    return outside == outside_got ? worst : std::numeric_limits<double>::infinity();
  }
};

int passed = 0, failed = 0;

void expect(bool ok, const std::string& what, double worst, double tolerance) {
  CHECK(cudaDeviceSynchronize());
  (ok ? passed : failed)++;
  if (!ok) std::printf("FAIL %s: %.2e of %.2e\n", what.c_str(), worst, tolerance);
}
bool ran(const Status& status, const std::string& what) {
  if (status) return true;
  std::printf("%s: %s\n", what.c_str(), status.error().message.c_str());
  return false;
}

// One unit in the last place of the output, where the two sides round differently.
double tolerance(DType dtype) { return dtype == kF32 ? 2e-6 : dtype == kF16 ? 1e-3 : 8e-3; }

const std::vector<size_t> kBshd = {0, 1, 2, 3}, kBhsd = {0, 2, 1, 3};

void merge_case(DType in, DType out, int parts, int64_t dim, int64_t gap, Layout layout) {
  const std::string what = "merge " + std::to_string(parts) + " parts d" + std::to_string(dim) +
                           " gap " + std::to_string(gap) + ' ' + std::string(name(in)) + " to " +
                           std::string(name(out));
  const bool bhsd = layout == Layout::bhsd;
  const std::vector<int64_t> shape =
      bhsd ? std::vector<int64_t>{2, 3, 37, dim} : std::vector<int64_t>{2, 37, 3, dim};
  std::vector<std::unique_ptr<Twin>> values, lses;
  std::vector<PartialAttention> host, device;
  for (int i = 0; i < parts; i++) {
    values.push_back(std::make_unique<Twin>(in, shape, kBshd, gap));
    lses.push_back(std::make_unique<Twin>(kF32, std::vector<int64_t>{2, 3, 37},
                                          std::vector<size_t>{0, 1, 2}, 0));
    values.back()->fill();
    lses.back()->fill(5);
    // Some rows of some parts, and one row of all, saw nothing: NaN behind -inf.
    lses.back()->each([&](int64_t at) {
      if ((at * 7 + i * 3) % 5 == 0 || at == 11)
        store_element(lses.back()->host.data, kF32, at, -std::numeric_limits<double>::infinity());
    });
    lses.back()->upload();
    const TensorView& l = lses.back()->host;
    Twin& v = *values.back();
    for (int64_t b = 0; b < 2; b++)
      for (int64_t s = 0; s < 37; s++)
        for (int64_t h = 0; h < 3; h++)
          if (std::isinf(load_element(l.data, kF32, (b * 3 + h) * 37 + s)))
            for (int64_t d = 0; d < dim; d++)
              store_element(v.host.data, in,
                            b * v.host.stride[0] + s * v.host.stride[bhsd ? 2 : 1] +
                                h * v.host.stride[bhsd ? 1 : 2] + d,
                            NAN);
    v.upload();
    host.push_back({v.host, l});
    device.push_back({v.device, lses.back()->device});
  }
  Twin result(out, shape, kBshd, gap), lse(kF32, {2, 3, 37}, {0, 1, 2}, 0);
  bool ok = ran(merge_partials(host, result.host, lse.host, layout), what) &&
            ran(merge_partials(device, result.device, lse.device, layout), what);
  const double worst = std::max(result.difference() / tolerance(out), lse.difference() / 2e-6);
  expect(ok && worst < 1, what, worst, 1);
}

void norm_case(DType dtype, DType weight_type, int64_t heads, int64_t dim, int64_t rotary,
               NormAxis axis, RotaryPairs pairs, bool norm, int64_t gap, bool batched,
               bool in_place) {
  const std::string what = std::string("norm_rope ") + std::string(name(dtype)) + " h" +
                           std::to_string(heads) + " d" + std::to_string(dim) + " R" +
                           std::to_string(rotary) + (axis == NormAxis::token ? " token" : " head") +
                           (pairs == RotaryPairs::half ? " half" : " interleaved") + " gap " +
                           std::to_string(gap);
  const Layout layout = batched ? Layout::bhsd : Layout::bshd;
  const std::vector<int64_t> shape =
      batched ? std::vector<int64_t>{2, heads, 19, dim} : std::vector<int64_t>{2, 19, heads, dim};
  Twin x(dtype, shape, kBshd, gap), out(dtype, shape, kBshd, gap);
  Twin weight(weight_type, {axis == NormAxis::head ? dim : heads * dim}, {0}, 0);
  const std::vector<int64_t> table =
      batched ? std::vector<int64_t>{2, 19, rotary / 2} : std::vector<int64_t>{19, rotary / 2};
  const std::vector<size_t> order =
      batched ? std::vector<size_t>{0, 1, 2} : std::vector<size_t>{0, 1};
  Twin cos(kF32, table, order, 0), sin(kF32, table, order, 0);
  x.fill(3);
  weight.fill();
  cos.fill();
  sin.fill();
  NormRope host, device;
  host.norm = device.norm = axis;
  host.pairs = device.pairs = pairs;
  if (norm) host.weight = weight.host, device.weight = weight.device;
  if (rotary) {
    host.cos = cos.host, host.sin = sin.host;
    device.cos = cos.device, device.sin = sin.device;
  }
  Twin& to = in_place ? x : out;
  const bool ok = ran(norm_rope(x.host, host, to.host, layout), what) &&
                  ran(norm_rope(x.device, device, to.device, layout), what);
  const double worst = to.difference();
  // Terms of a rotation reach 50 and may cancel.
  const double bound = dtype == kF32 ? 2e-5 : 2 * tolerance(dtype);
  expect(ok && worst < bound, what, worst, bound);
}

void repack_case(DType dtype, int64_t dim, int64_t gap, bool bhsd) {
  const std::string what = "repack " + std::string(name(dtype)) + " d" + std::to_string(dim) +
                           " gap " + std::to_string(gap);
  const std::vector<int64_t> shape{3, 41, 2, dim}, swapped{3, 2, 41, dim};
  Twin from(dtype, shape, kBshd, gap), to(dtype, swapped, kBshd, gap);
  from.fill();
  bool ok = ran(copy_layout(from.host, Layout::bshd, to.host, Layout::bhsd), what) &&
            ran(copy_layout(from.device, Layout::bshd, to.device, Layout::bhsd), what);
  expect(ok && to.difference() == 0, what + " copy", to.difference(), 0);

  const Layout layout = bhsd ? Layout::bhsd : Layout::bshd;
  Twin padded(dtype, bhsd ? swapped : shape, kBshd, gap),
      packed(dtype, {60, 2, dim}, {0, 1, 2}, gap);
  Twin back(dtype, bhsd ? swapped : shape, kBshd, gap), cu(kI32, {4}, {0}, 0);
  const int starts[] = {0, 41, 41, 58};
  for (int i = 0; i < 4; i++) store_element(cu.host.data, kI32, i, starts[i]);
  cu.upload();
  padded.fill();
  ok = ran(pack_documents(padded.host, layout, cu.host, packed.host), what) &&
       ran(pack_documents(padded.device, layout, cu.device, packed.device), what);
  expect(ok && packed.difference() == 0, what + " pack", packed.difference(), 0);
  ok = ran(unpack_documents(packed.host, cu.host, back.host, layout), what) &&
       ran(unpack_documents(packed.device, cu.device, back.device, layout), what);
  expect(ok && back.difference() == 0, what + " unpack", back.difference(), 0);
}

TensorView device_tensor(DType dtype, std::initializer_list<int64_t> shape) {
  TensorView view = make_view(nullptr, dtype, shape, kGpu);
  const size_t bytes = static_cast<size_t>(view.numel()) * size_bytes(dtype);
  CHECK(cudaMalloc(&view.data, bytes));
  CHECK(cudaMemset(view.data, 0x3c, bytes));
  return view;
}

void time(const char* what, double gigabytes, const std::function<Status()>& call) {
  cudaEvent_t start, stop;
  CHECK(cudaEventCreate(&start));
  CHECK(cudaEventCreate(&stop));
  std::vector<float> times;
  for (int i = 0; i < 30; i++) {
    CHECK(cudaEventRecord(start));
    if (!ran(call(), what)) return;
    CHECK(cudaEventRecord(stop));
    CHECK(cudaEventSynchronize(stop));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, start, stop));
    if (i >= 10) times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  std::printf("%-44s %.2f GB %7.3f ms %6.2f TB/s\n", what, gigabytes, times[10],
              gigabytes / times[10]);
}

void bench() {
  const int64_t s = 75600, h = 40, d = 128;
  const double tensor = static_cast<double>(s * h * d) * 2e-9;
  const TensorView a = device_tensor(kBF16, {1, s, h, d}), b = device_tensor(kBF16, {1, s, h, d});
  const TensorView out = device_tensor(kBF16, {1, s, h, d}), t = device_tensor(kBF16, {1, h, s, d});
  const TensorView la = device_tensor(kF32, {1, h, s}), lb = device_tensor(kF32, {1, h, s});
  const TensorView lse = device_tensor(kF32, {1, h, s}), wide = device_tensor(kF32, {1, s, h, d});
  const double small = static_cast<double>(s * h) * 4e-9;
  const PartialAttention two[] = {{a, la}, {b, lb}}, three[] = {{a, la}, {b, lb}, {out, lse}};
  time("cudaMemcpy", 2 * tensor, [&]() -> Status {
    CHECK(cudaMemcpyAsync(out.data, a.data, static_cast<size_t>(s * h * d) * 2,
                          cudaMemcpyDeviceToDevice));
    return {};
  });
  time("merge 2, bf16", 3 * tensor + 3 * small, [&] { return merge_partials(two, out, lse); });
  time("merge 2, bf16 to f32", 4 * tensor + 3 * small,
       [&] { return merge_partials(two, wide, lse); });
  const TensorView lc = device_tensor(kF32, {1, h, s});
  time("merge 3, bf16, in place", 4 * tensor + 4 * small,
       [&] { return merge_partials(three, out, lc); });
  const TensorView head = device_tensor(kF32, {d}), token = device_tensor(kBF16, {h * d});
  const TensorView cos = device_tensor(kF32, {s, d / 2}), sin = device_tensor(kF32, {s, d / 2});
  NormRope what;
  what.cos = cos;
  what.sin = sin;
  const double angles = static_cast<double>(s * d) * 4e-9;
  for (NormAxis axis : {NormAxis::head, NormAxis::token})
    for (RotaryPairs pairs : {RotaryPairs::interleaved, RotaryPairs::half}) {
      what.norm = axis;
      what.pairs = pairs;
      what.weight = axis == NormAxis::head ? head : token;
      const std::string name = std::string("norm_rope ") +
                               (axis == NormAxis::head ? "head" : "token") +
                               (pairs == RotaryPairs::half ? " half" : " interleaved");
      time(name.c_str(), 2 * tensor + angles, [&] { return norm_rope(a, what, out); });
    }
  time("copy bshd to bhsd", 2 * tensor,
       [&] { return copy_layout(a, Layout::bshd, t, Layout::bhsd); });
  time("copy bhsd to bshd", 2 * tensor,
       [&] { return copy_layout(t, Layout::bhsd, a, Layout::bshd); });
  const TensorView packed = device_tensor(kBF16, {s, h, d}), cu = device_tensor(kI32, {2});
  const int starts[] = {0, static_cast<int>(s)};
  CHECK(cudaMemcpy(cu.data, starts, sizeof starts, cudaMemcpyHostToDevice));
  time("pack", 2 * tensor, [&] { return pack_documents(a, Layout::bshd, cu, packed); });
  time("unpack", 2 * tensor, [&] { return unpack_documents(packed, cu, a, Layout::bshd); });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "bench") {
    bench();
    return 0;
  }
  const unsigned long long seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  random_bits.seed(seed);
  for (DType in : {kF32, kF16, kBF16})
    for (DType out : {kF32, kF16, kBF16})
      for (int parts : {1, 2, 3, 16}) {
        merge_case(in, out, parts, 64, 0, Layout::bshd);
        merge_case(in, out, parts, 33, 1, Layout::bhsd);
      }
  for (DType dtype : {kF32, kF16, kBF16})
    for (DType weight : {kF32, kBF16})
      for (NormAxis axis : {NormAxis::head, NormAxis::token})
        for (RotaryPairs pairs : {RotaryPairs::interleaved, RotaryPairs::half}) {
          norm_case(dtype, weight, 5, 64, 64, axis, pairs, true, 0, false, false);
          norm_case(dtype, weight, 5, 64, 32, axis, pairs, true, 8, true, true);
          norm_case(dtype, weight, 3, 30, 10, axis, pairs, true, 3, true, false);
          norm_case(dtype, weight, 40, 128, 0, axis, pairs, true, 0, false, false);
          norm_case(dtype, weight, 100, 128, 128, NormAxis::head, pairs, axis == NormAxis::head, 0,
                    false, true);
        }
  for (DType dtype : {kF32, kBF16, kU8, kI64})
    for (int64_t dim : {64, 7})
      for (int64_t gap : {0, 8, 3})
        for (bool bhsd : {false, true}) repack_case(dtype, dim, gap, bhsd);
  std::printf("tensor_ops_test seed %llu: %d passed, %d failed\n", seed, passed, failed);
  return failed != 0;
}
