//! Opening files and folders for reading.
//!
//! A FIFO, a socket or a device in place of a file may never end, or block until someone writes to
//! it. All paths that the user names are opened here, where such files are refused before anything
//! blocks.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fd::AsFd;
use rustix::fs::{CWD, Dir, Mode, OFlags, openat};

/// Opens the file at `path` for reading.
///
/// # Errors
/// Errors of the system; an entry that is not a file, by its kind.
pub fn open_file(path: impl AsRef<Path>) -> Result<File> {
    // Check the path first, because opening a device may have effects. The second check catches a
    // change in between.
    expect_file(&fs::metadata(&path)?)?;
    let file =
        File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    expect_file(&file.metadata()?)?;
    Ok(file)
}

/// Content of the file at `path`.
pub fn read_file(path: impl AsRef<Path>) -> Result<Vec<u8>> {
    let mut content = Vec::new();
    open_file(path)?.read_to_end(&mut content)?;
    Ok(content)
}

/// Content of the file at `path`, which is text in UTF-8.
///
/// # Errors
/// Errors of [`read_file`]; [`ErrorKind::InvalidData`] for other content.
pub fn read_text(path: impl AsRef<Path>) -> Result<String> {
    String::from_utf8(read_file(path)?)
        .map_err(|_| Error::new(ErrorKind::InvalidData, "expected text in UTF-8"))
}

/// Paths of the entries of `folder`, sorted.
///
/// Why not `std::fs::read_dir`: it panics where the system fails to close the folder.
pub fn entries(folder: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
    let folder = folder.as_ref();
    let opened =
        openat(CWD, folder, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(names_in(opened)?.into_iter().map(|name| folder.join(name)).collect())
}

/// Names of the entries of an open folder, sorted.
pub(crate) fn names_in(folder: impl AsFd) -> Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            names.push(name.to_os_string());
        }
    }
    names.sort();
    Ok(names)
}

fn expect_file(metadata: &fs::Metadata) -> Result<()> {
    let kind = metadata.file_type();
    let what = match kind {
        _ if kind.is_file() => return Ok(()),
        _ if kind.is_dir() => return Err(ErrorKind::IsADirectory.into()),
        _ if kind.is_fifo() => "a FIFO",
        _ if kind.is_socket() => "a socket",
        _ => "a device",
    };
    Err(Error::new(
        ErrorKind::InvalidInput,
        format!("is {what}: expected a file; write its output to a file first"),
    ))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn what_is_no_file_is_refused_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let [fifo, socket, link, file] =
            ["fifo", "socket", "link", "file"].map(|name| folder.path().join(name));
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::os::unix::fs::symlink(&fifo, &link).unwrap();
        for (path, words) in [
            (&fifo, "is a FIFO: expected a file"),
            (&link, "is a FIFO"),
            (&socket, "is a socket"),
            (&"/dev/zero".into(), "is a device"),
        ] {
            let message = read_file(path).unwrap_err().to_string();
            assert!(message.contains(words), "{message}");
        }
        assert_eq!(open_file(folder.path()).unwrap_err().kind(), ErrorKind::IsADirectory);
        assert_eq!(open_file(&file).unwrap_err().kind(), ErrorKind::NotFound);
        fs::write(&file, "text").unwrap();
        assert_eq!(read_text(&file).unwrap(), "text");
        fs::write(&file, [0xff]).unwrap();
        assert_eq!(read_text(&file).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
