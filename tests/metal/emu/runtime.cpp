/* runtime: fibers, barriers, exchanges of simdgroups, and traced accesses of memory. */
#include "runtime.h"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {
const char MIXED_BARRIERS[] = "a barrier in divergent flow: threads meet at different ones";
const char MIXED_EXCHANGES[] = "a simd operation in divergent flow: lanes meet at different ones";
enum { MOST_THREADS = 1024, STACK = 1 << 16 };
enum State { READY, AT_BARRIER, AT_EXCHANGE, DONE };

struct Fiber {
    void *sp;
    Place place;
    State state;
    int site;
    unsigned turn;  /* of the two sets of slots */
};
struct Simdgroup { int waiting; alignas(16) char slots[2][SIMD_LANES * SLOT_BYTES]; };

Fiber fibers[MOST_THREADS], *now;
Simdgroup simdgroups[MOST_THREADS / SIMD_LANES];
int queue[MOST_THREADS], n_queued, n_threads, backwards, first_thread, n_at_barrier, n_done, flushes;
char *stacks, problem[200];
void *home;
Entry entry;
void **buffers;

char *arena;
long arena_bytes;
Range *ranges;
int n_ranges;
uint32_t *stamps, ordinal;

void fail(const char *what, const Fiber &f) {
    if (problem[0]) return;
    const uint32_t *g = f.place.group;
    snprintf(problem, sizeof problem, "%s (threadgroup %u,%u,%u, thread %u, line %d)", what, g[0], g[1], g[2],
             f.place.index, f.site);
}

extern "C" void metal_swap(void **save, void *load);
#if defined(__x86_64__)
asm(".text\n.globl metal_swap\n.type metal_swap,@function\nmetal_swap:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\nmov %rsp,(%rdi)\nmov %rsi,%rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\npop %rcx\njmp *%rcx\n");
void *first_sp(char *top, void (*start)()) {
    void **sp = (void **)top;
    *--sp = nullptr;
    *--sp = (void *)start;
    for (int i = 0; i < 6; i++) *--sp = nullptr;
    return sp;
}
#elif defined(__aarch64__)
asm(".text\n.globl metal_swap\nmetal_swap:\nsub sp,sp,#160\nstp x19,x20,[sp]\nstp x21,x22,[sp,#16]\n"
    "stp x23,x24,[sp,#32]\nstp x25,x26,[sp,#48]\nstp x27,x28,[sp,#64]\nstp x29,x30,[sp,#80]\n"
    "stp d8,d9,[sp,#96]\nstp d10,d11,[sp,#112]\nstp d12,d13,[sp,#128]\nstp d14,d15,[sp,#144]\n"
    "mov x9,sp\nstr x9,[x0]\nmov sp,x1\nldp x19,x20,[sp]\nldp x21,x22,[sp,#16]\nldp x23,x24,[sp,#32]\n"
    "ldp x25,x26,[sp,#48]\nldp x27,x28,[sp,#64]\nldp x29,x30,[sp,#80]\nldp d8,d9,[sp,#96]\n"
    "ldp d10,d11,[sp,#112]\nldp d12,d13,[sp,#128]\nldp d14,d15,[sp,#144]\nadd sp,sp,#160\nret\n");
void *first_sp(char *top, void (*start)()) {
    void **sp = (void **)top - 20;
    memset(sp, 0, 160);
    sp[11] = (void *)start;
    return sp;
}
#endif

void start() {
    entry(buffers, &now->place);
    now->state = DONE;
    metal_swap(&now->sp, home);
}

void push(int thread) {
    fibers[thread].state = READY;
    queue[n_queued++] = thread;
}

/* Lets threads [first, first + n) go on, if all wait at one site. */
void release(int first, int n, const char *what) {
    for (int i = 1; i < n; i++)
        if (fibers[first + i].site != fibers[first].site) return fail(what, fibers[first + i]);
    for (int i = 0; i < n; i++) push(first + (backwards ? n - 1 - i : i));
}

void settle(Fiber &f) {
    const int thread = (int)f.place.index, simd = thread / SIMD_LANES;
    if (f.state == DONE) n_done++;
    if (f.state == AT_BARRIER && ++n_at_barrier == n_threads) n_at_barrier = 0, release(0, n_threads, MIXED_BARRIERS);
    if (f.state == AT_EXCHANGE && ++simdgroups[simd].waiting == SIMD_LANES)
        simdgroups[simd].waiting = 0, release(simd * SIMD_LANES, SIMD_LANES, MIXED_EXCHANGES);
}

void name_divergence() {
    for (int i = 0; i < n_threads; i++) {
        if (fibers[i].state == AT_BARRIER) fail("a barrier in divergent flow: not all threads reach it", fibers[i]);
        if (fibers[i].state == AT_EXCHANGE) fail("a simd operation in divergent flow: not all lanes reach it", fibers[i]);
    }
}

void place_threads(const uint32_t *group, const uint32_t *size) {
    for (int i = 0; i < n_threads; i++) {
        const uint32_t n = (uint32_t)i;
        const Place at = {{group[0], group[1], group[2]}, {n % size[0], n / size[0] % size[1], n / (size[0] * size[1])},
                          {size[0], size[1], size[2]}, n};
        fibers[i] = {first_sp(stacks + (long)(i + 1) * STACK, start), at, READY, 0, 0};
    }
    memset(simdgroups, 0, sizeof simdgroups);
    n_queued = n_at_barrier = n_done = 0;
    first_thread = backwards ? n_threads - 1 : 0;
    for (int i = 0; i < n_threads; i++) push(backwards ? n_threads - 1 - i : i);
}

/* The processor's word of floating-point modes, and that in which subnormal float32 are 0. */
#if defined(__x86_64__)
uint64_t modes() { return _mm_getcsr(); }
void set_modes(uint64_t word) { _mm_setcsr((unsigned)word); }
uint64_t flushing(uint64_t word) { return word | 0x8040; }
#elif defined(__aarch64__)
uint64_t modes() {
    uint64_t word;
    asm volatile("mrs %0, fpcr" : "=r"(word));
    return word;
}
void set_modes(uint64_t word) { asm volatile("msr fpcr, %0" : : "r"(word)); }
uint64_t flushing(uint64_t word) { return word | 1 << 24; }
#endif

void run_group() {
    int waiting[MOST_THREADS];
    while (n_queued && !problem[0]) {
        const int n = n_queued;
        memcpy(waiting, queue, sizeof(int) * (size_t)n);
        n_queued = 0;
        for (int i = 0; i < n && !problem[0]; i++) {
            now = &fibers[waiting[i]];
            metal_swap(&home, now->sp);
            settle(*now);
        }
    }
    if (!problem[0] && n_done < n_threads) name_divergence();
}

void touch(long at, long n, bool writes) {
    for (int i = 0; i < n_ranges; i++) {
        Range &r = ranges[i];
        if (at < r.begin || at + n > r.end) continue;
        if (writes && !r.is_output) return fail("a write to an input", *now);
        for (long b = at; b < at + n; b++)
            if (stamps[b] != ordinal) stamps[b] = ordinal, r.traffic++;
        return;
    }
    fail(writes ? "a write outside of all buffers" : "a read outside of all buffers", *now);
}

void access(void *p, long n, bool writes) {
    const long at = (char *)p - arena;
    if (arena && at >= 0 && at < arena_bytes) touch(at, n, writes);
}
}  // namespace

extern "C" {
void metal_barrier(int site) {
    now->state = AT_BARRIER, now->site = site;
    metal_swap(&now->sp, home);
}

uint32_t metal_lane() { return now->place.index % SIMD_LANES; }

const void *metal_exchange(const void *value, int n_bytes, int site) {
    char *slots = simdgroups[now->place.index / SIMD_LANES].slots[now->turn++ % 2];
    memcpy(slots + SLOT_BYTES * metal_lane(), value, (size_t)n_bytes);
    now->state = AT_EXCHANGE, now->site = site;
    metal_swap(&now->sp, home);
    return slots;
}

void metal_fresh(void *memory, long n_bytes) {
    if ((int)now->place.index == first_thread) memset(memory, 0xFF, (size_t)n_bytes);
}

void metal_flush(int does) { flushes = does; }

void metal_trace(char *base, long n_bytes, Range *all, int n, uint32_t *marks) {
    arena = base, arena_bytes = n_bytes, ranges = all, n_ranges = n, stamps = marks;
}

const char *metal_run(Entry kernel, void **given, const uint32_t *grid, const uint32_t *size, int order) {
    if (!stacks)
        stacks = (char *)mmap(nullptr, (size_t)MOST_THREADS * STACK, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    entry = kernel, buffers = given, backwards = order, problem[0] = 0, ordinal = 0;
    n_threads = (int)(size[0] * size[1] * size[2]);
    for (uint32_t i = 0; i < grid[0] * grid[1] * grid[2] && !problem[0]; i++) {
        const uint32_t group[3] = {i % grid[0], i / grid[0] % grid[1], i / (grid[0] * grid[1])};
        ordinal++;
        place_threads(group, size);
        const uint64_t kept = modes();
        if (flushes) set_modes(flushing(kept));
        run_group();
        set_modes(kept);
    }
    return problem;
}

/* Calls that the compiler makes at accesses of memory, with -fsanitize=thread. */
#define TRACED(n) \
    void __tsan_read##n(void *p) { access(p, n, false); } \
    void __tsan_write##n(void *p) { access(p, n, true); } \
    void __tsan_unaligned_read##n(void *p) { access(p, n, false); } \
    void __tsan_unaligned_write##n(void *p) { access(p, n, true); }
TRACED(1) TRACED(2) TRACED(4) TRACED(8) TRACED(16)
void __tsan_read_range(void *p, unsigned long n) { access(p, (long)n, false); }
void __tsan_write_range(void *p, unsigned long n) { access(p, (long)n, true); }
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_init() {}
}
