// A stand-in for libcuda.so.1: device memory is host memory, every piece of work is done at once. Written from the driver API
// reference for the functions that `src/ffi/cuda/driver.rs` names; a graph records copies and fills and repeats them.
//
// Build: cc -shared -fPIC -o libcuda.so.1 cuda.c    Knobs: -DINIT_CODE=, -DVERSION=, -DDEVICES=, -DMEMORY_BYTES=, -DLOST_AFTER= (graphs
// launched, then every call of the process fails as after a kernel that trapped)
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef INIT_CODE
#define INIT_CODE 0
#endif
#ifndef VERSION
#define VERSION 12060
#endif
#ifndef DEVICES
#define DEVICES 1
#endif
#ifndef LOST_AFTER
#define LOST_AFTER (1L << 60)
#endif
#ifndef MEMORY_BYTES
#define MEMORY_BYTES (64u << 20)
#endif

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, NOT_READY = 600, LAUNCH_FAILED = 719 };
typedef struct { int kind; void *to; const void *from; int value; size_t bytes; } step;
typedef struct { step steps[64]; int count; } graph;
typedef struct { graph *recording; } stream;

static size_t used_bytes;
static long live; // allocations, streams, events, graphs and context references that were not given back
static __thread void *current;
static long graphs_launched;

long double_live(void) { return live; }

int cuInit(unsigned flags) { return flags ? INVALID_VALUE : INIT_CODE; }
int cuDriverGetVersion(int *version) { *version = VERSION; return SUCCESS; }
int cuGetErrorName(int code, const char **text) {
    switch (code) {
    case OUT_OF_MEMORY: *text = "CUDA_ERROR_OUT_OF_MEMORY"; return SUCCESS;
    case INVALID_CONTEXT: *text = "CUDA_ERROR_INVALID_CONTEXT"; return SUCCESS;
    case 100: *text = "CUDA_ERROR_NO_DEVICE"; return SUCCESS;
    case LAUNCH_FAILED: *text = "CUDA_ERROR_LAUNCH_FAILED"; return SUCCESS;
    default: *text = NULL; return INVALID_VALUE;
    }
}
int cuGetErrorString(int code, const char **text) {
    if (code == OUT_OF_MEMORY) { *text = "out of memory"; return SUCCESS; }
    if (code == 100) { *text = "no CUDA-capable device is detected"; return SUCCESS; }
    *text = NULL;
    return INVALID_VALUE;
}
int cuDeviceGetCount(int *count) { *count = DEVICES; return SUCCESS; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal < DEVICES ? SUCCESS : 101; }
int cuDeviceGetName(char *name, int length, int device) { snprintf(name, length, "Double %d", device); return SUCCESS; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    switch (attribute) {
    case 16: *value = 8; return SUCCESS;
    case 18: *value = 1; return SUCCESS;
    case 32: *value = 0; return SUCCESS;
    case 75: *value = 8; return SUCCESS;
    case 76: *value = 7; return SUCCESS;
    default: return INVALID_VALUE;
    }
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) { (void)device; *bytes = MEMORY_BYTES; return SUCCESS; }
int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) { (void)device; return flags == 1 || flags == 4 ? SUCCESS : INVALID_VALUE; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)(uintptr_t)(0x100000 + device); live++; return SUCCESS; }
int cuDevicePrimaryCtxRelease_v2(int device) { (void)device; live--; return SUCCESS; }
int cuCtxSetCurrent(void *context) { current = context; return SUCCESS; }
#define NEEDS_CONTEXT if (graphs_launched > LOST_AFTER) return LAUNCH_FAILED; if (!current) return INVALID_CONTEXT
int cuCtxSynchronize(void) { NEEDS_CONTEXT; return SUCCESS; }
int cuMemGetInfo_v2(size_t *available, size_t *total) { NEEDS_CONTEXT; *available = MEMORY_BYTES - used_bytes; *total = MEMORY_BYTES; return SUCCESS; }
int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
    NEEDS_CONTEXT;
    if (!bytes) return INVALID_VALUE;
    if (bytes > MEMORY_BYTES - used_bytes) return OUT_OF_MEMORY;
    /* Zeroed: no kernel runs here, so an answer that nobody wrote must read as none. */
    /* Aligned to 256 bytes as the driver does, with one such unit in front for the length. */
    size_t *block = NULL;
    if (posix_memalign((void **)&block, 256, bytes + 256)) return OUT_OF_MEMORY;
    memset(block, 0, bytes + 256);
    *block = bytes;
    used_bytes += bytes;
    live++;
    *address = (uintptr_t)block + 256;
    return SUCCESS;
}
int cuMemFree_v2(uint64_t address) { NEEDS_CONTEXT; size_t *block = (size_t *)(uintptr_t)(address - 256); used_bytes -= *block; live--; free(block); return SUCCESS; }
int cuMemHostAlloc(void **address, size_t bytes, unsigned flags) { NEEDS_CONTEXT; (void)flags; *address = malloc(bytes); memset(*address, 0xA5, bytes); live++; return SUCCESS; }
int cuMemFreeHost(void *address) { NEEDS_CONTEXT; free(address); live--; return SUCCESS; }

static void carry_out(const step *s) {
    if (s->kind) memset(s->to, s->value, s->bytes); else memcpy(s->to, s->from, s->bytes);
}
static int work(stream *on, step s) {
    NEEDS_CONTEXT;
    if (!on->recording) { carry_out(&s); return SUCCESS; }
    if (on->recording->count == 64) return OUT_OF_MEMORY;
    on->recording->steps[on->recording->count++] = s;
    return SUCCESS;
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *on) { return work(on, (step){0, (void *)(uintptr_t)to, from, 0, bytes}); }
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *on) { return work(on, (step){0, to, (void *)(uintptr_t)from, 0, bytes}); }
int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void *on) { return work(on, (step){1, (void *)(uintptr_t)to, NULL, value, bytes}); }

int cuStreamCreate(void **made, unsigned flags) { NEEDS_CONTEXT; (void)flags; *made = calloc(1, sizeof(stream)); live++; return SUCCESS; }
int cuStreamSynchronize(void *on) { NEEDS_CONTEXT; return ((stream *)on)->recording ? 900 : SUCCESS; }
int cuStreamWaitEvent(void *on, void *event, unsigned flags) { NEEDS_CONTEXT; (void)on; (void)event; (void)flags; return SUCCESS; }
int cuStreamDestroy_v2(void *on) { NEEDS_CONTEXT; free(on); live--; return SUCCESS; }
int cuStreamBeginCapture_v2(void *on, unsigned mode) { NEEDS_CONTEXT; (void)mode; ((stream *)on)->recording = calloc(1, sizeof(graph)); live++; return SUCCESS; }
int cuStreamEndCapture(void *on, void **made) { NEEDS_CONTEXT; *made = ((stream *)on)->recording; ((stream *)on)->recording = NULL; return SUCCESS; }
int cuEventCreate(void **made, unsigned flags) { NEEDS_CONTEXT; (void)flags; *made = calloc(1, 8); live++; return SUCCESS; }
int cuEventRecord(void *event, void *on) { NEEDS_CONTEXT; (void)on; *(int *)event = 1; return SUCCESS; }
int cuEventRecordWithFlags(void *event, void *on, unsigned flags) { NEEDS_CONTEXT; (void)on; *(int *)event = 1; return flags <= 1 ? SUCCESS : INVALID_VALUE; }
int cuEventSynchronize(void *event) { NEEDS_CONTEXT; (void)event; return SUCCESS; }
int cuEventQuery(void *event) { NEEDS_CONTEXT; return *(int *)event ? SUCCESS : NOT_READY; }
int cuEventElapsedTime(float *milliseconds, void *from, void *to) { NEEDS_CONTEXT; (void)from; (void)to; *milliseconds = 1.5f; return SUCCESS; }
int cuEventDestroy_v2(void *event) { NEEDS_CONTEXT; free(event); live--; return SUCCESS; }
int cuGraphInstantiateWithFlags(void **made, void *from, unsigned long long flags) {
    NEEDS_CONTEXT;
    if (flags) return INVALID_VALUE;
    *made = malloc(sizeof(graph));
    memcpy(*made, from, sizeof(graph));
    live++;
    return SUCCESS;
}
int cuGraphLaunch(void *made, void *on) {
    graphs_launched++;
    NEEDS_CONTEXT;
    (void)on;
    for (int i = 0; i < ((graph *)made)->count; i++) carry_out(&((graph *)made)->steps[i]);
    return SUCCESS;
}
int cuGraphExecDestroy(void *made) { NEEDS_CONTEXT; free(made); live--; return SUCCESS; }
int cuGraphDestroy(void *made) { NEEDS_CONTEXT; free(made); live--; return SUCCESS; }
// Kernels are not carried out; a launch notes that it was asked for.
static long launches;
long double_launches(void) { return launches; }
int cuModuleLoadData(void **made, const void *text) { NEEDS_CONTEXT; if (strncmp(text, "//", 2) && strncmp(text, ".version", 8)) return 218; *made = calloc(1, 8); live++; return SUCCESS; }
int cuModuleGetFunction(void **found, void *module, const char *name) { NEEDS_CONTEXT; (void)module; *found = (void *)name; return *name ? SUCCESS : 500; }
int cuModuleUnload(void *module) { NEEDS_CONTEXT; free(module); live--; return SUCCESS; }
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *on, void **arguments, void **extra) {
    NEEDS_CONTEXT;
    (void)shared; (void)extra;
    if (!function || !on || !arguments || !(gx && gy && gz && bx && by && bz) || bx * by * bz > 1024) return INVALID_VALUE;
    launches++;
    return SUCCESS;
}
