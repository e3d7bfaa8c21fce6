/* emu: fibers, barriers, shuffles and shared memory of emu.h. */
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
#include "emu.h"
#include "launch.h"
#include <sys/mman.h>

namespace emu {
Block *block;
Fiber *now;
extern "C" void emu_swap(void **save, void *load);

#if defined(__x86_64__)
/* A jump to the popped address instead of a ret: 15 to 22 ns a switch, as it disturbs no return prediction. */
asm(".text\n.globl emu_swap\n.type emu_swap,@function\nemu_swap:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\nmov %rsp,(%rdi)\nmov %rsi,%rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\npop %rcx\njmp *%rcx\n");
EMU_OWN static void *first_sp(char *top, void (*entry)()) {
    void **sp = (void **)((uintptr_t)top & ~(uintptr_t)15);
    *--sp = nullptr;
    *--sp = (void *)entry;
    for (int i = 0; i < 6; i++) *--sp = nullptr;
    return sp;
}
#elif defined(__aarch64__)
asm(".text\n.globl emu_swap\nemu_swap:\nsub sp,sp,#160\nstp x19,x20,[sp]\nstp x21,x22,[sp,#16]\n"
    "stp x23,x24,[sp,#32]\nstp x25,x26,[sp,#48]\nstp x27,x28,[sp,#64]\nstp x29,x30,[sp,#80]\n"
    "stp d8,d9,[sp,#96]\nstp d10,d11,[sp,#112]\nstp d12,d13,[sp,#128]\nstp d14,d15,[sp,#144]\n"
    "mov x9,sp\nstr x9,[x0]\nmov sp,x1\nldp x19,x20,[sp]\nldp x21,x22,[sp,#16]\nldp x23,x24,[sp,#32]\n"
    "ldp x25,x26,[sp,#48]\nldp x27,x28,[sp,#64]\nldp x29,x30,[sp,#80]\nldp d8,d9,[sp,#96]\n"
    "ldp d10,d11,[sp,#112]\nldp d12,d13,[sp,#128]\nldp d14,d15,[sp,#144]\nadd sp,sp,#160\nret\n");
EMU_OWN static void *first_sp(char *top, void (*entry)()) {
    void **sp = (void **)((uintptr_t)top & ~(uintptr_t)15) - 20;
    memset(sp, 0, 160);
    sp[11] = (void *)entry;
    return sp;
}
#endif

[[noreturn]] EMU_OWN static void fail(const char *what) {
    fprintf(stderr, "emulator: %s: %s (block %d,%d,%d, thread %d, line %ld)\n", block->kernel, what, block->x, block->y,
            block->z, now ? now->thread : -1, now ? now->site : 0);
    fflush(stderr);
    _Exit(86);
}

EMU_OWN const void *aligned(const void *p, int n) {
    if ((uintptr_t)p % n) fail("a load of several words that is not aligned");
    return p;
}

static int after(int at) { return at == MAX_THREADS ? 0 : at + 1; }

EMU_OWN static void push(int thread) {
    block->queue[block->tail] = thread;
    block->tail = after(block->tail);
    block->fibers[thread].state = READY;
}

EMU_OWN static Fiber *pop() {
    Fiber *next = &block->fibers[block->queue[block->head]];
    block->head = after(block->head);
    return next;
}

EMU_OWN static void go(void **save, Fiber *to) {
#if EMU_TSAN
    __tsan_switch_to_fiber(to ? to->tsan[block->set] : block->main_tsan, 1);
#endif
    now = to;
#if EMU_ASAN
    void *fake;
    __sanitizer_start_switch_fiber(&fake, to ? to->stack : nullptr, to ? STACK : 0);
    emu_swap(save, to ? to->sp : block->main_sp);
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
    emu_swap(save, to ? to->sp : block->main_sp);
#endif
}

/* Runs the next ready thread; returns when this one is ready. */
EMU_OWN static void yield() {
    Fiber *self = now;
    if (block->head == block->tail)
        fail(self->state == AT_BARRIER ? "a barrier that some threads never reach" : "a shuffle that some lanes never reach");
    Fiber *to = pop();
    if (to != self) go(&self->sp, to);
}

/* Makes waiting threads ready, in the order of EMU_ORDER. */
EMU_OWN static void release(int *threads, int n) {
    for (int i = n; block->order > 1 && i > 1; i--) {
        block->lot = block->lot * 1664525u + 1013904223u;
        const int j = (int)((block->lot >> 8) % (unsigned)i), last = threads[i - 1];
        threads[i - 1] = threads[j];
        threads[j] = last;
    }
    for (int i = 0; i < n; i++) push(threads[block->order == 1 ? n - 1 - i : i]);
}

EMU_OWN static void open_barrier() {
    int threads[MAX_THREADS];
    for (int t = 0; t < block->n; t++) {
        if (block->fibers[t].site != block->fibers[0].site) fail("threads meet at different barriers");
        threads[t] = t;
    }
    block->at_barrier = 0;
    release(threads, block->n);
}

EMU_OWN void barrier(long site) {
    Fiber *self = now;
    self->site = site;
    if (block->alive < block->n) fail("a barrier after a thread has left");
    self->state = AT_BARRIER;
#if EMU_TSAN
    __tsan_release(&block->barrier_mark[block->set]);
#endif
    if (++block->at_barrier == block->n) open_barrier();
    yield();
#if EMU_TSAN
    __tsan_acquire(&block->barrier_mark[block->set]);
#endif
}

static int code(unsigned word, int i) { return (signed char)(word >> 8 * i); }

/* The products of a group of 32 lanes: lane l has row l / 4, and that eight on, of a, column l / 4 of b, each the four
 * codes from 4 * (l % 4) on, and the sums of its rows with columns 2 * (l % 4) and the next. */
EMU_OWN static void multiply(Fiber *f) {
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++) {
            const int row = lane / 4, column = 2 * (lane % 4) + i % 2;
            for (int k = 0; k < 16; k++)
                f[lane].sums[i] += code(f[4 * row + k / 4].a[i / 2], k % 4) * code(f[4 * column + k / 4].b, k % 4);
        }
}

/* All lanes of a wave have come: each takes the value of its source, which is in its own group of 32. */
EMU_OWN static void exchange(int wave) {
    const int lanes = block->wave;
    Fiber *f = &block->fibers[lanes * wave];
    int threads[64];
    for (int lane = 0; lane < lanes; lane++) {
        if (f[lane].site != f[0].site || !f[lane].sums != !f[0].sums) fail("lanes meet at different shuffles");
        f[lane].got = f[(lane & ~31) | (f[lane].from & 31)].given;
        threads[lane] = lanes * wave + lane;
    }
    for (int group = 0; f[0].sums && group < lanes; group += 32) multiply(f + group);
    block->arrived[wave] = 0;
    release(threads, lanes);
}

EMU_OWN static void meet(long site) {
    Fiber *self = now;
    const int wave = self->thread / block->wave;
    self->site = site;
    self->state = AT_SHUFFLE;
    block->arrived[wave] |= 1ull << (self->thread % block->wave);
#if EMU_TSAN
    __tsan_release(&block->shuffle_marks[block->set][wave]);
#endif
    if (block->arrived[wave] == (block->wave == 64 ? ~0ull : 0xFFFFFFFFull)) exchange(wave);
    yield();
#if EMU_TSAN
    __tsan_acquire(&block->shuffle_marks[block->set][wave]);
#endif
}

EMU_OWN unsigned shuffle(unsigned v, int from, long site) {
    Fiber *self = now;
    self->given = v;
    self->from = from;
    self->sums = nullptr;
    meet(site);
    return self->got;
}

EMU_OWN void mma_16(int *sums, unsigned a, unsigned a8, unsigned b, long site) {
    Fiber *self = now;
    self->a[0] = a, self->a[1] = a8, self->b = b;
    self->sums = sums;
    meet(site);
}

/* An array has one place in a block however often its declaration runs, as on a GPU. */
EMU_OWN void *shared(const void *site, size_t n_bytes) {
    Block &k = *block;
    for (int i = 0; i < k.n_arrays; i++)
        if (k.arrays[i].site == site) return k.shared + k.arrays[i].at;
    const size_t at = k.shared_used;
    n_bytes = (n_bytes + 127) / 128 * 128 + 128 * EMU_ASAN;
    if (at + n_bytes > SHARED_BYTES || k.n_arrays == MAX_ARRAYS) fail("more shared memory than a block has");
    k.shared_used = at + n_bytes;
    k.arrays[k.n_arrays++] = {site, at};
#if EMU_ASAN
    ASAN_POISON_MEMORY_REGION(k.shared + at + n_bytes - 128, 128);
#endif
    return k.shared + at;
}
EMU_OWN int thread() { return now->thread; }
EMU_OWN int place(int axis) { return axis == 0 ? block->x : axis == 1 ? block->y : block->z; }

EMU_OWN static void entry() {
    Fiber *self = now;
#if EMU_ASAN
    __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
#if EMU_TSAN
    __tsan_acquire(&block->main_tsan);
#endif
    block->body(block->arguments);
#if EMU_TSAN
    __tsan_release(&block->main_sp);
#endif
    self->state = DONE;
    if (block->arrived[self->thread / block->wave]) fail("a lane leaves while others wait for its value");
    if (block->at_barrier) fail("a thread leaves while others wait at a barrier");
    block->alive--;
    if (block->head == block->tail) {
        if (block->alive) fail("threads wait for ever");
        go(&self->sp, nullptr);
    }
    go(&self->sp, pop());
    __builtin_unreachable();
}

EMU_OWN static char *pages(size_t n_bytes) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *found = mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (found == MAP_FAILED) abort();
    return (char *)found;
}

EMU_OWN static void make_fibers(int n) {
    for (int t = 0; t < n; t++) {
        Fiber &f = block->fibers[t];
        if (f.stacks[0]) continue;
        for (auto &stack : f.stacks) stack = pages(STACK);
#if EMU_TSAN
        for (auto &fiber : f.tsan) fiber = __tsan_create_fiber(0);
#endif
    }
}

EMU_OWN static void poison() {
#if EMU_ASAN
    ASAN_UNPOISON_MEMORY_REGION(block->shared, SHARED_BYTES);
#endif
#if !EMU_TSAN
    static bool is_first = true;
    memset(block->shared, 0xFF, is_first ? SHARED_BYTES : block->shared_used);  /* NaN, and -1 */
    is_first = false;
#endif
    block->shared_used = 0;
    block->n_arrays = 0;
}

EMU_OWN static void run_block(int number) {
    Block &k = *block;
    k.set = number & 1;  /* neighbouring blocks are other fibers: nothing orders them */
    k.shared = k.arenas[EMU_TSAN ? number % 16 : 0];
#if EMU_TSAN
    if (number % 16 == 0) {  /* arenas take turns, and all threads meet before one comes again */
        __tsan_acquire(&k.main_sp);
        __tsan_release(&k.main_tsan);
    }
#endif
    k.head = k.tail = k.at_barrier = 0;
    k.alive = k.n;
    memset(k.arrived, 0, sizeof k.arrived);
    poison();
    int threads[MAX_THREADS];
    for (int t = 0; t < k.n; t++) {
        Fiber &f = k.fibers[t];
        f.thread = t;
        f.stack = f.stacks[EMU_TSAN && k.set];
#if EMU_ASAN
        ASAN_UNPOISON_MEMORY_REGION(f.stack, STACK);  /* frames of a thread that left without returning */
#endif
        f.sp = first_sp(f.stack + STACK - t % 61 * 448, entry);  /* tops apart, else all share one set of the cache */
        threads[t] = t;
    }
    release(threads, k.n);
    go(&k.main_sp, pop());
}

static int setting(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

EMU_OWN void launch(const Row &kernel, void **arguments, const unsigned *grid, unsigned n_threads) {
    if (!block) block = (Block *)pages(sizeof(Block));
    Block &k = *block;
    k.kernel = kernel.name;
    k.body = kernel.body;
    k.arguments = arguments;
    k.order = setting("EMU_ORDER", 0);
    k.wave = setting("EMU_WAVE", 32);
    k.lot = (unsigned)k.order;
    k.n = (int)n_threads;
    now = nullptr;
    if (n_threads % k.wave || n_threads > MAX_THREADS) fail("a block has whole waves, at most 1024 threads");
    make_fibers(k.n);
#if EMU_TSAN
    k.main_tsan = __tsan_get_current_fiber();
    __tsan_release(&k.main_tsan);
#endif
    const unsigned n_blocks = grid[0] * grid[1] * grid[2];
    for (unsigned i = 0; i < n_blocks; i++) {
        const unsigned at = k.order == 1 ? n_blocks - 1 - i : i;
        k.x = (int)(at % grid[0]);
        k.y = (int)(at / grid[0] % grid[1]);
        k.z = (int)(at / grid[0] / grid[1]);
        run_block((int)i);
    }
#if EMU_TSAN
    __tsan_acquire(&k.main_sp);
#endif
}
}  // namespace emu
