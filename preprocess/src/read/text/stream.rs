//! Text files, plain or compressed (gzip, zstd, bzip2, xz: detected by their magic bytes; several
//! members too), as pieces of whole lines.
//!
//! [`TextStream`] reads, inflates and cuts in sequence; lines are parsed piece by piece, by any
//! thread. Memory holds only the pieces and the start of one line. [`read_pieces`] is the loop for
//! a small table, which takes the pieces in sequence but parses them in parallel. [`paste`] joins
//! several files line by line.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use flate2::bufread::MultiGzDecoder;
use gsplit_store::{Progress, Unit, open_file};
use liblzma::bufread::XzDecoder;
use rayon::prelude::*;

use super::field::{shown, unsigned};
use crate::edges::{Piece, TEXT_PER_PIECE, lock};
use crate::{Error, Result};

mod paste;

/// Maximum length of a line. A longer line is not from a text file of numbers.
const MAX_LINE_BYTES: usize = TEXT_PER_PIECE;
/// The mark that some editors leave before UTF-8.
pub const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// Bytes read at a time from a compressed file.
const COMPRESSED_BUFFER: usize = 1 << 18;

/// A text file, read from its start to its end.
pub struct TextStream {
    path: PathBuf,
    text: Box<dyn Read + Send>,
    compression: Option<Compression>,
    length: u64,
    done: Arc<AtomicU64>,
    /// Start of a line whose end has not been read yet.
    rest: Vec<u8>,
    next_line: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compression {
    Gzip,
    Zstd,
    Bzip2,
    Xz,
}

impl Compression {
    const ALL: [Self; 4] = [Self::Gzip, Self::Zstd, Self::Bzip2, Self::Xz];

    /// Its name, the extension of its files, and their first bytes.
    fn described(self) -> (&'static str, &'static str, &'static [u8]) {
        match self {
            Self::Gzip => ("gzip", ".gz", &[0x1f, 0x8b]),
            Self::Zstd => ("zstd", ".zst", &[0x28, 0xb5, 0x2f, 0xfd]),
            Self::Bzip2 => ("bzip2", ".bz2", b"BZh"),
            Self::Xz => ("xz", ".xz", b"\xfd7zX"),
        }
    }

    fn of(head: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|compression| head.starts_with(compression.described().2))
    }

    /// The compression indicated by the name of the file at `path`.
    fn promised(path: &Path) -> Option<Self> {
        let name = path.to_str()?;
        Self::ALL.into_iter().find(|compression| name.ends_with(compression.described().1))
    }
}

/// Whether `head` starts as a compressed file does.
pub fn is_compressed(head: &[u8]) -> bool {
    Compression::of(head).is_some()
}

/// `name` without the ending of a compression.
pub fn uncompressed(name: &str) -> &str {
    Compression::ALL
        .into_iter()
        .find_map(|compression| name.strip_suffix(compression.described().1))
        .unwrap_or(name)
}

impl TextStream {
    /// Opens the file at `path`.
    pub fn open(path: &Path) -> Result<Self> {
        let mut file = open_file(path).map_err(Error::io(path))?;
        let length = file.metadata().map_err(Error::io(path))?.len();
        let mut head = Vec::new();
        (&mut file).take(4).read_to_end(&mut head).map_err(Error::io(path))?;
        let compression = Compression::of(&head);
        if let Some(promised) = Compression::promised(path).filter(|_| head.is_empty()) {
            return Err(damaged(path, promised));
        }
        let mut rest = Vec::new();
        if compression.is_none() {
            rest.extend_from_slice(head.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&head));
        }
        let done = Arc::new(AtomicU64::new(head.len() as u64));
        let file = Watched { file, done: done.clone() };
        let compressed = |file| {
            BufReader::with_capacity(COMPRESSED_BUFFER, std::io::Cursor::new(head).chain(file))
        };
        let text: Box<dyn Read + Send> = match compression {
            None => Box::new(file),
            Some(Compression::Gzip) => Box::new(MultiGzDecoder::new(compressed(file))),
            Some(Compression::Bzip2) => {
                Box::new(bzip2::bufread::MultiBzDecoder::new(compressed(file)))
            }
            Some(Compression::Xz) => Box::new(XzDecoder::new_multi_decoder(compressed(file))),
            Some(Compression::Zstd) => {
                Box::new(zstd::Decoder::with_buffer(compressed(file)).map_err(Error::io(path))?)
            }
        };
        Ok(Self { path: path.to_path_buf(), text, compression, length, done, rest, next_line: 1 })
    }

    /// Fills `piece.bytes` with the next whole lines, about [`TEXT_PER_PIECE`] bytes of them;
    /// `piece.start` becomes the number of the first, counted from 1. Returns false, and no bytes,
    /// at the end.
    pub fn next(&mut self, piece: &mut Piece) -> Result<bool> {
        piece.bytes.clear();
        piece.bytes.append(&mut self.rest);
        let wanted = TEXT_PER_PIECE.saturating_sub(piece.bytes.len());
        piece.bytes.reserve(wanted);
        let read = (&mut self.text).take(wanted as u64).read_to_end(&mut piece.bytes);
        let read = read.map_err(|error| self.cannot_read(error))?;
        piece.start = self.next_line;
        if self.next_line == 1 {
            check_encoding(&self.path, &piece.bytes)?;
        }
        if read == wanted {
            // More may follow: keep the line that is cut for the next piece.
            let end = memchr::memrchr(b'\n', &piece.bytes).map_or(0, |at| at + 1);
            self.rest.extend_from_slice(&piece.bytes[end..]);
            piece.bytes.truncate(end);
            if end == 0 {
                let problem =
                    format!("longer than {MAX_LINE_BYTES} bytes: expected a text file of numbers");
                return Err(Error::line(&self.path, self.next_line, problem));
            }
        }
        self.next_line += memchr::memchr_iter(b'\n', &piece.bytes).count() as u64;
        // The last line of the file may have no end.
        self.next_line += u64::from(piece.bytes.last().is_some_and(|&byte| byte != b'\n'));
        piece.end = self.next_line;
        Ok(!piece.bytes.is_empty())
    }

    /// The first bytes, at most `most`, of a stream that was not read from yet.
    pub fn head(mut self, most: usize) -> Result<Vec<u8>> {
        let mut head = std::mem::take(&mut self.rest);
        let read = (&mut self.text).take((most - head.len()) as u64).read_to_end(&mut head);
        read.map_err(|error| self.cannot_read(error))?;
        Ok(head)
    }

    fn cannot_read(&self, error: std::io::Error) -> Error {
        cannot_read(&self.path, self.compression, error)
    }

    /// Bytes of the file that were read so far.
    pub fn bytes_done(&self) -> u64 {
        self.done.load(Relaxed)
    }

    /// Bytes of the file.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Approximate bytes of the text, if the file is compressed.
    pub fn text_len(&self) -> u64 {
        // The usual ratio for text of numbers.
        self.length.saturating_mul(if self.compression.is_some() { 4 } else { 1 })
    }
}

/// Pieces of a text file, which can be read again from its start. Most sources of edges read it.
pub struct TextPieces {
    path: PathBuf,
    /// Files whose lines are joined to its lines.
    others: Vec<PathBuf>,
    stream: Mutex<Option<TextStream>>,
    bytes_done: AtomicU64,
}

impl TextPieces {
    /// Pieces of the file at `path`, which is not opened yet.
    pub fn of(path: &Path) -> Self {
        Self::pasted(path, Vec::new())
    }

    /// Pieces of the file at `path`, with line i of each of the `others` joined to its line i by
    /// commas.
    pub fn pasted(path: &Path, others: Vec<PathBuf>) -> Self {
        let (stream, bytes_done) = (Mutex::new(None), AtomicU64::new(0));
        Self { path: path.to_path_buf(), others, stream, bytes_done }
    }

    /// The text from its start.
    pub fn open(&self) -> Result<TextStream> {
        let stream = TextStream::open(&self.path)?;
        if self.others.is_empty() { Ok(stream) } else { paste::paste(stream, &self.others) }
    }

    /// Opens the file.
    pub fn rewind(&self) -> Result<()> {
        *lock(&self.stream) = Some(self.open()?);
        self.bytes_done.store(0, Relaxed);
        Ok(())
    }

    /// Calls [`TextStream::next`]. Before the first [`TextPieces::rewind`] there are no pieces.
    pub fn next(&self, piece: &mut Piece) -> Result<bool> {
        let mut stream = lock(&self.stream);
        let Some(stream) = stream.as_mut() else { return Ok(false) };
        let more = stream.next(piece)?;
        self.bytes_done.store(stream.bytes_done(), Relaxed);
        Ok(more)
    }

    /// Bytes of the file before the end of the pieces so far, without waiting for a piece that is
    /// being read.
    pub fn bytes_done(&self) -> u64 {
        self.bytes_done.load(Relaxed)
    }
}

/// Refuses text, whose first bytes are `head`, in UTF-16 or UTF-32: by its byte order mark, or by
/// the zeros in every ASCII letter; and lines that end in CR only.
pub fn check_encoding(path: &Path, head: &[u8]) -> Result<()> {
    let name = name_of(path);
    let (file, unpack) = match uncompressed(&name) {
        file if file == name => (file, ""),
        file => (file, "unpack it, and "),
    };
    if head.trim_ascii().contains(&b'\r') && !head.contains(&b'\n') && !head.contains(&0) {
        let problem = format!(
            "lines end in CR, as on old Macs: expected LF: {unpack}`tr '\\r' '\\n' < {file} > \
             lf-{file}` writes it"
        );
        return Err(Error::input(path, problem));
    }
    let encoding = match *head {
        [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] => "UTF-32",
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "UTF-16",
        [one, 0, other, 0, ..] if one != 0 && other != 0 => "UTF-16LE",
        [0, one, 0, other, ..] if one != 0 && other != 0 => "UTF-16BE",
        _ => return Ok(()),
    };
    let problem = format!(
        "text in {encoding}: expected UTF-8: {unpack}`iconv -f {encoding} -t UTF-8 {file} > \
         utf8-{file}` writes it"
    );
    Err(Error::input(path, problem))
}

/// The lines of `piece` without their ends, each with its number in the file, from 1.
pub fn lines(piece: &Piece) -> impl Iterator<Item = (u64, &[u8])> {
    let mut rest = &piece.bytes[..];
    let lines = std::iter::from_fn(move || {
        let end = match memchr::memchr(b'\n', rest) {
            Some(end) => end,
            None if rest.is_empty() => return None,
            None => rest.len(),
        };
        let line = &rest[..end];
        rest = rest.get(end + 1..).unwrap_or_default();
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    });
    (piece.start..).zip(lines)
}

/// Parses the file at `path` piece by piece, as many at a time as there are threads, and takes the
/// results in the file's order. Stops at the first error in that order.
pub fn read_pieces<T: Send>(
    path: &Path,
    progress: &dyn Progress,
    parse: impl Fn(&Piece) -> Result<T> + Sync,
    take: impl FnMut(T) -> Result<()>,
) -> Result<()> {
    let mut stream = TextStream::open(path)?;
    let stage =
        progress.stage(&format!("reading {}", name_of(path)), Some(stream.len()), Unit::Bytes);
    let mut done = 0;
    let next = |piece: &mut Piece| {
        let more = stream.next(piece)?;
        stage.advance(stream.bytes_done() - std::mem::replace(&mut done, stream.bytes_done()));
        Ok(more)
    };
    parse_pieces(next, parse, take)
}

/// Like [`read_pieces`], of the pieces that `next` makes until it returns false.
pub fn parse_pieces<T: Send>(
    mut next: impl FnMut(&mut Piece) -> Result<bool>,
    parse: impl Fn(&Piece) -> Result<T> + Sync,
    mut take: impl FnMut(T) -> Result<()>,
) -> Result<()> {
    let mut pieces: Vec<Piece> =
        (0..rayon::current_num_threads()).map(|_| Piece::default()).collect();
    loop {
        let (mut filled, mut failure) = (0, None);
        for piece in &mut pieces {
            match next(piece) {
                Ok(true) => filled += 1,
                Ok(false) => break,
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        let parsed: Vec<Result<T>> = pieces[..filled].par_iter().map(&parse).collect();
        for result in parsed {
            take(result?)?;
        }
        match failure {
            Some(error) => return Err(error),
            None if filled == 0 => return Ok(()),
            None => {}
        }
    }
}

/// The numbers in the file at `path`, one per line, at most `most`. Empty lines are skipped.
pub fn listed_numbers(path: &Path, most: u64, progress: &dyn Progress) -> Result<Vec<u64>> {
    let number = |(line, text): (u64, &[u8])| {
        let expected =
            || Error::line(path, line, format!("expected a number from 0, found {}", shown(text)));
        unsigned(text).ok_or_else(expected)
    };
    let mut all = Vec::new();
    let parse = |piece: &Piece| {
        let lines = lines(piece)
            .map(|(line, text)| (line, text.trim_ascii()))
            .filter(|(_, text)| !text.is_empty());
        lines.map(number).collect::<Result<Vec<_>>>()
    };
    read_pieces(path, progress, parse, |numbers| {
        all.extend(numbers);
        match all.len() as u64 > most {
            true => Err(Error::input(
                path,
                format!("more than {most} lines of numbers: expected {most} at most"),
            )),
            false => Ok(()),
        }
    })?;
    Ok(all)
}

/// The first line of the file at `path`, `None` when it is empty.
pub fn first_line(path: &Path) -> Result<Option<Vec<u8>>> {
    let mut piece = Piece::default();
    TextStream::open(path)?.next(&mut piece)?;
    Ok(lines(&piece).next().map(|(_, line)| line.to_vec()))
}

/// The first line of the file at `path` that is not a comment, and its number. It is a header of
/// the given `form`.
pub fn header_line(
    path: &Path,
    is_comment: impl Fn(&[u8]) -> bool,
    form: &str,
) -> Result<(u64, Vec<u8>)> {
    let (mut text, mut piece) = (TextStream::open(path)?, Piece::default());
    while text.next(&mut piece)? {
        if let Some((number, line)) = lines(&piece).find(|(_, line)| !is_comment(line.trim_ascii()))
        {
            return Ok((number, line.trim_ascii().to_vec()));
        }
    }
    let problem = format!("expected a line `{form}`, found the end of the file");
    Err(Error::input(path, problem))
}

/// The words of a line.
pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty())
}

/// The first of `names`, for messages.
pub fn some(names: &[String]) -> String {
    const SHOWN: usize = 12;
    let more = if names.len() > SHOWN { ", ..." } else { "" };
    names[..names.len().min(SHOWN)].join(", ") + more
}

/// The name of a file, for messages.
pub fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// A file whose bytes are counted as they are read.
struct Watched {
    file: File,
    done: Arc<AtomicU64>,
}

impl Read for Watched {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.done.fetch_add(read as u64, Relaxed);
        Ok(read)
    }
}

/// The error of reading the text at `path`, or of a file in it, which the error names.
fn cannot_read(path: &Path, compression: Option<Compression>, error: std::io::Error) -> Error {
    match (error.downcast::<Error>(), compression) {
        (Ok(of_part), _) => of_part,
        (Err(error), Some(compression)) if error.raw_os_error().is_none() => {
            damaged(path, compression)
        }
        (Err(error), _) => Error::io(path)(error),
    }
}

fn damaged(path: &Path, compression: Compression) -> Error {
    let remedy =
        "download it again, or unpack it first if it was packed with a window of more than 128 MiB";
    Error::input(
        path,
        format!("truncated or damaged {} stream: {remedy}", compression.described().0),
    )
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use gsplit_store::NoProgress;

    use super::*;

    fn all_lines(path: &Path) -> Result<Vec<(u64, String)>> {
        let mut all = Vec::new();
        let parse = |piece: &Piece| {
            Ok(lines(piece)
                .map(|(n, line)| (n, String::from_utf8(line.to_vec()).unwrap()))
                .collect::<Vec<_>>())
        };
        read_pieces(path, &NoProgress, parse, |lines| {
            all.extend(lines);
            Ok(())
        })?;
        Ok(all)
    }

    fn compressed(compression: Compression, text: &[u8]) -> Vec<u8> {
        match compression {
            Compression::Gzip => {
                let mut encoder =
                    flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(text).unwrap();
                encoder.finish().unwrap()
            }
            Compression::Zstd => zstd::encode_all(text, 1).unwrap(),
            Compression::Bzip2 => {
                let mut encoder =
                    bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
                encoder.write_all(text).unwrap();
                encoder.finish().unwrap()
            }
            Compression::Xz => {
                let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
                encoder.write_all(text).unwrap();
                encoder.finish().unwrap()
            }
        }
    }

    #[test]
    fn lines_and_their_numbers_survive_pieces() {
        let folder = tempfile::tempdir().unwrap();
        let text: String = (1..=300_000).map(|n| format!("{n} {}\r\n", n * 7)).collect();
        assert!(text.len() > 3 * TEXT_PER_PIECE);
        let (half, rest) = text.split_at(text.len() / 2);
        let two =
            |how| [compressed(how, half.as_bytes()), compressed(how, rest.as_bytes())].concat();
        let contents = [text.as_bytes().to_vec()].into_iter().chain(Compression::ALL.map(two));
        for (i, bytes) in contents.enumerate() {
            let path = folder.path().join(format!("{i}.txt"));
            std::fs::write(&path, bytes).unwrap();
            let found = all_lines(&path).unwrap();
            assert_eq!(found.len(), 300_000);
            assert!(found.iter().all(|(n, line)| *line == format!("{n} {}", n * 7)), "{i}");
        }
    }

    #[test]
    fn line_ends_of_every_kind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        for (text, expected) in [
            ("", &[][..]),
            ("\n", &[""]),
            ("a", &["a"]),
            ("a\n", &["a"]),
            ("a\r\n\r\nb", &["a", "", "b"]),
            ("\u{feff}a\n\n", &["a", ""]),
        ] {
            std::fs::write(&path, text).unwrap();
            let found = all_lines(&path).unwrap();
            assert_eq!(
                found.iter().map(|(_, line)| line.as_str()).collect::<Vec<_>>(),
                expected,
                "{text:?}"
            );
            assert_eq!(
                first_line(&path).unwrap().as_deref(),
                expected.first().map(|line| line.as_bytes())
            );
        }
    }

    #[test]
    fn damaged_streams_are_named() {
        let folder = tempfile::tempdir().unwrap();
        for how in Compression::ALL {
            let name = format!("edge.csv{}", how.described().1);
            let path = folder.path().join(&name);
            let whole = compressed(how, "12 34\n".repeat(10_000).as_bytes());
            let mut flipped = whole.clone();
            flipped[whole.len() - 6] ^= 1; // the checksum at the end
            let cuts = [0, 5, whole.len() / 2, whole.len() - 1].map(|cut| whole[..cut].to_vec());
            let zstd_without_checksum = how == Compression::Zstd;
            for bytes in cuts.into_iter().chain((!zstd_without_checksum).then_some(flipped)) {
                std::fs::write(&path, &bytes).unwrap();
                let message = all_lines(&path).unwrap_err().to_string();
                let expected = format!(
                    "{name}: truncated or damaged {} stream: download it again",
                    how.described().0
                );
                assert!(message.contains(&expected), "{} bytes: {message}", bytes.len());
            }
        }
    }

    #[test]
    fn long_windows_of_zstd_are_told_from_damage() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("edges.txt.zst");
        let packed = |window_log: u32| {
            let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
            encoder.long_distance_matching(true).unwrap();
            encoder.window_log(window_log).unwrap();
            encoder.write_all("1 2\n".repeat(1000).as_bytes()).unwrap();
            encoder.finish().unwrap()
        };
        std::fs::write(&path, packed(27)).unwrap();
        assert_eq!(all_lines(&path).unwrap().len(), 1000);
        // The second of two frames too.
        for bytes in [packed(28), [packed(20), packed(31)].concat()] {
            std::fs::write(&path, bytes).unwrap();
            let message = all_lines(&path).unwrap_err().to_string();
            assert!(message.contains("a window of more than 128 MiB"), "{message}");
        }
    }

    #[test]
    fn endless_lines_are_refused_with_their_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        for length in [MAX_LINE_BYTES + 1, 4 * MAX_LINE_BYTES] {
            for end in ["", "\n1 2\n"] {
                std::fs::write(&path, format!("1 2\n3 4\n{}{end}", "5".repeat(length))).unwrap();
                let message = all_lines(&path).unwrap_err().to_string();
                assert!(message.contains("x, line 3: longer than"), "{message}");
            }
        }
        std::fs::write(&path, format!("{}\n", "5".repeat(MAX_LINE_BYTES - 1))).unwrap();
        assert_eq!(all_lines(&path).unwrap().len(), 1);
    }
}
