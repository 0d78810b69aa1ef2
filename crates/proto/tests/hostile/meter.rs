//! How much the code under test holds: an allocator that counts, by thread, so that tests do not see each other.

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

// SAFETY: hands every request to the system allocator unchanged; the counters are plain cells that do not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    // Where the system can lengthen in place it holds no copy, and so it is counted.
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// What is taken and given back by the calls that go through it, in bytes.
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
