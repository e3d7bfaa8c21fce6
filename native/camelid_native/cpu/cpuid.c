#include "cpuid.h"

#if defined(__wasm__)
/* An engine that could compile the module runs all of it. */
int cam_machine_runs(const char *variant) { return variant != 0; }
#else
#include <string.h>

#if defined(__x86_64__)
static int runs_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}
static int runs_avx512vnni(void) {
    return runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
}
/* GCC 12 has no name for AVX-VNNI: leaf 7, subleaf 1, EAX bit 4. */
static int runs_avxvnni(void) {
    unsigned a = 7, b, c = 1, d;
    if (!runs_avx2()) return 0;
    __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    return a >> 4 & 1;
}
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
