//! The vertices for training, validation and test, read from files.

use std::path::{Path, PathBuf};

use gsplit_store::{Progress, Split};

use super::find;
use crate::edges::Piece;
use crate::memory::Memory;
use crate::read::text::field::vertex;
use crate::read::text::{lines, name_of, read_pieces};
use crate::{Error, Result};

/// The vertices of each split, in the order of [`Split::ALL`].
pub type Splits = [Vec<u32>; 3];

/// Folder of the split called `name` below `folder`, or of the only one. `None` if there are no splits.
pub fn choose(folder: &Path, name: Option<&str>) -> Result<Option<PathBuf>> {
    let mut names = Vec::new();
    if folder.is_dir() {
        for path in gsplit_store::entries(folder).map_err(Error::io(folder))? {
            if path.is_dir() {
                names.push(name_of(&path));
            }
        }
    }
    let listed = names.join(", ");
    match (name, &names[..]) {
        (Some(name), _) if names.iter().any(|other| other == name) => Ok(Some(folder.join(name))),
        (Some(name), []) => Err(Error::Option(format!("--split-name {name}: {} holds no splits", folder.display()))),
        (Some(name), _) => {
            Err(Error::Option(format!("--split-name {name}: expected one of {listed} ({})", folder.display())))
        }
        (None, []) => Ok(None),
        (None, [only]) => Ok(Some(folder.join(only))),
        (None, _) => {
            Err(Error::Option(format!("{}: several splits; choose one with --split-name: {listed}", folder.display())))
        }
    }
}

/// The three files of the split in `folder`.
pub fn files(folder: &Path) -> Result<[PathBuf; 3]> {
    let [train, valid, test] = Split::ALL.map(|split| find(folder, split.name()));
    Ok([train?, valid?, test?])
}

/// Reads the split files: one vertex per line, each at most once in all of them.
pub fn read(files: &[PathBuf; 3], num_vertices: usize, budget: Memory, progress: &dyn Progress) -> Result<Splits> {
    // For each vertex, its split and its position in it; lists double as they grow.
    budget.check(&files[0], format!("a split of {num_vertices} vertices"), 9 * num_vertices as u64)?;
    let mut owner: Vec<Option<Split>> = vec![None; num_vertices];
    let mut splits = Splits::default();
    for ((path, split), vertices) in files.iter().zip(Split::ALL).zip(&mut splits) {
        let parse = |piece: &Piece| {
            let lines = lines(piece).map(|(line, field)| (line, field.trim_ascii()));
            let lines = lines.filter(|(_, field)| !field.is_empty());
            lines.map(|(line, field)| Ok((line, vertex(path, line, field, num_vertices)?))).collect::<Result<Vec<_>>>()
        };
        read_pieces(path, progress, parse, |lines| {
            for (line, v) in lines {
                match owner[v as usize].replace(split) {
                    None => vertices.push(v),
                    Some(other) if other == split => {
                        return Err(Error::line(path, line, format!("vertex {v} is listed twice: expected each once")));
                    }
                    Some(other) => {
                        let problem =
                            format!("vertex {v} is in the {} split too: splits must not overlap", other.name());
                        return Err(Error::line(path, line, problem));
                    }
                }
            }
            Ok(())
        })?;
    }
    Ok(splits)
}
