//! Strays in a dataset: links, and files that no document lists.
//!
//! Ignores unfinished work (`.NAME.partial` next to an artifact, which the next run resumes or removes) and hidden
//! files at the top, except links, which are reported everywhere.

use std::collections::BTreeMap;
use std::path::Path;

use super::Finding;
use crate::artifact::Artifact;
use crate::check;
use crate::document;
use crate::staging::tree::Found;
use crate::{DatasetManifest, Files, PartitionMeta, PlacementMeta, PresampleMeta, bare_key};

/// Returns a finding for every entry of `found`, the content of the dataset at `path`, that does not belong to the dataset.
pub(crate) fn find(path: &Path, manifest: Option<&DatasetManifest>, found: &BTreeMap<String, Found>) -> Vec<Finding> {
    let mut findings = Vec::new();
    // The names of an artifact are adjacent.
    let mut last: Option<(&str, Listed)> = None;
    for (name, kind) in found {
        let problem = match kind {
            Found::Link => {
                Some("is a link, which datasets must not contain: replace it by its target, or remove it".into())
            }
            Found::Other => Some("is not a plain file: remove it".into()),
            Found::File(_) => {
                let folder = artifact_of(name).unwrap_or_default();
                if last.as_ref().is_none_or(|(of, _)| *of != folder) {
                    last = Some((folder, Listed::read(path, folder, manifest)));
                }
                last.as_ref().and_then(|(_, listed)| listed.problem(name))
            }
        };
        findings.extend(problem.map(|problem| Finding { path: path.join(name), problem: Some(problem) }));
    }
    findings
}

/// `kind/key`, or `tried/kind/key`, of a file that belongs to an artifact derived from the dataset.
fn artifact_of(name: &str) -> Option<&str> {
    let bare = bare_key(name);
    let kind = bare.split('/').next()?;
    let is_derived = [PresampleMeta::KIND, PartitionMeta::KIND, PlacementMeta::KIND].contains(&kind);
    let slash = bare.match_indices('/').nth(1).filter(|_| is_derived)?.0;
    Some(&name[..name.len() - bare.len() + slash])
}

/// The files that an artifact, or the dataset itself, has.
enum Listed {
    /// Its document, and the files that it lists.
    Names(Vec<String>, &'static str),
    /// It is not known: unfinished, or its document is damaged, which is a finding already.
    Unknown,
}

impl Listed {
    fn read(path: &Path, folder: &str, manifest: Option<&DatasetManifest>) -> Self {
        let Some((kind, key)) = bare_key(folder).split_once('/') else {
            return match manifest {
                Some(manifest) => Self::new("", &manifest.files, "dataset.json"),
                None => Self::Unknown,
            };
        };
        if key.starts_with('.') && key.ends_with(".partial") {
            return Self::Unknown;
        }
        match kind {
            PresampleMeta::KIND => Self::of::<PresampleMeta>(path, folder),
            PartitionMeta::KIND => Self::of::<PartitionMeta>(path, folder),
            _ => Self::of::<PlacementMeta>(path, folder),
        }
    }

    fn of<T: Artifact>(path: &Path, folder: &str) -> Self {
        match document::read::<T>(&path.join(folder).join(T::FILE)) {
            Ok((meta, _)) => Self::new(&format!("{folder}/"), meta.files(), T::FILE),
            Err(_) => Self::Unknown,
        }
    }

    fn new(folder: &str, files: &Files, document: &'static str) -> Self {
        let names = files.keys().map(String::as_str).chain([document]);
        Self::Names(names.map(|name| format!("{folder}{name}")).collect(), document)
    }

    /// The problem with a file `name`, if there is one.
    fn problem(&self, name: &str) -> Option<String> {
        let Self::Names(names, document) = self else { return None };
        let is_hidden = name.starts_with('.') && !name.contains('/');
        let is_note = name.rsplit('/').next() == Some(check::NOTE);
        if is_hidden || is_note || names.iter().any(|listed| listed == name) {
            return None;
        }
        Some(format!("is not part of the dataset, {document} does not list it: move it elsewhere"))
    }
}
