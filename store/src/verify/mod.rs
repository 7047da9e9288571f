//! Verifies that a dataset directory is unchanged since it was written.

use std::path::{Path, PathBuf};

use rayon::prelude::*;

use crate::dataset::manifest_of;
use crate::staging::tree;
use crate::{
    Dataset, DatasetManifest, Error, Files, PartitionMap, PartitionMeta, Placement, PlacementMeta, Presample,
    PresampleMeta, Result, check, checksum_file, document, tried,
};
use nodes::{check_features, check_labels, check_original_ids, check_original_names, check_splits, described_files};

mod nodes;
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

/// Checks every file's checksum and the invariants of every artifact of the dataset at `path`: `indptr` and sorted indices
/// in range, splits distinct and disjoint, links between vertices, labels below the number of classes, one feature row per
/// vertex, one row of every column per vertex or edge, original ids distinct, no link, no file that no document lists,
/// `Σedge = Σwork` of the presamples, each partition's map against its report, each placement's slots against its table; a
/// shard must hold the rows of its parts' vertices and otherwise equal the whole dataset. Fails only if there is no dataset.
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
    let Some(dataset) = report.take(path, Dataset::open_unchecked(path)) else { return Ok(report.findings) };
    report.check_dataset(&dataset);
    // Check the artifacts of the dataset, and the ones in the cache.
    for named in [str::to_string, tried] {
        for key in dataset.folders(&named("presample"))? {
            report.check_presample(&dataset, &named(&key));
        }
        for key in dataset.folders(&named("partition"))? {
            report.check_partition(&dataset, &named(&key));
        }
        for key in dataset.folders(&named("placement"))? {
            report.check_placement(&dataset, &named(&key));
        }
    }
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
            Err(Error::Corrupt { path, problem }) => (None, Some(format!("{}: {problem}", path.display()))),
            Err(error) => (None, Some(error.to_string())),
        };
        self.findings.push(Finding { path: path.to_path_buf(), problem });
        value
    }

    /// Checks every byte, and notes which files are sound.
    fn check_files(&mut self, folder: &Path, files: &Files) {
        let files: Vec<_> = files.iter().collect();
        let found: Vec<_> =
            files.par_iter().map(|(name, record)| check::examine(&folder.join(name), record, checksum_file)).collect();
        let mut noted = Vec::new();
        for ((name, record), found) in files.into_iter().zip(found) {
            let stamp = self.take(&folder.join(name), found).flatten();
            noted.push((name.clone(), record.checksum.clone(), stamp));
        }
        check::note(folder, noted);
    }

    fn check_dataset(&mut self, dataset: &Dataset) {
        let path = dataset.path();
        self.take(&path.join("topology"), dataset.topology().check_indices());
        let manifest = dataset.manifest();
        if let Some(features) = &manifest.features {
            self.take(&path.join("nodes/feat.arrow"), check_features(dataset, features));
        }
        if manifest.num_classes.is_some() || manifest.numeric_label {
            self.take(&path.join("nodes/label.npy"), check_labels(dataset));
        }
        for name in manifest.columns.keys() {
            self.take(&path.join("nodes").join(name).with_extension("npy"), dataset.node_column(name));
        }
        for name in manifest.edge_columns.keys() {
            self.take(&path.join("edges").join(name).with_extension("npy"), dataset.edge_column(name));
        }
        if manifest.string_ids {
            self.take(&path.join("nodes/original_id.arrow"), check_original_names(dataset));
        } else if manifest.files.contains_key("nodes/original_id.npy") {
            self.take(&path.join("nodes/original_id.npy"), check_original_ids(dataset));
        }
        self.take(&path.join("splits"), check_splits(dataset));
        if dataset.manifest().links.is_some() {
            self.take(&path.join("links"), dataset.links());
        }
        if let Some(shard) = dataset.shard() {
            self.take(&path.join("dataset.json"), dataset.check_shard(shard));
        }
        self.check_undescribed(dataset);
    }

    /// Finds files that the manifest lists without describing them.
    fn check_undescribed(&mut self, dataset: &Dataset) {
        let described = described_files(dataset.manifest());
        for name in dataset.manifest().files.keys().filter(|name| !described.contains(*name)) {
            let problem = "is listed in the manifest, which does not say what it is".to_string();
            self.findings.push(Finding { path: dataset.path().join(name), problem: Some(problem) });
        }
    }

    fn check_presample(&mut self, dataset: &Dataset, key: &str) {
        let folder = Presample::folder(dataset, key);
        let meta = document::read::<PresampleMeta>(&folder.join("presample.json"));
        let Some((meta, _)) = self.take(&folder.join("presample.json"), meta) else { return };
        self.check_files(&folder, &meta.files);
        let sums = Presample::open(dataset, key).and_then(|presample| {
            let sum = |counter: &[u32]| counter.iter().map(|&count| u64::from(count)).sum::<u64>();
            let (edge, work) = (sum(presample.edge()), sum(presample.work()));
            match edge == work {
                true => Ok(()),
                false => {
                    Err(Error::corrupt(&folder, format!("sampled edges {edge}, work {work}: expected equal sums")))
                }
            }
        });
        self.take(&folder, sums);
    }

    fn check_partition(&mut self, dataset: &Dataset, key: &str) {
        let folder = PartitionMap::folder(dataset, key);
        let meta = document::read::<PartitionMeta>(&folder.join("partition.json"));
        let Some((meta, _)) = self.take(&folder.join("partition.json"), meta) else { return };
        self.check_files(&folder, &meta.files);
        let order = PartitionMap::open(dataset, key).and_then(|map| map.check_cache_order());
        self.take(&folder, order);
    }

    fn check_placement(&mut self, dataset: &Dataset, key: &str) {
        let folder = Placement::folder(dataset, key);
        let meta = document::read::<PlacementMeta>(&folder.join("placement.json"));
        let Some((meta, _)) = self.take(&folder.join("placement.json"), meta) else { return };
        self.check_files(&folder, &meta.files);
        self.take(&folder, Placement::open(dataset, key));
    }
}
