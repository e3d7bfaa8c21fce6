/* gpu_hip: the dialect of hipRTC, and of clang without HIP's headers. */
#pragma once
#ifndef __HIPCC_RTC__
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
struct __attribute__((aligned(16))) uint4 { u32 x, y, z, w; };
struct __attribute__((aligned(8))) uint2 { u32 x, y; };
#endif
#define DEVICE __device__ inline __attribute__((always_inline))
#define KERNEL(name, threads) \
    extern "C" __global__ void __attribute__((amdgpu_flat_work_group_size(threads, threads))) kernel_##name
#define SHARED(type, name, n) __shared__ type name[n]
#define THREAD ((int)__builtin_amdgcn_workitem_id_x())
#define BLOCK_X ((int)__builtin_amdgcn_workgroup_id_x())
#define BLOCK_Y ((int)__builtin_amdgcn_workgroup_id_y())
#define BLOCK_Z ((int)__builtin_amdgcn_workgroup_id_z())
#define ALIGNED(p, n) (p)

DEVICE void barrier_() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
#define SYNC() barrier_()

DEVICE float as_float(u32 bits) { return __builtin_bit_cast(float, bits); }
DEVICE u32 as_bits(float v) { return __builtin_bit_cast(u32, v); }
DEVICE u32 shuffle_bits(u32 v, int from) {
    const int self = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u));
    return (u32)__builtin_amdgcn_ds_bpermute(((self & ~31) | (from & 31)) << 2, (int)v);
}
DEVICE float fma_(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEVICE float rint_(float v) { return __builtin_rintf(v); }
DEVICE float sqrt_(float v) { return __builtin_sqrtf(v); }
DEVICE float max_(float a, float b) { return __builtin_fmaxf(a, b); }
DEVICE float min_(float a, float b) { return __builtin_fminf(a, b); }
DEVICE float abs_(float v) { return __builtin_fabsf(v); }
/* The bytes of a table of 16 at the eight nibbles of a word: at the low nibbles, then at the high ones. */
DEVICE u32 four_entries(const u32 *table, u32 at) {
    const u32 upper = (at >> 3 & 0x01010101u) * 255u, in_half = at & 0x07070707u;
    return (__builtin_amdgcn_perm(table[1], table[0], in_half) & ~upper) |
           (__builtin_amdgcn_perm(table[3], table[2], in_half) & upper);
}
DEVICE void look_up(const u32 *table, u32 nibbles, u32 *low, u32 *high) {
    *low = four_entries(table, nibbles & 0x0F0F0F0Fu);
    *high = four_entries(table, nibbles >> 4 & 0x0F0F0F0Fu);
}
DEVICE u32 mul_high(u32 a, u32 b) { return (u32)((u64)a * b >> 32); }
DEVICE u32 atomic_add(u32 *p, u32 v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
DEVICE void fence_all() { __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "agent"); }
DEVICE float float_of_half(u32 bits) { return (float)__builtin_bit_cast(_Float16, (u16)bits); }
DEVICE u32 half_of_float(float v) { return __builtin_bit_cast(u16, (_Float16)v); }
DEVICE uint4 stream16(const void *p) { return *(const uint4 *)p; }

/* Targets without an instruction are gfx900 to gfx904, gfx909, gfx90c, gfx1010 and gfx1013 (clang 19). */
DEVICE int dot4(u32 a, u32 b, int sum) {
#if defined(__GFX11__) || defined(__GFX12__)
    return __builtin_amdgcn_sudot4(true, (int)a, true, (int)b, sum, false);
#elif defined(__gfx906__) || defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx940__) || \
    defined(__gfx941__) || defined(__gfx942__) || defined(__gfx950__) || \
    defined(__gfx1011__) || defined(__gfx1012__) || \
    defined(__gfx1030__) || defined(__gfx1031__) || defined(__gfx1032__) || defined(__gfx1033__) || \
    defined(__gfx1034__) || defined(__gfx1035__) || defined(__gfx1036__)
    return __builtin_amdgcn_sdot4((int)a, (int)b, sum, false);
#else
    for (int i = 0; i < 32; i += 8) sum += (i8)(a >> i) * (i8)(b >> i);
    return sum;
#endif
}

/* sums += a b, of 16 rows of a and 16 columns of b (mma.h). */
#ifdef MFMA
typedef int Int4 __attribute__((ext_vector_type(4)));
DEVICE void mma_codes(int *sums, const u32 *a, const u32 *b) {
    const Int4 c = {sums[0], sums[1], sums[2], sums[3]};
#if MFMA == 16
    const Int4 d = __builtin_amdgcn_mfma_i32_16x16x16i8((int)a[0], (int)b[0], c, 0, 0, 0);
#else
    const u64 wide_a = (u64)a[1] << 32 | a[0], wide_b = (u64)b[1] << 32 | b[0];
    const Int4 d = __builtin_amdgcn_mfma_i32_16x16x32_i8((long)wide_a, (long)wide_b, c, 0, 0, 0);
#endif
    for (int i = 0; i < 4; i++) sums[i] = d[i];
}
#endif
#ifdef WMMA
typedef int Int2 __attribute__((ext_vector_type(2)));
typedef int Int4 __attribute__((ext_vector_type(4)));
typedef int Int8 __attribute__((ext_vector_type(8)));
DEVICE void mma_codes(int *sums, const u32 *a, const u32 *b) {
    Int8 c = {sums[0], sums[1], sums[2], sums[3], sums[4], sums[5], sums[6], sums[7]};
#if WMMA == 11
    const Int4 codes_a = {(int)a[0], (int)a[1], (int)a[2], (int)a[3]};
    const Int4 codes_b = {(int)b[0], (int)b[1], (int)b[2], (int)b[3]};
    c = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, codes_a, true, codes_b, c, false);
#else
    const Int2 codes_a = {(int)a[0], (int)a[1]}, codes_b = {(int)b[0], (int)b[1]};
    c = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, codes_a, true, codes_b, c, false);
#endif
    for (int i = 0; i < 8; i++) sums[i] = c[i];
}
#endif
