//! Several artifacts that become visible as one.
//!
//! The first becomes visible last: once it is, all of them are. Before any is touched, a note in
//! the staging folder of each of the others records how to recognise that one and the first:
//!
//! ```text
//! notes ─▶ older artifacts step aside ─▶ the others appear ─▶ the first appears ─▶ what stepped aside goes
//! ```
//!
//! If a step fails, the previous state is restored at once. If that fails too, or the process is
//! killed, the notes and the older artifacts stay where they are, and [`recover`] restores the
//! state: callers that write the same artifacts call it first. The notes name no path; the caller
//! says where the artifacts are. So a note can harm only files that the user has just named, next
//! to a staging folder of that user's. A single artifact needs no note.

use std::ffi::OsStr;

use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

use super::folder::Identity;
use super::tree::sync_tree;
use super::{CONTENTS, DATASET, REPLACED, Staging, Target, open_folders};
use crate::document::{self, Document};
use crate::journal::Journal;
use crate::{Error, Result, check};

pub(super) const NOTE: &str = "together.json";

/// Name of an artifact that was taken back, until its staging folder is cleared.
const TAKEN: &str = "taken";

/// Content of `together.json`, in the staging folder of each artifact except the first.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Together {
    /// The first artifact. Its appearance is that of all.
    pub first: Identity,
    /// The artifact of this staging folder.
    pub own: Identity,
}

impl Document for Together {
    const FORMAT: &'static str = "gsplit-together";
    const VERSION: u32 = 3;
}

/// Makes all of `stagings` visible as one: after a kill or a fault at any moment, either all are
/// there or [`recover`] restores the state from before. Whoever writes without locks may have been
/// there first: where nothing may be replaced, its artifact stays and all of these are refused.
///
/// Waits for checks of the inputs that are under way, and fails if one of them does.
///
/// # Errors
/// [`Error::Halfway`] where a step fails and the state from before cannot be restored either.
pub fn commit_all(stagings: Vec<Staging>) -> Result<()> {
    check::settled()?;
    stagings.iter().try_for_each(|staging| sync_tree(&staging.file()))?;
    let open = open_folders(); // no interrupt from here on
    let all: Vec<&Staging> = stagings.iter().collect();
    let kept: Vec<bool> = all.iter().map(|staging| staging.folder.keep(true)).collect();
    if let Err(cause) = steps(&stagings).into_iter().try_for_each(|step| step.run(&stagings)) {
        let first = First::of(&all[0].target, Some(all[0]));
        if first.and_then(|first| settle(&all, Some(&first))).is_err() {
            return Err(halfway(cause, &all));
        }
        all.iter().zip(kept).for_each(|(staging, keep)| staging.keep(keep));
        return Err(cause);
    }
    for staging in &all {
        let synced = staging.folder.parent.sync();
        synced.map_err(|cause| Error::NotDurable {
            path: staging.target.path().into(),
            cause: Box::new(cause),
        })?;
    }
    all.iter().for_each(|staging| staging.keep(false));
    drop(open);
    Ok(()) // drop removes the rest, and what was replaced
}

/// Steps of [`commit_all`], one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// The note of this one is written.
    Note(usize),
    /// The artifact in the place of this one steps aside.
    Aside(usize),
    /// This one appears.
    Show(usize),
}

pub(super) fn steps(stagings: &[Staging]) -> Vec<Step> {
    let all = 0..stagings.len();
    match all.len() {
        0 | 1 => all.map(Step::Show).collect(),
        _ => {
            let notes = all.clone().skip(1).map(Step::Note);
            notes.chain(all.clone().map(Step::Aside)).chain(all.rev().map(Step::Show)).collect()
        }
    }
}

impl Step {
    pub(super) fn run(self, stagings: &[Staging]) -> Result<()> {
        match self {
            Self::Note(which) => {
                let hidden = |staging: &Staging| {
                    let missing = || {
                        Error::io(staging.root().join(staging.content))(
                            std::io::ErrorKind::NotFound.into(),
                        )
                    };
                    staging.hidden()?.ok_or_else(missing)
                };
                let note =
                    Together { first: hidden(&stagings[0])?, own: hidden(&stagings[which])? };
                document::write(&stagings[which].root().join(NOTE), &note)?;
                stagings[which].folder.folder.sync()
            }
            Self::Aside(which) => stagings[which].step_aside(),
            Self::Show(which) => stagings[which].appear(),
        }
    }
}

/// Restores the state from before a [`commit_all`] of the artifacts at `targets`, in their order,
/// that was killed or met a fault, and removes what such a run left next to them, except a dataset
/// that can be resumed.
///
/// # Errors
/// [`Error::Busy`] where one is being written, [`Error::Foreign`] where a staging folder is not
/// this user's, [`Error::Halfway`] and [`Error::Unsettled`] where the state cannot be restored:
/// then everything stays.
pub fn recover(targets: &[Target]) -> Result<()> {
    let left = |target: &Target| match target.is_begun()? {
        true => Staging::lock(target.clone(), true, DATASET).map(Some),
        false => Ok(None),
    };
    let stagings = targets.iter().map(left).collect::<Result<Vec<_>>>()?;
    let first = match targets {
        [first, _, ..] => Some(First::of(first, stagings[0].as_ref())?),
        _ => None,
    };
    let stagings: Vec<&Staging> = stagings.iter().flatten().collect();
    settle(&stagings, first.as_ref())?;
    for staging in stagings {
        let root = staging.root();
        staging.keep(Journal::unfinished(root, &root.join(DATASET)).is_some());
    }
    Ok(())
}

/// State of the first of several artifacts.
pub(super) struct First {
    /// At its final path.
    shown: Option<Identity>,
    /// In its staging folder.
    hidden: Vec<Identity>,
}

impl First {
    fn of(target: &Target, staging: Option<&Staging>) -> Result<Self> {
        let hidden = |staging: &Staging| {
            let folder = &staging.folder.folder;
            let found = CONTENTS.iter().map(|content| folder.identity(OsStr::new(content)));
            Ok(found.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
        };
        Ok(Self { shown: target.shown()?, hidden: staging.map_or(Ok(Vec::new()), hidden)? })
    }

    /// Whether the artifact `is` has appeared; `None` if it is neither at its place nor in its
    /// staging folder.
    fn has_appeared(&self, is: &Identity) -> Option<bool> {
        match self.shown.as_ref() == Some(is) {
            true => Some(true),
            false => self.hidden.contains(is).then_some(false),
        }
    }
}

/// Takes back the artifacts of `stagings` that have appeared without the `first`, restores the ones
/// moved aside, and removes replaced ones. If the first of several is not known, artifacts that
/// belong to it stay as they are.
///
/// [`Error::Halfway`] if a system call fails, [`Error::Unsettled`] if both an artifact and its
/// older one exist and nothing shows which should stay. All are tried; artifacts that cannot be
/// settled stay.
pub(super) fn settle(stagings: &[&Staging], first: Option<&First>) -> Result<()> {
    let settled =
        stagings.iter().map(|staging| settle_one(staging, first)).fold(Ok(()), Result::and);
    settled.map_err(|cause| match cause {
        Error::Unsettled { .. } => cause,
        cause => halfway(cause, stagings),
    })
}

fn settle_one(staging: &Staging, first: Option<&First>) -> Result<()> {
    let (folder, parent, name) =
        (&staging.folder.folder, &staging.folder.parent, staging.target.name()?);
    let (replaced, taken, note) = (OsStr::new(REPLACED), OsStr::new(TAKEN), OsStr::new(NOTE));
    let has_note = folder.kind(note)?.is_some();
    let noted = match document::read::<Together>(&folder.path().join(NOTE)) {
        Ok((together, _)) if has_note => Some(together),
        Err(error @ Error::Io { .. }) if has_note => return Err(error),
        // An incomplete note was being written, so nothing had appeared yet.
        _ => None,
    };
    let have_appeared =
        noted.as_ref().zip(first).and_then(|(noted, first)| first.has_appeared(&noted.first));
    if have_appeared == Some(false)
        && staging.shown()? == noted.map(|noted| noted.own)
        && staging.target.check_in(parent, true)?
    {
        folder.remove(taken)?;
        parent.rename(name, folder, taken)?;
    }
    match (folder.kind(replaced)?, parent.kind(name)?) {
        (None, _) => {}
        (Some(FileType::Directory | FileType::RegularFile), None) => {
            folder.rename(replaced, parent, name)?
        }
        (Some(FileType::Directory | FileType::RegularFile), Some(_)) => {
            let is_superseded = match has_note {
                true => have_appeared == Some(true),
                // The artifact has left its staging folder, and there is one step from there.
                false => CONTENTS
                    .iter()
                    .all(|content| matches!(folder.kind(OsStr::new(content)), Ok(None))),
            };
            if !is_superseded {
                return Err(Error::Unsettled {
                    path: staging.target.path().into(),
                    older: staging.aside(),
                });
            }
            folder.remove(replaced)?;
        }
        _ => folder.remove(replaced)?,
    }
    match have_appeared {
        Some(_) => folder.remove(note),
        None => Ok(()),
    }
}

/// The error for `stagings` that neither appear, because of `cause`, nor can be taken back now.
fn halfway(cause: Error, stagings: &[&Staging]) -> Error {
    let older = stagings.iter().map(|staging| staging.aside());
    Error::Halfway {
        cause: Box::new(cause),
        older: older.filter(|older| older.symlink_metadata().is_ok()).collect(),
    }
}
