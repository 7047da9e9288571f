//! Several text files as one: line i of each, joined by commas (`paste -d,` of Unix). OGB keeps the
//! numbers of edges in tables of their own.

use std::io::{BufRead, BufReader, Cursor, Error as IoError, Read};
use std::path::PathBuf;

use super::{COMPRESSED_BUFFER, Compression, MAX_LINE_BYTES, TextStream, cannot_read};
use crate::{Error, Result};

/// `first` with the lines of `others` joined to its own. Fails when it is read if a file has fewer
/// lines than another. Progress is that of the first.
pub fn paste(first: TextStream, others: &[PathBuf]) -> Result<TextStream> {
    let (path, length, done) = (first.path.clone(), first.length, first.done.clone());
    let others = others.iter().map(|other| TextStream::open(other));
    let files = [Ok(first)].into_iter().chain(others).map(|stream| {
        let TextStream { path, compression, rest, text, .. } = stream?;
        let text = BufReader::with_capacity(COMPRESSED_BUFFER, Cursor::new(rest).chain(text));
        Ok(PastedFile { path, compression, text: Box::new(text) })
    });
    let pasted = Pasted { files: files.collect::<Result<_>>()?, joined: Vec::new(), at: 0 };
    let (text, rest) = (Box::new(pasted), Vec::new());
    Ok(TextStream { path, text, compression: None, length, done, rest, next_line: 1 })
}

/// A file whose lines are joined to the lines of others.
struct PastedFile {
    path: PathBuf,
    compression: Option<Compression>,
    text: Box<dyn BufRead + Send>,
}

/// The joined lines, one at a time.
struct Pasted {
    files: Vec<PastedFile>,
    joined: Vec<u8>,
    at: usize,
}

impl Pasted {
    /// Joins the next line of each file; an empty line if all are, nothing at the end of all.
    fn next_line(&mut self) -> Result<()> {
        self.at = 0;
        self.joined.clear();
        let (mut short, mut ended) = (None, 0);
        for PastedFile { path, compression, text } in &mut self.files {
            let read = text.take(MAX_LINE_BYTES as u64).read_until(b'\n', &mut self.joined);
            if read.map_err(|error| cannot_read(path, *compression, error))? == 0 {
                (short, ended) = (Some(&*path), ended + 1);
            }
            self.joined.truncate(self.joined.trim_ascii_end().len());
            self.joined.push(b',');
        }
        let is_empty = self.joined.iter().all(|&byte| byte == b',');
        match short {
            Some(path) if !is_empty => {
                let problem = "fewer lines than the files next to it: expected one for each edge; \
                               truncated? download it again";
                return Err(Error::input(path, problem));
            }
            _ if is_empty => self.joined.clear(),
            _ => drop(self.joined.pop()),
        }
        self.joined.extend((ended < self.files.len()).then_some(b'\n'));
        Ok(())
    }
}

impl Read for Pasted {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.at == self.joined.len() {
            self.next_line().map_err(IoError::other)?;
        }
        let read = (&self.joined[self.at..]).read(buffer)?;
        self.at += read;
        Ok(read)
    }
}
