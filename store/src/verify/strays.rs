//! Strays in a dataset: links, and files that no document lists.
//!
//! Ignores unfinished work (`.NAME.partial` next to an artifact, which the next run resumes or
//! removes) and hidden files at the top, except links, which are reported everywhere.

use std::collections::BTreeMap;
use std::path::Path;

use super::Finding;
use crate::artifact::Artifact;
use crate::check;
use crate::document;
use crate::staging::tree::Found;
use crate::{DatasetManifest, Files, PartitionMeta, PlacementMeta, PresampleMeta, bare_key};

/// Returns a finding for every entry of `found`, the content of the dataset at `path`, that does
/// not belong to the dataset.
pub(crate) fn find(
    path: &Path,
    manifest: Option<&DatasetManifest>,
    found: &BTreeMap<String, Found>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    // The names of an artifact are adjacent.
    let mut last: Option<(&str, Option<Listed>)> = None;
    for (name, kind) in found {
        let problem = match kind {
            Found::Link => Some(
                "is a link, which datasets must not contain: replace it by its target, or \
                      remove it"
                    .into(),
            ),
            Found::Other => Some("is not a plain file: remove it".into()),
            Found::File(_) => {
                let folder = artifact_of(name).unwrap_or_default();
                if last.as_ref().is_none_or(|(of, _)| *of != folder) {
                    last = Some((folder, listed(path, folder, manifest)));
                }
                let within = name[folder.len()..].trim_start_matches('/');
                let is_hidden = name.starts_with('.') && !name.contains('/');
                let is_note = within.rsplit('/').next() == Some(check::NOTE);
                let listed = last
                    .as_ref()
                    .and_then(|(_, listed)| listed.as_ref())
                    .filter(|_| !is_hidden && !is_note);
                let listed = listed
                    .filter(|(files, document)| within != *document && !files.contains_key(within));
                listed.map(|(_, document)| {
                    format!(
                        "is not part of the dataset, {document} does not list it: move it \
                             elsewhere"
                    )
                })
            }
        };
        findings.extend(
            problem.map(|problem| Finding { path: path.join(name), problem: Some(problem) }),
        );
    }
    findings
}

/// `kind/key`, or `tried/kind/key`, of a file that belongs to an artifact derived from the dataset.
fn artifact_of(name: &str) -> Option<&str> {
    let bare = bare_key(name);
    let kind = bare.split('/').next()?;
    let is_derived =
        [PresampleMeta::KIND, PartitionMeta::KIND, PlacementMeta::KIND].contains(&kind);
    let slash = bare.match_indices('/').nth(1).filter(|_| is_derived)?.0;
    Some(&name[..name.len() - bare.len() + slash])
}

/// The files of an artifact, or of the dataset itself, and the document that lists them.
type Listed = (Files, &'static str);

/// The files of the artifact in `folder`; `None` if they are not known: it is unfinished, or its
/// document is damaged, which is a finding already.
fn listed(path: &Path, folder: &str, manifest: Option<&DatasetManifest>) -> Option<Listed> {
    let Some((kind, key)) = bare_key(folder).split_once('/') else {
        return manifest.map(|manifest| (manifest.files.clone(), "dataset.json"));
    };
    let path = path.join(folder);
    match kind {
        _ if key.starts_with('.') && key.ends_with(".partial") => None,
        PresampleMeta::KIND => listed_by::<PresampleMeta>(&path),
        PartitionMeta::KIND => listed_by::<PartitionMeta>(&path),
        _ => listed_by::<PlacementMeta>(&path),
    }
}

fn listed_by<T: Artifact>(folder: &Path) -> Option<Listed> {
    document::read::<T>(&folder.join(T::FILE)).ok().map(|(meta, _)| (meta.files().clone(), T::FILE))
}
