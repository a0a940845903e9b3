// wgmma with 16-bit inputs and float32 accumulators: m64 nN k16.
//
//   WgmmaShared<Type, N>::multiply(d, a, b, accumulate)        D[64,N] (+)= A[64,16] B[N,16]^T
//     A and B in shared memory, both K-major.
//   WgmmaRegisters<Type, N>::multiply(d, a0..a3, b, accumulate)  D[64,N] (+)= A[64,16] B[16,N]
//     A in registers, B in shared memory with its rows along K (MN-major).
//
// Accumulators: lane l of warp w owns rows 16w + l/4 (h = 0) and + 8 (h = 1); register 4j + 2h + e
// is column 8j + 2(l%4) + e. Packed in pairs this is also the A-register layout of the next
// product.
#pragma once

#include "src/cuda/precision.cuh"

namespace fovea::cuda {

FOVEA_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
FOVEA_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
FOVEA_DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
/// Ties registers to a program point, so that their reads and writes stay on their side of a wgmma
/// issue or wait.
template <int kCount>
FOVEA_DEVICE void pin(float (&r)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; i++) asm volatile("" : "+f"(r[i])::"memory");
}
template <int kCount>
FOVEA_DEVICE void pin(uint32_t (&r)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; i++) asm volatile("" : "+r"(r[i])::"memory");
}

template <class Type, int kColumns>
struct WgmmaShared;
template <class Type, int kColumns>
struct WgmmaRegisters;

// Accumulator names and operands, eight at a time.
#define FOVEA_R0 "%0,%1,%2,%3,%4,%5,%6,%7"
#define FOVEA_R1 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define FOVEA_R2 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define FOVEA_R3 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define FOVEA_R4 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define FOVEA_R5 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define FOVEA_R6 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define FOVEA_R7 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define FOVEA_R8 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define FOVEA_R9 ",%72,%73,%74,%75,%76,%77,%78,%79"
#define FOVEA_R10 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define FOVEA_R11 ",%88,%89,%90,%91,%92,%93,%94,%95"
#define FOVEA_R12 ",%96,%97,%98,%99,%100,%101,%102,%103"
#define FOVEA_R13 ",%104,%105,%106,%107,%108,%109,%110,%111"
#define FOVEA_R14 ",%112,%113,%114,%115,%116,%117,%118,%119"
#define FOVEA_R15 ",%120,%121,%122,%123,%124,%125,%126,%127"
#define FOVEA_D(g)                                                                                \
  "+f"(d[8 * g]), "+f"(d[8 * g + 1]), "+f"(d[8 * g + 2]), "+f"(d[8 * g + 3]), "+f"(d[8 * g + 4]), \
      "+f"(d[8 * g + 5]), "+f"(d[8 * g + 6]), "+f"(d[8 * g + 7])
#define FOVEA_NAMES_64 FOVEA_R0 FOVEA_R1 FOVEA_R2 FOVEA_R3
#define FOVEA_NAMES_80 FOVEA_NAMES_64 FOVEA_R4
#define FOVEA_NAMES_96 FOVEA_NAMES_80 FOVEA_R5
#define FOVEA_NAMES_112 FOVEA_NAMES_96 FOVEA_R6
#define FOVEA_NAMES_128 FOVEA_NAMES_112 FOVEA_R7
#define FOVEA_NAMES_144 FOVEA_NAMES_128 FOVEA_R8
#define FOVEA_NAMES_160 FOVEA_NAMES_144 FOVEA_R9
#define FOVEA_NAMES_176 FOVEA_NAMES_160 FOVEA_R10
#define FOVEA_NAMES_192 FOVEA_NAMES_176 FOVEA_R11
#define FOVEA_NAMES_256 FOVEA_NAMES_192 FOVEA_R12 FOVEA_R13 FOVEA_R14 FOVEA_R15
#define FOVEA_OUT_64 FOVEA_D(0), FOVEA_D(1), FOVEA_D(2), FOVEA_D(3)
#define FOVEA_OUT_80 FOVEA_OUT_64, FOVEA_D(4)
#define FOVEA_OUT_96 FOVEA_OUT_80, FOVEA_D(5)
#define FOVEA_OUT_112 FOVEA_OUT_96, FOVEA_D(6)
#define FOVEA_OUT_128 FOVEA_OUT_112, FOVEA_D(7)
#define FOVEA_OUT_144 FOVEA_OUT_128, FOVEA_D(8)
#define FOVEA_OUT_160 FOVEA_OUT_144, FOVEA_D(9)
#define FOVEA_OUT_176 FOVEA_OUT_160, FOVEA_D(10)
#define FOVEA_OUT_192 FOVEA_OUT_176, FOVEA_D(11)
#define FOVEA_OUT_256 FOVEA_OUT_192, FOVEA_D(12), FOVEA_D(13), FOVEA_D(14), FOVEA_D(15)

// The arguments after N number the operands that follow the N/2 accumulators.
#define FOVEA_WGMMA_SHARED(Type, ptx, N, a_, b_, p_)                                               \
  template <>                                                                                      \
  struct WgmmaShared<Type, N> {                                                                    \
    FOVEA_DEVICE static void multiply(float (&d)[N / 2], uint64_t a, uint64_t b, int accumulate) { \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #p_                                        \
                   ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k16.f32." ptx "." ptx             \
                   " {" FOVEA_NAMES_##N "}, %" #a_ ", %" #b_ ", p, 1, 1, 0, 0;\n}"                 \
                   : FOVEA_OUT_##N                                                                 \
                   : "l"(a), "l"(b), "r"(accumulate));                                             \
    }                                                                                              \
  };
#define FOVEA_WGMMA_REGISTERS(Type, ptx, N, a0_, a1_, a2_, a3_, b_, p_)                         \
  template <>                                                                                   \
  struct WgmmaRegisters<Type, N> {                                                              \
    FOVEA_DEVICE static void multiply(float (&d)[N / 2], uint32_t a0, uint32_t a1, uint32_t a2, \
                                      uint32_t a3, uint64_t b, int accumulate) {                \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #p_                                     \
                   ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k16.f32." ptx "." ptx          \
                   " {" FOVEA_NAMES_##N "}, {%" #a0_ ",%" #a1_ ",%" #a2_ ",%" #a3_ "}, %" #b_   \
                                        ", p, 1, 1, 1;\n}"                                      \
                   : FOVEA_OUT_##N                                                              \
                   : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(accumulate));              \
    }                                                                                           \
  };
#define FOVEA_WGMMA(Type, ptx)                                  \
  FOVEA_WGMMA_SHARED(Type, ptx, 64, 32, 33, 34)                 \
  FOVEA_WGMMA_SHARED(Type, ptx, 80, 40, 41, 42)                 \
  FOVEA_WGMMA_SHARED(Type, ptx, 96, 48, 49, 50)                 \
  FOVEA_WGMMA_SHARED(Type, ptx, 112, 56, 57, 58)                \
  FOVEA_WGMMA_SHARED(Type, ptx, 128, 64, 65, 66)                \
  FOVEA_WGMMA_SHARED(Type, ptx, 160, 80, 81, 82)                \
  FOVEA_WGMMA_REGISTERS(Type, ptx, 64, 32, 33, 34, 35, 36, 37)  \
  FOVEA_WGMMA_REGISTERS(Type, ptx, 96, 48, 49, 50, 51, 52, 53)  \
  FOVEA_WGMMA_REGISTERS(Type, ptx, 128, 64, 65, 66, 67, 68, 69) \
  FOVEA_WGMMA_REGISTERS(Type, ptx, 256, 128, 129, 130, 131, 132, 133)

FOVEA_WGMMA(Bf16, "bf16")
FOVEA_WGMMA(F16, "f16")

}  // namespace fovea::cuda
