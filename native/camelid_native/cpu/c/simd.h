/* Vectors of LANES float32 or int32, or 4 * LANES bytes, on every instruction set.
 *
 * Kernels are written once over these types. GCC's and Clang's vector extensions provide + - * & | ^ << >>
 * and comparisons; this file provides the other operations, one section per instruction set. The build
 * defines CAM_ISA_<NAME> for each variant; see build/targets.py. */
#pragma once
#include <stdint.h>
#include <string.h>

#if defined(CAM_ISA_AVX512VNNI) || defined(CAM_ISA_AVX512BF16)
#include <immintrin.h>
#define LANES 16
#elif defined(CAM_ISA_AVX2) || defined(CAM_ISA_AVXVNNI)
#include <immintrin.h>
#define LANES 8
#elif defined(CAM_ISA_NEON_DOT) || defined(CAM_ISA_NEON_I8MM)
#include <arm_neon.h>
#define LANES 4
#elif defined(CAM_ISA_WASM) || defined(CAM_ISA_WASM_RELAXED)
#include <wasm_simd128.h>
#define LANES 4
#else
#define LANES 4
#endif

#define INLINE static inline __attribute__((always_inline))
#define PANEL_ROWS 16
#define SLICES (PANEL_ROWS / LANES)   /* vectors per 16 rows of a panel */

typedef float vf __attribute__((vector_size(4 * LANES)));
typedef int32_t vi __attribute__((vector_size(4 * LANES)));
typedef uint32_t vu __attribute__((vector_size(4 * LANES)));
typedef uint8_t vb __attribute__((vector_size(4 * LANES)));
typedef int8_t vs __attribute__((vector_size(4 * LANES)));
typedef int16_t vp __attribute__((vector_size(4 * LANES)));

/* Unaligned loads and stores. */
INLINE vf vf_load(const float *p) { vf v; memcpy(&v, p, sizeof v); return v; }
INLINE void vf_store(float *p, vf v) { memcpy(p, &v, sizeof v); }
INLINE vb vb_load(const void *p) { vb v; memcpy(&v, p, sizeof v); return v; }
INLINE void vb_store(void *p, vb v) { memcpy(p, &v, sizeof v); }

INLINE vf vf_set(float x) { return x - (vf){0}; }
INLINE vi vi_set(int32_t x) { return x - (vi){0}; }
INLINE vb vb_set(uint8_t x) { return x - (vb){0}; }
INLINE vf vi_float(vi v) { return __builtin_convertvector(v, vf); }
/* Four bytes repeated over the vector, the activation operand of dot_u7 and dot_s8. */
INLINE vs vs_set4(const int8_t *p) { int32_t x; memcpy(&x, p, 4); return (vs)vi_set(x); }
/* Sixteen bytes repeated over the vector, the table operand of vb_look_up. */
INLINE vb vb_set16(const int8_t *p) {
    vb v = {0};
    for (int i = 0; i < 4 * LANES; i += 16) memcpy((uint8_t *)&v + i, p, 16);
    return v;
}

/* dot_u7: acc[lane] += sum of four products of unsigned w <= 127 and signed a. dot_s8: acc[lane] += sum of
 * four products of signed w and signed a, plus DOT_OFFSET times the sum of the four a, which the caller
 * subtracts once per block. vb_look_up: table[code] for each code, all below 16. dot_square, if ABREAST is 2:
 * acc[2 * i + j] += sum of eight products of row i of a and row j of w; a and w have two rows of eight
 * bytes. */
#if defined(CAM_ISA_AVX512VNNI) || defined(CAM_ISA_AVX512BF16)
#define DOT_OFFSET 128
INLINE vi dot_u7(vi acc, vb w, vs a) { return (vi)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)w, (__m512i)a); }
INLINE vi dot_s8(vi acc, vs w, vs a) { return dot_u7(acc, (vb)w ^ 0x80, a); }
INLINE vb vb_look_up(vb table, vb codes) { return (vb)_mm512_shuffle_epi8((__m512i)table, (__m512i)codes); }
INLINE vf vf_fma(vf a, vf b, vf c) { return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
INLINE vf vf_half(const uint16_t *p) { return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
INLINE vi vi_u8(const uint8_t *p) { return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)); }
INLINE vi vi_s8(const int8_t *p) { return (vi)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)); }
INLINE vi vi_u16(const uint16_t *p) {
    return (vi)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
}
INLINE vf vf_max(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
INLINE vf vf_min(vf a, vf b) { return (vf)_mm512_min_ps((__m512)a, (__m512)b); }
INLINE vf vf_sqrt(vf a) { return (vf)_mm512_sqrt_ps((__m512)a); }
INLINE vi vi_round(vf a) { return (vi)_mm512_cvtps_epi32((__m512)a); }   /* to nearest, ties to even */
#if defined(CAM_ISA_AVX512BF16)
#define CAM_BFLOAT_PAIRS
/* acc[lane] += both products of two pairs of bf16. Subnormals count as zero. */
INLINE vf dot_bfloats(vf acc, vi w, vi a) {
    return (vf)_mm512_dpbf16_ps((__m512)acc, (__m512bh)w, (__m512bh)a);
}
/* Interleaves two columns of bf16: one pair per lane. */
INLINE vi vi_pairs(const uint16_t *p) {
    vp v = (vp)vb_load(p);
    return (vi)__builtin_shufflevector(v, v, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24, 9,
                                       25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
#endif

#elif defined(CAM_ISA_AVX2) || defined(CAM_ISA_AVXVNNI)
#define DOT_OFFSET 0
#if defined(CAM_ISA_AVXVNNI)
INLINE vi dot_u7(vi acc, vb w, vs a) {
    return (vi)_mm256_dpbusd_avx_epi32((__m256i)acc, (__m256i)w, (__m256i)a);
}
#else
/* Two products of 127 * 127 fit into 16 bits, so the sum never saturates. */
INLINE vi dot_u7(vi acc, vb w, vs a) {
    __m256i pairs = _mm256_maddubs_epi16((__m256i)w, (__m256i)a);
    return acc + (vi)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}
#endif
/* w * a = |w| * (a with w's sign); |-128| is 128, and 2 * 128 * 127 still fits. */
INLINE vi dot_s8(vi acc, vs w, vs a) {
    __m256i signed_a = _mm256_sign_epi8((__m256i)a, (__m256i)w);
    return dot_u7(acc, (vb)_mm256_abs_epi8((__m256i)w), (vs)signed_a);
}
INLINE vb vb_look_up(vb table, vb codes) { return (vb)_mm256_shuffle_epi8((__m256i)table, (__m256i)codes); }
INLINE vf vf_fma(vf a, vf b, vf c) { return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
INLINE vf vf_half(const uint16_t *p) { return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
INLINE vi vi_u8(const uint8_t *p) { return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)); }
INLINE vi vi_s8(const int8_t *p) { return (vi)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)); }
INLINE vi vi_u16(const uint16_t *p) { return (vi)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)); }
INLINE vf vf_max(vf a, vf b) { return (vf)_mm256_max_ps((__m256)a, (__m256)b); }
INLINE vf vf_min(vf a, vf b) { return (vf)_mm256_min_ps((__m256)a, (__m256)b); }
INLINE vf vf_sqrt(vf a) { return (vf)_mm256_sqrt_ps((__m256)a); }
INLINE vi vi_round(vf a) { return (vi)_mm256_cvtps_epi32((__m256)a); }

#elif defined(CAM_ISA_NEON_DOT) || defined(CAM_ISA_NEON_I8MM)
#define DOT_OFFSET 0
INLINE vi dot_s8(vi acc, vs w, vs a) { return (vi)vdotq_s32((int32x4_t)acc, (int8x16_t)w, (int8x16_t)a); }
INLINE vi dot_u7(vi acc, vb w, vs a) { return dot_s8(acc, (vs)w, a); }
INLINE vb vb_look_up(vb table, vb codes) { return (vb)vqtbl1q_u8((uint8x16_t)table, (uint8x16_t)codes); }
INLINE vf vf_fma(vf a, vf b, vf c) { return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
INLINE vf vf_half(const uint16_t *p) { return (vf)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
INLINE vf vf_max(vf a, vf b) { return (vf)vmaxq_f32((float32x4_t)a, (float32x4_t)b); }
INLINE vf vf_min(vf a, vf b) { return (vf)vminq_f32((float32x4_t)a, (float32x4_t)b); }
INLINE vf vf_sqrt(vf a) { return (vf)vsqrtq_f32((float32x4_t)a); }
INLINE vi vi_round(vf a) { return (vi)vcvtnq_s32_f32((float32x4_t)a); }
#define CAM_GENERIC_WIDEN
#if defined(CAM_ISA_NEON_I8MM)
#define ABREAST 2
INLINE vi dot_square(vi acc, vs w, vs a) {
    return (vi)vmmlaq_s32((int32x4_t)acc, (int8x16_t)a, (int8x16_t)w);
}
#endif

#elif defined(CAM_ISA_WASM) || defined(CAM_ISA_WASM_RELAXED)
#define DOT_OFFSET 0
/* Dot product of w, widened to 16 bits as its even and its odd bytes, with a. */
INLINE vi dot_words(vi acc, v128_t even, v128_t odd, vs a) {
    v128_t even_a = wasm_i16x8_shr(wasm_i16x8_shl((v128_t)a, 8), 8), odd_a = wasm_i16x8_shr((v128_t)a, 8);
    return acc + (vi)wasm_i32x4_dot_i16x8(even, even_a) + (vi)wasm_i32x4_dot_i16x8(odd, odd_a);
}
INLINE vi dot_s8(vi acc, vs w, vs a) {
    v128_t even = wasm_i16x8_shr(wasm_i16x8_shl((v128_t)w, 8), 8);
    return dot_words(acc, even, wasm_i16x8_shr((v128_t)w, 8), a);
}
#if defined(CAM_ISA_WASM_RELAXED)
INLINE vi dot_u7(vi acc, vb w, vs a) {
    return (vi)wasm_i32x4_relaxed_dot_i8x16_i7x16_add((v128_t)a, (v128_t)w, (v128_t)acc);
}
#define CAM_PAIRS
/* Engines differ only for codes above 15, which do not occur. */
INLINE vb vb_look_up(vb table, vb codes) {
    return (vb)wasm_i8x16_relaxed_swizzle((v128_t)table, (v128_t)codes);
}
INLINE vp dot_pairs(vb w, vs a) { return (vp)wasm_i16x8_relaxed_dot_i8x16_i7x16((v128_t)a, (v128_t)w); }
INLINE vi add_pairs(vi acc, vp pairs) { return acc + (vi)wasm_i32x4_extadd_pairwise_i16x8((v128_t)pairs); }
#else
INLINE vi dot_u7(vi acc, vb w, vs a) {
    v128_t even = wasm_v128_and((v128_t)w, wasm_i16x8_splat(255));
    return dot_words(acc, even, wasm_u16x8_shr((v128_t)w, 8), a);
}
INLINE vb vb_look_up(vb table, vb codes) { return (vb)wasm_i8x16_swizzle((v128_t)table, (v128_t)codes); }
#endif
/* Not fused, here and in the relaxed variant: some engines fuse relaxed_madd, others do not. */
INLINE vf vf_fma(vf a, vf b, vf c) { return a * b + c; }
INLINE vf vf_max(vf a, vf b) { return (vf)wasm_f32x4_pmax((v128_t)b, (v128_t)a); }
INLINE vf vf_min(vf a, vf b) { return (vf)wasm_f32x4_pmin((v128_t)b, (v128_t)a); }
INLINE vf vf_sqrt(vf a) { return (vf)wasm_f32x4_sqrt((v128_t)a); }
INLINE vi vi_round(vf a) { return (vi)wasm_i32x4_trunc_sat_f32x4(wasm_f32x4_nearest((v128_t)a)); }
INLINE vi vi_u8(const uint8_t *p) {
    return (vi)wasm_u32x4_extend_low_u16x8(wasm_u16x8_extend_low_u8x16(wasm_v128_load32_zero(p)));
}
INLINE vi vi_s8(const int8_t *p) {
    return (vi)wasm_i32x4_extend_low_i16x8(wasm_i16x8_extend_low_i8x16(wasm_v128_load32_zero(p)));
}
INLINE vi vi_u16(const uint16_t *p) { return (vi)wasm_u32x4_load16x4(p); }
/* The shift leaves copies of the sign bit above the magnitude; the mask keeps the top one. */
INLINE vf vf_half(const uint16_t *p) {
    vi bits = (vi)wasm_i32x4_load16x4(p), special = (bits & 0x7C00) == 0x7C00;
    vf value = (vf)(bits << 13 & (int32_t)0x8FFFE000) * (vf)vi_set(0x77800000);  /* * 2^112 */
    return (vf)((vi)value | (special & 0x7F800000));
}

#else  /* portable: any machine with C11 and the vector extensions */
#define DOT_OFFSET 0
INLINE vi dot_s8(vi acc, vs w, vs a) {
    for (int lane = 0; lane < LANES; lane++)
        for (int i = 4 * lane; i < 4 * lane + 4; i++) acc[lane] += w[i] * a[i];
    return acc;
}
INLINE vi dot_u7(vi acc, vb w, vs a) { return dot_s8(acc, (vs)w, a); }
INLINE vb vb_look_up(vb table, vb codes) {
    for (int i = 0; i < 4 * LANES; i++) codes[i] = table[codes[i]];
    return codes;
}
INLINE vf vf_fma(vf a, vf b, vf c) { return a * b + c; }
INLINE vf vf_max(vf a, vf b) { return (vf)(((vi)a & (a > b)) | ((vi)b & ~(a > b))); }
INLINE vf vf_min(vf a, vf b) { return (vf)(((vi)a & (a < b)) | ((vi)b & ~(a < b))); }
INLINE vf vf_sqrt(vf a) { for (int i = 0; i < LANES; i++) a[i] = __builtin_sqrtf(a[i]); return a; }
/* Adding 1.5 * 2^23 leaves no fraction bits: rounds to nearest, ties to even, for |a| < 2^22. */
INLINE vi vi_round(vf a) { return (vi)(a + 12582912.0f) - 0x4B400000; }
#define CAM_GENERIC_WIDEN
#define CAM_GENERIC_HALF
#endif

#if !defined(ABREAST)
#define ABREAST 1
#endif

#if defined(CAM_GENERIC_WIDEN)
INLINE vi vi_u8(const uint8_t *p) { vi v; for (int i = 0; i < LANES; i++) v[i] = p[i]; return v; }
INLINE vi vi_s8(const int8_t *p) { vi v; for (int i = 0; i < LANES; i++) v[i] = p[i]; return v; }
INLINE vi vi_u16(const uint16_t *p) { vi v; for (int i = 0; i < LANES; i++) v[i] = p[i]; return v; }
#endif

/* Exact values of float16 bits; a product normalizes subnormals; infinities and NaN are kept. */
INLINE vf vf_of_halves(vi bits) {
    vi magnitude = bits & 0x7FFF;
    vf scaled = (vf)(magnitude << 13) * (vf)vi_set(0x77800000);  /* * 2^112 */
    vi special = magnitude > 0x7BFF;
    vi value = ((vi)scaled & ~special) | (((magnitude << 13) | 0x7F800000) & special);
    return (vf)(value | (bits & 0x8000) << 16);
}
#if defined(CAM_GENERIC_HALF)
INLINE vf vf_half(const uint16_t *p) { return vf_of_halves(vi_u16(p)); }
#endif
INLINE vf vf_bfloat(const uint16_t *p) { return (vf)(vi_u16(p) << 16); }

/* a where `mask` is all ones, b where it is zero. */
INLINE vf vf_pick(vi mask, vf a, vf b) { return (vf)(((vi)a & mask) | ((vi)b & ~mask)); }

/* Integers in the order of floats: 0 for both zeros, as -0 + 0 is 0, and `nan` for NaN. */
INLINE vi vi_order(vf x, int32_t nan) {
    vi bits = (vi)(x + vf_set(0.0f)), is_number = x == x;
    return ((bits ^ ((bits >> 31) & INT32_MAX)) & is_number) | (vi_set(nan) & ~is_number);
}

/* Sum and maximum over lanes. The sum adds halves to halves, one order on all machines with the same
 * LANES. */
INLINE float vf_sum(vf v) {
    float part[LANES];
    vf_store(part, v);
    for (int n = LANES / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++) part[i] += part[i + n];
    return part[0];
}
INLINE float vf_top(vf v) {
    float part[LANES];
    vf_store(part, v);
    for (int i = 1; i < LANES; i++) part[0] = part[i] > part[0] ? part[i] : part[0];
    return part[0];
}
