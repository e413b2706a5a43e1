//! `IGpuAllocator`: TensorRT's own device memory comes from our budget.

use super::{Callback, Shape, address, destructor, guarded, versioned_prefix};
use crate::ffi::tensorrt::version::Family;
use std::ffi::c_void;
use std::sync::Arc;

/// Device memory for TensorRT.
///
/// # Safety
/// A returned address points at `bytes` of device memory of the current device, aligned to `alignment` (a power of two), that
/// nobody else uses until `free` gets it back.
pub unsafe trait DeviceAllocator: Send + Sync {
    /// Device memory; `None` refuses, which TensorRT reports as out of memory.
    fn allocate(&self, bytes: u64, alignment: u64) -> Option<u64>;
    /// Takes memory back; `false` when the address is not one of ours.
    fn free(&self, address: u64) -> bool;
}

/// An allocator in the layout of `family`.
pub(in super::super) fn allocator(
    family: Family,
    memory: Arc<dyn DeviceAllocator>,
) -> Callback<Arc<dyn DeviceAllocator>> {
    let slots = if family == Family::TensorRt8 {
        vec![
            address!(allocate),
            address!(free),
            address!(destructor),
            address!(destructor),
            address!(reallocate),
            address!(deallocate),
        ]
    } else {
        let mut slots = versioned_prefix::<Arc<dyn DeviceAllocator>>().to_vec();
        slots.extend([
            address!(allocate),
            address!(reallocate),
            address!(deallocate),
            address!(allocate_async),
            address!(deallocate_async),
        ]);
        slots
    };
    // SAFETY: the order of IGpuAllocator in TensorRT 8 (allocate, free, destructors, reallocate, deallocate) and elsewhere (the
    // versioned interface's four, allocate, reallocate, deallocate, allocateAsync, deallocateAsync).
    unsafe { Callback::new(c"IGpuAllocator", &slots, memory) }
}

type This = *const Shape<Arc<dyn DeviceAllocator>>;

fn pointer(address: Option<u64>) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address.and_then(|address| usize::try_from(address).ok()).unwrap_or(0))
}

unsafe extern "C" fn allocate(this: This, bytes: u64, alignment: u64, _flags: u32) -> *mut c_void {
    // SAFETY: TensorRT passes back the live object that it was given; so in every function below.
    let memory = unsafe { &(*this).payload };
    pointer(guarded(None, || if bytes == 0 { None } else { memory.allocate(bytes, alignment) }))
}

/// Growing in place is not offered: TensorRT falls back to a new allocation and a copy.
extern "C" fn reallocate(_: This, _address: *mut c_void, _alignment: u64, _bytes: u64) -> *mut c_void {
    std::ptr::null_mut()
}

unsafe extern "C" fn deallocate(this: This, address: *mut c_void) -> u8 {
    // SAFETY: see `allocate`.
    let memory = unsafe { &(*this).payload };
    u8::from(guarded(false, || address.is_null() || memory.free(crate::units::count(address.addr()))))
}

unsafe extern "C" fn free(this: This, address: *mut c_void) {
    // SAFETY: see `allocate`.
    unsafe { deallocate(this, address) };
}

/// Memory that is ready at once is also ready on the stream.
unsafe extern "C" fn allocate_async(
    this: This,
    bytes: u64,
    alignment: u64,
    flags: u32,
    _stream: *mut c_void,
) -> *mut c_void {
    // SAFETY: see `allocate`.
    unsafe { allocate(this, bytes, alignment, flags) }
}

/// The stream may still use the memory: the allocator's `free` must not hand it out before the stream is done. Ours frees at
/// synchronisation points only, when contexts and engines are dropped.
unsafe extern "C" fn deallocate_async(this: This, address: *mut c_void, _stream: *mut c_void) -> u8 {
    // SAFETY: see `allocate`.
    unsafe { deallocate(this, address) }
}
