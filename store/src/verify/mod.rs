//! Verifies that a dataset directory is unchanged since it was written.

use std::path::{Path, PathBuf};

use rayon::prelude::*;

use crate::artifact::{self, Artifact};
use crate::dataset::manifest_of;
use crate::staging::tree;
use crate::{
    Dataset, DatasetManifest, Error, Files, GraphTypes, Names, PartitionMap, PartitionMeta,
    Placement, PlacementMeta, Presample, PresampleMeta, Result, Split, check, checksum_file,
    document, tried,
};

pub(crate) mod strays;
#[cfg(test)]
mod tests;

/// Result of one check of `verify`.
#[derive(Debug)]
pub struct Finding {
    /// The file or artifact.
    pub path: PathBuf,
    /// `None` if it is sound, otherwise the problem.
    pub problem: Option<String>,
}

/// Checks every file's checksum, the shape of every part of the dataset at `path`, and what parts
/// promise of each other: `indptr` and sorted indices in range, splits distinct and disjoint, links
/// between vertices, one feature row and label per vertex, one row of every column per vertex or
/// edge, no link, no file that no document lists, each partition's map against its report, each
/// placement's slots against its table. Fails only if there is no dataset.
///
/// Memory: 16 bytes per vertex.
pub fn verify(path: &Path) -> Result<Vec<Finding>> {
    let mut report = Report { findings: Vec::new() };
    let document = manifest_of(path)?;
    let manifest = document::read::<DatasetManifest>(&document);
    let manifest = report.take(&document, manifest.map(|(manifest, _)| manifest));
    if let Some(manifest) = &manifest {
        report.check_files(path, &manifest.files);
    }
    if let Some(found) = report.take(path, tree::list(path)) {
        report.findings.extend(strays::find(path, manifest.as_ref(), &found));
    }
    let Some(dataset) = report.take(path, Dataset::open_unchecked(path)) else {
        return Ok(report.findings);
    };
    report.check_dataset(&dataset);
    report.check_artifacts::<PresampleMeta>(&dataset, |key| {
        Presample::open(&dataset, key).map(drop)
    })?;
    report.check_artifacts::<PartitionMeta>(&dataset, |key| {
        PartitionMap::open(&dataset, key)?.check_cache_order()
    })?;
    report.check_artifacts::<PlacementMeta>(&dataset, |key| {
        Placement::open(&dataset, key).map(drop)
    })?;
    Ok(report.findings)
}

struct Report {
    findings: Vec<Finding>,
}

impl Report {
    /// Records success or failure and hands the value on.
    fn take<T>(&mut self, path: &Path, result: Result<T>) -> Option<T> {
        let (value, problem) = match result {
            Ok(value) => (Some(value), None),
            // Leave the remedy out: it is to run `verify`.
            Err(Error::Corrupt { path, problem }) => {
                (None, Some(format!("{}: {problem}", path.display())))
            }
            Err(error) => (None, Some(error.to_string())),
        };
        self.findings.push(Finding { path: path.to_path_buf(), problem });
        value
    }

    /// Checks every byte, and notes which files are sound.
    fn check_files(&mut self, folder: &Path, files: &Files) {
        let files: Vec<_> = files.iter().collect();
        let found: Vec<_> = files
            .par_iter()
            .map(|(name, record)| check::examine(&folder.join(name), record, checksum_file))
            .collect();
        let mut noted = Vec::new();
        for ((name, record), found) in files.into_iter().zip(found) {
            let stamp = self.take(&folder.join(name), found).flatten();
            noted.push((name.clone(), record.checksum.clone(), stamp));
        }
        check::note(folder, noted);
    }

    fn check_dataset(&mut self, dataset: &Dataset) {
        let (path, manifest) = (dataset.path(), dataset.manifest());
        self.take(&path.join("topology"), dataset.topology().check_indices());
        if manifest.features.is_some() {
            self.take(&path.join("nodes/feat.arrow"), dataset.stored_features());
        }
        for (at, of) in manifest.types.iter().flat_map(|types| types.vertices.iter().enumerate()) {
            if of.features.is_some() {
                self.take(&path.join(GraphTypes::feature_file(&of.name)), dataset.features_of(at));
            }
        }
        if manifest.num_classes.is_some() || manifest.numeric_label {
            let labels = match manifest.multi_label {
                true => dataset.stored_multi_labels().map(drop),
                false if manifest.numeric_label => dataset.stored_numeric_labels().map(drop),
                false => dataset.stored_labels().map(drop),
            };
            self.take(&path.join("nodes/label.npy"), labels);
        }
        for name in manifest.columns.keys() {
            self.take(
                &path.join("nodes").join(name).with_extension("npy"),
                dataset.node_column(name),
            );
        }
        for name in manifest.edge_columns.keys() {
            self.take(
                &path.join("edges").join(name).with_extension("npy"),
                dataset.edge_column(name),
            );
        }
        if manifest.string_ids {
            let all = |names: Option<Names>| {
                names.iter().flat_map(Names::iter).try_for_each(|name| name.map(drop))
            };
            self.take(
                &path.join("nodes/original_id.arrow"),
                dataset.original_names().and_then(all),
            );
        } else if manifest.files.contains_key("nodes/original_id.npy") {
            self.take(&path.join("nodes/original_id.npy"), dataset.listed_ids());
        }
        self.take(&path.join("splits"), check_splits(dataset));
        if manifest.links.is_some() {
            self.take(&path.join("links"), dataset.links());
        }
    }

    /// Checks the artifacts of one kind of the dataset, and the ones in the cache.
    fn check_artifacts<T: Artifact>(
        &mut self,
        dataset: &Dataset,
        open: impl Fn(&str) -> Result<()>,
    ) -> Result<()> {
        for named in [str::to_string, tried] {
            for key in dataset.folders(&named(T::KIND))?.iter().map(|key| named(key)) {
                let folder = artifact::folder::<T>(dataset, &key);
                let path = folder.join(T::FILE);
                let Some((meta, _)) = self.take(&path, document::read::<T>(&path)) else {
                    continue;
                };
                self.check_files(&folder, meta.files());
                self.take(&folder, open(&key));
            }
        }
        Ok(())
    }
}

fn check_splits(dataset: &Dataset) -> Result<()> {
    let mut owner: Vec<Option<Split>> = vec![None; dataset.num_vertices()];
    for split in dataset.manifest().splits() {
        let vertices = dataset.split(split)?;
        for &v in vertices.iter() {
            if let Some(other) = owner[v as usize].replace(split) {
                let problem = format!("vertex {v} is in the {} split too", other.name());
                return Err(Error::corrupt(vertices.path(), problem));
            }
        }
    }
    Ok(())
}
