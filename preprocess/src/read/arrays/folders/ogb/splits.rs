//! The files of the vertices for training, validation and test.

use std::path::{Path, PathBuf};

use gsplit_store::Split;

use super::find;
use crate::read::arrays::catalog::listed;
use crate::read::arrays::pickle::Pickled;
use crate::read::text::name_of;
use crate::{Error, Result};

/// Folder of the split called `name` below `folder`, or of the only one. `None` if there are no
/// splits.
pub fn choose(folder: &Path, name: Option<&str>) -> Result<Option<PathBuf>> {
    let mut names = Vec::new();
    if folder.is_dir() {
        for path in gsplit_store::entries(folder).map_err(Error::io(folder))? {
            if path.is_dir() {
                names.push(name_of(&path));
            }
        }
    }
    let listed =
        || format!("expected one of the splits in {}: {}", folder.display(), names.join(", "));
    match (name, &names[..]) {
        (Some(name), _) if names.iter().any(|other| other == name) => Ok(Some(folder.join(name))),
        (Some(name), _) => Err(Error::Option(format!("--schema split-name={name}: {}", listed()))),
        (None, []) => Ok(None),
        (None, [only]) => Ok(Some(folder.join(only))),
        (None, _) => Err(Error::Option(format!(
            "several splits: pass --schema split-name: \
                                                {}",
            listed()
        ))),
    }
}

/// The three files of the split in `folder`.
pub fn files(folder: &Path) -> Result<[PathBuf; 3]> {
    let [train, valid, test] = Split::ALL.map(|split| find(folder, split.name()));
    Ok([train?, valid?, test?])
}

/// The vertices of each split in `split_dict.pt` of `folder`, and that file, if there is one of
/// vertices. OGB's `DatasetSaver` writes it.
pub fn in_dict(folder: &Path) -> Result<Option<([Vec<u64>; 3], PathBuf)>> {
    let path = folder.join("split_dict.pt");
    if !path.is_file() {
        return Ok(None);
    }
    let file = Pickled::open(&path)?;
    let mut splits = <[Vec<u64>; 3]>::default();
    for (split, ids) in Split::ALL.into_iter().zip(&mut splits) {
        let item = file.root().get(split.name());
        match item.map(|item| item.numbers(split.name())).transpose()?.flatten() {
            Some(numbers) => *ids = listed(&numbers)?,
            None => return Ok(None),
        }
    }
    Ok(Some((splits, path)))
}
