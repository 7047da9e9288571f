//! Lines of a text file, plain or gzip (known by its magic bytes), with several members too.
//!
//! One thread reads, inflates and cuts the text into blocks at line ends; rayon's threads parse blocks meanwhile. The
//! results are taken in the order of the file. In memory are a few blocks a thread, however long the file.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};

use flate2::bufread::MultiGzDecoder;
use gsplit_store::{Progress, Stage, Unit};
use rayon::prelude::*;

use crate::{Error, Result};

/// Bytes of text parsed at a time; a line may be longer than a block's rest, never than a block.
const BLOCK_BYTES: usize = 4 << 20;
/// Longest line accepted. What is longer is no text file of numbers.
const MAX_LINE_BYTES: usize = 1 << 20;

/// Some whole lines.
pub struct Block {
    text: Vec<u8>,
    first_line: u64,
}

impl Block {
    /// The lines without their ends, each with its number in the file, from 1.
    pub fn lines(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let text = self.text.strip_suffix(b"\n").unwrap_or(&self.text);
        let lines = (!self.text.is_empty()).then(|| text.split(|&byte| byte == b'\n'));
        let lines = lines.into_iter().flatten().map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        (self.first_line..).zip(lines)
    }
}

/// Parses the file at `path` block by block, in parallel, and takes the results in the file's order. Stops at the first
/// error, in the file's order too.
pub fn read_blocks<T: Send>(
    path: &Path,
    progress: &dyn Progress,
    parse: impl Fn(&Block) -> Result<T> + Sync,
    mut take: impl FnMut(T) -> Result<()>,
) -> Result<()> {
    let file = File::open(path).map_err(Error::io(path))?;
    let length = file.metadata().map_err(Error::io(path))?.len();
    let stage = progress.stage(&format!("reading {}", name_of(path)), Some(length), Unit::Bytes);
    let mut blocks = Blocks::new(path, Watched { file, stage })?;
    let threads = rayon::current_num_threads();
    std::thread::scope(|scope| {
        let (sender, receiver) = sync_channel(threads);
        scope.spawn(move || blocks.send_all(&sender));
        // When this closure returns early the receiver is dropped, and the reading thread stops at its next block.
        while let Ok(block) = receiver.recv() {
            let batch: Vec<Result<Block>> =
                std::iter::once(block).chain(receiver.try_iter().take(threads - 1)).collect();
            let parsed: Vec<Result<T>> = batch.into_par_iter().map(|block| parse(&block?)).collect();
            for result in parsed {
                take(result?)?;
            }
        }
        Ok(())
    })
}

/// The first line of the file at `path`, `None` when it is empty.
pub fn first_line(path: &Path) -> Result<Option<Vec<u8>>> {
    let file = File::open(path).map_err(Error::io(path))?;
    let mut blocks = Blocks::new(path, Watched { file, stage: Box::new(gsplit_store::NoProgress) })?;
    let Some(block) = blocks.next()? else { return Ok(None) };
    Ok(block.lines().next().map(|(_, line)| line.to_vec()))
}

/// The name of a file, for people.
pub fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// A file whose bytes are counted as they are read.
struct Watched {
    file: File,
    stage: Box<dyn Stage>,
}

impl Read for Watched {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.stage.advance(read as u64);
        Ok(read)
    }
}

/// Cuts a stream of text at line ends.
struct Blocks<'a> {
    path: &'a Path,
    text: Box<dyn Read + Send>,
    compressed: bool,
    /// Start of a line whose end has not been read yet.
    rest: Vec<u8>,
    next_line: u64,
}

impl<'a> Blocks<'a> {
    fn new(path: &'a Path, file: Watched) -> Result<Self> {
        let mut file = BufReader::with_capacity(1 << 18, file);
        let head = file.fill_buf().map_err(Error::io(path))?;
        let compressed = head.starts_with(&[0x1f, 0x8b]);
        if head.is_empty() && path.extension().is_some_and(|extension| extension == "gz") {
            return Err(damaged(path));
        }
        if head.starts_with(b"\xef\xbb\xbf") {
            file.consume(3); // the byte order mark some editors leave
        }
        let text: Box<dyn Read + Send> = if compressed { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
        Ok(Self { path, text, compressed, rest: Vec::new(), next_line: 1 })
    }

    fn send_all(&mut self, to: &SyncSender<Result<Block>>) {
        while let Some(block) = self.next().transpose() {
            let failed = block.is_err();
            if to.send(block).is_err() || failed {
                return;
            }
        }
    }

    fn next(&mut self) -> Result<Option<Block>> {
        let mut text = std::mem::take(&mut self.rest);
        let wanted = BLOCK_BYTES - text.len();
        text.reserve_exact(wanted);
        let read = (&mut self.text).take(wanted as u64).read_to_end(&mut text);
        let read = read.map_err(|error| match error.raw_os_error() {
            None if self.compressed => damaged(self.path),
            _ => Error::io(self.path)(error),
        })?;
        if read == wanted {
            // More may follow: keep the line that is cut for the next block.
            let end = memchr::memrchr(b'\n', &text).map_or(0, |at| at + 1);
            self.rest = text.split_off(end);
        }
        let first_line = self.next_line;
        let mut start = 0;
        let ends = memchr::memchr_iter(b'\n', &text).map(|at| at + 1).chain([text.len() + self.rest.len()]);
        for end in ends {
            if end - start > MAX_LINE_BYTES {
                let problem = format!("longer than {MAX_LINE_BYTES} bytes: expected a text file of numbers");
                return Err(Error::line(self.path, self.next_line, problem));
            }
            start = end;
            self.next_line += 1;
        }
        self.next_line -= 1; // the last one is not a line end
        Ok((!text.is_empty()).then_some(Block { text, first_line }))
    }
}

fn damaged(path: &Path) -> Error {
    Error::input(path, "truncated or damaged gzip stream: download it again")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use gsplit_store::NoProgress;

    use super::*;

    fn lines(path: &Path) -> Result<Vec<(u64, String)>> {
        let mut all = Vec::new();
        let parse = |block: &Block| {
            Ok(block.lines().map(|(n, line)| (n, String::from_utf8(line.to_vec()).unwrap())).collect::<Vec<_>>())
        };
        read_blocks(path, &NoProgress, parse, |lines| {
            all.extend(lines);
            Ok(())
        })?;
        Ok(all)
    }

    fn gz(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn lines_and_their_numbers_survive_blocks() {
        let folder = tempfile::tempdir().unwrap();
        let text: String = (1..=1_500_000).map(|n| format!("{n} {}\r\n", n * 7)).collect();
        assert!(text.len() > 3 * BLOCK_BYTES);
        let (half, rest) = text.split_at(text.len() / 2);
        let members = [gz(half.as_bytes()), gz(rest.as_bytes())].concat();
        for (name, bytes) in [("plain.txt", text.as_bytes().to_vec()), ("two-members.txt.gz", members)] {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            let found = lines(&path).unwrap();
            assert_eq!(found.len(), 1_500_000);
            assert!(found.iter().all(|(n, line)| *line == format!("{n} {}", n * 7)), "{name}");
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
            let found = lines(&path).unwrap();
            assert_eq!(found.iter().map(|(_, line)| line.as_str()).collect::<Vec<_>>(), expected, "{text:?}");
            assert_eq!(first_line(&path).unwrap().as_deref(), expected.first().map(|line| line.as_bytes()));
        }
    }

    #[test]
    fn damaged_gzip_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("edge.csv.gz");
        let whole = gz("12 34\n".repeat(10_000).as_bytes());
        let mut flipped = whole.clone();
        flipped[whole.len() - 6] ^= 1; // the checksum at the end
        for bytes in [&[][..], &whole[..5], &whole[..whole.len() / 2], &whole[..whole.len() - 1], &flipped] {
            std::fs::write(&path, bytes).unwrap();
            let message = lines(&path).unwrap_err().to_string();
            assert!(message.ends_with("edge.csv.gz: truncated or damaged gzip stream: download it again"), "{message}");
        }
    }

    #[test]
    fn endless_lines_are_refused_with_their_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        for length in [MAX_LINE_BYTES + 1, BLOCK_BYTES, 3 * BLOCK_BYTES] {
            for end in ["", "\n1 2\n"] {
                std::fs::write(&path, format!("1 2\n3 4\n{}{end}", "5".repeat(length))).unwrap();
                let message = lines(&path).unwrap_err().to_string();
                assert!(message.contains("x, line 3: longer than"), "{message}");
            }
        }
        std::fs::write(&path, format!("{}\n", "5".repeat(MAX_LINE_BYTES - 1))).unwrap();
        assert_eq!(lines(&path).unwrap().len(), 1);
    }
}
