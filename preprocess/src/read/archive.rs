//! Archives as they are downloaded: tar, plain or compressed, and zip, unpacked in a folder beside the output.
//!
//! Members go to the disk one after the other, so memory holds a buffer. The folder is a hidden sibling of the output, locked
//! like that of a dataset under construction: it goes when the conversion ends or is interrupted, and the next run clears what
//! a killed one left. What an archive claims is not trusted: a member that does not fit the disk is refused by its declared
//! size before it is written, longer ones than declared are refused, and so are names that lead out, links and devices.
//! Members that only describe are left out. [`pick`](super::pick) finds the graph among the others.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Component, Path, PathBuf};

use gsplit_store::staging::Staging;
use gsplit_store::{Progress, Unit, dataset_target, open_file};
use zip::ZipArchive;
use zip::result::ZipError;

use super::arrays::{npz, pt};
use super::pick::{describes, is_hidden};
use super::text::{self, TextStream, some};
use super::{detect::Format, foreign};
use crate::{Error, Result, disk, memory};

/// Members at most: an archive of more is no graph.
const MAX_MEMBERS: usize = 100_000;
/// Bytes between the contents of two members of a tar at most: headers, and the long names in them.
const MAX_HEADER_BYTES: u64 = 1 << 20;
const HEAD_BYTES: u64 = 1 << 12;

/// Kind of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveFormat {
    /// Compressed or not.
    Tar,
    /// Members are stored or deflated.
    Zip,
}

/// Kind of the archive at `path`; `None` for any other file or folder. The archives of NumPy and torch are inputs themselves.
pub fn packing(path: &Path, format: Option<Format>) -> Result<Option<ArchiveFormat>> {
    if !path.is_file() {
        return Ok(None);
    }
    let (mut head, file) = (Vec::new(), open_file(path).map_err(Error::io(path))?);
    file.take(HEAD_BYTES).read_to_end(&mut head).map_err(Error::io(path))?;
    if head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06") {
        foreign::refuse_by_content(path, &head)?;
        let is_input = npz::recognises(path, &head) || pt::recognises(path, &head);
        return Ok((!is_input && !matches!(format, Some(Format::Npz | Format::Pt))).then_some(ArchiveFormat::Zip));
    }
    if text::is_compressed(&head) {
        // A reader of the format says what is wrong with it.
        head = TextStream::open(path)?.head(HEAD_BYTES as usize).unwrap_or_default();
    }
    Ok((head.get(257..262) == Some(b"ustar")).then_some(ArchiveFormat::Tar))
}

/// The folder that an archive is unpacked in for the output at `out`.
pub fn folder(out: &Path) -> PathBuf {
    let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = place(out).file_name().unwrap_or_default().to_string_lossy().into_owned();
    parent.join(format!(".{name}.partial")).join("artifact")
}

/// Path that this folder would have as a finished artifact.
fn place(out: &Path) -> PathBuf {
    let mut name = out.file_name().unwrap_or_default().to_os_string();
    name.push(".unpacked");
    out.with_file_name(name)
}

/// Members of an archive in a folder of their own, which is removed when this is dropped.
pub struct Unpacked {
    staging: Staging,
    /// The only file.
    only: Option<PathBuf>,
    /// Bytes on the disk.
    pub bytes: u64,
}

impl Unpacked {
    /// Unpacks the archive at `path` beside `out`: the members that do not only describe, or `member` alone, a file or a folder.
    pub fn of(
        path: &Path,
        packing: ArchiveFormat,
        out: &Path,
        member: Option<&str>,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let (disk, free) = disk::room(out)?;
        let staging = Staging::begin(dataset_target(&place(out)), false)?;
        fs::create_dir_all(staging.file()).map_err(Error::io(path))?;
        let stage = progress.stage(&format!("unpacking {}", text::name_of(path)), None, Unit::Bytes);
        let mut writer = Writer {
            archive: path,
            root: staging.file(),
            member,
            disk,
            free,
            written: 0,
            seen: Vec::new(),
            taken: 0,
            last: None,
            stage,
        };
        match packing {
            ArchiveFormat::Tar => writer.tar()?,
            ArchiveFormat::Zip => writer.zip()?,
        }
        if writer.taken == 0 {
            let problem = match member {
                Some(member) => format!("has no member `{member}`: expected one of {}", some(&writer.seen)),
                None => "an archive without a file of data".into(),
            };
            return Err(Error::input(path, problem));
        }
        let (bytes, only) = (writer.written, writer.last.take().filter(|_| writer.taken == 1));
        drop(writer);
        Ok(Self { staging, only, bytes })
    }

    /// The folder, or the only file in it.
    pub fn root(&self) -> PathBuf {
        self.only.clone().unwrap_or_else(|| self.staging.file())
    }
}

/// Names the members of the archive `source` in place of what they are unpacked to for `out`.
pub fn as_named(error: Error, out: &Path, source: &Path) -> Error {
    let known = |path: PathBuf| match path.strip_prefix(folder(out)) {
        Ok(member) if member.as_os_str().is_empty() => source.to_path_buf(),
        Ok(member) => source.join(member),
        Err(_) => path,
    };
    match error {
        Error::Input { path, line, problem } => {
            Error::Input { path: known(path), line, problem: named(&problem, out, source) }
        }
        Error::Io { path, cause } => Error::Io { path: known(path), cause },
        Error::Option(problem) => Error::Option(named(&problem, out, source)),
        Error::Graph(problem) => Error::Graph(named(&problem, out, source)),
        error => error,
    }
}

/// `line` with the names of members as in [`as_named`].
pub fn named(line: &str, out: &Path, source: &Path) -> String {
    line.replace(&folder(out).display().to_string(), &source.display().to_string())
}

/// Writes members below a folder.
struct Writer<'a> {
    archive: &'a Path,
    root: PathBuf,
    member: Option<&'a str>,
    /// Folder on the disk of the output, and bytes free on it that are not taken yet.
    disk: PathBuf,
    free: u64,
    written: u64,
    /// Names of files so far.
    seen: Vec<String>,
    /// Files that are written: how many, and the last one.
    taken: usize,
    last: Option<PathBuf>,
    stage: Box<dyn gsplit_store::Stage + 'a>,
}

impl Writer<'_> {
    fn tar(&mut self) -> Result<()> {
        let allowed = Cell::new(0);
        let reader = TextStream::open(self.archive)?.into_reader();
        let mut archive = tar::Archive::new(Bounded { reader: BufReader::new(reader), allowed: &allowed });
        let damaged = damaged(self.archive);
        let mut entries = archive.entries().map_err(&damaged)?;
        loop {
            allowed.set(MAX_HEADER_BYTES);
            let Some(entry) = entries.next() else { break };
            let mut entry = entry.map_err(&damaged)?;
            let (kind, bytes) = (entry.header().entry_type(), entry.size());
            let name = entry.path_bytes().into_owned();
            let found = match kind {
                tar::EntryType::XGlobalHeader => continue,
                tar::EntryType::Directory => Kind::Folder,
                tar::EntryType::Regular | tar::EntryType::Continuous => Kind::File,
                tar::EntryType::Symlink | tar::EntryType::Link => Kind::Link,
                _ => Kind::Other,
            };
            allowed.set(bytes.saturating_add(MAX_HEADER_BYTES));
            self.member(&name, found, bytes, &mut entry)?;
            io::copy(&mut entry, &mut io::sink()).map_err(&damaged)?;
        }
        // The checksum of what is compressed is at its end.
        allowed.set(u64::MAX);
        io::copy(&mut archive.into_inner(), &mut io::sink()).map(drop).map_err(&damaged)
    }

    fn zip(&mut self) -> Result<()> {
        let path = self.archive;
        let damaged = |error: ZipError| match error {
            ZipError::Io(error) => damaged(path)(error),
            other => {
                let cause = other.to_string();
                let remedy = "damaged, or packed in another way than by deflate: unpack it first";
                let problem = format!("{}: {remedy}", cause.escape_debug());
                Error::input(path, problem)
            }
        };
        let file = BufReader::new(open_file(path).map_err(Error::io(path))?);
        let mut archive = ZipArchive::new(file).map_err(damaged)?;
        for at in 0..archive.len() {
            let mut entry = archive.by_index(at).map_err(damaged)?;
            let kind = match entry.unix_mode().map(|mode| mode & 0o170_000) {
                _ if entry.is_dir() => Kind::Folder,
                None | Some(0 | 0o100_000) => Kind::File,
                Some(0o120_000) => Kind::Link,
                Some(_) => Kind::Other,
            };
            let (name, bytes) = (entry.name_raw().to_vec(), entry.size());
            self.member(&name, kind, bytes, &mut entry)?;
        }
        Ok(())
    }

    /// Writes the member called `name` of `bytes` bytes, if it is wanted.
    fn member(&mut self, name: &[u8], kind: Kind, bytes: u64, content: &mut dyn Read) -> Result<()> {
        let refused = |problem: &str| {
            let name = text::field::shown(name);
            Error::input(self.archive, format!("member {name} {problem}: unpack the archive yourself if you trust it"))
        };
        let path = below(name).map_err(refused)?;
        match kind {
            Kind::Folder => return Ok(()),
            Kind::Link => return Err(refused("is a link")),
            Kind::Other => return Err(refused("is no plain file")),
            Kind::File => {}
        }
        if self.seen.len() == MAX_MEMBERS {
            return Err(Error::input(self.archive, format!("has more than {MAX_MEMBERS} members: expected a graph")));
        }
        self.seen.push(path.display().to_string());
        let is_wanted = match self.member {
            Some(wanted) => path.starts_with(wanted) || path.file_name().is_some_and(|name| name == wanted),
            None => !path.iter().any(is_hidden) && !describes(&path),
        };
        if !is_wanted {
            return Ok(());
        }
        if bytes > self.free {
            let (needed, free) =
                (memory::shown(self.written.saturating_add(bytes)), memory::shown(self.free + self.written));
            let problem = format!(
                "unpacked, {} takes {needed} here and more, {free} are free: free some space or write elsewhere",
                self.archive.display()
            );
            return Err(Error::input(&self.disk, problem));
        }
        let target = self.root.join(&path);
        target.parent().map_or(Ok(()), fs::create_dir_all).map_err(|_| refused("lies in another member"))?;
        let mut file = File::create_new(&target).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => refused("is in it twice"),
            _ => Error::io(&target)(error),
        })?;
        let mut counted = WatchedFile { file: &mut file, stage: &*self.stage, problem: None };
        let copied = io::copy(&mut content.take(bytes.saturating_add(1)), &mut counted);
        let problem = counted.problem.take();
        let copied = match (copied, problem) {
            (_, Some(error)) => return Err(Error::io(&target)(error)),
            (copied, None) => copied.map_err(damaged(self.archive))?,
        };
        if copied != bytes {
            return Err(refused("is not as long as the archive says: truncated or damaged, download it again"));
        }
        (self.free, self.written, self.taken) = (self.free - bytes, self.written + bytes, self.taken + 1);
        self.last = Some(target);
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    File,
    Folder,
    Link,
    Other,
}

/// The path of the member called `name`, below the folder that it is unpacked in.
fn below(name: &[u8]) -> Result<PathBuf, &'static str> {
    use std::os::unix::ffi::OsStrExt;
    if name.iter().any(u8::is_ascii_control) {
        return Err("has control characters in its name");
    }
    let mut path = PathBuf::new();
    for part in Path::new(std::ffi::OsStr::from_bytes(name)).components() {
        match part {
            Component::Normal(part) => path.push(part),
            Component::CurDir => {}
            _ => return Err("has a name that leads out of the archive"),
        }
    }
    Ok(path)
}

fn damaged(path: &Path) -> impl Fn(io::Error) -> Error {
    move |error| match error.raw_os_error() {
        Some(_) => Error::io(path)(error),
        None => {
            let cause = error.to_string();
            Error::input(path, format!("truncated or damaged archive ({}): download it again", cause.escape_debug()))
        }
    }
}

/// A reader that fails beyond what is allowed: names in headers of a tar are held in memory.
struct Bounded<'a, R> {
    reader: R,
    allowed: &'a Cell<u64>,
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        let left = self.allowed.get().checked_sub(read as u64);
        self.allowed.set(left.ok_or_else(|| io::Error::other("a header that is too long"))?);
        Ok(read)
    }
}

/// A file that is written, with what is written told to the user. Problems of the disk are told from those of the archive.
struct WatchedFile<'a> {
    file: &'a mut File,
    stage: &'a dyn gsplit_store::Stage,
    problem: Option<io::Error>,
}

impl io::Write for WatchedFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes);
        match written {
            Ok(written) => self.stage.advance(written as u64),
            Err(error) => {
                self.problem = Some(error);
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
