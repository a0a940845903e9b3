// Thin wrappers around the PTX instructions of Hopper (sm_90a): barriers, bulk tensor copies,
// register reallocation, fast arithmetic. Shared-memory addresses are 32-bit shared-window
// addresses.
#pragma once

#include <cuda.h>

#include <cstdint>

#define FOVEA_DEVICE __device__ __forceinline__

namespace fovea::cuda {

FOVEA_DEVICE uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// mbarrier
// ------------------------------------------------------------------------------------------

FOVEA_DEVICE void mbarrier_init(uint32_t barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count));
}
FOVEA_DEVICE void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
FOVEA_DEVICE void mbarrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
FOVEA_DEVICE void mbarrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
FOVEA_DEVICE void mbarrier_arrive(uint32_t barrier, uint32_t times) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(times)
               : "memory");
}
/// The same in threads where `arrives` holds. A branch around the arrive would make ptxas treat
/// what follows as divergent.
FOVEA_DEVICE void mbarrier_arrive_if(bool arrives, uint32_t barrier) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %1, 0;\n"
      "@p mbarrier.arrive.shared::cta.b64 _, [%0];\n}" ::"r"(barrier),
      "r"(static_cast<int>(arrives))
      : "memory");
}
/// `barrier` is an address from map_to_cta. The default (not the .release.cluster) form: that one
/// costs 15 % of the dense kernel.
FOVEA_DEVICE void mbarrier_arrive_remote(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// Waits until the phase of the given parity has completed. The suspend hint (ns) keeps waiting
/// threads from polling.
FOVEA_DEVICE void mbarrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred p;\nW:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1, %2;\n"
      "@p bra D;\nbra W;\nD:\n}" ::"r"(barrier),
      "r"(parity), "r"(10000000)
      : "memory");
}

// Clusters
// ------------------------------------------------------------------------------------------

FOVEA_DEVICE uint32_t cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
/// The same shared-memory address in block `cta` of the cluster.
FOVEA_DEVICE uint32_t map_to_cta(uint32_t address, uint32_t cta) {
  uint32_t mapped;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(cta));
  return mapped;
}
FOVEA_DEVICE void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}

// Programmatic dependent launch: launch_attributes.hpp
// -----------------------------------------------------------------

/// Waits until the launches that this one follows have completed and their writes are visible.
/// Without the launch attribute it returns at once. Only that makes early starts safe, so every
/// thread that touches global memory passes here first.
FOVEA_DEVICE void wait_for_earlier_launches() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
/// Lets the following launch start up while this one runs: it does once every thread block has come
/// here or has ended. After wait_for_earlier_launches, so that at most two launches overlap.
FOVEA_DEVICE void allow_next_launch() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Bulk copies of contiguous memory: multiples of 16 bytes
// ------------------------------------------------------------

FOVEA_DEVICE void bulk_load(uint32_t target, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(target),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

// Bulk tensor copies; maps are {columns, rows, panels, heads, batch}: see tensor_map.hpp
// -------------

inline constexpr uint64_t kEvictFirst = 0x12F0000000000000ull;
inline constexpr uint64_t kEvictLast = 0x14F0000000000000ull;

FOVEA_DEVICE void tensor_map_prefetch(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
FOVEA_DEVICE void tensor_load(uint32_t target, const CUtensorMap* map, uint32_t barrier, int column,
                              int row, int panel, int head, int batch, uint64_t hint) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(target),
      "l"(map), "r"(barrier), "r"(column), "r"(row), "r"(panel), "r"(head), "r"(batch), "l"(hint)
      : "memory");
}
/// The box lands at the same offset in every block of `mask` and counts on the barrier of each.
FOVEA_DEVICE void tensor_load_multicast(uint32_t target, const CUtensorMap* map, uint32_t barrier,
                                        int column, int row, int panel, int head, int batch,
                                        uint16_t mask, uint64_t hint) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8, %9;" ::"r"(
          target),
      "l"(map), "r"(barrier), "r"(column), "r"(row), "r"(panel), "r"(head), "r"(batch), "h"(mask),
      "l"(hint)
      : "memory");
}
FOVEA_DEVICE void tensor_store(const CUtensorMap* map, uint32_t source, int column, int row,
                               int panel, int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::
          "l"(map),
      "r"(source), "r"(column), "r"(row), "r"(panel), "r"(head), "r"(batch)
      : "memory");
}
FOVEA_DEVICE void tensor_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/// Returns when the sources of all committed stores may be overwritten.
FOVEA_DEVICE void tensor_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
/// Makes ordinary shared-memory writes of this thread visible to bulk copies and to wgmma.
FOVEA_DEVICE void fence_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Shared and global memory
// --------------------------------------------------------------------------

FOVEA_DEVICE void stmatrix_x4(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}
FOVEA_DEVICE uint4 shared_load_16(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
FOVEA_DEVICE uint32_t shared_load_4(uint32_t address) {
  uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}
FOVEA_DEVICE void shared_store_4(uint32_t address, uint32_t v) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(v) : "memory");
}
FOVEA_DEVICE void shared_store_16(uint32_t address, uint4 v) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.x), "r"(v.y),
               "r"(v.z), "r"(v.w)
               : "memory");
}
FOVEA_DEVICE uint64_t load_acquire(const uint64_t* pointer) {
  uint64_t v;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(pointer) : "memory");
  return v;
}
FOVEA_DEVICE void store_release(uint64_t* pointer, uint64_t v) {
  asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(pointer), "l"(v) : "memory");
}

// Named barriers (ids 1 to 15, immediate: a register id makes ptxas reserve all sixteen)
// -------------

template <int kId>
FOVEA_DEVICE void named_sync(int threads) {
  asm volatile("bar.sync %0, %1;" ::"n"(kId), "r"(threads) : "memory");
}
template <int kId>
FOVEA_DEVICE void named_arrive(int threads) {
  asm volatile("bar.arrive %0, %1;" ::"n"(kId), "r"(threads) : "memory");
}
/// Synchronises and returns whether any thread passed true.
template <int kId>
FOVEA_DEVICE bool named_any(int threads, bool value) {
  uint32_t any;
  asm volatile(
      "{\n.reg .pred p, q;\nsetp.ne.u32 q, %3, 0;\nbar.red.or.pred p, %1, %2, q;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(any)
      : "n"(kId), "r"(threads), "r"(static_cast<uint32_t>(value))
      : "memory");
  return any != 0;
}

template <int kRegisters>
FOVEA_DEVICE void registers_decrease() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
FOVEA_DEVICE void registers_increase() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Arithmetic
// ----------------------------------------------------------------------------------------

FOVEA_DEVICE float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/// Of a normal number.
FOVEA_DEVICE float log2_fast(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
FOVEA_DEVICE float reciprocal_fast(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
/// A value that is the same in every lane, as the compiler can see it (a warp reduction ends in a
/// uniform register, a shuffle does not): loops bounded by it keep what wgmma descriptors need in
/// uniform registers.
FOVEA_DEVICE int uniform(int x) {
  return static_cast<int>(__reduce_or_sync(~0u, static_cast<unsigned>(x)));
}
#endif
/// Reductions over the four lanes that share an accumulator row.
FOVEA_DEVICE float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
FOVEA_DEVICE float quad_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

}  // namespace fovea::cuda
