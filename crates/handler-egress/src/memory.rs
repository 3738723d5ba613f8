//! Memory that is wiped when it is let go. The buffers of the libraries that read, encrypt and write hold
//! values for a moment, too, and none of them wipes.
#![expect(
    unsafe_code,
    reason = "an allocator; it hands on every call and writes only to memory that is being given back"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, Ordering};

static WIPES: AtomicBool = AtomicBool::new(false);

/// The system's allocator; once told to, it wipes what is given back. A program that runs the filter makes
/// it its `#[global_allocator]`.
#[derive(Debug, Clone, Copy, Default)]
pub struct WipingAllocator;

impl WipingAllocator {
    /// From now on what is given back is wiped, for the life of the process.
    pub fn wipe_from_now_on() {
        WIPES.store(true, Ordering::Relaxed);
    }
}

/// Writes zeros that are not optimized away although nobody reads them.
///
/// # Safety
/// `size` bytes at `memory` must be valid for writing.
unsafe fn wipe(memory: *mut u8, size: usize) {
    // SAFETY: as the caller promises.
    unsafe { memory.write_bytes(0, size) };
    std::hint::black_box(memory);
}

// SAFETY: every call is handed on to the system's allocator with the layout it came with. What is added is
// written to whole blocks that the caller gives up, before they are given back.
unsafe impl GlobalAlloc for WipingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if WIPES.load(Ordering::Relaxed) {
            // SAFETY: the block is whole, and the caller uses it no more.
            unsafe { wipe(memory, layout.size()) };
        }
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !WIPES.load(Ordering::Relaxed) {
            // SAFETY: as the caller promises.
            return unsafe { System.realloc(memory, layout, size) };
        }
        // SAFETY: the caller promises that the new size is no overflow with this alignment.
        let moved = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: the caller promises a size that is not zero.
        let new = unsafe { System.alloc(moved) };
        if !new.is_null() {
            // SAFETY: two blocks, each at least as long; the old one is given up.
            unsafe {
                new.copy_from_nonoverlapping(memory, layout.size().min(size));
                self.dealloc(memory, layout);
            }
        }
        new
    }
}
