//! Detects whether a file is untouched, without reading it.
//!
//! A write, a rename onto the path and a copy that keeps the time of modification all change one of
//! three things: that time, the time of change, which only the kernel sets, or the inode. So a file
//! whose stamp and length match the record still has its content. The reverse does not hold:
//! `touch` and a move to another disk change the stamp but no byte, so a checksum decides if stamps
//! differ.
//!
//! A file that is written twice within one tick of its file system's clock has the same stamp
//! twice. So no stamp is recorded for a file that has just changed ([`Stamp::of`]): it is read
//! again the next time.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

/// Coarsest tick of the clocks of file systems.
const TICK: Duration = Duration::from_secs(2);

/// State of a file that changes when the file does, in addition to its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stamp {
    /// Time of modification, in nanoseconds since 1970.
    modified_ns: i64,
    /// Time of the last change of content, name or rights, in nanoseconds since 1970.
    changed_ns: i64,
    /// Number of the file on its file system.
    inode: u64,
}

impl Stamp {
    /// The stamp of a file, `None` when the file changed so recently that its next change may leave
    /// the same one.
    pub fn of(file: &Metadata) -> Option<Self> {
        let nanoseconds =
            |seconds: i64, rest: i64| seconds.wrapping_mul(1_000_000_000).wrapping_add(rest);
        let changed = u64::try_from(file.ctime()).ok().map(Duration::from_secs)?;
        let settled = SystemTime::UNIX_EPOCH.checked_add(changed + TICK)?;
        (settled <= SystemTime::now()).then(|| Self {
            modified_ns: nanoseconds(file.mtime(), file.mtime_nsec()),
            changed_ns: nanoseconds(file.ctime(), file.ctime_nsec()),
            inode: file.ino(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_that_just_changed_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, "x").unwrap();
        assert_eq!(Stamp::of(&path.metadata().unwrap()), None);
        // A file that has been there long.
        let own = std::env::current_exe().unwrap().metadata().unwrap();
        assert_eq!(Stamp::of(&own).map(|stamp| stamp.inode), Some(own.ino()));
    }
}
