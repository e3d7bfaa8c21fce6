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

/* Copies are loops: the thread sanitizer watches memcpy also where it leaves the caller out.
 *
 * Layouts of matrix instructions, by PTX's manual and AMD's instruction sets (CDNA 2, CDNA 3, RDNA 3, RDNA 4). */
struct Spot { int lane, word; };
static int lanes_of(int mma) { return mma == MFMA_16 || mma == MFMA_32 ? 64 : 32; }
static int depth_of(int mma) { return mma == MFMA_32 ? 32 : 16; }
static int columns_of(int mma) { return mma == M16N8_CODES || mma == M16N8_BF16 ? 8 : 16; }

/* Where byte 2 * k, or k of codes, of a row of a is: its lane, and its word there. */
static Spot spot_of_a(int mma, int row, int k) {
    if (mma == M16N8_BF16) return {row % 8 * 4 + k % 8 / 2, row / 8 + k / 8 * 2};
    if (mma == M16N8_CODES) return {row % 8 * 4 + k / 4, row / 8};
    if (mma == MFMA_16) return {row + k / 4 * 16, 0};
    return mma == WMMA_11 ? Spot{row, k / 4} : Spot{row + k / 8 * 16, k % 8 / 4};
}
static Spot spot_of_b(int mma, int column, int k) {
    if (mma == M16N8_BF16) return {column * 4 + k % 8 / 2, k / 8};
    return mma == M16N8_CODES ? Spot{column * 4 + k / 4, 0} : spot_of_a(mma, column, k);
}
static Spot spot_of_sum(int mma, int row, int column) {
    if (mma == M16N8_CODES || mma == M16N8_BF16) return {row % 8 * 4 + column / 2, row / 8 * 2 + column % 2};
    if (mma == WMMA_11) return {column + row % 2 * 16, row / 2};
    return mma == WMMA_12 ? Spot{column + row / 8 * 16, row % 8} : Spot{column + row / 4 * 16, row % 4};
}

static int code(unsigned word, int k) { return (signed char)(word >> 8 * (k % 4)); }
static float half(unsigned word, int k) {
    const unsigned bits = k % 2 ? word & 0xFFFF0000u : word << 16;
    float v;
    return memcpy(&v, &bits, 4), v;
}
static float toward_zero(double v) {
    const float near = (float)v;
    return std::fabs((double)near) > std::fabs(v) ? std::nextafterf(near, 0.0f) : near;
}

/* The sum of 16 products and the sum before. EMU_SUMS 0: in ascending order from the sum before, each to nearest; 1: all at
 * once, cut toward zero, as tensor cores do (arXiv 2206.02874). Hardware may do otherwise: tests have tolerances. */
static float add_products(float sum, const float *products) {
    double total = sum;
    for (int k = 0; k < 16; k++) total += products[k], sum += products[k];
    const char *order = getenv("EMU_SUMS");
    return order && atoi(order) == 1 ? toward_zero(total) : sum;
}

EMU_OWN static void add_sum(Fiber *f, int mma, int row, int column) {
    const Spot at = spot_of_sum(mma, row, column);
    float products[16];
    for (int k = 0; k < depth_of(mma); k++) {
        const Spot a = spot_of_a(mma, row, k), b = spot_of_b(mma, column, k);
        const unsigned of_a = f[a.lane].a[a.word], of_b = f[b.lane].b[b.word];
        if (mma == M16N8_BF16) products[k] = half(of_a, k) * half(of_b, k);
        else ((int *)f[at.lane].sums)[at.word] += code(of_a, k) * code(of_b, k);
    }
    if (mma == M16N8_BF16) ((float *)f[at.lane].sums)[at.word] = add_products(((float *)f[at.lane].sums)[at.word], products);
}

/* The products of the lanes of an instruction. */
EMU_OWN static void multiply(Fiber *f, int mma) {
    for (int i = 0; mma == WMMA_11 && i < 64; i++)
        if (f[i / 4].a[i % 4] != f[i / 4 + 16].a[i % 4] || f[i / 4].b[i % 4] != f[i / 4 + 16].b[i % 4])
            fail("halves of a wave with other operands of a matrix instruction");
    for (int row = 0; row < 16; row++)
        for (int column = 0; column < columns_of(mma); column++) add_sum(f, mma, row, column);
}

/* Lanes that meet: those of a wave, at a matrix instruction those that it has. */
EMU_OWN static int meeting(const Fiber *f) {
    const int lanes = f->sums ? lanes_of(f->mma) : block->wave;
    if (lanes > block->wave) fail("a matrix instruction of more lanes than a wave has");
    return lanes;
}

/* All lanes have come, from a first thread on: each takes the value of its source, which is in its own group of 32. */
EMU_OWN static void exchange(int first, int lanes) {
    Fiber *f = &block->fibers[first];
    int threads[64];
    for (int lane = 0; lane < lanes; lane++) {
        if (f[lane].site != f[0].site || !f[lane].sums != !f[0].sums) fail("lanes meet at different shuffles");
        if (f[0].sums && f[lane].mma != f[0].mma) fail("lanes meet at different matrix instructions");
        f[lane].got = f[(lane & ~31) | (f[lane].from & 31)].given;
        threads[lane] = first + lane;
    }
    if (f[0].sums) multiply(f, f[0].mma);
    release(threads, lanes);
}

EMU_OWN static void meet(long site) {
    Fiber *self = now;
    const int wave = self->thread / block->wave, lanes = meeting(self), first = self->thread / lanes * lanes;
    const uint64_t all = (lanes == 64 ? ~0ull : 0xFFFFFFFFull) << first % block->wave;
    self->site = site;
    self->state = AT_SHUFFLE;
    block->arrived[wave] |= 1ull << (self->thread % block->wave);
#if EMU_TSAN
    __tsan_release(&block->shuffle_marks[block->set][wave]);
#endif
    if ((block->arrived[wave] & all) == all) {
        block->arrived[wave] &= ~all;
        exchange(first, lanes);
    }
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

EMU_OWN void mma(Mma kind, void *sums, const unsigned *a, int n_a, const unsigned *b, int n_b, long site) {
    Fiber *self = now;
    for (int i = 0; i < 4; i++) self->a[i] = i < n_a ? a[i] : 0, self->b[i] = i < n_b ? b[i] : 0;
    self->sums = sums, self->mma = kind;
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
