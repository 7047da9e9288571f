//! System calls that fail, each in turn, once or from there on.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use rustix::io::Errno;

use super::*;

thread_local! {
    /// Calls made, and those among them that fail.
    static CALLS: RefCell<(u32, Range<u32>)> = const { RefCell::new((0, 0..0)) };
    static HAS_FLAGS: Cell<bool> = const { Cell::new(true) };
    /// In order: the path of each flush, `None` for each counted call.
    static EVENTS: RefCell<Vec<Option<PathBuf>>> = const { RefCell::new(Vec::new()) };
}

/// Records that the file or folder at `path` is flushed.
pub fn flushed(path: &Path) {
    EVENTS.with_borrow_mut(|events| events.push(Some(path.to_path_buf())));
}

/// Counts a call, and says whether it fails.
pub fn next() -> Result<(), Errno> {
    EVENTS.with_borrow_mut(|events| events.push(None));
    CALLS.with_borrow_mut(|(made, failing)| {
        *made += 1;
        if failing.contains(made) { Err(Errno::IO) } else { Ok(()) }
    })
}

/// Fails on a file system that can neither exchange nor rename without replacing.
pub fn has_flags() -> Result<(), Errno> {
    if HAS_FLAGS.get() { Ok(()) } else { Err(Errno::INVAL) }
}

/// Runs `work` while the calls in `failing`, counted from 1, fail. Returns the number of calls that
/// were made too.
fn failing<R>(failing: Range<u32>, work: impl FnOnce() -> R) -> (R, u32) {
    CALLS.set((0, failing));
    let result = work();
    (result, CALLS.replace((0, 0..0)).0)
}

const FILES: [&str; 4] = ["p.npy", "p.ids.npy", "elsewhere/e.npy", "elsewhere/e.ids.npy"];

/// Some artifacts in a folder, all of them files or all of them folders.
struct Case {
    folder: tempfile::TempDir,
    targets: Vec<Target>,
    replace: bool,
}

impl Case {
    fn new(count: usize, are_files: bool, replace: bool) -> Self {
        // Thousands of flushes: in memory where that is possible.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let target = |name: &&str| match are_files {
            true => Target::file(folder.path().join(name)),
            false => at(&folder.path().join(name)),
        };
        let mut case =
            Self { targets: FILES[..count].iter().map(target).collect(), folder, replace: false };
        if replace {
            case.make("old").unwrap();
            // One of several was not there before.
            if let Some(second) = case.targets.get(1) {
                let path = second.path();
                if are_files { fs::remove_file(path) } else { fs::remove_dir_all(path) }.unwrap();
            }
        }
        case.replace = replace;
        case
    }

    /// Everything that a command does.
    fn make(&self, text: &str) -> Result<()> {
        commit_all(self.staged(text)?)
    }

    /// Everything that a command does before its artifacts become visible.
    fn staged(&self, text: &str) -> Result<Vec<Staging>> {
        recover(&self.targets)?;
        let begin = |target: &Target| Staging::begin(target.clone(), self.replace);
        let stagings = self.targets.iter().map(begin).collect::<Result<Vec<_>>>()?;
        for staging in &stagings {
            let file = if staging.target.is_folder() { staging.path("x") } else { staging.file() };
            fs::write(file, text).unwrap();
        }
        Ok(stagings)
    }

    fn text(path: &Path) -> Option<String> {
        fs::read_to_string(path).or_else(|_| fs::read_to_string(path.join("x"))).ok()
    }

    fn texts(&self) -> Vec<Option<String>> {
        self.targets.iter().map(|target| Self::text(target.path())).collect()
    }

    fn aside(target: &Target) -> PathBuf {
        target.path().with_file_name(target.partial().unwrap()).join(REPLACED)
    }

    /// Fails where an older artifact is neither at its place nor aside, unless all are `new`.
    fn expect_found(&self, before: &[Option<String>], new: &str) {
        if self.texts().iter().all(|text| text.as_deref() == Some(new)) {
            return;
        }
        for (target, before) in self.targets.iter().zip(before) {
            let places = [target.path().to_path_buf(), Self::aside(target)];
            let is_found =
                before.is_none() || places.iter().any(|path| Self::text(path) == *before);
            assert!(
                is_found,
                "{}: neither old nor aside: {:?}",
                target.path().display(),
                self.texts()
            );
        }
    }
}

/// Runs `check` for one artifact and for several, files and folders, replaced and new, with and
/// without exchange, with each call failing once and each failing from there on. `check` gets a
/// case whose command failed, its error, and the state before.
fn for_each_fault(may_be_unsettled: bool, check: impl Fn(&Case, Error, &[Option<String>])) {
    let kinds = [(1, true), (1, false), (3, false), (4, true)];
    for ((count, are_files), replace, has_flags) in kinds
        .into_iter()
        .flat_map(|kind| [true, false].map(|replace| (kind, replace)))
        .flat_map(|(kind, replace)| [true, false].map(|flags| (kind, replace, flags)))
    {
        HAS_FLAGS.set(has_flags);
        let mut first = 1;
        loop {
            let mut made = 0;
            for fault in [first..first + 1, first..u32::MAX] {
                let case = Case::new(count, are_files, replace);
                let before = case.texts();
                let (result, calls) = failing(fault, || case.make("new"));
                made = made.max(calls);
                match result {
                    Err(error) => {
                        case.expect_found(&before, "new");
                        check(&case, error, &before);
                    }
                    // Only the removal of a file that is not needed any more failed.
                    Ok(()) => {
                        assert!(case.texts().iter().all(|text| text.as_deref() == Some("new")))
                    }
                }
                match case.make("newer") {
                    Ok(()) => {
                        assert!(case.texts().iter().all(|text| text.as_deref() == Some("newer")))
                    }
                    // Only the first, by which the others are settled, was written in between.
                    Err(Error::Unsettled { path, older }) => {
                        assert_eq!(Case::text(&older).as_deref(), Some("old"));
                        assert!(path.exists() && may_be_unsettled);
                        continue;
                    }
                    Err(error) => {
                        assert!(!case.replace && matches!(error, Error::Exists(_)), "{error}")
                    }
                }
                let left = tree::list(case.folder.path()).unwrap();
                assert!(left.keys().all(|name| !name.contains(".partial")), "{left:?}");
            }
            if first > made {
                break;
            }
            first += 1;
        }
        assert!(first > 5, "calls are counted");
    }
    HAS_FLAGS.set(true);
}

#[test]
fn contents_are_on_disk_before_they_are_visible() {
    for are_files in [true, false] {
        let case = Case::new(2, are_files, false);
        let stagings = case.staged("new").unwrap();
        let contents: Vec<PathBuf> = stagings.iter().map(Staging::file).collect();
        EVENTS.take();
        commit_all(stagings).unwrap();
        let events = EVENTS.take();
        let shown = events.iter().position(Option::is_none).expect("the artifacts are renamed");
        for content in contents {
            assert!(events[..shown].contains(&Some(content)), "{events:?}");
        }
    }
}

#[test]
fn whatever_call_fails_older_artifacts_are_there_or_the_error_says_where() {
    for_each_fault(false, |case, error, before| {
        let line = error.to_string();
        let asides = case.targets.iter().map(Case::aside).filter(|path| path.exists());
        let hidden = asides.inspect(|path| {
            let is_told = matches!(error, Error::NotDurable { .. })
                || line.contains(&path.display().to_string());
            assert!(is_told, "{line}");
        });
        if hidden.count() > 0 {
            let is_told = line.contains("run the same command again, which restores them first");
            assert!(is_told || matches!(error, Error::NotDurable { .. }), "{line}");
        } else if !matches!(error, Error::Halfway { .. } | Error::NotDurable { .. }) {
            assert_eq!(case.texts(), before, "{line}");
        }
    });
}

#[test]
fn recovery_that_meets_faults_too_loses_nothing() {
    for_each_fault(false, |case, _, before| {
        for second in [1, 2, 4, 7, 12] {
            let _ = failing(second..u32::MAX, || recover(&case.targets));
            case.expect_found(before, "new");
        }
        recover(&case.targets).unwrap();
        let new = case.texts().iter().all(|text| text.as_deref() == Some("new"));
        assert!(new || case.texts() == before, "{:?} after {before:?}", case.texts());
    });
}

#[test]
fn who_writes_one_of_several_alone_loses_no_older_one() {
    for_each_fault(true, |case, _, before| {
        for target in &case.targets {
            tidy(target);
            case.expect_found(before, "new");
            let _ = Staging::begin(target.clone(), false);
            case.expect_found(before, "new");
        }
    });
}
