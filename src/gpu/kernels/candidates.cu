// Raw outputs -> candidates and statistics, as src/engine/candidates: every element is looked at once, a value that is not
// finite is counted and never becomes a box. Sorted by score (highest first), then anchor, so that runs repeat exactly.
//
// `scan` (one thread an anchor or row) leaves a sort key an anchor and one partial count a block; `gather` (one block a picture)
// adds the partials in a fixed order, sorts the keys and writes the boxes.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define RAW 0
#define OBJECTNESS 1
#define END_TO_END 2
#define PLUGIN 3

#define FLOAT 0
#define HALF 1
#define INT32 2
#define INT64 3

#define SCAN_THREADS 128
#define GATHER_THREADS 1024
// Keys that fit into shared memory.
#define SHARED_KEYS 4096
#define FRONT 1024
#define NONE 0xffffffffffffffffULL

// What the launches share; src/ffi/lane/decode.rs writes it, once, at load.
struct Decode {
    u32 layout;
    u32 classes;
    u32 anchors;
    u32 cap;
    u32 padded; // anchors rounded up to a power of two
    u32 blocks; // of scan, a picture
    u32 element[4];
    u64 tensor[4]; // addresses: the output; or count, boxes, scores, class ids
};

struct Partial {
    u32 values, nan, infinite, any_bit;
    u32 scores_out, class_ids_out, counts_out, best_scores;
    u32 lowest, highest; // ordered bits
    u32 before_nms, kept;
    double sum;
};

struct Box {
    u32 anchor, class_id;
    float score, left, top, right, bottom;
    u32 reserved;
};

struct Answer {
    Partial counts; // 56 bytes
    u32 kept, overflow;
    Box boxes[FRONT];
};

__device__ float load(u64 tensor, u32 element, size_t at) {
    switch (element) {
    case FLOAT:
        return ((const float *)tensor)[at];
    case HALF: {
        float value;
        asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(((const u16 *)tensor)[at]));
        return value;
    }
    case INT32:
        return (float)((const int *)tensor)[at];
    default:
        return (float)((const long long *)tensor)[at];
    }
}

// Unsigned numbers in the order of the floats.
__device__ u32 ordered(float value) {
    u32 bits = __float_as_uint(value);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ bool is_finite(float value) {
    return (__float_as_uint(value) & 0x7fffffffu) < 0x7f800000u;
}

__device__ float number(Partial &counts, float value) {
    u32 magnitude = __float_as_uint(value) & 0x7fffffffu;
    counts.values++;
    counts.any_bit |= magnitude;
    counts.nan += magnitude > 0x7f800000u;
    counts.infinite += magnitude == 0x7f800000u;
    return value;
}

__device__ float score_number(Partial &counts, float value) {
    counts.scores_out += value > 1.0f || value < 0.0f;
    return number(counts, value);
}

__device__ void best_score(Partial &counts, float score) {
    if (is_finite(score)) {
        u32 bits = ordered(score);
        counts.best_scores++;
        counts.sum += (double)score;
        counts.lowest = bits < counts.lowest ? bits : counts.lowest;
        counts.highest = bits > counts.highest ? bits : counts.highest;
    }
}

// Edges of one anchor, in pixels of the input.
__device__ void edges_of(const Decode &decode, u32 picture, u32 anchor, float *edges) {
    size_t anchors = decode.anchors, width = decode.classes + 5;
    float value[4];
    for (int i = 0; i < 4; i++) {
        size_t at;
        if (decode.layout == RAW) {
            at = (size_t)picture * (decode.classes + 4) * anchors + i * anchors + anchor;
        } else if (decode.layout == OBJECTNESS) {
            at = ((size_t)picture * anchors + anchor) * width + i;
        } else if (decode.layout == END_TO_END) {
            at = ((size_t)picture * anchors + anchor) * 6 + i;
        } else {
            at = ((size_t)picture * anchors + anchor) * 4 + i;
        }
        u32 which = decode.layout == PLUGIN ? 1 : 0;
        value[i] = load(decode.tensor[which], decode.element[which], at);
    }
    if (decode.layout == RAW || decode.layout == OBJECTNESS) {
        float half_width = value[2] / 2.0f, half_height = value[3] / 2.0f;
        edges[0] = __fsub_rn(value[0], half_width);
        edges[1] = __fsub_rn(value[1], half_height);
        edges[2] = __fadd_rn(value[0], half_width);
        edges[3] = __fadd_rn(value[1], half_height);
    } else {
        for (int i = 0; i < 4; i++) {
            edges[i] = value[i];
        }
    }
}

__device__ void one_row(const Decode &decode, Partial &counts, float score, float id, u32 &class_id, bool &is_box) {
    best_score(counts, score);
    is_box = is_finite(id) && truncf(id) == id && id >= 0.0f && id < (float)decode.classes;
    class_id = is_box ? (u32)id : 0;
    counts.class_ids_out += !is_box;
}

// The score and class of one anchor; false when it can be no box.
__device__ bool look(const Decode &decode, Partial &counts, u32 picture, u32 anchor, float &score, u32 &class_id) {
    size_t anchors = decode.anchors, classes = decode.classes;
    u32 element = decode.element[0];
    u64 tensor = decode.tensor[0];
    class_id = 0;
    if (decode.layout == RAW) {
        size_t base = (size_t)picture * (classes + 4) * anchors + anchor;
        for (size_t i = 0; i < 4; i++) {
            number(counts, load(tensor, element, base + i * anchors));
        }
        score = __uint_as_float(0xff800000u);
        for (size_t i = 0; i < classes; i++) {
            float value = score_number(counts, load(tensor, element, base + (4 + i) * anchors));
            if (value > score) {
                score = value;
                class_id = i;
            }
        }
        best_score(counts, score);
        return true;
    }
    if (decode.layout == OBJECTNESS) {
        size_t base = ((size_t)picture * anchors + anchor) * (classes + 5);
        for (size_t i = 0; i < 4; i++) {
            number(counts, load(tensor, element, base + i));
        }
        float objectness = score_number(counts, load(tensor, element, base + 4));
        float best = __uint_as_float(0xff800000u);
        for (size_t i = 0; i < classes; i++) {
            float value = score_number(counts, load(tensor, element, base + 5 + i));
            if (value > best) {
                best = value;
                class_id = i;
            }
        }
        score = __fmul_rn(objectness, best);
        best_score(counts, score);
        return true;
    }
    bool is_box;
    if (decode.layout == END_TO_END) {
        size_t base = ((size_t)picture * anchors + anchor) * 6;
        bool zero = true;
        float value[6];
        for (size_t i = 0; i < 6; i++) {
            value[i] = load(tensor, element, base + i);
            if (i == 4) {
                score_number(counts, value[i]);
            } else {
                number(counts, value[i]);
            }
            zero = zero && value[i] == 0.0f;
        }
        if (zero) {
            return false;
        }
        score = value[4];
        one_row(decode, counts, score, value[5], class_id, is_box);
        return is_box;
    }
    float count = load(tensor, element, picture);
    bool whole = is_finite(count) && truncf(count) == count && count >= 0.0f;
    if (anchor == 0) {
        number(counts, count);
        counts.counts_out += !whole || count > (float)decode.anchors;
    }
    if (!whole || (float)anchor >= count) {
        return false;
    }
    size_t at = (size_t)picture * anchors + anchor;
    for (size_t i = 0; i < 4; i++) {
        number(counts, load(decode.tensor[1], decode.element[1], 4 * at + i));
    }
    score = score_number(counts, load(decode.tensor[2], decode.element[2], at));
    float id = number(counts, load(decode.tensor[3], decode.element[3], at));
    one_row(decode, counts, score, id, class_id, is_box);
    return is_box;
}

__device__ void clear(Partial &counts) {
    counts.values = counts.nan = counts.infinite = counts.any_bit = 0;
    counts.scores_out = counts.class_ids_out = counts.counts_out = counts.best_scores = 0;
    counts.lowest = 0xffffffffu;
    counts.highest = 0;
    counts.before_nms = counts.kept = 0;
    counts.sum = 0.0;
}

__device__ void add(Partial &to, const Partial &from) {
    to.values += from.values;
    to.nan += from.nan;
    to.infinite += from.infinite;
    to.any_bit |= from.any_bit;
    to.scores_out += from.scores_out;
    to.class_ids_out += from.class_ids_out;
    to.counts_out += from.counts_out;
    to.best_scores += from.best_scores;
    to.lowest = from.lowest < to.lowest ? from.lowest : to.lowest;
    to.highest = from.highest > to.highest ? from.highest : to.highest;
    to.before_nms += from.before_nms;
    to.kept += from.kept;
    to.sum += from.sum;
}

// In a fixed order, whatever thread finishes first: the mean repeats exactly.
__device__ void add_up(Partial *shared, u32 threads) {
    for (u32 step = threads / 2; step > 0; step /= 2) {
        __syncthreads();
        if (threadIdx.x < step) {
            add(shared[threadIdx.x], shared[threadIdx.x + step]);
        }
    }
    __syncthreads();
}

// keys: [batch, padded]; class_ids: [batch, anchors]; partials: [batch, blocks]; floor: one float.
extern "C" __global__ void __launch_bounds__(SCAN_THREADS)
    scan(Decode decode, const float *floor, u64 *keys, u32 *class_ids, Partial *partials) {
    __shared__ Partial shared[SCAN_THREADS];
    u32 anchor = blockIdx.x * SCAN_THREADS + threadIdx.x, picture = blockIdx.y;
    Partial counts;
    clear(counts);
    if (anchor < decode.anchors) {
        float score = 0.0f;
        u32 class_id = 0;
        u64 key = NONE;
        if (look(decode, counts, picture, anchor, score, class_id) && is_finite(score) && score >= *floor) {
            counts.before_nms = 1;
            float edges[4];
            edges_of(decode, picture, anchor, edges);
            if (is_finite(edges[0]) && is_finite(edges[1]) && is_finite(edges[2]) && is_finite(edges[3])) {
                counts.kept = 1;
                key = ((u64)~ordered(score) << 32) | anchor;
            }
        }
        keys[(size_t)picture * decode.padded + anchor] = key;
        class_ids[(size_t)picture * decode.anchors + anchor] = class_id;
    }
    shared[threadIdx.x] = counts;
    add_up(shared, SCAN_THREADS);
    if (threadIdx.x == 0) {
        partials[(size_t)picture * decode.blocks + blockIdx.x] = shared[0];
    }
}

__device__ void exchange(u64 *keys, u32 length, u32 run, u32 step) {
    for (u32 i = threadIdx.x; i < length / 2; i += GATHER_THREADS) {
        u32 low = 2 * i - (i & (step - 1)), high = low + step;
        u64 a = keys[low], b = keys[high];
        bool ascending = (low & run) == 0;
        if ((a > b) == ascending) {
            keys[low] = b;
            keys[high] = a;
        }
    }
    __syncthreads();
}

__device__ void sort_keys(u64 *keys, u32 length) {
    for (u32 run = 2; run <= length; run *= 2) {
        for (u32 step = run / 2; step > 0; step /= 2) {
            exchange(keys, length, run, step);
        }
    }
}

// answers: [batch]; rest: [batch, cap - FRONT] boxes, when cap is above FRONT.
extern "C" __global__ void __launch_bounds__(GATHER_THREADS)
    gather(Decode decode, u64 *keys, const u32 *class_ids, const Partial *partials, Answer *answers, Box *rest) {
    __shared__ u64 few[SHARED_KEYS];
    __shared__ u32 taken;
    __shared__ Partial sums[SCAN_THREADS];
    u32 picture = blockIdx.x;
    u64 *mine = keys + (size_t)picture * decode.padded;
    if (threadIdx.x == 0) {
        taken = 0;
    }
    if (threadIdx.x < SCAN_THREADS) {
        Partial sum;
        clear(sum);
        for (u32 block = threadIdx.x; block < decode.blocks; block += SCAN_THREADS) {
            add(sum, partials[(size_t)picture * decode.blocks + block]);
        }
        sums[threadIdx.x] = sum;
    }
    add_up(sums, SCAN_THREADS);
    u32 kept = sums[0].kept;
    u64 *sorted = mine;
    if (kept <= SHARED_KEYS) {
        u32 length = 2;
        while (length < kept) {
            length *= 2;
        }
        for (u32 i = threadIdx.x; i < length; i += GATHER_THREADS) {
            few[i] = NONE;
        }
        __syncthreads();
        // The order in which they arrive does not matter: keys differ and are sorted.
        for (u32 anchor = threadIdx.x; anchor < decode.anchors; anchor += GATHER_THREADS) {
            u64 key = mine[anchor];
            if (key != NONE) {
                few[atomicAdd(&taken, 1)] = key;
            }
        }
        __syncthreads();
        sorted = few;
        sort_keys(few, length);
    } else {
        for (u32 i = decode.anchors + threadIdx.x; i < decode.padded; i += GATHER_THREADS) {
            mine[i] = NONE;
        }
        __syncthreads();
        sort_keys(mine, decode.padded);
    }
    u32 written = kept < decode.cap ? kept : decode.cap;
    Answer *answer = answers + picture;
    for (u32 i = threadIdx.x; i < written; i += GATHER_THREADS) {
        u64 key = sorted[i];
        u32 bits = ~(u32)(key >> 32);
        Box box;
        box.anchor = (u32)key;
        box.class_id = class_ids[(size_t)picture * decode.anchors + box.anchor];
        box.score = __uint_as_float(bits & 0x80000000u ? bits & 0x7fffffffu : ~bits);
        float edges[4];
        edges_of(decode, picture, box.anchor, edges);
        box.left = edges[0];
        box.top = edges[1];
        box.right = edges[2];
        box.bottom = edges[3];
        box.reserved = 0;
        if (i < FRONT) {
            answer->boxes[i] = box;
        } else {
            rest[(size_t)picture * (decode.cap - FRONT) + i - FRONT] = box;
        }
    }
    if (threadIdx.x == 0) {
        answer->counts = sums[0];
        answer->kept = written;
        answer->overflow = kept - written;
    }
}
