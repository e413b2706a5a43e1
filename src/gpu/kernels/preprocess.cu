// Any picture -> one slot of the network's input: scaled to fit, centred, padded with 114, planar.
//
// The same integers as src/engine/letterbox: 11-bit weights as OpenCV's INTER_LINEAR, BT.601 limited range in 20 bits, 15-bit
// gray. Weights are made by the host (Axis) and travel in front of the picture. One thread a pixel of the input.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;

#define RGB 0
#define BGR 1
#define GRAY 2
#define NV12 3
#define YUYV 4
#define UYVY 5
#define LETTERBOXED 6

#define COPY 0
#define HALVE 1
#define BLEND 2

// In front of every picture; src/ffi/lane/head.rs writes it.
struct Head {
    u32 active;
    u32 format;
    u32 mode;
    u32 source_width;
    u32 source_height;
    u32 stride;
    u32 length;
    u32 scaled_width;
    u32 scaled_height;
    u32 pad_left;
    u32 pad_top;
    u32 reserved[5];
};

struct Weight {
    u32 first;
    u32 second;
    short first_share;
    short second_share;
};

struct Pixel {
    int value[3];
};

__device__ int clamped(int channel) {
    return channel < 0 ? 0 : (channel > 255 ? 255 : channel);
}

__device__ Pixel of_yuv(int y, int u, int v) {
    const int half = 1 << 19;
    int luma = (y - 16 > 0 ? y - 16 : 0) * 1220542;
    u -= 128;
    v -= 128;
    Pixel pixel;
    pixel.value[0] = clamped((luma + half + 1673527 * v) >> 20);
    pixel.value[1] = clamped((luma + half - 852492 * v - 409993 * u) >> 20);
    pixel.value[2] = clamped((luma + half + 2116026 * u) >> 20);
    return pixel;
}

__device__ Pixel pixel_at(const Head &head, const u8 *bytes, u32 x, u32 y) {
    x = x < head.source_width ? x : head.source_width - 1;
    const u8 *row = bytes + (size_t)y * head.stride;
    Pixel pixel;
    switch (head.format) {
    case RGB:
    case BGR: {
        const u8 *at = row + 3 * x;
        bool swap = head.format == BGR;
        pixel.value[0] = at[swap ? 2 : 0];
        pixel.value[1] = at[1];
        pixel.value[2] = at[swap ? 0 : 2];
        return pixel;
    }
    case GRAY:
        pixel.value[0] = pixel.value[1] = pixel.value[2] = row[x];
        return pixel;
    case NV12: {
        size_t chroma = ((size_t)head.source_height + y / 2) * head.stride + 2 * (x / 2);
        int u = chroma < head.length ? bytes[chroma] : 128;
        int v = chroma + 1 < head.length ? bytes[chroma + 1] : 128;
        return of_yuv(row[x], u, v);
    }
    default: {
        const u8 *quad = row + 4 * (x / 2);
        bool luma_first = head.format == YUYV;
        int luma = quad[(luma_first ? 0 : 1) + 2 * (x % 2)];
        return of_yuv(luma, quad[luma_first ? 1 : 0], quad[luma_first ? 3 : 2]);
    }
    }
}

// One channel of the network: colour as it is, or gray when the network takes one channel.
__device__ Pixel sample(const Head &head, const u8 *bytes, u32 channels, u32 x, u32 y) {
    Pixel pixel = pixel_at(head, bytes, x, y);
    if (channels == 1 && head.format != GRAY) {
        pixel.value[0] =
            (pixel.value[0] * 9798 + pixel.value[1] * 19235 + pixel.value[2] * 3735 + (1 << 14)) >> 15;
    }
    return pixel;
}

__device__ void store(void *target, u32 element, size_t at, int grey) {
    if (element == 2) {
        ((u8 *)target)[at] = (u8)grey;
        return;
    }
    float value = (float)grey / 255.0f;
    if (element == 0) {
        ((float *)target)[at] = value;
    } else {
        u16 half;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
        ((u16 *)target)[at] = half;
    }
}

// staging: slots of slot_bytes: Head, Weight[width] for columns, Weight[height] for rows, the picture.
// target: [batch, channels, height, width] of element 0 float, 1 half, 2 u8.
extern "C" __global__ void preprocess(const u8 *staging, unsigned long long slot_bytes, void *target, u32 channels,
                                      u32 width, u32 height, u32 element) {
    u32 x = blockIdx.x * blockDim.x + threadIdx.x;
    u32 y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) {
        return;
    }
    const u8 *slot = staging + blockIdx.z * slot_bytes;
    const Head head = *(const Head *)slot;
    const Weight *columns = (const Weight *)(slot + sizeof(Head));
    const Weight *rows = columns + width;
    const u8 *bytes = (const u8 *)(rows + height);
    size_t plane = (size_t)width * height;
    size_t at = (size_t)blockIdx.z * channels * plane + (size_t)y * width + x;
    if (head.active && head.format == LETTERBOXED) {
        for (u32 channel = 0; channel < channels; channel++) {
            store(target, element, at + channel * plane, bytes[channel * plane + (size_t)y * width + x]);
        }
        return;
    }
    Pixel result;
    result.value[0] = result.value[1] = result.value[2] = 114;
    u32 column = x - head.pad_left, row = y - head.pad_top;
    if (head.active && x >= head.pad_left && y >= head.pad_top && column < head.scaled_width &&
        row < head.scaled_height) {
        if (head.mode == COPY) {
            result = sample(head, bytes, channels, column, row);
        } else if (head.mode == HALVE) {
            Pixel a = sample(head, bytes, channels, 2 * column, 2 * row);
            Pixel b = sample(head, bytes, channels, 2 * column + 1, 2 * row);
            Pixel c = sample(head, bytes, channels, 2 * column, 2 * row + 1);
            Pixel d = sample(head, bytes, channels, 2 * column + 1, 2 * row + 1);
            for (int i = 0; i < 3; i++) {
                result.value[i] = (a.value[i] + b.value[i] + c.value[i] + d.value[i] + 2) >> 2;
            }
        } else {
            Weight across = columns[column], down = rows[row];
            Pixel a = sample(head, bytes, channels, across.first, down.first);
            Pixel b = sample(head, bytes, channels, across.first + 1, down.first);
            Pixel c = sample(head, bytes, channels, across.first, down.second);
            Pixel d = sample(head, bytes, channels, across.first + 1, down.second);
            for (int i = 0; i < 3; i++) {
                int upper = (a.value[i] * across.first_share + b.value[i] * across.second_share) >> 4;
                int lower = (c.value[i] * across.first_share + d.value[i] * across.second_share) >> 4;
                int sum = ((down.first_share * upper) >> 16) + ((down.second_share * lower) >> 16);
                result.value[i] = ((sum + 2) >> 2) & 255;
            }
        }
    }
    for (u32 channel = 0; channel < channels; channel++) {
        store(target, element, at + channel * plane, result.value[channel]);
    }
}
