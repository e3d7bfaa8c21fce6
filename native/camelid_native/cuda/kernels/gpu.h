/* gpu: one dialect for NVRTC (NVIDIA), hipRTC and clang (AMD), and g++ (the emulator of tests/cuda/emu).
 *
 * Kernels include no header of a vendor, so that a compiler needs no include path. Contraction is off in every
 * build (-fmad=false, -ffp-contract=off): a fused product is an explicit fma_, and float results have the same
 * bits on every device. Lanes come in groups of 32 whatever the width of a wave: on a wave of 64, a shuffle stays
 * inside its half.
 *
 *   KERNEL(name, threads)(parameters) { ... }   a kernel; Python reads its parameters from this text; its symbol is
 *                                               kernel_NAME, since compilers have functions such as `norm`
 *   SHARED(type, name, n)                       an array in shared memory; every thread declares it in the same order
 *   THREAD, LANE, BLOCK_X, BLOCK_Y, BLOCK_Z     places of the running thread
 *   SYNC()                                      a barrier of the block
 *   fence_all()                                 accesses before it are seen before those behind it by all blocks
 *   UNROLL                                      before a loop whose values are to stay in registers
 *
 * LEAST_BLOCKS, of a module is the number of blocks of a multiprocessor that NVIDIA's assembler seeks. */
#pragma once
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;

#include "arch.h"
#if defined(GPU_EMULATED)
#include "emu.h"
#elif defined(__HIP__) || defined(__AMDGCN__)
#include "gpu_hip.h"
#else
#include "gpu_cuda.h"
#endif

#define LANE (THREAD & 31)
#define GROUP_LANES 32
#define UNROLL _Pragma("unroll")

DEVICE float shuffle(float v, int from) { return as_float(shuffle_bits(as_bits(v), from)); }
DEVICE int shuffle(int v, int from) { return (int)shuffle_bits((u32)v, from); }
DEVICE double shuffle(double v, int from) {
    union { double v; u32 words[2]; } both = {v};
    for (int i = 0; i < 2; i++) both.words[i] = shuffle_bits(both.words[i], from);
    return both.v;
}
DEVICE float shuffle_xor(float v, int mask) { return as_float(shuffle_bits(as_bits(v), LANE ^ mask)); }
DEVICE int shuffle_xor(int v, int mask) { return (int)shuffle_bits((u32)v, LANE ^ mask); }
DEVICE u64 shuffle_xor(u64 v, int mask) {
    const u32 low = shuffle_bits((u32)v, LANE ^ mask);
    return (u64)shuffle_bits((u32)(v >> 32), LANE ^ mask) << 32 | low;
}
/* Loads at multiples of their size. */
DEVICE uint4 load16(const void *p) { return *(const uint4 *)ALIGNED(p, 16); }
DEVICE uint2 load8(const void *p) { return *(const uint2 *)ALIGNED(p, 8); }
DEVICE bool is_nan(float v) { return v != v; }
