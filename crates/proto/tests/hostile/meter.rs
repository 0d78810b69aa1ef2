//! Memory that the code under test holds. The allocator counts per thread, so that tests do not see each
//! other.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    HELD.set(HELD.get() + bytes);
    MOST.set(MOST.get().max(HELD.get()));
}

// SAFETY: every request goes to the system allocator unchanged; the counters are plain cells that do not
// allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of the system allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    // If the system can extend memory in place, it makes no copy, and the counter follows that.
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Bytes allocated and freed by the calls that go through this meter.
#[derive(Default)]
pub struct Meter {
    pub held: isize,
    pub most: isize,
}

impl Meter {
    pub fn run<R>(&mut self, call: impl FnOnce() -> R) -> R {
        let before = HELD.get();
        MOST.set(before);
        let result = call();
        self.most = self.most.max(self.held + MOST.get() - before);
        self.held += HELD.get() - before;
        result
    }
}
