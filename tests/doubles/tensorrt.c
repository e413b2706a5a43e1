// A stand-in for TensorRT's core library and its ONNX parser in one file, for each of the five binary families. Written by hand
// from the published slot numbers; it takes models that are any bytes and gives plans that are `PLAN<family>` and those bytes.
//
// Build: cc -shared -fPIC -DFAMILY=0..4 -DNUMBER=<getInferLibVersion> -o libnvinfer.so.8 tensorrt.c
// Families: 0 TensorRT 8, 1 TensorRT 10, 2 TensorRT 11, 3 TensorRT-RTX 1.3, 4 TensorRT-RTX 1.5.
// Knobs: -DSIDE, -DBATCH (a detector, of so many pictures), -DLEAN (no builder, as the lean runtime), -DWITHOUT_DRIVER (factories give a wild pointer), -DFAILS (builds fail), -DSLOW (300 steps of 0.2 s),
//   -DINNER="NAME" (the first layer makes the tensor NAME; a build with that layer held to half finds no kernel)
// Every call that arrives is written with its slot to `<this file>.calls`; a line with `!` is a mistake of the caller.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MINOR ((NUMBER) < 10000 ? (NUMBER) / 100 % 10 : (NUMBER) / 100 % 100)
#define SLOTS 90
#if FAMILY == 0
typedef struct { int32_t count; int32_t sizes[8]; } dims;
#else
typedef struct { int32_t count; int64_t sizes[8]; } dims;
#endif

// ---------------------------------------------------------------- what arrived
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;
static void said(const char *format, ...) {
    Dl_info self;
    char path[4096];
    dladdr((void *)said, &self);
    snprintf(path, sizeof path, "%s.calls", self.dli_fname);
    pthread_mutex_lock(&writing);
    FILE *file = fopen(path, "a");
    va_list arguments;
    va_start(arguments, format);
    if (file) { vfprintf(file, format, arguments); fputc('\n', file); fclose(file); }
    va_end(arguments);
    pthread_mutex_unlock(&writing);
}

// ---------------------------------------------------------------- objects: { vptr, implementation }
typedef struct object object;
typedef struct implementation {
    void **vptr;
    object *itself;
    const char *class;
    object *parent;
    int children;
    // state of whatever class it is
    void *logger, *recorder, *monitor, *allocator, *profiler, *owned;
    uint64_t workspace, flags;
    int level, index;
    bool input, inner;
    size_t bytes;
    char *data;
    void *addresses[2];
} implementation;
struct object { void **vptr; implementation *m; };

static void *table_of(const char *class);
static object *make(const char *class, object *parent);
static void destroy(object *this) {
    implementation *m = this->m;
    said("%s delete%s", m->class, m->children ? " !while children live" : "");
    if (m->allocator && m->owned) {
        int slot = FAMILY == 0 ? 5 : 6;
        bool (*deallocate)(void *, void *) = (bool (*)(void *, void *))(*(void ***)m->allocator)[slot];
        said("IGpuAllocator deallocate: %d", deallocate(m->allocator, m->owned));
    }
    if (m->parent) m->parent->m->children--;
    free(m->data);
    free(m);
    free(this);
}
static void wrong_destructor(object *this) { said("%s !complete destructor called, which frees nothing", this->m->class); }

// ---------------------------------------------------------------- calls to the program's objects
static const int VERSIONED = FAMILY != 0, LOGGER_VERSIONED = FAMILY == 2 || FAMILY == 4;
typedef struct { const char *kind; int32_t major, minor; } information;
static void interface_of(void *object) {
    int32_t (*language)(void *) = (int32_t (*)(void *))(*(void ***)object)[0];
    information (*info)(void *) = (information (*)(void *))(*(void ***)object)[1];
    information found = info(object);
    said("interface %s %d.%d, language %d", found.kind, found.major, found.minor, language(object));
}
static void to_log(void *logger, int severity, const char *text) {
    void (*log)(void *, int, const char *) = (void (*)(void *, int, const char *))(*(void ***)logger)[LOGGER_VERSIONED ? 4 : 0];
    log(logger, severity, text);
}
static void report(void *recorder, int code, const char *text) {
    void **table = *(void ***)recorder;
    int first = VERSIONED ? 4 : 2;
    bool (*report)(void *, int, const char *) = (bool (*)(void *, int, const char *))table[first + 5];
    int (*count)(void *) = (int (*)(void *))table[first];
    const char *(*description)(void *, int) = (const char *(*)(void *, int))table[first + 2];
    int (*number)(void *, int) = (int (*)(void *, int))table[first + 1];
    report(recorder, code, text);
    int last = count(recorder) - 1;
    if (last < 0 || strcmp(description(recorder, last), text) || number(recorder, last) != code) said("!recorder lost an error");
    if (strcmp(description(recorder, 1000000), "") || number(recorder, -1)) said("!recorder invents errors");
}
static void use_recorder(implementation *m, void *recorder) {
    m->recorder = recorder;
    void **table = *(void ***)recorder;
    int first = VERSIONED ? 4 : 2;
    int (*more)(void *) = (int (*)(void *))table[first + 6];
    int (*less)(void *) = (int (*)(void *))table[first + 7];
    bool (*overflowed)(void *) = (bool (*)(void *))table[first + 3];
    int before = more(recorder), after = less(recorder);
    if (VERSIONED) interface_of(recorder);
    if (before != after + 1 || overflowed(recorder)) said("!recorder counts wrongly");
}

// ---------------------------------------------------------------- methods
static int slot_of(const char *class, const char *method);
#define SAID(_, more, ...) said("%s::%s @%d" more, __VA_ARGS__)
#define HERE(method) m->class, method, slot_of(m->class, method)

static void *builder_logger(implementation *m) { SAID(, "", HERE("getLogger")); return m->logger; }
static void builder_recorder(implementation *m, void *recorder) { SAID(, "", HERE("setErrorRecorder")); use_recorder(m, recorder); }
static object *builder_config(implementation *m) { SAID(, "", HERE("createBuilderConfig")); object *o = make("VBuilderConfig", m->itself); o->m->level = 3; return o; }
static bool held_to_half; // some layer of the network that was made last
static object *builder_network(implementation *m, uint32_t flags) {
    SAID(, " flags=%u", HERE("createNetworkV2"), flags);
    held_to_half = false;
    return make("VNetworkDefinition", m->itself);
}
typedef struct { void *monitor; int steps; bool go_on; } walk;
static void *walk_phases(void *argument) {
    walk *w = argument;
    void **table = *(void ***)w->monitor;
    void (*start)(void *, const char *, const char *, int) = (void (*)(void *, const char *, const char *, int))table[4];
    bool (*step)(void *, const char *, int) = (bool (*)(void *, const char *, int))table[5];
    void (*finish)(void *, const char *) = (void (*)(void *, const char *))table[6];
    start(w->monitor, "Building engine", NULL, w->steps);
    start(w->monitor, "Timing tactics", "Building engine", 1);
    finish(w->monitor, "Timing tactics");
    w->go_on = true;
    for (int i = 0; i < w->steps && w->go_on; i++) {
#ifdef SLOW
        usleep(200000);
#endif
        w->go_on = step(w->monitor, "Building engine", i);
    }
    finish(w->monitor, "Building engine");
    return NULL;
}
static object *built_now(implementation *m, object *network, object *config) {
    SAID(, "", HERE("buildSerializedNetwork"));
    implementation *n = network->m, *c = config->m;
    if (strcmp(n->class, "VNetworkDefinition") || strcmp(c->class, "VBuilderConfig")) said("!arguments are not a network and a configuration");
    if (!n->data) said("!the parser was deleted before the build");
    for (int i = 0; i < 3; i++) {
        char text[80];
        snprintf(text, sizeof text, "Tactic %d needs %d MiB, only %d MiB are free", i, 100 * i, 10 * i);
        to_log(m->logger, 2, text);
    }
    if (c->monitor) {
#ifdef SLOW
        walk w = {c->monitor, 300, false};
#else
        walk w = {c->monitor, 4, false};
#endif
        pthread_t thread;
        pthread_create(&thread, NULL, walk_phases, &w);
        pthread_join(thread, NULL);
        if (!w.go_on) { report(m->recorder, 7, "BuildCanceled (Build canceled by user)"); return NULL; }
    }
#ifdef SLOW
    else sleep(60);
#endif
#ifdef INNER
    if (held_to_half) { report(m->recorder, 10, "Error Code 10: Internal Error (Could not find any implementation for node " INNER ")"); return NULL; }
#endif
#ifdef FAILS
    n->data[0] = 0;
    report(m->recorder, 10, "Error Code 10: Internal Error (Could not find any implementation for node /model.0/conv)");
    return NULL;
#endif
    if (n->data && strstr(n->data, "FAIL")) { report(m->recorder, 10, "Could not find any implementation for node /model.0/conv"); return NULL; }
    object *memory = make("VHostMemory", NULL);
    memory->m->data = malloc(n->bytes + 6);
    memory->m->bytes = sprintf(memory->m->data, "PLAN%d", FAMILY) + n->bytes;
    memcpy(memory->m->data + 5, n->data ? n->data : "", n->bytes);
    return memory;
}
/* A build that goes on while the library's own end runs faults, as the real one does. */
static volatile int building;
__attribute__((destructor)) static void end_of_library(void) { if (building) { fputs("corrupted double-linked list\n", stderr); abort(); } }
static object *builder_build(implementation *m, object *network, object *config) {
    building = 1;
    object *built = built_now(m, network, config);
    building = 0;
    return built;
}

static void config_workspace(implementation *m, int pool, size_t bytes) { SAID(, " pool=%d bytes=%zu", HERE("setMemoryPoolLimit"), pool, bytes); m->workspace = bytes; }
static size_t config_get_workspace(implementation *m, int pool) { SAID(, " pool=%d", HERE("getMemoryPoolLimit"), pool); return m->workspace; }
static void config_flag(implementation *m, int flag) { SAID(, " flag=%d", HERE("setFlag"), flag); m->flags |= 1ull << flag; }
static bool config_get_flag(implementation *m, int flag) { SAID(, " flag=%d", HERE("getFlag"), flag); return m->flags >> flag & 1; }
static void config_verbosity(implementation *m, int value) { SAID(, " value=%d", HERE("setProfilingVerbosity"), value); }
static void config_level(implementation *m, int level) { SAID(, " level=%d", HERE("setBuilderOptimizationLevel"), level); if (level <= 5) m->level = level; }
static int config_get_level(implementation *m) { SAID(, "", HERE("getBuilderOptimizationLevel")); return m->level; }
static void config_monitor(implementation *m, void *monitor) { SAID(, "", HERE("setProgressMonitor")); m->monitor = monitor; interface_of(monitor); }
static object *config_cache(implementation *m, const void *bytes, size_t length) {
    SAID(, " bytes=%zu", HERE("createTimingCache"), length);
    return length && *(const char *)bytes == 'X' ? NULL : make("VTimingCache", NULL);
}
static bool config_use_cache(implementation *m, object *cache, bool ignore) { SAID(, " %s ignore=%d", HERE("setTimingCache"), cache->m->class, ignore); return true; }
static bool config_capabilities(implementation *m, int count) { SAID(, " count=%d", HERE("setNbComputeCapabilities"), count); return true; }
static bool config_capability(implementation *m, int value, int index) { SAID(, " value=%d index=%d", HERE("setComputeCapability"), value, index); return value != 87; }

static object *cache_serialize(implementation *m) { SAID(, "", HERE("serialize")); object *o = make("VHostMemory", NULL); o->m->data = strdup("timings"); o->m->bytes = 7; return o; }
static void *memory_data(implementation *m) { SAID(, "", HERE("data")); return m->data; }
static size_t memory_size(implementation *m) { SAID(, "", HERE("size")); return m->bytes; }

static object *tensor(implementation *m, bool input) {
    static object *made[2]; // belong to the network; never deleted by the caller
    if (made[input]) destroy(made[input]);
    made[input] = make("VTensor", NULL);
    made[input]->m->input = input;
    (void)m;
    return made[input];
}
static int network_layers(implementation *m) { SAID(, "", HERE("getNbLayers")); return 2; }
static object *network_layer(implementation *m, int index) {
    static object *made;
    SAID(, " %d", HERE("getLayer"), index);
    if (made) destroy(made);
    made = make("VLayer", NULL);
    made->m->index = index;
    return made;
}
static int network_inputs(implementation *m) { SAID(, "", HERE("getNbInputs")); return 1; }
static object *network_input(implementation *m, int index) { SAID(, " %d", HERE("getInput"), index); return tensor(m, true); }
static int network_outputs(implementation *m) { SAID(, "", HERE("getNbOutputs")); return 1; }
static object *network_output(implementation *m, int index) { SAID(, " %d", HERE("getOutput"), index); return tensor(m, false); }
#ifndef BATCH
#define BATCH 1
#endif
#ifdef SIDE // a detector of two classes on BATCH pictures of SIDE × SIDE pixels, in 32-bit floats; it computes nothing
#define INPUT_TYPE 0
static const dims INPUT_SIZES = {4, {BATCH, 3, SIDE, SIDE}}, OUTPUT_SIZES = {3, {BATCH, 6, SIDE * SIDE * 21 / 1024}};
#else
#define INPUT_TYPE 1
static const dims INPUT_SIZES = {4, {1, 3, 4, 5}}, OUTPUT_SIZES = {3, {1, 6, 10}};
#endif
#ifndef INNER
#define INNER "images"
#endif
static const char *tensor_name(implementation *m) { SAID(, "", HERE("getName")); return m->inner ? INNER : m->input ? "images" : "output0"; }
static dims tensor_sizes(implementation *m) { SAID(, "", HERE("getDimensions")); return m->input ? INPUT_SIZES : OUTPUT_SIZES; }
static int tensor_type(implementation *m) { SAID(, "", HERE("getType")); return m->input ? INPUT_TYPE : 0; }
static int layer_outputs(implementation *m) { SAID(, "", HERE("getNbOutputs")); return 1; }
static object *layer_output(implementation *m, int index) { SAID(, " %d", HERE("getOutput"), index); object *o = tensor(m, m->index == 0); o->m->inner = m->index == 0; return o; }
static void layer_precision(implementation *m, int type) { SAID(, " layer=%d type=%d", HERE("setPrecision"), m->index, type); held_to_half |= type == 1; }
static void layer_type(implementation *m, int output, int type) { SAID(, " layer=%d output=%d type=%d", HERE("setOutputType"), m->index, output, type); }

static void *runtime_logger(implementation *m) { SAID(, "", HERE("getLogger")); return m->logger; }
static object *runtime_itself(implementation *m) { SAID(, "", HERE("getPImpl")); return m->itself; }
static void runtime_recorder(implementation *m, void *recorder) { SAID(, "", HERE("setErrorRecorder")); use_recorder(m, recorder); }
static void runtime_allocator(implementation *m, void *allocator) { SAID(, "", HERE("setGpuAllocator")); m->allocator = allocator; if (VERSIONED) interface_of(allocator); }
static object *runtime_read(implementation *m, const char *plan, size_t length
#if FAMILY == 0
    , void *factory
#endif
) {
    SAID(, " bytes=%zu", HERE("deserializeCudaEngine"), length);
#if FAMILY == 0
    if (factory) said("!a plugin factory that is not null");
#endif
    if (length < 5 || memcmp(plan, "PLAN", 4)) { report(m->recorder, 1, "Serialization assertion magicTag failed"); return NULL; }
    if (plan[4] != '0' + FAMILY) { report(m->recorder, 6, "The engine plan file is not compatible with this version of TensorRT"); return NULL; }
    if (length >= 8 && !memcmp(plan + 5, "GPU", 3)) { report(m->recorder, 1, "CUDA initialization failure with error: 35"); return NULL; }
    object *engine = make("VCudaEngine", m->itself);
    engine->m->recorder = m->recorder;
    if (m->allocator) {
        int slot = FAMILY == 0 ? 0 : 4;
        void *(*allocate)(void *, uint64_t, uint64_t, uint32_t) = (void *(*)(void *, uint64_t, uint64_t, uint32_t))(*(void ***)m->allocator)[slot];
        engine->m->owned = allocate(m->allocator, 1000, 256, 0);
        engine->m->allocator = m->allocator;
        said("IGpuAllocator allocate: %s", engine->m->owned ? "given" : "refused");
        if (!engine->m->owned) { report(m->recorder, 2, "OutOfMemory: 1000 bytes"); engine->m->allocator = NULL; destroy(engine); return NULL; }
    }
    return engine;
}
static int runtime_validity(implementation *m, const void *plan, int64_t length, uint64_t *diagnostics) {
    SAID(, " bytes=%ld", HERE("getEngineValidity"), (long)length);
    *diagnostics = 0;
    return length >= 5 && !memcmp(plan, "PLAN", 4) ? 0 : 2;
}

static int engine_layers(implementation *m) { SAID(, "", HERE("getNbLayers")); return 2; }
static int engine_tensors(implementation *m) { SAID(, "", HERE("getNbIOTensors")); return 2; }
static const char *engine_name(implementation *m, int index) { SAID(, " %d", HERE("getIOTensorName"), index); return index ? "output0" : "images"; }
static dims engine_sizes(implementation *m, const char *name) { SAID(, " %s", HERE("getTensorShape"), name); return strcmp(name, "images") ? OUTPUT_SIZES : INPUT_SIZES; }
static int engine_type(implementation *m, const char *name) { SAID(, " %s", HERE("getTensorDataType"), name); return strcmp(name, "images") ? 0 : INPUT_TYPE; }
static int engine_mode(implementation *m, const char *name) { SAID(, " %s", HERE("getTensorIOMode"), name); return strcmp(name, "images") ? 2 : 1; }
static size_t engine_memory(implementation *m) { SAID(, "", HERE("getDeviceMemorySize")); return 4096; }
static int64_t engine_memory_v2(implementation *m) { SAID(, "", HERE("getDeviceMemorySizeV2")); return 4096; }
static object *engine_context(implementation *m, int strategy) {
    SAID(, " strategy=%d", HERE("createExecutionContext"), FAMILY == 0 ? -1 : strategy);
    object *o = make("VExecutionContext", m->itself);
    o->m->recorder = m->recorder;
    return o;
}
static object *engine_bare_context(implementation *m) {
    SAID(, "", HERE("createExecutionContextWithoutDeviceMemory"));
    object *o = make("VExecutionContext", m->itself);
    o->m->recorder = m->recorder;
    return o;
}
static object *engine_inspector(implementation *m) { SAID(, "", HERE("createEngineInspector")); return make("VEngineInspector", m->itself); }
static const char *inspector_information(implementation *m, int format) {
    SAID(, " format=%d", HERE("getEngineInformation"), format);
    return "{\"Layers\": [{\"Name\": \"conv\"}, {\"Name\": \"concat\"}], \"Bindings\": [\"images\", \"output0\"]}";
}

static bool context_input(implementation *m, const char *name, const dims *sizes) { SAID(, " %s %d: %d %d", HERE("setInputShape"), name, sizes->count, (int)sizes->sizes[0], (int)sizes->sizes[3]); return sizes->count == 4; }
static bool context_address(implementation *m, const char *name, void *address) { SAID(, " %s", HERE("setTensorAddress"), name); m->addresses[!strcmp(name, "output0")] = address; return address != NULL; }
static void context_memory(implementation *m, void *memory) { SAID(, "", HERE("setDeviceMemory")); m->owned = memory; }
static void context_memory_v2(implementation *m, void *memory, int64_t bytes) { SAID(, " bytes=%ld", HERE("setDeviceMemoryV2"), (long)bytes); m->owned = memory; }
static int context_infer(implementation *m, int count, const char **names) { SAID(, "", HERE("inferShapes")); (void)count; (void)names; return !m->addresses[0] + !m->addresses[1]; }
static void context_profiler(implementation *m, void *profiler) { SAID(, "", HERE("setProfiler")); m->profiler = profiler; }
static bool context_run(implementation *m, void *stream) { // device memory is host memory: every output is the first half-word of the input
    SAID(, "%s", HERE("enqueueV3"), m->owned ? "" : " !without memory");
    if (!stream) { report(m->recorder, 3, "no stream"); return false; }
    uint16_t first = *(uint16_t *)m->addresses[0];
    for (int i = 0; i < 60; i++) ((float *)m->addresses[1])[i] = first;
    if (m->profiler) {
        void (*time)(void *, const char *, float) = (void (*)(void *, const char *, float))(*(void ***)m->profiler)[LOGGER_VERSIONED ? 4 : 0];
        time(m->profiler, "conv", 0.25f);
    }
    return true;
}

// The parser is called on the object itself: its table is the public one.
static bool parser_parse(object *this, const char *model, size_t length, const char *path) {
    implementation *m = this->m;
    SAID(, " bytes=%zu%s", HERE("parse"), length, path ? " !path" : "");
    if (length < 3 || !memcmp(model, "BAD", 3)) return false;
    implementation *network = m->parent->m;
    network->data = calloc(1, length + 1);
    network->bytes = length;
    memcpy(network->data, model, length);
    return true;
}
static object *make_error(object *parser);
static int parser_errors(object *this) { implementation *m = this->m; SAID(, "", HERE("getNbErrors")); return 2; }
static object *parser_error(object *this, int index) { implementation *m = this->m; SAID(, " %d", HERE("getError"), index); return make_error(this); }
static void parser_delete(object *this) {
    implementation *network = this->m->parent->m;
    said("IParser delete @%d", slot_of("IParser", "~D0"));
    free(network->data); // the weights
    network->data = NULL;
    if (this->m->owned) { free(((object *)this->m->owned)->m); free(this->m->owned); }
    network->children--;
    free(this->m);
    free(this);
}
static int error_code(object *this) { implementation *m = this->m; SAID(, "", HERE("code")); return 8; }
static const char *error_text(object *this) { implementation *m = this->m; SAID(, "", HERE("desc")); return "Unsupported operator Frobnicate."; }
static int error_node(object *this) { implementation *m = this->m; SAID(, "", HERE("node")); return 7; }
static const char *error_name(object *this) { implementation *m = this->m; SAID(, "", HERE("nodeName")); return "/model.7/Frobnicate"; }
static const char *error_operator(object *this) { implementation *m = this->m; SAID(, "", HERE("nodeOperator")); return "Frobnicate"; }

// ---------------------------------------------------------------- the slot numbers, by family; `since`: minor in TensorRT 8 and 10
static const struct method { const char *class, *name; int slots[5], since8, since10; void *function; } METHODS[] = {
    {"VBuilder", "createBuilderConfig", {9, 7, 5, 7, 5}, 0, 0, builder_config},
    {"VBuilder", "createNetworkV2", {11, 8, 6, 8, 6}, 0, 0, builder_network},
    {"VBuilder", "buildSerializedNetwork", {17, 14, 11, 14, 11}, 0, 0, builder_build},
    {"VBuilder", "setErrorRecorder", {13, 10, 8, 10, 8}, 0, 0, builder_recorder},
    {"VBuilder", "getLogger", {19, 16, 13, 16, 13}, 0, 0, builder_logger},
    {"VBuilderConfig", "setMemoryPoolLimit", {47, 43, 32, 32, 32}, 0, 0, config_workspace},
    {"VBuilderConfig", "getMemoryPoolLimit", {48, 44, 33, 33, 33}, 0, 0, config_get_workspace},
    {"VBuilderConfig", "setFlag", {15, 11, 9, 9, 9}, 0, 0, config_flag},
    {"VBuilderConfig", "getFlag", {16, 12, 10, 10, 10}, 0, 0, config_get_flag},
    {"VBuilderConfig", "setProfilingVerbosity", {31, 27, 25, 25, 25}, 0, 0, config_verbosity},
    {"VBuilderConfig", "setBuilderOptimizationLevel", {51, 47, 36, 36, 36}, 6, 0, config_level},
    {"VBuilderConfig", "getBuilderOptimizationLevel", {52, 48, 37, 37, 37}, 6, 0, config_get_level},
    {"VBuilderConfig", "createTimingCache", {44, 40, 29, 29, 29}, 0, 0, config_cache},
    {"VBuilderConfig", "setTimingCache", {45, 41, 30, 30, 30}, 0, 0, config_use_cache},
    {"VBuilderConfig", "setProgressMonitor", {-1, 56, 45, 45, 45}, 0, 0, config_monitor},
    {"VBuilderConfig", "setNbComputeCapabilities", {-1, -1, -1, 55, 55}, 0, 0, config_capabilities},
    {"VBuilderConfig", "setComputeCapability", {-1, -1, -1, 57, 57}, 0, 0, config_capability},
    {"VTimingCache", "serialize", {2, 2, 2, 2, 2}, 0, 0, cache_serialize},
    {"VHostMemory", "data", {2, 2, 2, 2, 2}, 0, 0, memory_data},
    {"VHostMemory", "size", {3, 3, 3, 3, 3}, 0, 0, memory_size},
    {"VNetworkDefinition", "getNbLayers", {17, 12, 12, 12, 12}, 0, 0, network_layers},
    {"VNetworkDefinition", "getLayer", {18, 13, 13, 13, 13}, 0, 0, network_layer},
    {"VNetworkDefinition", "getNbInputs", {19, 14, 14, 14, 14}, 0, 0, network_inputs},
    {"VNetworkDefinition", "getInput", {20, 15, 15, 15, 15}, 0, 0, network_input},
    {"VNetworkDefinition", "getNbOutputs", {21, 16, 16, 16, 16}, 0, 0, network_outputs},
    {"VNetworkDefinition", "getOutput", {22, 17, 17, 17, 17}, 0, 0, network_output},
    {"VTensor", "getName", {3, 3, 3, 3, 3}, 0, 0, tensor_name},
    {"VTensor", "getDimensions", {5, 5, 5, 5, 5}, 0, 0, tensor_sizes},
    {"VTensor", "getType", {7, 7, 6, 7, 6}, 0, 0, tensor_type},
    {"VLayer", "getNbOutputs", {7, 7, 7, 7, 7}, 0, 0, layer_outputs},
    {"VLayer", "getOutput", {8, 8, 8, 8, 8}, 0, 0, layer_output},
    {"VLayer", "setPrecision", {10, 10, -1, 10, -1}, 0, 0, layer_precision},
    {"VLayer", "setOutputType", {14, 14, -1, 14, -1}, 0, 0, layer_type},
    {"VRuntime", "getLogger", {9, 11, 10, 11, 10}, 0, 0, runtime_logger},
    {"VRuntime", "getPImpl", {16, 2, 2, 2, 2}, 6, 0, runtime_itself},
    {"VRuntime", "setErrorRecorder", {7, 9, 8, 9, 8}, 0, 0, runtime_recorder},
    {"VRuntime", "setGpuAllocator", {6, 8, 7, 8, 7}, 0, 0, runtime_allocator},
    {"VRuntime", "deserializeCudaEngine", {2, 3, 3, 3, 3}, 0, 0, runtime_read},
    {"VRuntime", "getEngineValidity", {-1, -1, -1, 25, 24}, 0, 0, runtime_validity},
    {"VCudaEngine", "getNbLayers", {9, 3, 3, 3, 3}, 0, 0, engine_layers},
    {"VCudaEngine", "getNbIOTensors", {45, 30, 26, 28, 26}, 0, 0, engine_tensors},
    {"VCudaEngine", "getIOTensorName", {46, 31, 27, 29, 27}, 0, 0, engine_name},
    {"VCudaEngine", "getTensorShape", {34, 19, 15, 17, 15}, 0, 0, engine_sizes},
    {"VCudaEngine", "getTensorDataType", {35, 20, 16, 18, 16}, 0, 0, engine_type},
    {"VCudaEngine", "getTensorIOMode", {38, 23, 19, 21, 19}, 0, 0, engine_mode},
    {"VCudaEngine", "getDeviceMemorySize", {14, 7, -1, -1, -1}, 0, 0, engine_memory},
    {"VCudaEngine", "getDeviceMemorySizeV2", {-1, 52, 44, 50, 44}, 0, 1, engine_memory_v2},
    {"VCudaEngine", "createExecutionContext", {11, 5, 5, 5, 5}, 0, 0, engine_context},
    {"VCudaEngine", "createExecutionContextWithoutDeviceMemory", {13, 6, -1, -1, -1}, 0, 0, engine_bare_context},
    {"VCudaEngine", "createEngineInspector", {33, 18, 14, 16, 14}, 0, 0, engine_inspector},
    {"VEngineInspector", "getEngineInformation", {5, 6, 6, 6, 6}, 0, 0, inspector_information},
    {"VExecutionContext", "setInputShape", {29, 21, 20, 21, 20}, 0, 0, context_input},
    {"VExecutionContext", "setTensorAddress", {32, 24, 23, 24, 23}, 0, 0, context_address},
    {"VExecutionContext", "setDeviceMemory", {11, 10, 10, 10, 10}, 0, 0, context_memory},
    {"VExecutionContext", "setDeviceMemoryV2", {-1, 49, 48, 49, 48}, 0, 1, context_memory_v2},
    {"VExecutionContext", "inferShapes", {35, 28, 27, 28, 27}, 0, 0, context_infer},
    {"VExecutionContext", "enqueueV3", {44, 37, 36, 37, 36}, 0, 0, context_run},
    {"VExecutionContext", "setProfiler", {6, 5, 5, 5, 5}, 0, 0, context_profiler},
    {"IParser", "parse", {0, 0, 0, 0, 0}, 0, 0, parser_parse},
    {"IParser", "getNbErrors", {6, 5, 3, 5, 3}, 0, 0, parser_errors},
    {"IParser", "getError", {7, 6, 4, 6, 4}, 0, 0, parser_error},
    {"IParser", "~D0", {10, 9, 7, 9, 7}, 0, 0, parser_delete},
    {"IParserError", "code", {0, 0, 0, 0, 0}, 0, 0, error_code},
    {"IParserError", "desc", {1, 1, 1, 1, 1}, 0, 0, error_text},
    {"IParserError", "node", {5, 5, 5, 5, 5}, 0, 0, error_node},
    {"IParserError", "nodeName", {-1, 6, 6, 6, 6}, 0, 0, error_name},
    {"IParserError", "nodeOperator", {-1, 7, 7, 7, 7}, 0, 0, error_operator},
};
#define METHOD_COUNT (sizeof METHODS / sizeof *METHODS)

static int slot_here(const struct method *method) {
    if ((FAMILY == 0 && MINOR < method->since8) || (FAMILY == 1 && MINOR < method->since10)) return -1;
    return method->slots[FAMILY];
}
static int slot_of(const char *class, const char *name) {
    for (size_t i = 0; i < METHOD_COUNT; i++)
        if (!strcmp(METHODS[i].class, class) && !strcmp(METHODS[i].name, name)) return slot_here(&METHODS[i]);
    return -2;
}

// ---------------------------------------------------------------- tables: a slot without a method says so
static intptr_t nobody(int slot) { said("!slot %d has no method here", slot); return 0; }
#define N(n) static intptr_t nobody_##n(void) { return nobody(n); }
#define TEN(t) N(t##0) N(t##1) N(t##2) N(t##3) N(t##4) N(t##5) N(t##6) N(t##7) N(t##8) N(t##9)
TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) TEN(6) TEN(7) TEN(8)
#define A(n) (void *)nobody_##n,
#define TEN_A(t) A(t##0) A(t##1) A(t##2) A(t##3) A(t##4) A(t##5) A(t##6) A(t##7) A(t##8) A(t##9)
static void *const NOBODY[SLOTS] = {TEN_A() TEN_A(1) TEN_A(2) TEN_A(3) TEN_A(4) TEN_A(5) TEN_A(6) TEN_A(7) TEN_A(8)};

static void *table_of(const char *class) {
    static struct { const char *class; void *table[SLOTS]; } tables[20];
    int i = 0;
    while (tables[i].class && strcmp(tables[i].class, class)) i++;
    if (!tables[i].class) {
        tables[i].class = class;
        memcpy(tables[i].table, NOBODY, sizeof NOBODY);
        for (size_t k = 0; k < METHOD_COUNT; k++)
            if (!strcmp(METHODS[k].class, class) && slot_here(&METHODS[k]) >= 0) tables[i].table[slot_here(&METHODS[k])] = METHODS[k].function;
    }
    return tables[i].table;
}
static void *const PUBLIC[] = {wrong_destructor, destroy};
static object *make(const char *class, object *parent) {
    object *o = malloc(sizeof *o);
    implementation *m = calloc(1, sizeof *m);
    *m = (implementation){.vptr = table_of(class), .itself = o, .class = class, .parent = parent};
    *o = (object){(void **)PUBLIC, m};
    if (parent) parent->m->children++;
    return o;
}
static object *make_error(object *parser) {
    object *o = parser->m->owned;
    if (!o) {
        o = make("IParserError", NULL);
        o->vptr = table_of("IParserError");
        parser->m->owned = o;
    }
    return o;
}

// ---------------------------------------------------------------- exports
static object *factory(const char *class, void *logger, int version) {
    said("create %s version=%d", class, version);
#ifdef WITHOUT_DRIVER
    return (object *)0x238;
#endif
    if (LOGGER_VERSIONED) interface_of(logger);
    to_log(logger, 4, "hello");
    object *o = make(class, NULL);
    o->m->logger = logger;
    return o;
}
int getInferLibVersion(void) { return NUMBER; }
#ifndef LEAN
object *createInferBuilder_INTERNAL(void *logger, int version) { return factory("VBuilder", logger, version); }
#endif
object *createInferRuntime_INTERNAL(void *logger, int version) { return factory("VRuntime", logger, version); }
int getNvOnnxParserVersion(void) { return 200; }
object *createNvOnnxParser_INTERNAL(object *network, void *logger, int version) {
    said("create IParser version=%d for a %s", version, network->m->class);
    to_log(logger, 4, "hello");
    object *o = make("IParser", network);
    o->vptr = table_of("IParser");
    return o;
}
