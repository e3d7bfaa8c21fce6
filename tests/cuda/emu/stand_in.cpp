/* stand_in: libcuda.so.1 over the emulator, and libamdhip64.so.7 (stand_in_hip.h), with the functions that device_driver.py calls and no others.
 *
 * Work waits in its stream until the host waits for it, so that a host that reads or reuses memory too early is
 * noticed. Memory starts as NaN. The image of a module is the path of a shared library. */
#include "emu.cpp"
#include "streams.h"
#include <dlfcn.h>
#include <numeric>
#include <set>
#include <string>
#include <vector>

struct Function {
    const emu::Row *row;
    int device;
};
struct Module {
    void *library;
    const emu::Row *rows;
    int n, device;
    std::map<std::string, Function> functions;
};
struct Held {
    size_t n;
    int device;
};
/* EMU_LOST: a fault of a kernel, which the host sees when it waits. */
enum { OK = 0, INVALID_VALUE = 1, NO_MEMORY = 2, INVALID_DEVICE = 101, INVALID_IMAGE = 200, INVALID_HANDLE = 400,
       NOT_FOUND = 500, NOT_READY = 600, LOST = 700, PEER_ENABLED = 704, CAPTURING = 900, UNJOINED = 904, NOT_CAPTURED = 905 };
enum { N_DEVICES = 8 };
static thread_local int current = -1;  /* the device of the thread's context */
static size_t n_allocated[N_DEVICES];
static int n_live[N_DEVICES];  /* device memory, pinned memory, graphs, streams and events that are not freed */
static int n_streams[N_DEVICES];  /* those of n_live that are streams */
static bool has_fault[N_DEVICES];  /* of a lost device, until its context ends */
static std::map<void *, Held> sizes;
static std::set<Event *> asked;  /* events that cuEventQuery has seen */
static std::vector<std::unique_ptr<Stream>> streams;  /* destroyed ones too, since events may name them */

static int n_retained[N_DEVICES];  /* holders of a device's context */
static bool is_lost() {
    if (!getenv("EMU_LOST")) return false;
    return has_fault[current] = true;
}
static bool is_own(Stream *s) { return s->device == current; }
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
int cuDeviceGetCount(int *n) { return *n = N_DEVICES, OK; }
int cuDeviceGet(int *device, int number) {
    return number >= 0 && number < N_DEVICES ? (*device = number, OK) : INVALID_DEVICE;
}
int cuDeviceGetName(char *name, int size, int) { return snprintf(name, size, "emulator"), OK; }
int cuDeviceTotalMem_v2(size_t *n, int) { return *n = limit(), OK; }
int cuDeviceGetAttribute(int *value, int attribute, int) {
    const int sm = atoi(arch("sm_90").c_str() + 3);
    const std::map<int, int> known = {{10, 32}, {13, 1000000}, {16, 4}, {75, sm / 10}, {76, sm % 10}};
    return *value = known.count(attribute) ? known.at(attribute) : 0, OK;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
    return n_retained[device]++, *context = (void *)(size_t)(device + 1), OK;
}
/* The last holder ends the context, its work and its memory; after a fault, its streams too. */
int cuDevicePrimaryCtxRelease_v2(int device) {
    if (--n_retained[device]) return OK;
    for (auto &s : streams)
        if (s->device == device) s->n_done = s->n_added(), s->queue.clear();
    for (auto held = sizes.begin(); held != sizes.end();)
        held = held->second.device == device ? (free(held->first), n_live[device]--, sizes.erase(held)) : std::next(held);
    if (has_fault[device]) n_live[device] -= n_streams[device], n_streams[device] = 0;
    has_fault[device] = false;
    return n_allocated[device] = 0, OK;
}
int cuCtxSetCurrent(void *context) { return current = (int)(size_t)context - 1, OK; }
int cuDeviceCanAccessPeer(int *can, int device, int peer) { return *can = device != peer, OK; }
int cuCtxEnablePeerAccess(void *, unsigned) { return PEER_ENABLED; }
int cuMemGetInfo_v2(size_t *free, size_t *total) { return *total = limit(), *free = limit() - n_allocated[current], OK; }
int cuMemAlloc_v2(void **p, size_t n) {
    if (current < 0) return INVALID_DEVICE;
    if (!n) return INVALID_VALUE;
    if (n_allocated[current] + n > limit()) return NO_MEMORY;
    *p = aligned_alloc(256, (n + 255) / 256 * 256);
    if (!*p) return NO_MEMORY;
    memset(*p, 0xFF, n);
    sizes[*p] = {n, current};
    n_allocated[current] += n;
    return n_live[current]++, OK;
}
int cuMemFree_v2(void *p) {
    if (!sizes.count(p)) return INVALID_VALUE;
    const Held held = sizes[p];
    n_allocated[held.device] -= held.n;
    sizes.erase(p);
    return free(p), n_live[held.device]--, OK;
}
int emu_live() { return std::accumulate(n_live, n_live + N_DEVICES, 0); }
int cuMemHostAlloc(void **p, size_t n, unsigned) {
    if (!n) return INVALID_VALUE;
    *p = aligned_alloc(256, (n + 255) / 256 * 256);
    return *p ? (n_live[current]++, OK) : NO_MEMORY;
}
int cuMemFreeHost(void *p) { return free(p), n_live[current]--, OK; }
int cuStreamCreate(Stream **s, unsigned) {
    streams.push_back(std::make_unique<Stream>());
    *s = streams.back().get();
    (*s)->device = current;
    return n_streams[current]++, n_live[current]++, OK;
}
int cuStreamDestroy_v2(Stream *) { return n_streams[current]--, n_live[current]--, OK; }
int cuStreamSynchronize(Stream *s) {
    if (s->capture) return CAPTURING;
    if (is_lost()) return s->n_done = s->n_added(), s->queue.clear(), LOST;
    return drain(s, s->n_added()), OK;
}
int cuMemcpyAsync(void *to, const void *from, size_t n, Stream *s) {
    return is_own(s) ? (add(s, [=] { memmove(to, from, n); }), OK) : INVALID_HANDLE;
}
int cuMemsetD8Async(void *to, unsigned char byte, size_t n, Stream *s) {
    return is_own(s) ? (add(s, [=] { memset(to, byte, n); }), OK) : INVALID_HANDLE;
}
int cuModuleLoadData(Module **m, const void *image) {
    void *library = dlopen((const char *)image, RTLD_NOW | RTLD_LOCAL);
    if (!library) return fprintf(stderr, "emulator: %s\n", dlerror()), INVALID_IMAGE;
    auto rows = (const emu::Row *(*)(int *))dlsym(library, "emu_rows");
    int n = 0;
    const emu::Row *found = rows(&n);
    return *m = new Module{library, found, n, current, {}}, OK;
}
int cuModuleUnload(Module *m) { return delete m, OK; }
int cuModuleGetFunction(const Function **f, Module *m, const char *name) {
    for (int i = 0; i < m->n; i++)
        if (!strcmp(m->rows[i].name, name)) return *f = &(m->functions[name] = {&m->rows[i], m->device}), OK;
    return NOT_FOUND;
}
int cuLaunchKernel(const Function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned,
                   Stream *s, void **given, void **) {
    if (!gx || !gy || !gz || gy > 65535 || gz > 65535 || by != 1 || bz != 1) return INVALID_VALUE;
    if (!is_own(s) || f->device != s->device) return INVALID_HANDLE;
    const emu::Row *row = f->row;
    auto arguments = std::make_shared<Arguments>(*row, given);
    add(s, [=] {
        const unsigned grid[3] = {gx, gy, gz};
        emu::launch(*row, arguments->at.data(), grid, bx);
    });
    return OK;
}
int cuStreamBeginCapture_v2(Stream *s, int) {
    s->capture = std::make_shared<Graph>();
    return s->capture->lane(s), OK;
}
int cuStreamEndCapture(Stream *s, Graph **graph) {
    auto made = s->capture;
    for (Stream *one : made->streams) one->capture = nullptr;
    return is_joined(*made) ? (*graph = new Graph(*made), OK) : (*graph = nullptr, UNJOINED);
}
int cuGraphInstantiateWithFlags(Graph **e, Graph *graph, unsigned long long) { return *e = new Graph(*graph), n_live[current]++, OK; }
int cuGraphDestroy(Graph *graph) { return delete graph, OK; }
int cuGraphExecDestroy(Graph *e) { return delete e, n_live[current]--, OK; }
int cuGraphLaunch(Graph *e, Stream *s) {
    if (s->capture) return CAPTURING;
    return is_own(s) ? (add(s, [=] { Run{*e, {}}.all(); }), OK) : INVALID_HANDLE;
}
int cuEventCreate(Event **e, unsigned) { return *e = new Event, n_live[current]++, OK; }
int cuEventDestroy_v2(Event *e) { return asked.erase(e), delete e, n_live[current]--, OK; }
int cuEventRecord(Event *e, Stream *s) {
    return is_own(s) ? (*e = {s, s->capture, s->n_added()}, OK) : INVALID_HANDLE;
}
int cuStreamWaitEvent(Stream *s, Event *e, unsigned) {
    if (!is_own(s)) return INVALID_HANDLE;
    if (e->graph && !s->capture) s->capture = e->graph;  /* the stream joins the capture */
    if (e->graph != s->capture) return NOT_CAPTURED;
    return add(s, Item{nullptr, e->stream, e->at}), OK;
}
int cuEventSynchronize(Event *e) {
    if (e->graph) return CAPTURING;
    return is_lost() ? LOST : (drain(e->stream, e->at), OK);
}
/* The first question comes too early; the second finds the work done. */
int cuEventQuery(Event *e) {
    if (is_lost()) return LOST;
    return asked.insert(e).second ? NOT_READY : (drain(e->stream, e->at), OK);
}
int cuEventElapsedTime(float *ms, Event *, Event *) { return *ms = 0.0f, OK; }
int cuGetErrorString(int code, const char **text) {
    static const std::map<int, const char *> known = {{INVALID_VALUE, "invalid argument"}, {NO_MEMORY, "out of memory"},
        {INVALID_DEVICE, "invalid device ordinal"}, {INVALID_IMAGE, "device kernel image is invalid"},
        {INVALID_HANDLE, "invalid resource handle"}, {UNJOINED, "capture was not joined"},
        {NOT_CAPTURED, "event of another capture"}, {NOT_FOUND, "named symbol not found"},
        {CAPTURING, "operation not permitted when stream is capturing"}};
    return *text = known.count(code) ? known.at(code) : "unknown error", OK;
}
}
#include "stand_in_hip.h"
