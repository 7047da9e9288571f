//! The tiles of Intel's AMX (Sapphire Rapids and later): registers of 16 rows of 64 bytes. One
//! instruction adds the products of two of them to a third, 16 × 16 sums of 32 terms; each core
//! then computes about ten times as fast as by AVX-512 BF16.
//!
//! Linux enables the tiles for a process that requests them (Documentation/arch/x86/xstate.rst in
//! its sources). This module uses assembler, since Rust has no stable functions for them.
#![allow(unsafe_code)]

use std::arch::asm;
use std::arch::x86_64::__m512i;
use std::marker::PhantomData;
use std::sync::OnceLock;

use super::x86::{COLUMNS, LANES, Target};

/// Rows of the sums that the tiles hold: two tiles of rows times two of columns.
pub const ROWS: usize = 32;
/// Bytes of a tile's row.
const ROW_BYTES: usize = 64;

/// The calling thread's tiles, configured for products of panels; released when dropped, or else
/// the system would save them whenever it switches threads.
pub struct Tiles {
    /// Tiles cannot move to another thread.
    of_thread: PhantomData<*const ()>,
}

impl Tiles {
    /// Whether the processor has tiles for bf16 and the system enables them for this process.
    pub fn are_given() -> bool {
        static GIVEN: OnceLock<bool> = OnceLock::new();
        *GIVEN.get_or_init(ask)
    }

    /// Configures the tiles; `None` if there are none. The calling thread must not hold other
    /// `Tiles`.
    pub fn load() -> Option<Self> {
        Self::are_given().then(|| {
            /// Palette 1, and for each tile the bytes of a row and the number of rows.
            #[repr(C, align(64))]
            struct Shapes {
                palette: u8,
                start_row: u8,
                reserved: [u8; 14],
                row_bytes: [u16; 16],
                rows: [u8; 16],
            }
            let first = |i: usize| i < 8;
            let shapes = Shapes {
                palette: 1,
                start_row: 0,
                reserved: [0; 14],
                row_bytes: std::array::from_fn(|i| if first(i) { ROW_BYTES as u16 } else { 0 }),
                rows: std::array::from_fn(|i| if first(i) { 16 } else { 0 }),
            };
            // SAFETY: the processor has the instruction and the system lets it run; it reads these
            // 64 bytes.
            unsafe {
                asm!("ldtilecfg [{}]", in(reg) &raw const shapes, options(nostack, readonly))
            };
            Self { of_thread: PhantomData }
        })
    }

    /// Multiplies a panel of rows (the pairs of a row contiguous) by a panel of columns (pairs
    /// interleaved across columns).
    pub fn fill(&self, to: Target<'_>, rows: &[__m512i], columns: &[__m512i]) {
        let steps = rows.len() / ROWS;
        assert!(steps > 0 && rows.len() == steps * ROWS && columns.len() == steps * COLUMNS);
        let whole = to.width == COLUMNS && to.out.len() >= (ROWS - 1) * to.stride + COLUMNS;
        if whole {
            // SAFETY: `out` holds 32 rows of 32 columns, as just checked.
            unsafe {
                multiply(
                    to.out.as_mut_ptr(),
                    to.stride,
                    to.add,
                    rows.as_ptr(),
                    columns.as_ptr(),
                    steps,
                )
            };
        } else {
            let mut sums = [[0f32; COLUMNS]; ROWS];
            // SAFETY: as many rows and columns.
            unsafe {
                multiply(
                    sums.as_mut_ptr().cast(),
                    COLUMNS,
                    false,
                    rows.as_ptr(),
                    columns.as_ptr(),
                    steps,
                )
            };
            to.take(sums.iter().map(|sums| &sums[..]));
        }
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: as in `load`.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

/// Stores the products of 32 rows and 32 columns, in `steps` of 32 terms, to `out`, or adds them
/// there.
///
/// # Safety
/// The thread has its [`Tiles`]; `out` holds 32 rows of 32 values, `stride` values apart, `rows`
/// and `columns` the pairs of as many terms.
unsafe fn multiply(
    out: *mut f32,
    stride: usize,
    add: bool,
    rows: *const __m512i,
    columns: *const __m512i,
    steps: usize,
) {
    let below = out.wrapping_add(16 * stride);
    let stride = 4 * stride;
    // SAFETY: as the caller promises.
    unsafe {
        if add {
            asm!(
                "tileloadd tmm0, [{out} + {stride}]",
                "tileloadd tmm1, [{out} + {stride} + 64]",
                "tileloadd tmm2, [{below} + {stride}]",
                "tileloadd tmm3, [{below} + {stride} + 64]",
                out = in(reg) out, below = in(reg) below, stride = in(reg) stride, options(nostack, readonly)
            );
        } else {
            asm!(
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                options(nostack, nomem)
            );
        }
        asm!(
            "2:",
            "tileloadd tmm4, [{rows} + {row}]",
            "tileloadd tmm6, [{columns} + {column}]",
            "tileloadd tmm7, [{columns} + {column} + 64]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm5, [{rows} + {row} + 1024]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "add {rows}, 2048",
            "add {columns}, 2048",
            "dec {steps}",
            "jnz 2b",
            rows = inout(reg) rows => _, columns = inout(reg) columns => _, steps = inout(reg) steps => _,
            row = in(reg) 4 * LANES, column = in(reg) 4 * COLUMNS,
            options(nostack, readonly)
        );
        asm!(
            "tilestored [{out} + {stride}], tmm0",
            "tilestored [{out} + {stride} + 64], tmm1",
            "tilestored [{below} + {stride}], tmm2",
            "tilestored [{below} + {stride} + 64], tmm3",
            out = in(reg) out, below = in(reg) below, stride = in(reg) stride, options(nostack)
        );
    }
}

/// Asks the processor, then the system, whether the tiles can be used.
fn ask() -> bool {
    #[cfg(target_os = "linux")]
    {
        const FEATURES: u32 = 1 << 22 | 1 << 24;
        const OSXSAVE: u32 = 1 << 27;
        const TILES: u64 = 3 << 17;
        const ARCH_REQ_XCOMP_PERM: libc::c_ulong = 0x1023;
        const XFEATURE_XTILEDATA: libc::c_ulong = 18;
        use std::arch::x86_64::{__cpuid, __cpuid_count};
        #[target_feature(enable = "xsave")]
        fn states() -> u64 {
            // SAFETY: register 0 is there where the system uses it.
            unsafe { std::arch::x86_64::_xgetbv(0) }
        }
        let has = __cpuid(0).eax >= 7
            && __cpuid_count(7, 0).edx & FEATURES == FEATURES
            && __cpuid(1).ecx & OSXSAVE > 0;
        // SAFETY: the system uses the instruction; the call asks for a state of the processor and
        // touches no memory.
        unsafe {
            has && states() & TILES == TILES
                && libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0
        }
    }
    #[cfg(not(target_os = "linux"))]
    false
}
