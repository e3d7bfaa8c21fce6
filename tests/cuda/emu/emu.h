/* emu: the dialect of gpu.h for the processor. A block runs at a time, every GPU thread as a fiber.
 *
 * Ends the process with one line for: a barrier or shuffle that some threads do not reach, threads at different
 * barriers, a barrier after a thread has left, too much shared memory, a load of several words that is not aligned.
 * Shared memory starts as NaN. EMU_ORDER: 0 ascending, 1 descending, n > 1 a random order of threads from seed n, drawn
 * anew at every barrier. EMU_WAVE: lanes that meet at a shuffle, 32 or 64. EMU_SUMS: order of a float matrix instruction's
 * sums (emu.cpp). With -fsanitize=thread a race between
 * threads, with -fsanitize=address an access out of bounds is reported by its line. */
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#if defined(__SANITIZE_THREAD__)
#define EMU_TSAN 1
#define EMU_OWN __attribute__((no_sanitize_thread, noinline))
extern "C" {
void *__tsan_create_fiber(unsigned);
void __tsan_switch_to_fiber(void *, unsigned);
void *__tsan_get_current_fiber(void);
void __tsan_acquire(void *);
void __tsan_release(void *);
}
#else
#define EMU_TSAN 0
#define EMU_OWN
#endif
#if defined(__SANITIZE_ADDRESS__)
#define EMU_ASAN 1
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define EMU_ASAN 0
#endif

#define DEVICE inline __attribute__((always_inline))
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };

namespace emu {
constexpr int MAX_THREADS = 1024, MAX_ARRAYS = 64;
constexpr size_t STACK = 64 << 10, SHARED_BYTES = 99 << 10;
enum State { READY, AT_BARRIER, AT_SHUFFLE, DONE };
enum Mma { M16N8_CODES, M16N8_BF16, MFMA_16, MFMA_32, WMMA_11, WMMA_12 };

struct Fiber {
    void *sp, *tsan[2];
    char *stack, *stacks[2];
    int thread, state, from;
    long site;  /* line of the barrier or shuffle */
    unsigned given, got, a[4], b[4];  /* of a shuffle; of a matrix instruction */
    void *sums;  /* of a matrix instruction, else null */
    int mma;
};
struct Array { const void *site; size_t at; };  /* in shared memory, by its declaration */
struct Block {
    Fiber fibers[MAX_THREADS];
    int queue[MAX_THREADS + 1], head, tail, n, alive, at_barrier, x, y, z, order, wave, set;
    uint64_t arrived[MAX_THREADS / 32];
    unsigned lot;
    char barrier_mark[2], shuffle_marks[2][MAX_THREADS / 32];
    void *main_sp, *main_tsan;
    const char *kernel;
    void (*body)(void **);
    void **arguments;
    alignas(128) char arenas[EMU_TSAN ? 16 : 1][SHARED_BYTES];
    char *shared;
    Array arrays[MAX_ARRAYS];  /* of this block, so far */
    int n_arrays;
    size_t shared_used;
};
extern Block *block;
extern Fiber *now;
void barrier(long site);
unsigned shuffle(unsigned v, int from, long site);
/* A matrix instruction: sums += a b, with the lane's words of both. */
void mma(Mma kind, void *sums, const unsigned *a, int n_a, const unsigned *b, int n_b, long site);
const void *aligned(const void *p, int n);
void *shared(const void *site, size_t n_bytes);
int thread();
int place(int axis);
/* A kernel with its arguments' sizes, for the stand-in of the driver. */
struct Row { const char *name; void (*body)(void **); int n; const size_t *sizes; };
template <auto F> struct Kernel;
template <class... A, void (*F)(A...)> struct Kernel<F> {
    static constexpr size_t sizes[sizeof...(A) + 1] = {sizeof(A)...};
    template <size_t... I> static void call(void **p, std::integer_sequence<size_t, I...>) { F(*(A *)p[I]...); }
    static void body(void **p) { call(p, std::make_integer_sequence<size_t, sizeof...(A)>{}); }
    static constexpr Row row(const char *name) { return {name, body, (int)sizeof...(A), sizes}; }
};
}  // namespace emu

#define KERNEL(name, threads) static void kernel_##name
#define SHARED(type, name, n) \
    static const char emu_##name = 0; \
    type *name = (type *)emu::shared(&emu_##name, sizeof(type) * (n))
#define THREAD (emu::thread())
#define BLOCK_X (emu::place(0))
#define BLOCK_Y (emu::place(1))
#define BLOCK_Z (emu::place(2))
#define SYNC() emu::barrier(__LINE__)
#define ALIGNED(p, n) emu::aligned(p, n)

DEVICE float as_float(u32 bits) { float v; memcpy(&v, &bits, 4); return v; }
DEVICE u32 as_bits(float v) { u32 bits; memcpy(&bits, &v, 4); return bits; }
DEVICE u32 shuffle_bits(u32 v, int from, long site = __builtin_LINE()) { return emu::shuffle(v, from, site); }
DEVICE void mma_16(int *sums, u32 a, u32 a8, u32 b, long site = __builtin_LINE()) {
    const u32 both[2] = {a, a8};
    emu::mma(emu::M16N8_CODES, sums, both, 2, &b, 1, site);
}
DEVICE void mma_bf16(float *sums, const u32 *a, const u32 *b, long site = __builtin_LINE()) {
    emu::mma(emu::M16N8_BF16, sums, a, 4, b, 2, site);
}
#ifdef MFMA
DEVICE void mma_codes(int *sums, const u32 *a, const u32 *b, long site = __builtin_LINE()) {
    emu::mma(MFMA == 16 ? emu::MFMA_16 : emu::MFMA_32, sums, a, MFMA / 16, b, MFMA / 16, site);
}
#endif
#ifdef WMMA
DEVICE void mma_codes(int *sums, const u32 *a, const u32 *b, long site = __builtin_LINE()) {
    emu::mma(WMMA == 11 ? emu::WMMA_11 : emu::WMMA_12, sums, a, WMMA == 11 ? 4 : 2, b, WMMA == 11 ? 4 : 2, site);
}
#endif
DEVICE float fma_(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEVICE float rint_(float v) { return __builtin_rintf(v); }
DEVICE float sqrt_(float v) { return __builtin_sqrtf(v); }
DEVICE float max_(float a, float b) { return __builtin_fmaxf(a, b); }
DEVICE float min_(float a, float b) { return __builtin_fminf(a, b); }
DEVICE float abs_(float v) { return __builtin_fabsf(v); }
DEVICE u32 mul_high(u32 a, u32 b) { return (u32)((u64)a * b >> 32); }
/* Orders accesses for the thread sanitizer, which does not know fence_all. */
DEVICE u32 atomic_add(u32 *p, u32 v) { return __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL); }
DEVICE void fence_all() {}
DEVICE float float_of_half(u32 bits) { _Float16 v; u16 h = (u16)bits; memcpy(&v, &h, 2); return (float)v; }
DEVICE u32 half_of_float(float f) { _Float16 v = (_Float16)f; u16 h; memcpy(&h, &v, 2); return h; }
DEVICE uint4 stream16(const void *p) { return *(const uint4 *)ALIGNED(p, 16); }
DEVICE void look_up(const u32 *table, u32 nibbles, u32 *low, u32 *high) {
    u32 found[2] = {0, 0};
    for (int i = 0; i < 8; i++) found[i & 1] |= (u32)((const u8 *)table)[nibbles >> 4 * i & 15] << 8 * (i / 2);
    *low = found[0], *high = found[1];
}
DEVICE int dot4(u32 a, u32 b, int sum) {
    for (int i = 0; i < 32; i += 8) sum += (i8)(a >> i) * (i8)(b >> i);
    return sum;
}
DEVICE void mma_32(int *sums, const uint4 &a, const uint2 &b, long site = __builtin_LINE()) {
    mma_16(sums, a.x, a.y, b.x, site);
    mma_16(sums, a.z, a.w, b.y, site);
}
