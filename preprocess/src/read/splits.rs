//! Which vertices are for training, validation and test: read from files, or drawn at random.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use gsplit_kernels::{Stream, StreamKey, permute};
use gsplit_store::{Progress, Split};
use serde::{Serialize, Serializer};

use super::field::{shown, unsigned};
use super::ogb::find;
use super::text::{lines, name_of, read_pieces};
use crate::edges::Piece;
use crate::memory::Memory;
use crate::{Error, Result};

/// The vertices of each split, in the order of [`Split::ALL`].
pub type Splits = [Vec<u32>; 3];

/// Fractions of the vertices to draw for training, validation and test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomSplit([f64; 3]);

impl FromStr for RandomSplit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let problem = || format!("`{text}`: expected three fractions that sum to at most 1, as 0.6,0.2,0.2");
        let fractions: Vec<f64> = text
            .split(',')
            .map(|part| part.trim().parse().ok().filter(|fraction| (0.0..=1.0).contains(fraction)))
            .collect::<Option<_>>()
            .ok_or_else(problem)?;
        let fractions: [f64; 3] = fractions.try_into().map_err(|_| problem())?;
        // 0.7 + 0.2 + 0.1 is a little more than 1 in binary.
        if fractions.iter().sum::<f64>() > 1.0 + 1e-9 { Err(problem()) } else { Ok(Self(fractions)) }
    }
}

impl std::fmt::Display for RandomSplit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [train, valid, test] = self.0;
        write!(f, "{train},{valid},{test}")
    }
}

impl Serialize for RandomSplit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl RandomSplit {
    /// Draws the splits among the labelled vertices, or among all where there are no labels. The same for the same
    /// seed.
    pub fn draw(&self, num_vertices: usize, labels: Option<&[i32]>, seed: u64) -> Splits {
        let labelled = |&v: &u32| labels.is_none_or(|labels| labels[v as usize] >= 0);
        let candidates: Vec<u32> = (0..num_vertices as u32).filter(labelled).collect();
        let order = permute(candidates.len() as u32, &StreamKey::new(seed, Stream::Split));
        let mut up_to = 0.0;
        let mut from = 0;
        self.0.map(|fraction| {
            up_to += fraction;
            let to = ((up_to * candidates.len() as f64).round() as usize).min(candidates.len());
            let chosen = &order[std::mem::replace(&mut from, to)..to];
            chosen.iter().map(|&at| candidates[at as usize]).collect()
        })
    }
}

/// Folder of the split called `name` below `folder`, or of the only one. `None` when there is none at all.
pub fn choose(folder: &Path, name: Option<&str>) -> Result<Option<PathBuf>> {
    let mut names = Vec::new();
    if folder.is_dir() {
        for entry in std::fs::read_dir(folder).map_err(Error::io(folder))? {
            let path = entry.map_err(Error::io(folder))?.path();
            if path.is_dir() {
                names.push(name_of(&path));
            }
        }
    }
    names.sort();
    let listed = names.join(", ");
    match (name, &names[..]) {
        (Some(name), _) if names.iter().any(|other| other == name) => Ok(Some(folder.join(name))),
        (Some(name), []) => Err(Error::Option(format!("--split {name}: {} holds no splits", folder.display()))),
        (Some(name), _) => {
            Err(Error::Option(format!("--split {name}: expected one of {listed} ({})", folder.display())))
        }
        (None, []) => Ok(None),
        (None, [only]) => Ok(Some(folder.join(only))),
        (None, _) => {
            Err(Error::Option(format!("{}: several splits; choose one with --split: {listed}", folder.display())))
        }
    }
}

/// The three files of the split in `folder`.
pub fn files(folder: &Path) -> Result<[PathBuf; 3]> {
    let [train, valid, test] = Split::ALL.map(|split| find(folder, split.name()));
    Ok([train?, valid?, test?])
}

/// Reads the split files: one vertex a line, each at most once in all of them.
pub fn read(files: &[PathBuf; 3], num_vertices: usize, budget: Memory, progress: &dyn Progress) -> Result<Splits> {
    // Of each vertex its split, and its place in that; lists double as they grow.
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
                        return Err(Error::line(path, line, format!("vertex {v} is listed twice: each may be once")));
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

/// A vertex id below `num_vertices`.
pub fn vertex(path: &Path, line: u64, field: &[u8], num_vertices: usize) -> Result<u32> {
    match unsigned(field) {
        Some(id) if id < num_vertices as u64 => Ok(id as u32),
        Some(id) => Err(Error::line(path, line, format!("vertex {id}: expected ids below {num_vertices}"))),
        None => Err(Error::line(path, line, format!("expected a vertex id, found {}", shown(field)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions() {
        assert_eq!("0.7, 0.2,0.1".parse::<RandomSplit>().unwrap().to_string(), "0.7,0.2,0.1");
        for text in ["", "0.5", "0.5,0.2,0.2,0.1", "0.9,0.2,0.1", "-0.1,0.2,0.3", "a,b,c", "nan,0,0"] {
            assert!(text.parse::<RandomSplit>().is_err(), "{text}");
        }
    }

    #[test]
    fn drawn_splits_are_disjoint_seeded_and_labelled() {
        let split: RandomSplit = "0.5,0.25,0.25".parse().unwrap();
        let labels: Vec<i32> = (0..1000).map(|v| if v % 5 == 0 { -1 } else { v % 3 }).collect();
        let splits = split.draw(1000, Some(&labels), 7);
        assert_eq!(splits.each_ref().map(Vec::len), [400, 200, 200]);
        let mut all = splits.concat();
        all.sort_unstable();
        assert!(all.iter().copied().eq((0..1000).filter(|v| v % 5 != 0)));
        assert_eq!(split.draw(1000, Some(&labels), 7), splits);
        assert_ne!(split.draw(1000, Some(&labels), 8), splits);
        assert_eq!("0.1,0,0".parse::<RandomSplit>().unwrap().draw(9, None, 0).map(|split| split.len()), [1, 0, 0]);
    }
}
