/* A management library with one GPU at 00000000:3B:00.0: fixed figures, two events, three processes. */
#include <string.h>

typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } process_t;
typedef struct { void *device; unsigned long long kind, data; unsigned gi, ci; } event_t;

static int gpu;

int nvmlInit_v2(void) { return 0; }

int nvmlDeviceGetHandleByPciBusId_v2(const char *address, void **device) {
    if (strcmp(address, "00000000:3B:00.0") != 0) return 6;
    *device = &gpu;
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, memory_t *memory) {
    (void)device;
    memory->total = 8ULL << 30;
    memory->used = 3ULL << 30;
    memory->free = 5ULL << 30;
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, process_t *found) {
    (void)device;
    if (*count < 2) return 7;
    found[0] = (process_t){7, 1ULL << 20, 0, 0};
    found[1] = (process_t){42, 2ULL << 30, 0, 0};
    *count = 2;
    return 0;
}

int nvmlDeviceGetGraphicsRunningProcesses_v2(void *device, unsigned *count, process_t *found) {
    (void)device;
    if (*count < 2) return 7;
    found[0] = (process_t){42, 2ULL << 30, 0, 0};
    found[1] = (process_t){9, ~0ULL, 0, 0};
    *count = 2;
    return 0;
}

int nvmlDeviceGetTemperature(void *device, unsigned which, unsigned *celsius) {
    (void)device, (void)which;
    *celsius = 61;
    return 0;
}

int nvmlDeviceGetTotalEccErrors(void *device, unsigned kind, unsigned counter, unsigned long long *errors) {
    (void)device, (void)counter;
    *errors = kind == 1 ? 2 : 5;
    return 0;
}

#ifndef NO_EVENTS
static int waited;

int nvmlEventSetCreate(void **set) {
    *set = &waited;
    waited = 0;
    return 0;
}

int nvmlDeviceRegisterEvents(void *device, unsigned long long kinds, void *set) {
    (void)device, (void)set;
    return (kinds & 0x8) ? 0 : 3;
}

int nvmlEventSetWait_v2(void *set, event_t *event, unsigned limit_ms) {
    (void)set, (void)limit_ms;
    event->device = &gpu;
    switch (waited++) {
    case 0: event->kind = 0x8; event->data = 79; return 0;
    case 1: event->kind = 0x2; event->data = 0; return 0;
    default: return 10;
    }
}
#endif
