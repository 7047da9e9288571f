//! Parses an input from its bytes, for every target.
//!
//! An input is the files of a format one after the other, with [`SEPARATOR`] between them; an empty
//! one is not written. What follows the last file are letters for options.

use std::path::Path;

use tempfile::TempDir;

/// Separator between two files of an input.
pub const SEPARATOR: &[u8] = b"\n----8<----\n";

/// A folder for the files of an input, in memory where there is such a place.
pub fn folder() -> TempDir {
    let fast = Path::new("/dev/shm");
    let folder = if fast.is_dir() { tempfile::tempdir_in(fast) } else { tempfile::tempdir() };
    folder.expect("a folder for the input")
}

/// The parts of an input.
pub fn split(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(bytes);
    std::iter::from_fn(move || {
        let now = rest?;
        let end = now.windows(SEPARATOR.len()).position(|window| window == SEPARATOR);
        rest = end.map(|end| &now[end + SEPARATOR.len()..]);
        Some(&now[..end.unwrap_or(now.len())])
    })
}

/// Writes the `files` for which `parts` have content below `folder`.
pub fn write_all<'a>(folder: &Path, files: &[&str], parts: &mut impl Iterator<Item = &'a [u8]>) {
    for (name, content) in files.iter().zip(parts) {
        if !content.is_empty() {
            write(&folder.join(name), content);
        }
    }
}

/// Writes one file, and the folders above it.
pub fn write(path: &Path, content: &[u8]) {
    let folder = path.parent().expect("a folder");
    std::fs::create_dir_all(folder).expect("a folder for the input");
    std::fs::write(path, content).expect("a file for the input");
}

/// Whether it succeeded; panics if it failed with anything but one line.
#[allow(dead_code)] // The replay of the readers does without.
pub fn succeeds<T, E: std::fmt::Display>(result: Result<T, E>) -> bool {
    match result {
        Ok(_) => true,
        Err(error) => one_line(&error),
    }
}

/// False; panics unless `error` is one line.
pub fn one_line(error: &impl std::fmt::Display) -> bool {
    let message = error.to_string();
    assert!(
        !message.is_empty() && message.lines().count() == 1,
        "expected an error of one line: {message}"
    );
    false
}
