/* gpu_cuda: the dialect of NVRTC. Inline PTX is only here. */
#pragma once
#define DEVICE __device__ __forceinline__
#ifndef LEAST_BLOCKS
#define LEAST_BLOCKS 0  /* as it chooses */
#endif
#define KERNEL(name, threads) extern "C" __global__ void __launch_bounds__(threads, LEAST_BLOCKS) kernel_##name
#define SHARED(type, name, n) __shared__ type name[n]
#define THREAD ((int)threadIdx.x)
#define BLOCK_X ((int)blockIdx.x)
#define BLOCK_Y ((int)blockIdx.y)
#define BLOCK_Z ((int)blockIdx.z)
#define ALIGNED(p, n) (p)
#define SYNC() __syncthreads()
#define ALL_LANES 0xFFFFFFFFu

DEVICE float as_float(u32 bits) { return __uint_as_float(bits); }
DEVICE u32 as_bits(float v) { return __float_as_uint(v); }
DEVICE u32 shuffle_bits(u32 v, int from) { return __shfl_sync(ALL_LANES, v, from); }
DEVICE float fma_(float a, float b, float c) { return __fmaf_rn(a, b, c); }
DEVICE float rint_(float v) { return rintf(v); }
DEVICE float sqrt_(float v) { return __fsqrt_rn(v); }
DEVICE float max_(float a, float b) { return fmaxf(a, b); }
DEVICE float min_(float a, float b) { return fminf(a, b); }
DEVICE float abs_(float v) { return fabsf(v); }
DEVICE int dot4(u32 a, u32 b, int sum) { return __dp4a((int)a, (int)b, sum); }
/* The bytes of a table of 16 at the eight nibbles of a word: at the low nibbles, then at the high ones. */
DEVICE u32 four_entries(const u32 *table, u32 nibbles) {
    const u32 at = nibbles & 0x7777u, pick = 0x3210u | (nibbles & 0x8888u) >> 1;
    return __byte_perm(__byte_perm(table[0], table[1], at), __byte_perm(table[2], table[3], at), pick);
}
DEVICE void look_up(const u32 *table, u32 nibbles, u32 *low, u32 *high) {
    const u32 first = four_entries(table, nibbles), last = four_entries(table, nibbles >> 16);
    *low = __byte_perm(first, last, 0x6420u);
    *high = __byte_perm(first, last, 0x7531u);
}
/* sums += a b, 16 x 16 codes times 16 x 8. A lane has four codes of row LANE / 4 of a, four of the row eight on, four
 * of column LANE / 4 of b, all from 4 * (LANE % 4) on, and the sums of its two rows with columns 2 * (LANE % 4) and
 * the next. */
DEVICE void mma_16(int *sums, u32 a, u32 a8, u32 b) {
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3]) : "r"(a), "r"(a8), "r"(b));
#else
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
        : "+r"(sums[0]), "+r"(sums[1]) : "r"(a), "r"(b));
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
        : "+r"(sums[2]), "+r"(sums[3]) : "r"(a8), "r"(b));
#endif
}
/* The same over 32 columns: the words of mma_16 of the first 16, then those of the others. */
DEVICE void mma_32(int *sums, const uint4 &a, const uint2 &b) {
#if __CUDA_ARCH__ >= 800
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y));
#else
    mma_16(sums, a.x, a.y, b.x);
    mma_16(sums, a.z, a.w, b.y);
#endif
}
/* sums += a b, 16 x 16 values of bf16 times 16 x 8. A lane has pairs at columns 2 * (LANE % 4) of row LANE / 4 of a,
 * of the row eight on, and of both eight columns on; of b those of column LANE / 4; and sums as mma_16 has. */
#if __CUDA_ARCH__ >= 800
DEVICE void mma_bf16(float *sums, const u32 *a, const u32 *b) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif
DEVICE u32 mul_high(u32 a, u32 b) { return __umulhi(a, b); }
DEVICE u32 atomic_add(u32 *p, u32 v) { return atomicAdd(p, v); }
DEVICE void fence_all() { __threadfence(); }
DEVICE float float_of_half(u32 bits) {
    float v;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"((u16)bits));
    return v;
}
DEVICE u32 half_of_float(float v) {  /* to nearest, ties to even */
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(v));
    return bits;
}
/* Weights are read once, past the first cache. */
DEVICE uint4 stream16(const void *p) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}
