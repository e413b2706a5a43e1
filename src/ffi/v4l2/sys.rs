//! The part of the kernel's [V4L2 interface](https://docs.kernel.org/userspace-api/media/v4l/user-func.html) that is used
//! here: structures, request numbers, constants. No logic. Layouts are those of 64-bit machines.

use libc::{c_ulong, timeval};

/// `struct v4l2_capability`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Capability {
    pub(super) driver: [u8; 16],
    pub(super) card: [u8; 32],
    pub(super) bus_info: [u8; 32],
    pub(super) version: u32,
    pub(super) capabilities: u32,
    pub(super) device_caps: u32,
    pub(super) reserved: [u32; 3],
}

/// `struct v4l2_fmtdesc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct FormatDescription {
    pub(super) index: u32,
    pub(super) kind: u32,
    pub(super) flags: u32,
    pub(super) description: [u8; 32],
    pub(super) pixel_format: u32,
    pub(super) mbus_code: u32,
    pub(super) reserved: [u32; 3],
}

/// `struct v4l2_pix_format`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct PixFormat {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) pixel_format: u32,
    pub(super) field: u32,
    pub(super) bytes_per_line: u32,
    pub(super) size_image: u32,
    pub(super) colorspace: u32,
    pub(super) private: u32,
    pub(super) flags: u32,
    pub(super) ycbcr_encoding: u32,
    pub(super) quantization: u32,
    pub(super) transfer_function: u32,
}

/// `struct v4l2_format` with its union as the single-planar picture format.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) struct Format {
    pub(super) kind: u32,
    pub(super) gap: u32,
    pub(super) pix: PixFormat,
    pub(super) rest: [u8; 152],
}

/// `struct v4l2_frmsizeenum` with its union as the wider, stepwise variant; discrete sizes use its first two fields.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct FrameSize {
    pub(super) index: u32,
    pub(super) pixel_format: u32,
    pub(super) kind: u32,
    /// Discrete: width, height. Stepwise: least width, most width, step, least height, most height, step.
    pub(super) values: [u32; 6],
    pub(super) reserved: [u32; 2],
}

/// `struct v4l2_fract`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Fraction {
    pub(super) numerator: u32,
    pub(super) denominator: u32,
}

/// `struct v4l2_frmivalenum` with its union as the wider, stepwise variant.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct FrameInterval {
    pub(super) index: u32,
    pub(super) pixel_format: u32,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) kind: u32,
    /// Discrete: the first. Stepwise: shortest, longest, step.
    pub(super) values: [Fraction; 3],
    pub(super) reserved: [u32; 2],
}

/// `struct v4l2_streamparm` with its union as `struct v4l2_captureparm`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct StreamParameters {
    pub(super) kind: u32,
    pub(super) capability: u32,
    pub(super) capture_mode: u32,
    pub(super) time_per_frame: Fraction,
    pub(super) extended_mode: u32,
    pub(super) read_buffers: u32,
    pub(super) rest: [u8; 176],
}

/// `struct v4l2_queryctrl`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct QueryControl {
    pub(super) id: u32,
    pub(super) kind: u32,
    pub(super) name: [u8; 32],
    pub(super) minimum: i32,
    pub(super) maximum: i32,
    pub(super) step: i32,
    pub(super) default_value: i32,
    pub(super) flags: u32,
    pub(super) reserved: [u32; 2],
}

/// `struct v4l2_control`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Control {
    pub(super) id: u32,
    pub(super) value: i32,
}

/// `struct v4l2_requestbuffers`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RequestBuffers {
    pub(super) count: u32,
    pub(super) kind: u32,
    pub(super) memory: u32,
    pub(super) capabilities: u32,
    pub(super) reserved: u32,
}

/// `struct v4l2_buffer` with its union as the offset for mmap.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Buffer {
    pub(super) index: u32,
    pub(super) kind: u32,
    pub(super) bytes_used: u32,
    pub(super) flags: u32,
    pub(super) field: u32,
    pub(super) timestamp: timeval,
    pub(super) timecode: [u32; 4],
    pub(super) sequence: u32,
    pub(super) memory: u32,
    /// The union's first 4 bytes; the rest belongs to pointers.
    pub(super) offset: u32,
    pub(super) offset_rest: u32,
    pub(super) length: u32,
    pub(super) reserved: u32,
    pub(super) request: u32,
}

/// A structure that the kernel fills or reads as a whole.
///
/// # Safety
/// The type is `repr(C)`, laid out as the kernel's structure, and valid for every bit pattern.
pub(super) unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($kind:ty => $size:literal),* $(,)?) => { $(
        const _: () = assert!(size_of::<$kind>() == $size);
        // SAFETY: the type is `repr(C)`, holds integers alone, and has the size of the kernel's structure (line above).
        unsafe impl Plain for $kind {}
    )* };
}

plain! {
    Capability => 104, FormatDescription => 64, Format => 208, FrameSize => 44, FrameInterval => 52,
    StreamParameters => 204, QueryControl => 68, Control => 8, RequestBuffers => 20, Buffer => 88, i32 => 4,
}

const fn request(direction: c_ulong, size: usize, number: c_ulong) -> c_ulong {
    (direction << 30) | ((size as c_ulong) << 16) | ((b'V' as c_ulong) << 8) | number
}

const fn read<T>(number: c_ulong) -> c_ulong {
    request(2, size_of::<T>(), number)
}

const fn write<T>(number: c_ulong) -> c_ulong {
    request(1, size_of::<T>(), number)
}

const fn both<T>(number: c_ulong) -> c_ulong {
    request(3, size_of::<T>(), number)
}

pub(super) const QUERYCAP: c_ulong = read::<Capability>(0);
pub(super) const ENUM_FMT: c_ulong = both::<FormatDescription>(2);
pub(super) const G_FMT: c_ulong = both::<Format>(4);
pub(super) const S_FMT: c_ulong = both::<Format>(5);
pub(super) const REQBUFS: c_ulong = both::<RequestBuffers>(8);
pub(super) const QUERYBUF: c_ulong = both::<Buffer>(9);
pub(super) const QBUF: c_ulong = both::<Buffer>(15);
pub(super) const DQBUF: c_ulong = both::<Buffer>(17);
pub(super) const STREAMON: c_ulong = write::<i32>(18);
pub(super) const STREAMOFF: c_ulong = write::<i32>(19);
pub(super) const G_PARM: c_ulong = both::<StreamParameters>(21);
pub(super) const S_PARM: c_ulong = both::<StreamParameters>(22);
pub(super) const G_CTRL: c_ulong = both::<Control>(27);
pub(super) const S_CTRL: c_ulong = both::<Control>(28);
pub(super) const QUERYCTRL: c_ulong = both::<QueryControl>(36);
pub(super) const ENUM_FRAMESIZES: c_ulong = both::<FrameSize>(74);
pub(super) const ENUM_FRAMEINTERVALS: c_ulong = both::<FrameInterval>(75);

// Numbers as the C header prints them on 64-bit machines.
const _: () =
    assert!(QUERYCAP == 0x8068_5600 && ENUM_FMT == 0xc040_5602 && G_FMT == 0xc0d0_5604 && S_FMT == 0xc0d0_5605);
const _: () = assert!(REQBUFS == 0xc014_5608 && QUERYBUF == 0xc058_5609 && QBUF == 0xc058_560f && DQBUF == 0xc058_5611);
const _: () = assert!(STREAMON == 0x4004_5612 && STREAMOFF == 0x4004_5613 && G_PARM == 0xc0cc_5615);
const _: () = assert!(S_PARM == 0xc0cc_5616 && G_CTRL == 0xc008_561b && S_CTRL == 0xc008_561c);
const _: () = assert!(QUERYCTRL == 0xc044_5624 && ENUM_FRAMESIZES == 0xc02c_564a && ENUM_FRAMEINTERVALS == 0xc034_564b);

/// `V4L2_BUF_TYPE_VIDEO_CAPTURE`.
pub(super) const VIDEO_CAPTURE: u32 = 1;
/// `V4L2_MEMORY_MMAP`.
pub(super) const MEMORY_MMAP: u32 = 1;
/// `V4L2_FIELD_NONE`.
pub(super) const FIELD_NONE: u32 = 1;
/// `V4L2_FRMSIZE_TYPE_DISCRETE` and `V4L2_FRMIVAL_TYPE_DISCRETE`.
pub(super) const DISCRETE: u32 = 1;
/// `V4L2_BUF_FLAG_ERROR`.
pub(super) const BUFFER_ERROR: u32 = 0x40;
/// `V4L2_BUF_FLAG_TIMESTAMP_MASK`.
pub(super) const TIMESTAMP_MASK: u32 = 0xe000;
/// `V4L2_BUF_FLAG_TIMESTAMP_MONOTONIC`.
pub(super) const TIMESTAMP_MONOTONIC: u32 = 0x2000;
/// `V4L2_CAP_DEVICE_CAPS`.
pub(super) const CAP_DEVICE_CAPS: u32 = 0x8000_0000;
/// `V4L2_CTRL_FLAG_DISABLED`.
pub(super) const CONTROL_DISABLED: u32 = 1;
