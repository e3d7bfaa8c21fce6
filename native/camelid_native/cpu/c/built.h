/* CAM_IF_<NAME>(_) expands to _(name) if the library has that variant, else to nothing. */
#pragma once

#if defined(CAM_HAS_PORTABLE)
#define CAM_IF_PORTABLE(_) _(portable)
#else
#define CAM_IF_PORTABLE(_)
#endif

#if defined(CAM_HAS_AVX2)
#define CAM_IF_AVX2(_) _(avx2)
#else
#define CAM_IF_AVX2(_)
#endif

#if defined(CAM_HAS_AVXVNNI)
#define CAM_IF_AVXVNNI(_) _(avxvnni)
#else
#define CAM_IF_AVXVNNI(_)
#endif

#if defined(CAM_HAS_AVX512VNNI)
#define CAM_IF_AVX512VNNI(_) _(avx512vnni)
#else
#define CAM_IF_AVX512VNNI(_)
#endif

#if defined(CAM_HAS_AVX512BF16)
#define CAM_IF_AVX512BF16(_) _(avx512bf16)
#else
#define CAM_IF_AVX512BF16(_)
#endif

#if defined(CAM_HAS_NEON_DOT)
#define CAM_IF_NEON_DOT(_) _(neon_dot)
#else
#define CAM_IF_NEON_DOT(_)
#endif

#if defined(CAM_HAS_NEON_I8MM)
#define CAM_IF_NEON_I8MM(_) _(neon_i8mm)
#else
#define CAM_IF_NEON_I8MM(_)
#endif

#if defined(CAM_HAS_WASM)
#define CAM_IF_WASM(_) _(wasm)
#else
#define CAM_IF_WASM(_)
#endif

#if defined(CAM_HAS_WASM_RELAXED)
#define CAM_IF_WASM_RELAXED(_) _(wasm_relaxed)
#else
#define CAM_IF_WASM_RELAXED(_)
#endif
