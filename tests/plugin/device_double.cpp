// An NPU and a ROCm device that are not there: plain memory behind an access to devices, and
// kernels of mindiesd and aiter that compute in double precision. Everything in front of them is
// real. The memory of a device is kept apart by its type: reading it as host memory is refused by
// the library.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <vector>

#include "fovea/plugin.h"

namespace {

enum class Kind { npu, rocm };
Kind npu_kind = Kind::npu, rocm_kind = Kind::rocm;
std::map<void*, uint64_t> blocks;  // by address; calls come from one thread at a time

bool is_npu(void* self) { return *static_cast<Kind*>(self) == Kind::npu; }

// --- The access

int32_t describe(void* self, int32_t index, fovea_device_info* info,
                 const fovea_plugin_sink* sink) {
  if (index != 0) {
    sink->set_message(sink, "there is one device");
    return 300;
  }
  const char* laser = std::getenv("DOUBLE_LASER");
  info->facts = !is_npu(self)      ? "gfx=gfx942,aiter=0.1.7"
                : laser != nullptr ? "mindiesd=3.1.0,laser=1"
                                   : "mindiesd=3.1.0";
  info->name = is_npu(self) ? "double of an NPU" : "double of a ROCm GPU";
  info->driver = "1.2.3";
  info->device_type = is_npu(self) ? 12 : 10;
  return FOVEA_OK;
}

int32_t allocate(void*, int32_t, uint64_t bytes, void** memory, const fovea_plugin_sink*) {
  *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (*memory == nullptr) return 400;
  blocks[*memory] = bytes;
  return FOVEA_OK;
}

void release(void*, int32_t, void* memory) {
  blocks.erase(memory);
  std::free(memory);
}

int32_t copy(void*, int32_t, void* to, const void* from, uint64_t bytes, int32_t direction,
             const fovea_plugin_sink* sink) {
  const auto* there = static_cast<const char*>(direction == FOVEA_COPY_TO_DEVICE ? to : from);
  for (const auto& [start, size] : blocks) {
    const auto offset = static_cast<int64_t>(there - static_cast<const char*>(start));
    if (offset < 0 || static_cast<uint64_t>(offset) + bytes > size) continue;
    std::memcpy(to, from, bytes);
    return FOVEA_OK;
  }
  sink->set_message(sink, "a copy outside of the device's memory");
  return 300;
}

int32_t synchronise(void*, int32_t, const fovea_plugin_sink*) { return FOVEA_OK; }

// Records by keeping the call.
struct Recording {
  int32_t (*call)(void* user, void* stream);
  void* user;
};

int32_t capture(void*, int32_t, int32_t (*call)(void* user, void* stream), void* user,
                void** recording, const fovea_plugin_sink*) {
  *recording = new Recording{call, user};
  return call(user, nullptr);
}
int32_t replay(void*, int32_t, void* recording, const fovea_plugin_sink*) {
  const auto* kept = static_cast<Recording*>(recording);
  return kept->call(kept->user, nullptr);
}
void drop(void*, int32_t, void* recording) { delete static_cast<Recording*>(recording); }

// --- The kernels

double load(const fovea_tensor& t, int64_t offset) {
  if (t.dtype_bits == 32) return static_cast<const float*>(t.data)[offset];
  uint32_t bits = static_cast<uint32_t>(static_cast<const uint16_t*>(t.data)[offset]) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

void store(const fovea_tensor& t, int64_t offset, double value) {
  const auto narrow = static_cast<float>(value);
  if (t.dtype_bits == 32) {
    static_cast<float*>(t.data)[offset] = narrow;
    return;
  }
  uint32_t bits;
  std::memcpy(&bits, &narrow, sizeof bits);
  bits += 0x7fff + ((bits >> 16) & 1);
  static_cast<uint16_t*>(t.data)[offset] = static_cast<uint16_t>(bits >> 16);
}

// One sequence: rows of q from first_q on, keys from first_kv on.
struct Part {
  int64_t item, first_q, rows, first_kv, keys;
};

std::vector<Part> parts_of(const fovea_package_call& call) {
  const fovea_plugin_run& run = *call.run;
  const fovea_plugin_problem& p = *call.problem;
  std::vector<Part> parts;
  if (std::strcmp(call.path, "npu_prefix_kv_slice") == 0) {
    parts.push_back({0, 0, call.valid_queries, 0, run.k.shape[0]});
  } else if (p.layout == FOVEA_LAYOUT_PACKED) {
    const auto* q = static_cast<const int32_t*>(run.cu_seqlens_q.data);
    const auto* kv = static_cast<const int32_t*>(run.cu_seqlens_kv.data);
    for (int64_t i = 0; i + 1 < run.cu_seqlens_q.shape[0]; ++i)
      parts.push_back({0, q[i], q[i + 1] - q[i], kv[i], kv[i + 1] - kv[i]});
  } else {
    for (int64_t b = 0; b < p.batch; ++b) parts.push_back({b, 0, p.seq_q, 0, p.seq_kv});
  }
  return parts;
}

int32_t run(void*, const fovea_package_call* call, const fovea_plugin_sink*) {
  const fovea_plugin_run& t = *call->run;
  const fovea_plugin_problem& p = *call->problem;
  const bool packed = t.q.rank == 3;
  const auto at = [&](const fovea_tensor& x, int64_t b, int64_t s, int64_t h) {
    return packed ? s * x.stride[0] + h * x.stride[1]
                  : b * x.stride[0] + s * x.stride[1] + h * x.stride[2];
  };
  const auto lse_at = [&](int64_t b, int64_t s, int64_t h) {
    return packed ? h * t.lse.stride[0] + s : b * t.lse.stride[0] + h * t.lse.stride[1] + s;
  };
  const auto hidden = [&](int64_t b, int64_t h, int64_t i, int64_t j) {
    if (t.kv_lengths.rank > 0 && j >= static_cast<const int32_t*>(t.kv_lengths.data)[b])
      return true;
    if (t.mask.rank == 0) return false;
    const auto step = [&](int axis, int64_t index) {
      return t.mask.shape[axis] == 1 ? 0 : index * t.mask.stride[axis];
    };
    const int64_t offset = t.mask.rank == 2 ? step(0, b) + step(1, j)
                                            : step(0, b) + step(1, h) + step(2, i) + step(3, j);
    return static_cast<const uint8_t*>(t.mask.data)[offset] == 0;
  };
  if (packed) {  // rows of no document
    for (int64_t s = 0; s < t.out.shape[0]; ++s)
      for (int64_t h = 0; h < p.heads_q; ++h) {
        for (int64_t d = 0; d < p.dim_v; ++d) store(t.out, at(t.out, 0, s, h) + d, 0);
        if (t.lse.rank > 0) store(t.lse, lse_at(0, s, h), -std::numeric_limits<double>::infinity());
      }
  }
  const auto head_dim = static_cast<size_t>(p.head_dim), dim_v = static_cast<size_t>(p.dim_v);
  std::vector<double> keys, values, query(head_dim), scores, sum(dim_v);
  const auto gather = [](const fovea_tensor& x, int64_t from, size_t count, double* to) {
    for (size_t d = 0; d < count; ++d) to[d] = load(x, from + static_cast<int64_t>(d));
  };
  for (const Part& part : parts_of(*call)) {
    const auto count = static_cast<size_t>(part.keys);
    for (int64_t h = 0; h < p.heads_q; ++h) {
      const int64_t hk = h / (p.heads_q / p.heads_kv);
      keys.resize(count * head_dim);
      values.resize(count * dim_v);
      for (size_t j = 0; j < count; ++j) {
        const int64_t token = part.first_kv + static_cast<int64_t>(j);
        gather(t.k, at(t.k, part.item, token, hk), head_dim, &keys[j * head_dim]);
        gather(t.v, at(t.v, part.item, token, hk), dim_v, &values[j * dim_v]);
      }
      for (int64_t i = 0; i < part.rows; ++i) {
        gather(t.q, at(t.q, part.item, part.first_q + i, h), head_dim, query.data());
        scores.assign(count, -std::numeric_limits<double>::infinity());
        double most = -std::numeric_limits<double>::infinity();
        for (size_t j = 0; j < count; ++j) {
          if (hidden(part.item, h, i, static_cast<int64_t>(j))) continue;
          double dot = 0;
          for (size_t d = 0; d < head_dim; ++d) dot += query[d] * keys[j * head_dim + d];
          scores[j] = dot * p.scale;
          most = std::fmax(most, scores[j]);
        }
        double total = 0;
        std::fill(sum.begin(), sum.end(), 0.0);
        for (size_t j = 0; j < count; ++j) {
          if (std::isinf(scores[j])) continue;
          const double weight = std::exp(scores[j] - most);
          total += weight;
          for (size_t d = 0; d < dim_v; ++d) sum[d] += weight * values[j * dim_v + d];
        }
        const int64_t row = at(t.out, part.item, part.first_q + i, h);
        for (size_t d = 0; d < dim_v; ++d)
          store(t.out, row + static_cast<int64_t>(d), total > 0 ? sum[d] / total : 0);
        if (t.lse.rank > 0)
          store(t.lse, lse_at(part.item, part.first_q + i, h), most + std::log(total));
      }
    }
  }
  return FOVEA_OK;
}

fovea_device_access access_of(const char* platform, Kind& kind) {
  fovea_device_access access{};
  access.struct_size = sizeof access;
  access.abi_major = FOVEA_PLUGIN_ABI_MAJOR;
  access.abi_minor = FOVEA_PLUGIN_ABI_MINOR;
  access.self = &kind;
  access.platform = platform;
  access.describe = describe;
  access.allocate = allocate;
  access.release = release;
  access.copy = copy;
  access.synchronise = synchronise;
  if (kind == Kind::rocm) {
    access.capture = capture;
    access.replay = replay;
    access.drop = drop;
  }
  return access;
}

fovea_package package_of(const char* name, const char* version) {
  fovea_package package{};
  package.struct_size = sizeof package;
  package.package = name;
  package.version = version;
  package.run = run;
  return package;
}

}  // namespace

extern "C" FOVEA_C_API int32_t fovea_plugin_entry(const fovea_plugin_host*,
                                                  const fovea_plugin** plugin,
                                                  const fovea_plugin_sink*) {
  static const fovea_device_access npu = access_of("npu", npu_kind);
  static const fovea_device_access rocm = access_of("rocm", rocm_kind);
  static const fovea_device_access* const accesses[] = {&npu, &rocm};
  static const fovea_package mindie = package_of("mindiesd", "3.1.0");
  static const fovea_package aiter = package_of("aiter", "0.1.7");
  static const fovea_package* const packages[] = {&mindie, &aiter};
  static const fovea_plugin description = [] {
    fovea_plugin p{};
    p.struct_size = sizeof p;
    p.abi_major = FOVEA_PLUGIN_ABI_MAJOR;
    p.abi_minor = FOVEA_PLUGIN_ABI_MINOR;
    p.name = "device double";
    p.version = "1.0";
    p.package_count = 2;
    p.packages = packages;
    p.access_count = 2;
    p.accesses = accesses;
    return p;
  }();
  *plugin = &description;
  return FOVEA_OK;
}
