//! Several artifacts that become visible as one.
//!
//! The first is shown last: with it all are there, without it none is. Before any is touched, a note beside the first says
//! what the others are known by:
//!
//! ```text
//! note ─▶ older artifacts step aside ─▶ the others appear ─▶ the first appears ─▶ what stepped aside goes
//! ```
//!
//! After a kill in between, whoever writes the first one next removes those that had appeared already, and takes back what
//! had stepped aside. One alone needs no note: it appears, or is exchanged, in one step.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use serde::{Deserialize, Serialize};

use super::folder::{Folder, Identity};
use super::tree::sync_tree;
use super::{OPEN, REPLACED, Staging};
use crate::document::{self, Document};
use crate::{Error, Result, check};

const NOTE: &str = "together.json";

/// Content of `together.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Together {
    /// That whose appearance is that of all.
    first: Identity,
    others: Vec<Other>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Other {
    /// Bytes of the absolute path of the folder that it appears in.
    folder: Vec<u8>,
    /// Bytes of its name there.
    name: Vec<u8>,
    is: Identity,
}

impl Document for Together {
    const FORMAT: &'static str = "gsplit-together";
    const VERSION: u32 = 1;
}

/// Makes all of `stagings` visible as one: after a kill at any moment, either all are there or the next run that begins the
/// same ones, in the same order, finds the state from before. Whoever writes without locks may have been there first: where
/// nothing may be replaced, its artifact stays and all of these are refused.
///
/// What they were made from must be sound: checks under way are waited for.
pub fn commit_all(stagings: Vec<Staging>) -> Result<()> {
    check::settled()?;
    stagings.iter().try_for_each(|staging| sync_tree(&staging.file()))?;
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner); // no interrupt from here on
    for step in steps(&stagings) {
        if let Err(error) = step.run(&stagings) {
            // Nothing was lost: what cannot be taken back now is taken back by the next run.
            stagings.iter().for_each(|staging| drop(staging.mend()));
            return Err(error);
        }
    }
    for entry in open.iter_mut() {
        entry.keep &= !stagings.iter().any(|staging| std::sync::Arc::ptr_eq(&entry.folder, &staging.folder));
    }
    drop(open);
    stagings.iter().try_for_each(|staging| staging.folder.parent().sync()) // drop removes the rest, and what was replaced
}

/// What [`commit_all`] does, one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// The note is written.
    Note,
    /// What stands in the place of this one steps aside.
    Aside(usize),
    /// This one appears.
    Show(usize),
}

pub(super) fn steps(stagings: &[Staging]) -> Vec<Step> {
    let all = 0..stagings.len();
    match all.len() {
        0 | 1 => all.map(Step::Show).collect(),
        _ => [Step::Note].into_iter().chain(all.clone().map(Step::Aside)).chain(all.rev().map(Step::Show)).collect(),
    }
}

impl Step {
    pub(super) fn run(self, stagings: &[Staging]) -> Result<()> {
        match self {
            Self::Note => note(stagings),
            Self::Show(which) => stagings[which].appear(),
            Self::Aside(which) => {
                let staging = &stagings[which];
                let parent = staging.folder.parent();
                match staging.target.check_in(parent, staging.replace)? {
                    true => parent.rename(staging.target.name()?, staging.folder.folder(), OsStr::new(REPLACED)),
                    false => Ok(()),
                }
            }
        }
    }
}

fn note(stagings: &[Staging]) -> Result<()> {
    let identity = |staging: &Staging| {
        let missing = || Error::io(staging.file())(std::io::ErrorKind::NotFound.into());
        staging.folder.folder().identity(OsStr::new(staging.content)).ok_or_else(missing)
    };
    let other = |staging: &Staging| {
        let parent = staging.folder.parent().path();
        let folder = parent.canonicalize().map_err(Error::io(parent))?.into_os_string().into_vec();
        Ok(Other { folder, name: staging.target.name()?.as_bytes().to_vec(), is: identity(staging)? })
    };
    let Some((first, others)) = stagings.split_first() else { return Ok(()) };
    let others = others.iter().map(other).collect::<Result<_>>()?;
    let folder = first.folder.folder();
    document::write(&folder.path().join(NOTE), &Together { first: identity(first)?, others })?;
    folder.sync()
}

/// Takes back what a kill amid [`commit_all`] left, where `first` was the first of it.
pub(super) fn mend(first: &Staging) -> Result<()> {
    let (folder, note) = (first.folder.folder(), OsStr::new(NOTE));
    if folder.kind(note)?.is_none() {
        return Ok(());
    }
    // A note that is not whole was being written when nothing had appeared yet.
    if let Ok((together, _)) = document::read::<Together>(&folder.path().join(NOTE))
        && first.folder.parent().identity(first.target.name()?) != Some(together.first)
    {
        for Other { folder, name, is } in together.others {
            let (folder, name) = (PathBuf::from(OsString::from_vec(folder)), OsString::from_vec(name));
            take_back(&folder, &name, &is)?;
        }
    }
    folder.remove(note)
}

/// Removes `name` from the folder at `path` if it is the file that is known by `is`.
fn take_back(path: &Path, name: &OsStr, is: &Identity) -> Result<()> {
    let Ok(folder) = Folder::open(path) else { return Ok(()) };
    match folder.identity(name).as_ref() == Some(is) {
        true => folder.remove(name),
        false => Ok(()),
    }
}
