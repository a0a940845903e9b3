#include "src/core/random_inputs.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "src/core/element.hpp"

namespace fovea {
namespace {

constexpr size_t kGuard = 256;
constexpr unsigned char kPoison = 0xff;  // NaN in every float type

// Streams of random values, one per tensor.
enum Stream : uint64_t { kQ = 1, kK, kV, kMask, kBias, kLengths, kDocuments };

// The normal quantile function by Newton steps on erfc; used 2^15 times.
double normal_quantile(double p) {
  const double sqrt_half = std::sqrt(0.5);
  double x = 0;
  for (int step = 0; step < 60; ++step) {
    const double error = 0.5 * std::erfc(-x * sqrt_half) - p;
    const double density = std::exp(-0.5 * x * x) * 0.3989422804014327;
    const double next = x - std::clamp(error / density, -0.5, 0.5);
    if (next == x) break;
    x = next;
  }
  return x;
}

// 2^16 equally likely values of a normal distribution, scaled to variance 1.
const std::vector<float>& normal_table() {
  static const std::vector<float> table = [] {
    constexpr size_t kSize = 65536;
    std::vector<double> values(kSize);
    double squares = 0;
    for (size_t i = 0; i < kSize / 2; ++i) {
      const double x = normal_quantile((static_cast<double>(i) + 0.5) / kSize);
      values[i] = x;
      values[kSize - 1 - i] = -x;
      squares += 2 * x * x;
    }
    const double scale = std::sqrt(kSize / squares);
    std::vector<float> scaled(kSize);
    for (size_t i = 0; i < kSize; ++i) scaled[i] = static_cast<float>(values[i] * scale);
    return scaled;
  }();
  return table;
}

int64_t uniform(uint64_t bits, int64_t count) noexcept {
  return static_cast<int64_t>(bits % static_cast<uint64_t>(count));
}

// Keys of one item and rows of one item, as causal, window and lengths see them.
struct Item {
  int64_t rows;
  int64_t keys;
};

// Keys that a mask broadcast over rows must leave visible so that no row loses its last key:
// window ends and one key in every window.
bool must_stay_visible(const Problem& p, const std::vector<Item>& items, int64_t key,
                       int64_t chosen) {
  const int64_t right = p.causal ? 0 : p.window.right;
  if (p.window.left < 0 && right < 0) return key == chosen;
  const bool bounded = p.window.left >= 0 && p.window.left < p.seq_kv && right >= 0;
  if (bounded && right < p.seq_kv && key % (p.window.left + right + 1) == 0) return true;
  return key == 0 || std::any_of(items.begin(), items.end(),
                                 [&](const Item& item) { return key == item.keys - 1; });
}

// Shape of a q, k, v or out tensor.
std::vector<int64_t> head_shape(const Problem& p, Layout layout, int64_t seq, int64_t heads,
                                int64_t dim) {
  if (layout == Layout::packed) return {seq, heads, dim};
  if (layout == Layout::bhsd) return {p.batch, heads, seq, dim};
  return {p.batch, seq, heads, dim};
}

// One of q, k and v while it is filled.
struct HeadTensor {
  DType dtype;
  int64_t batch, seq, heads, dim;
  Strides strides;

  // Elements from the first to the last, both included.
  int64_t extent() const noexcept {
    if (batch == 0 || seq == 0 || heads == 0 || dim == 0) return 0;
    return (batch - 1) * strides.batch + (seq - 1) * strides.seq + (heads - 1) * strides.head + dim;
  }
  int64_t offset(int64_t b, int64_t s, int64_t h) const noexcept {
    return b * strides.batch + s * strides.seq + h * strides.head;
  }
  // No two elements share memory: every axis steps over all that the faster ones span.
  bool disjoint() const noexcept {
    std::array<std::pair<int64_t, int64_t>, 3> axes = {
        {{strides.batch, batch}, {strides.seq, seq}, {strides.head, heads}}};
    std::sort(axes.begin(), axes.end());
    int64_t span = dim;
    for (const auto& [stride, size] : axes) {
      if (size <= 1) continue;
      if (stride < span) return false;
      span += (size - 1) * stride;
    }
    return true;
  }
};

TensorView head_view(const Problem& p, const HeadTensor& t, std::byte* data) {
  TensorView view = make_view(data, t.dtype, head_shape(p, p.layout, t.seq, t.heads, t.dim));
  if (p.layout == Layout::packed) {
    view.stride = {t.strides.seq, t.strides.head, 1};
  } else if (p.layout == Layout::bhsd) {
    view.stride = {t.strides.batch, t.strides.head, t.strides.seq, 1};
  } else {
    view.stride = {t.strides.batch, t.strides.seq, t.strides.head, 1};
  }
  return view;
}

// Values depend on the place in memory, so elements that share memory agree.
template <class Element, class Round>
void fill_normal(const HeadTensor& t, Element* data, uint64_t seed, uint64_t stream, Round round) {
  const float* table = normal_table().data();
  for (int64_t b = 0; b < t.batch; ++b)
    for (int64_t s = 0; s < t.seq; ++s)
      for (int64_t h = 0; h < t.heads; ++h) {
        const int64_t base = t.offset(b, s, h);
        uint64_t bits = random_bits(seed, stream, static_cast<uint64_t>(base) / 4);
        for (int64_t at = base; at < base + t.dim; ++at) {
          if (at % 4 == 0) bits = random_bits(seed, stream, static_cast<uint64_t>(at) / 4);
          data[at] = round(table[(bits >> (16 * (at % 4))) & 0xffff]);
        }
      }
}

void fill_normal(const HeadTensor& t, std::byte* data, uint64_t seed, uint64_t stream) {
  if (t.dtype == kF32)
    fill_normal(t, reinterpret_cast<float*>(data), seed, stream, [](float x) { return x; });
  else if (t.dtype == kF16)
    fill_normal(t, reinterpret_cast<uint16_t*>(data), seed, stream, float_to_f16);
  else
    fill_normal(t, reinterpret_cast<uint16_t*>(data), seed, stream, float_to_bf16);
}

// Poisons all heads of key `s` of item `b`.
void poison_key(const HeadTensor& t, std::byte* data, int64_t b, int64_t s) {
  for (int64_t h = 0; h < t.heads; ++h)
    std::memset(data + t.offset(b, s, h) * static_cast<int64_t>(size_bytes(t.dtype)), kPoison,
                static_cast<size_t>(t.dim) * size_bytes(t.dtype));
}

std::vector<Document> make_documents(const Problem& p) {
  if (!p.document_values.empty()) return p.document_values;
  // Cut both token sequences at sorted random places; equal cuts make empty documents.
  std::vector<Document> documents(static_cast<size_t>(p.documents));
  for (const bool kv : {false, true}) {
    const int64_t total = kv ? p.seq_kv : p.seq_q;
    const int64_t limit = kv ? p.max_document_kv : p.max_document_q;
    int64_t left = total;
    for (int64_t n = 0; n < p.documents; ++n) {
      const int64_t after = p.documents - n - 1;
      // What the rest cannot hold must be taken here.
      const int64_t least = std::max<int64_t>(0, limit > 0 ? left - after * limit : 0);
      const int64_t most = after == 0 ? left : std::min(left, limit > 0 ? limit : left);
      const int64_t size =
          after == 0
              ? left
              : std::min(most,
                         least + uniform(random_bits(p.seed, kDocuments,
                                                     static_cast<uint64_t>(2 * n + (kv ? 1 : 0))),
                                         most - std::min(least, most) + 1));
      auto& document = documents[static_cast<size_t>(n)];
      (kv ? document.seq_kv : document.seq_q) = size;
      left -= size;
    }
  }
  return documents;
}

std::vector<int64_t> make_lengths(const Problem& p, bool empty_rows) {
  if (!p.kv_length_values.empty()) return p.kv_length_values;
  std::vector<int64_t> lengths(static_cast<size_t>(p.batch));
  const int64_t least = empty_rows || p.seq_kv == 0 ? 0 : 1;
  for (size_t b = 0; b < lengths.size(); ++b)
    lengths[b] = least + uniform(random_bits(p.seed, kLengths, b), p.seq_kv - least + 1);
  return lengths;
}

}  // namespace

uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t i) noexcept {
  uint64_t x = seed * 0x9e3779b97f4a7c15u + (stream << 56) + i;
  for (int round = 0; round < 2; ++round) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
  }
  return x;
}

double random_normal(uint64_t seed, uint64_t stream, uint64_t i) noexcept {
  return normal_table()[(random_bits(seed, stream, i / 4) >> (16 * (i % 4))) & 0xffff];
}

uint64_t RandomInputs::input_hash() const noexcept {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const Buffer& buffer : buffers_) {
    if (buffer.output) continue;
    for (size_t i = 0; i < buffer.bytes; ++i)
      hash = (hash ^ static_cast<uint64_t>(buffer.memory.get()[i])) * 0x100000001b3u;
  }
  return hash;
}

bool RandomInputs::output_guards_intact() const noexcept {
  for (const Buffer& buffer : buffers_) {
    if (!buffer.output) continue;
    for (size_t i = 0; i < kGuard; ++i)
      if (buffer.memory.get()[i] != std::byte{kPoison} ||
          buffer.memory.get()[buffer.bytes - 1 - i] != std::byte{kPoison})
        return false;
  }
  return true;
}

Result<std::byte*> RandomInputs::allocate(size_t bytes, bool output) {
  const size_t total = (bytes + 2 * kGuard + 63) / 64 * 64;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(64, total));
  if (memory == nullptr)
    return Error{ErrorCode::out_of_memory, "no memory for " + std::to_string(total) + " bytes", {}};
  std::memset(memory, kPoison, total);
  // The guard behind the tensor starts right after its last byte.
  buffers_.push_back({{memory, [](std::byte* p) { std::free(p); }}, bytes + 2 * kGuard, output});
  return memory + kGuard;
}

Result<TensorView> RandomInputs::tensor(DType dtype, const std::vector<int64_t>& shape,
                                        bool output) {
  TensorView view = make_view(nullptr, dtype, shape);
  FOVEA_TRY(std::byte* const memory,
            allocate(static_cast<size_t>(view.numel()) * size_bytes(dtype), output));
  view.data = memory;
  return view;
}

Result<RandomInputs> make_random_inputs(const Problem& p, const RandomOptions& options) {
  FOVEA_CHECK(validate(p));
  RandomInputs inputs;
  AttentionTensors& t = inputs.tensors_;
  const bool packed = p.layout == Layout::packed;
  const int64_t items = packed ? 1 : p.batch;

  // Lengths and documents.
  std::vector<Item> shapes;
  if (packed) {
    const std::vector<Document> documents = make_documents(p);
    const auto count = static_cast<int64_t>(documents.size());
    FOVEA_TRY(t.cu_seqlens_q, inputs.tensor(kI32, {count + 1}, false));
    FOVEA_TRY(t.cu_seqlens_kv, inputs.tensor(kI32, {count + 1}, false));
    int64_t q = 0;
    int64_t kv = 0;
    for (int64_t n = 0; n <= count; ++n) {
      store_element(t.cu_seqlens_q.data, kI32, n, static_cast<double>(q));
      store_element(t.cu_seqlens_kv.data, kI32, n, static_cast<double>(kv));
      if (n == count) break;
      const Document& document = documents[static_cast<size_t>(n)];
      shapes.push_back({document.seq_q, document.seq_kv});
      q += document.seq_q;
      kv += document.seq_kv;
    }
  } else {
    shapes.assign(static_cast<size_t>(p.batch), {p.seq_q, p.seq_kv});
  }
  if (p.has_kv_lengths) {
    const std::vector<int64_t> lengths = make_lengths(p, options.empty_rows);
    FOVEA_TRY(t.kv_lengths, inputs.tensor(kI32, {p.batch}, false));
    for (size_t b = 0; b < lengths.size(); ++b) {
      store_element(t.kv_lengths.data, kI32, static_cast<int64_t>(b),
                    static_cast<double>(lengths[b]));
      shapes[b].keys = lengths[b];
    }
  }

  // q, k, v.
  const HeadTensor q{p.dtype, items, p.seq_q, p.heads_q, p.head_dim, p.q_strides};
  const HeadTensor k{p.dtype, items, p.seq_kv, p.heads_kv, p.head_dim, p.k_strides};
  const HeadTensor v{p.dtype, items, p.seq_kv, p.heads_kv, p.dim_v, p.v_strides};
  struct Made {
    const HeadTensor* tensor;
    TensorView* view;
    uint64_t stream;
  };
  for (const Made& made : {Made{&q, &t.q, kQ}, Made{&k, &t.k, kK}, Made{&v, &t.v, kV}}) {
    const size_t bytes = static_cast<size_t>(made.tensor->extent()) * size_bytes(p.dtype);
    // Memory is 64-byte aligned; a lesser alignment is made by a shift of as many bytes.
    const size_t shift = p.alignment < 64 ? static_cast<size_t>(p.alignment) : 0;
    FOVEA_TRY(std::byte* const memory, inputs.allocate(bytes + shift, false));
    std::byte* const data = memory + shift;
    if (!options.poison) std::memset(data, 0, bytes);
    fill_normal(*made.tensor, data, p.seed, made.stream);
    *made.view = head_view(p, *made.tensor, data);
  }

  // Keys that no row of their item sees; known for lengths and key padding.
  const bool own_keys = k.disjoint() && v.disjoint();
  const auto hide = [&](int64_t b, int64_t key) {
    if (!options.poison || packed || !own_keys) return;
    poison_key(k, static_cast<std::byte*>(t.k.data), b, key);
    poison_key(v, static_cast<std::byte*>(t.v.data), b, key);
  };
  for (int64_t b = 0; p.has_kv_lengths && b < p.batch; ++b)
    for (int64_t key = shapes[static_cast<size_t>(b)].keys; key < p.seq_kv; ++key) hide(b, key);

  // The mask.
  if (p.mask.kind != MaskKind::none) {
    const int64_t batch = p.mask.per_batch ? p.batch : 1;
    const int64_t heads = p.mask.per_head ? p.heads_q : 1;
    const int64_t rows = p.mask.per_query ? p.seq_q : 1;
    const bool keys_only = p.mask.kind == MaskKind::keys;
    std::vector<int64_t> shape = {batch, heads, rows, p.seq_kv};
    if (keys_only) shape = {batch, p.seq_kv};
    FOVEA_TRY(t.mask, inputs.tensor(p.mask.dtype, shape, false));
    int64_t shortest = p.seq_kv;
    for (const Item& item : shapes)
      if (item.keys > 0) shortest = std::min(shortest, item.keys);
    const bool additive = p.mask.dtype == kF32 || p.mask.dtype == kF16 || p.mask.dtype == kBF16;
    const auto hidden_bound = static_cast<uint64_t>(options.hidden * 0x1p32);
    int64_t at = 0;
    for (int64_t plane = 0; plane < batch * heads * rows; ++plane) {
      const auto where = static_cast<uint64_t>(plane);
      const int64_t chosen =
          shortest > 0 ? uniform(random_bits(p.seed, kMask, ~where), shortest) : -1;
      for (int64_t key = 0; key < p.seq_kv; ++key, ++at) {
        const uint64_t bits = random_bits(p.seed, kMask, static_cast<uint64_t>(at));
        bool hidden = (bits >> 32) < hidden_bound;
        if (hidden && !options.empty_rows) hidden = !must_stay_visible(p, shapes, key, chosen);
        double value = hidden ? 0 : 1;
        if (additive)
          value = hidden ? -std::numeric_limits<double>::infinity()
                         : random_normal(p.seed, kBias, static_cast<uint64_t>(at));
        else if (p.mask.dtype == kU8 && !hidden)
          value = static_cast<double>(1 + bits % 255);
        store_element(t.mask.data, p.mask.dtype, at, value);
        for (int64_t b = 0; hidden && keys_only && b < p.batch; ++b)
          if (!p.mask.per_batch || b == plane) hide(b, key);
      }
    }
  }

  FOVEA_TRY(t.out, inputs.tensor(p.out_dtype,
                                 head_shape(p, p.out_layout, p.seq_q, p.heads_q, p.dim_v), true));
  if (p.lse) {
    std::vector<int64_t> shape = {p.batch, p.heads_q, p.seq_q};
    if (packed) shape = {p.heads_q, p.seq_q};
    FOVEA_TRY(t.lse, inputs.tensor(kF32, shape, true));
  }
  return inputs;
}

}  // namespace fovea
