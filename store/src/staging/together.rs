//! Several artifacts that become visible as one.
//!
//! The first is shown last: with it all are there, without it none is. Before any is touched, a note beside the first says
//! what the others are known by:
//!
//! ```text
//! note ─▶ older artifacts step aside ─▶ the others appear ─▶ the first appears ─▶ what stepped aside goes
//! ```
//!
//! After a kill in between, [`recover`] removes those that had appeared already and takes back what had stepped aside: whoever
//! is about to write the same ones calls it first. The note names no path. It holds what each artifact is known by, in their
//! order, and the caller says where they are: so a note can harm nothing but what the user has just named, beside a staging
//! folder of that user's. One alone needs no note: it appears, or is exchanged, in one step.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::PoisonError;

use serde::{Deserialize, Serialize};

use super::folder::Identity;
use super::tree::sync_tree;
use super::{DATASET, OPEN, REPLACED, Staging, Target};
use crate::document::{self, Document};
use crate::journal::Journal;
use crate::{Error, Result, check};

pub(super) const NOTE: &str = "together.json";

/// Name of an artifact that was taken back, until its staging folder is cleared.
const TAKEN: &str = "taken";

/// Content of `together.json`, which lies beside the first.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Together {
    /// All of them, in their order. The appearance of the first is that of all.
    members: Vec<Identity>,
}

impl Document for Together {
    const FORMAT: &'static str = "gsplit-together";
    const VERSION: u32 = 2;
}

/// Makes all of `stagings` visible as one: after a kill at any moment, either all are there or [`recover`] brings back the
/// state from before. Whoever writes without locks may have been there first: where
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
            let _ = take_back(&stagings.iter().map(Some).collect::<Vec<_>>());
            return Err(error);
        }
    }
    for entry in open.iter_mut() {
        entry.keep &= !stagings.iter().any(|staging| std::sync::Arc::ptr_eq(&entry.folder, &staging.folder));
    }
    drop(open);
    stagings.iter().try_for_each(|staging| staging.folder.parent().sync()) // drop removes the rest, and what was replaced
}

/// Steps of [`commit_all`], one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// The note is written.
    Note,
    /// The artifact in the place of this one steps aside.
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
    let Some(first) = stagings.first() else { return Ok(()) };
    let folder = first.folder.folder();
    write_note(&folder.path().join(NOTE), stagings.iter().map(identity).collect::<Result<_>>()?)?;
    folder.sync()
}

pub(super) fn write_note(path: &Path, members: Vec<Identity>) -> Result<()> {
    document::write(path, &Together { members }).map(drop)
}

/// Brings back the state from before a [`commit_all`] of the artifacts at `targets`, in their order, that was killed, and
/// removes what such a run left beside them, but for a dataset that can be resumed.
///
/// # Errors
/// [`Error::Busy`] where one is being written, [`Error::Foreign`] where a staging folder is not this user's.
pub fn recover(targets: &[Target]) -> Result<()> {
    let left = |target: &Target| match target.is_begun()? {
        true => Staging::lock(target.clone(), true, DATASET).map(Some),
        false => Ok(None),
    };
    let stagings = targets.iter().map(left).collect::<Result<Vec<_>>>()?;
    for staging in stagings.iter().flatten() {
        let root = staging.root();
        staging.keep(Journal::unfinished(root, &root.join(DATASET)).is_some());
    }
    take_back(&stagings.iter().map(Option::as_ref).collect::<Vec<_>>())
}

/// Takes back those of `stagings` that have appeared although the first has not, and brings back what had stepped aside.
fn take_back(stagings: &[Option<&Staging>]) -> Result<()> {
    if let Some(Some(first)) = stagings.first() {
        let (folder, note) = (first.folder.folder(), OsStr::new(NOTE));
        // A note that is not whole was being written when nothing had appeared yet.
        if folder.kind(note)?.is_some()
            && let Ok((Together { members }, _)) = document::read::<Together>(&folder.path().join(NOTE))
            && first.shown()?.as_ref() != members.first()
        {
            for (staging, is) in stagings.iter().zip(&members) {
                let Some(staging) = staging else { continue };
                let (folder, parent, taken) = (staging.folder.folder(), staging.folder.parent(), OsStr::new(TAKEN));
                if staging.shown()?.as_ref() == Some(is) && staging.target.check_in(parent, true)? {
                    folder.remove(taken)?;
                    parent.rename(staging.target.name()?, folder, taken)?;
                }
            }
        }
        folder.remove(note)?;
    }
    stagings.iter().flatten().try_for_each(|staging| staging.mend())
}
