//! An allocator that counts the allocations of each thread, and the live bytes of the process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

pub(crate) struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);

/// Bytes that this process has allocated and not given back.
pub(crate) fn live_bytes() -> i64 {
    LIVE_BYTES.load(Relaxed)
}

fn grown(by: usize, less: usize) {
    let signed = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
    LIVE_BYTES.fetch_add(signed(by) - signed(less), Relaxed);
}

/// Allocations of this thread so far.
pub(crate) fn allocations() -> u64 {
    COUNT.with(Cell::get)
}

// SAFETY: every call is handed to the system's allocator unchanged; the counters allocate nothing (a constant `Cell`, an atomic).
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        grown(layout.size(), 0);
        // SAFETY: the caller keeps the promises of `GlobalAlloc::alloc`, which are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        grown(0, layout.size());
        // SAFETY: the caller gives back what `alloc` above gave, which the system's allocator made.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        grown(new_size, layout.size());
        // SAFETY: as for `dealloc`; the caller keeps the promise about `new_size`.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}
