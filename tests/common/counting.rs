//! An allocator that counts the allocations of each thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

pub(crate) struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Allocations of this thread so far.
pub(crate) fn allocations() -> u64 {
    COUNT.with(Cell::get)
}

// SAFETY: every call is handed to the system's allocator unchanged; the counter allocates nothing (a constant `Cell`).
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the promises of `GlobalAlloc::alloc`, which are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller gives back what `alloc` above gave, which the system's allocator made.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: as for `dealloc`; the caller keeps the promise about `new_size`.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}
