//! The corpora of the fuzz targets (`fuzz/`), replayed: every input that ever found something,
//! every seed, and mutations of both. Whatever a reader is given, it makes a sound dataset or fails
//! with one line; it never panics, and memory stays within the budget.

// A test that fails should say where.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use mutations::{corpus, keep};

#[path = "../../fuzz/src/convert.rs"]
mod fuzz;
#[path = "../../fuzz/src/input.rs"]
mod input;
#[path = "corpora/mutations.rs"]
mod mutations;

/// Mutations of the files of a target, in all (`make test-all` has 500).
const MUTATIONS: usize = 120;

/// Resident memory is the process's, so one conversion runs at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts panics, caught ones too, but for those of decoders that the readers guard: they are not
/// ours.
static PANICS: AtomicU64 = AtomicU64::new(0);

fn count_panics() {
    static SET: Once = Once::new();
    SET.call_once(|| {
        let show = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !fuzz::is_guarded(info) {
                PANICS.fetch_add(1, Relaxed);
                show(info);
            }
        }));
    });
}

/// A field of `/proc/self/status`, in bytes.
fn status(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}

/// Calls `work` and returns by how much resident memory grew meanwhile at most, mapped files
/// included.
fn growth(work: impl FnOnce()) -> u64 {
    // Sets the largest resident memory so far to that of now: proc_pid_clear_refs(5).
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmRSS:");
    work();
    status("VmHWM:").saturating_sub(before)
}

/// The same without mapped files, looked at again and again.
fn growth_of_heap(work: impl FnOnce()) -> u64 {
    let before = status("RssAnon:");
    let (done, most) = (AtomicBool::new(false), AtomicU64::new(before));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                most.fetch_max(status("RssAnon:"), Relaxed);
            }
        });
        work();
        done.store(true, Relaxed);
    });
    most.into_inner() - before
}

/// Runs one input; where it fails, its bytes are kept, so that they can go into the corpus.
fn survives(name: &str, bytes: &[u8], what: &str) -> bool {
    let panics = PANICS.load(Relaxed);
    let mut made = None;
    let caught = |work: &mut dyn FnMut()| {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_ok()
    };
    let mut returned = false;
    let mut grown = growth(|| returned = caught(&mut || made = Some(fuzz::run(name, bytes))));
    if returned && grown > fuzz::BUDGET {
        // What is written is mapped when it is checked; the budget is for the heap.
        grown = growth_of_heap(|| _ = fuzz::run(name, bytes));
    }
    let silent = PANICS.load(Relaxed) == panics;
    if !(returned && silent && grown <= fuzz::BUDGET) {
        let kept = keep(name, bytes);
        let grown = grown >> 20;
        panic!(
            "{name}, {what}: returned {returned}, no panic {silent}, {grown} MiB; its bytes: {}",
            kept.display()
        );
    }
    made == Some(true)
}

fn replay(name: &str) {
    let _alone = alone();
    count_panics();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(name);
    let sound =
        mutations::replay(&corpus(&folder), MUTATIONS, |bytes, what| survives(name, bytes, what));
    assert!(sound.contains(&true), "{name}: at least one input is a graph");
}

macro_rules! replays {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                replay(stringify!($name));
            }
        )*

        #[test]
        fn every_target_is_replayed() {
            let names: Vec<&str> = fuzz::TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
        }
    };
}
replays! {
    snap csv adjlist ogb_csv ogb_npz ogb_links npy npz igb mag240m graphsaint mtx metis dimacs parquet arrow nodes nodes_npz
    compressed_snap compressed_csv webgraph planetoid json_lists pt detect
}
