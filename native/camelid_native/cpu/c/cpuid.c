#include "cpuid.h"

#if defined(__wasm__)
/* An engine that compiled the module supports all of its instructions. */
int cam_machine_runs(const char *variant) { return variant != 0; }
#else
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
/* Reads CPUID directly: __builtin_cpu_supports reads a variable that the compiler's start-up code sets, and
 * Zig links no such code into a shared library. */
enum { A, B, C, D };
static int bits(unsigned leaf, unsigned subleaf, int reg, unsigned wanted) {
    unsigned r[4] = {0};
    return __get_cpuid_count(leaf, subleaf, &r[A], &r[B], &r[C], &r[D]) && (r[reg] & wanted) == wanted;
}
/* True if the operating system saves these registers at a context switch. */
static int keeps(unsigned wanted) {
    unsigned low, high;
    if (!bits(1, 0, C, 1u << 27)) return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & wanted) == wanted;
}
enum { KEEP_YMM = 0x06, KEEP_ZMM = 0xE6 };
#if defined(__APPLE__)   /* macOS enables ZMM at a thread's first use */
#define KEEPS_512 KEEP_YMM
#else
#define KEEPS_512 KEEP_ZMM
#endif
enum { FMA_AVX_F16C = 1 << 12 | 1 << 28 | 1 << 29, AVX2 = 1 << 5, AVX_VNNI = 1 << 4, AVX512_VNNI = 1 << 11 };
enum { AVX512_BF16 = 1 << 5 };
static const unsigned AVX512_F_DQ_BW_VL = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;
static int runs_avx2(void) { return keeps(KEEP_YMM) && bits(1, 0, C, FMA_AVX_F16C) && bits(7, 0, B, AVX2); }
static int runs_avx512vnni(void) {
    return runs_avx2() && keeps(KEEPS_512) && bits(7, 0, B, AVX512_F_DQ_BW_VL) && bits(7, 0, C, AVX512_VNNI);
}
static int runs_avx512bf16(void) { return runs_avx512vnni() && bits(7, 1, A, AVX512_BF16); }
static int runs_avxvnni(void) { return runs_avx2() && bits(7, 1, A, AVX_VNNI); }
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
enum { HWCAP_DOT = 1 << 20, HWCAP_HALF = 1 << 10, HWCAP2_I8MM_BIT = 1 << 13 };
static int runs_neon_dot(void) {
    unsigned long caps = getauxval(AT_HWCAP);
    return (caps & HWCAP_DOT) && (caps & HWCAP_HALF);
}
static int runs_neon_i8mm(void) { return runs_neon_dot() && (getauxval(AT_HWCAP2) & HWCAP2_I8MM_BIT); }
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
static int has(const char *name) {
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname(name, &value, &size, NULL, 0) == 0 && value;
}
static int runs_neon_dot(void) { return has("hw.optional.arm.FEAT_DotProd"); }
static int runs_neon_i8mm(void) { return runs_neon_dot() && has("hw.optional.arm.FEAT_I8MM"); }
#endif

static int runs_always(void) { return 1; }

static const struct { const char *name; int (*runs)(void); } tests[] = {
    {"portable", runs_always},
#if defined(__x86_64__)
    {"avx2", runs_avx2}, {"avxvnni", runs_avxvnni}, {"avx512vnni", runs_avx512vnni},
    {"avx512bf16", runs_avx512bf16},
#elif defined(__aarch64__) && (defined(__linux__) || defined(__APPLE__))
    {"neon_dot", runs_neon_dot}, {"neon_i8mm", runs_neon_i8mm},
#endif
};

int cam_machine_runs(const char *variant) {
    for (unsigned i = 0; i < sizeof tests / sizeof *tests; i++)
        if (!strcmp(tests[i].name, variant)) return tests[i].runs();
    return 0;
}
#endif
