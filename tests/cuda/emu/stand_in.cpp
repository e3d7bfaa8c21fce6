/* stand_in: libcuda.so.1 over the emulator, and libamdhip64.so.7 (stand_in_hip.h), with the functions that device_driver.py calls and no others.
 *
 * Work waits in its stream until the host waits for it, so that a host that reads or reuses memory too early is
 * noticed. Memory starts as NaN. The image of a module is the path of a shared library. */
#include "emu.cpp"
#include <dlfcn.h>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

using Work = std::vector<std::function<void()>>;
struct Stream {
    Work queue;
    Work *capture = nullptr;
};
struct Module {
    void *library;
    const emu::Row *rows;
    int n;
};
/* EMU_LOST: a fault of a kernel, which the host sees when it waits. */
enum { OK = 0, INVALID_VALUE = 1, NO_MEMORY = 2, INVALID_IMAGE = 200, NOT_FOUND = 500, NOT_READY = 600, LOST = 700, CAPTURING = 900 };
static int chosen;  /* the device that was asked for last */
static size_t n_allocated;
static int n_live;  /* device memory, pinned memory, graphs, streams and events that are not freed */
static std::map<void *, size_t> sizes;
static std::set<Stream **> asked;  /* events that cuEventQuery has seen */

static void add(Stream *s, std::function<void()> work) { (s->capture ? *s->capture : s->queue).push_back(std::move(work)); }
static void drain(Stream *s) {
    Work work;
    work.swap(s->queue);
    for (auto &one : work) one();
}
static size_t limit() {
    const char *text = getenv("EMU_MEMORY");
    return text ? strtoull(text, nullptr, 10) : (size_t)4 << 30;
}

/* EMU_ARCH: the device's architecture, such as sm_75 or gfx1100. */
static std::string arch(const char *otherwise) {
    const char *text = getenv("EMU_ARCH");
    return text ? text : otherwise;
}

/* Arguments of a launch, copied when it is enqueued, as a driver does. */
struct Arguments {
    std::vector<std::unique_ptr<char[]>> values;
    std::vector<void *> at;
    Arguments(const emu::Row &row, void **given) {
        for (int i = 0; i < row.n; i++) {
            values.emplace_back(new char[row.sizes[i]]);
            memcpy(values.back().get(), given[i], row.sizes[i]);
            at.push_back(values.back().get());
        }
    }
};

extern "C" {
int cuInit(unsigned) { return OK; }
int cuDriverGetVersion(int *version) {
    const char *text = getenv("EMU_DRIVER");
    return *version = text ? atoi(text) : 13000, OK;
}
int cuDeviceGetCount(int *n) { return *n = 1, OK; }
int cuDeviceGet(int *device, int number) { return *device = chosen = number, OK; }
int cuDeviceGetName(char *name, int size, int) { return snprintf(name, size, "emulator"), OK; }
int cuDeviceTotalMem_v2(size_t *n, int) { return *n = limit(), OK; }
int cuDeviceGetAttribute(int *value, int attribute, int) {
    const int sm = atoi(arch("sm_90").c_str() + 3);
    const std::map<int, int> known = {{10, 32}, {13, 1000000}, {16, 4}, {75, sm / 10}, {76, sm % 10}};
    return *value = known.count(attribute) ? known.at(attribute) : 0, OK;
}
int cuDevicePrimaryCtxRetain(void **context, int) { return *context = (void *)1, OK; }
int cuDevicePrimaryCtxRelease_v2(int) { return OK; }
int cuCtxSetCurrent(void *) { return OK; }
int cuMemGetInfo_v2(size_t *free, size_t *total) { return *total = limit(), *free = limit() - n_allocated, OK; }
int cuMemAlloc_v2(void **p, size_t n) {
    if (n_allocated + n > limit()) return NO_MEMORY;
    *p = aligned_alloc(256, (n + 255) / 256 * 256);
    if (!*p) return NO_MEMORY;
    memset(*p, 0xFF, n);
    n_allocated += sizes[*p] = n;
    return n_live++, OK;
}
int cuMemFree_v2(void *p) {
    if (!sizes.count(p)) return INVALID_VALUE;
    n_allocated -= sizes[p];
    sizes.erase(p);
    return free(p), n_live--, OK;
}
int emu_live() { return n_live; }
int cuMemHostAlloc(void **p, size_t n, unsigned) {
    *p = aligned_alloc(256, (n + 255) / 256 * 256);
    return *p ? (n_live++, OK) : NO_MEMORY;
}
int cuMemFreeHost(void *p) { return free(p), n_live--, OK; }
int cuStreamCreate(Stream **s, unsigned) { return *s = new Stream, n_live++, OK; }
int cuStreamDestroy_v2(Stream *s) { return delete s, n_live--, OK; }
int cuStreamSynchronize(Stream *s) {
    if (s->capture) return CAPTURING;
    if (getenv("EMU_LOST")) return s->queue.clear(), LOST;
    return drain(s), OK;
}
int cuMemcpyAsync(void *to, const void *from, size_t n, Stream *s) { return add(s, [=] { memmove(to, from, n); }), OK; }
int cuMemsetD8Async(void *to, unsigned char byte, size_t n, Stream *s) { return add(s, [=] { memset(to, byte, n); }), OK; }
int cuModuleLoadData(Module **m, const void *image) {
    void *library = dlopen((const char *)image, RTLD_NOW | RTLD_LOCAL);
    if (!library) return fprintf(stderr, "emulator: %s\n", dlerror()), INVALID_IMAGE;
    auto rows = (const emu::Row *(*)(int *))dlsym(library, "emu_rows");
    int n = 0;
    const emu::Row *found = rows(&n);
    return *m = new Module{library, found, n}, OK;
}
int cuModuleUnload(Module *m) { return delete m, OK; }
int cuModuleGetFunction(const emu::Row **f, Module *m, const char *name) {
    for (int i = 0; i < m->n; i++)
        if (!strcmp(m->rows[i].name, name)) return *f = &m->rows[i], OK;
    return NOT_FOUND;
}
int cuLaunchKernel(const emu::Row *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned,
                   Stream *s, void **given, void **) {
    if (!gx || !gy || !gz || gy > 65535 || gz > 65535 || by != 1 || bz != 1) return INVALID_VALUE;
    auto arguments = std::make_shared<Arguments>(*f, given);
    add(s, [=] {
        const unsigned grid[3] = {gx, gy, gz};
        emu::launch(*f, arguments->at.data(), grid, bx);
    });
    return OK;
}
int cuStreamBeginCapture_v2(Stream *s, int) { return s->capture = new Work, OK; }
int cuStreamEndCapture(Stream *s, Work **graph) { return *graph = s->capture, s->capture = nullptr, OK; }
int cuGraphInstantiateWithFlags(Work **e, Work *graph, unsigned long long) { return *e = new Work(*graph), n_live++, OK; }
int cuGraphDestroy(Work *graph) { return delete graph, OK; }
int cuGraphExecDestroy(Work *e) { return delete e, n_live--, OK; }
int cuGraphLaunch(Work *e, Stream *s) {
    if (s->capture) return CAPTURING;
    return add(s, [=] { for (auto &one : *e) one(); }), OK;
}
int cuEventCreate(Stream ***e, unsigned) { return *e = new Stream *, n_live++, OK; }
int cuEventDestroy_v2(Stream **e) { return asked.erase(e), delete e, n_live--, OK; }
/* The first question comes too early; the second finds the work done. */
int cuEventQuery(Stream **e) {
    if (getenv("EMU_LOST")) return LOST;
    return asked.insert(e).second ? NOT_READY : (drain(*e), OK);
}
int cuEventRecord(Stream **e, Stream *s) { return *e = s, OK; }
int cuEventSynchronize(Stream **e) { return getenv("EMU_LOST") ? LOST : (drain(*e), OK); }
int cuEventElapsedTime(float *ms, Stream **, Stream **) { return *ms = 0.0f, OK; }
int cuGetErrorString(int code, const char **text) {
    static const std::map<int, const char *> known = {{INVALID_VALUE, "invalid argument"}, {NO_MEMORY, "out of memory"},
        {INVALID_IMAGE, "device kernel image is invalid"}, {NOT_FOUND, "named symbol not found"},
        {CAPTURING, "operation not permitted when stream is capturing"}};
    return *text = known.count(code) ? known.at(code) : "unknown error", OK;
}
}
#include "stand_in_hip.h"
