//! Hints to the processor, and to the system, about data that will be read soon.
//!
//! Unsafe code of this file: the instruction and the system call for it.
#![allow(unsafe_code)]

use std::ops::Range;

/// Bytes of a page of memory; on systems with larger pages some are requested twice.
const PAGE: usize = 4096;

/// Begins to bring `slice[index]` into the nearest cache, without waiting for it. Any `index` may
/// be given; the result of a program never depends on it. Does nothing on processors whose prefetch
/// instruction is not implemented here.
#[inline(always)]
pub fn prefetch<T>(slice: &[T], index: usize) {
    prefetch_at(slice.as_ptr().wrapping_add(index));
}

#[inline(always)]
fn prefetch_at<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: prefetching reads nothing that the program could see and never faults, whatever
        // the address is; the instruction is part of every x86-64 processor.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Begins to bring all of `values` into the nearest cache, like [`prefetch`].
#[inline(always)]
pub(crate) fn prefetch_all<T>(values: &[T]) {
    const LINE_BYTES: usize = 64;
    let bytes = values.as_ptr().cast::<u8>();
    for offset in (0..size_of_val(values)).step_by(LINE_BYTES) {
        prefetch_at(bytes.wrapping_add(offset));
    }
}

/// Page of memory that `slice[index]` begins in.
#[inline]
pub(crate) fn page_of<T>(slice: &[T], index: usize) -> usize {
    slice.as_ptr().wrapping_add(index) as usize / PAGE
}

/// Begins to read `slice[range]` from its mapped file, without waiting for it. Does nothing if it
/// is in memory, or if the system takes no such hint.
pub(crate) fn read_ahead<T>(slice: &[T], range: Range<usize>) {
    if let Some(part) = slice.get(range) {
        advise(part, libc::MADV_WILLNEED);
    }
}

/// Tells the system that `slice` is read at random, so that it reads only the requested pages and
/// not those around them.
pub(crate) fn is_scattered<T>(slice: &[T]) {
    advise(slice, libc::MADV_RANDOM);
}

fn advise<T>(slice: &[T], advice: i32) {
    if slice.is_empty() {
        return;
    }
    let from = page_of(slice, 0) * PAGE;
    let bytes = slice.as_ptr_range().end as usize - from;
    // SAFETY: neither advice changes a byte or a mapping. A system of larger pages refuses an
    // address that is not a page's start.
    unsafe { libc::madvise(from as *mut libc::c_void, bytes, advice) };
}

#[cfg(test)]
mod tests {
    #[test]
    fn any_index_will_do() {
        for index in [0, 2, 3, usize::MAX] {
            super::prefetch(&[1u64, 2, 3], index);
            super::prefetch::<u64>(&[], index);
            super::read_ahead(&[1u64, 2, 3], 0..index);
            super::read_ahead::<u64>(&[], 0..index);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn pages_that_are_asked_for_are_read_and_no_others() {
        use std::io::Write;
        use std::os::fd::AsRawFd;
        use std::time::{Duration, Instant};
        const PAGES: usize = 512;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![1; PAGES * super::PAGE]).unwrap();
        file.sync_all().unwrap();
        let bytes = PAGES * super::PAGE;
        // SAFETY: a new mapping of a file that nothing else uses; its pages are dropped from
        // memory, not from the file.
        let mapped: &[u8] = unsafe {
            libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED);
            let mapped = libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            );
            assert_ne!(mapped, libc::MAP_FAILED);
            std::slice::from_raw_parts(mapped.cast(), bytes)
        };
        let in_memory = || -> Vec<usize> {
            let mut pages = [0u8; PAGES];
            // SAFETY: the mapping has as many pages.
            assert_eq!(
                unsafe { libc::mincore(mapped.as_ptr() as *mut _, bytes, pages.as_mut_ptr()) },
                0
            );
            (0..PAGES).filter(|&page| pages[page] & 1 != 0).collect()
        };
        if !in_memory().is_empty() {
            eprintln!(
                "skipped: the file system of temporary files is in memory, or its pages are larger"
            );
            return;
        }
        super::is_scattered(mapped);
        super::read_ahead(mapped, 100 * super::PAGE + 9..101 * super::PAGE + 1);
        let until = Instant::now() + Duration::from_secs(20);
        while in_memory() != [100, 101] && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(in_memory(), [100, 101]);
        // A page that was not prefetched is read without its neighbours.
        assert_eq!((mapped[300 * super::PAGE], in_memory()), (1, vec![100, 101, 300]));
    }
}
