//! Cache of the artifacts that `gsplit plan` and `gsplit compare` make to answer: the folder
//! `tried/` of a dataset.
//!
//! ```text
//! tried/presample/<key>/   tried/partition/<key>/   tried/placement/<key>/      as the dataset's own, without `tried/`
//! ```
//!
//! An option that takes an artifact's key also takes `tried/KEY`. No listing shows it, and no
//! default chooses it. Artifacts record others by their bare keys, so that one can become the
//! dataset's own unchanged ([`keep`]).

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use crate::artifact::{self, Artifact};
use crate::staging::{Staging, tree};
use crate::verify::strays;
use crate::{
    Dataset, Error, PartitionMeta, PlacementMeta, PresampleMeta, Result, artifact_key, document,
    entries,
};

/// Name of the folder.
pub(crate) const TRIED: &str = "tried";

/// Name of the artifact `key` of the cache.
pub fn tried(key: &str) -> String {
    format!("{TRIED}/{key}")
}

/// The key of an artifact without `tried/`, if it has that.
pub fn bare_key(key: &str) -> &str {
    key.strip_prefix(TRIED).and_then(|key| key.strip_prefix('/')).unwrap_or(key)
}

/// Checks the name of an artifact to read: a key, or `tried/` and the key of one in the cache.
pub fn stored_key(text: &str) -> Result<String> {
    artifact_key(bare_key(text)).map(|_| text.to_string())
}

/// Result of [`Dataset::clean`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Artifacts that were removed.
    pub removed: Vec<String>,
    /// Bytes of their files.
    pub bytes: u64,
    /// Paths below the dataset of files left in place because gsplit did not make them.
    pub left: Vec<String>,
}

impl Dataset {
    /// Names of the artifacts of `kind` in the cache, sorted, e.g. `tried/KEY`.
    pub fn tried(&self, kind: &str) -> Result<Vec<String>> {
        Ok(self.keys(&tried(kind))?.iter().map(|key| tried(key)).collect())
    }

    /// Number of artifacts in the cache, and bytes of its files.
    pub fn tried_size(&self) -> Result<(usize, u64)> {
        let mut artifacts = 0;
        for kind in [PresampleMeta::KIND, PartitionMeta::KIND, PlacementMeta::KIND] {
            artifacts += self.tried(kind)?.len();
        }
        Ok((artifacts, self.tried_bytes()?))
    }

    fn tried_bytes(&self) -> Result<u64> {
        Ok(tree::list(&self.path().join(TRIED))?.values().map(tree::Found::bytes).sum())
    }

    /// Empties the cache. Files and links that gsplit did not make stay, as does an artifact that
    /// contains one.
    ///
    /// # Errors
    /// [`Error::Busy`] if an artifact is being written, and errors of the file system.
    pub fn clean(&self) -> Result<Cleaned> {
        let before = self.tried_bytes()?;
        let mut removed = self.clean_kind::<PlacementMeta>()?;
        removed.extend(self.clean_kind::<PartitionMeta>()?);
        removed.extend(self.clean_kind::<PresampleMeta>()?);
        let folder = self.path().join(TRIED);
        // This fails if something is left in it.
        let _ = fs::remove_dir(&folder);
        let left = tree::list(&folder)?.into_keys().map(|name| tried(&name)).collect();
        Ok(Cleaned { removed, bytes: before.saturating_sub(self.tried_bytes()?), left })
    }

    fn clean_kind<T: Artifact>(&self) -> Result<Vec<String>> {
        let kind = tried(T::KIND);
        let folder = self.path().join(&kind);
        let Ok(entries) = entries(&folder) else { return Ok(Vec::new()) };
        let found = tree::list(&folder)?
            .into_iter()
            .map(|(name, found)| (format!("{kind}/{name}"), found))
            .collect();
        let strays = strays::find(self.path(), Some(self.manifest()), &found);
        let key_of = |entry: &PathBuf| {
            let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let unfinished = name
                .strip_prefix('.')
                .and_then(|name| name.strip_suffix(".partial"))
                .map(str::to_string);
            unfinished.unwrap_or(name)
        };
        let keys: BTreeSet<String> = entries.iter().map(key_of).collect();
        let mut removed = Vec::new();
        for key in keys.into_iter().filter(|key| artifact_key(key).is_ok()) {
            let target = artifact::target::<T>(self, &tried(&key));
            if strays.iter().any(|stray| stray.path.starts_with(target.path())) {
                continue;
            }
            match Staging::begin(target.clone(), true) {
                Ok(staging) => {
                    let was_there = target.path().is_dir();
                    target.remove()?;
                    drop(staging);
                    removed.extend(was_there.then(|| format!("{kind}/{key}")));
                }
                Err(error @ (Error::Busy { .. } | Error::Io { .. })) => return Err(error),
                // Not made by gsplit.
                Err(_) => {}
            }
        }
        let _ = fs::remove_dir(&folder);
        Ok(removed)
    }
}

/// Makes the artifact `from` of the cache the dataset's own under `key`. Files are linked where the
/// file system can, so both take the space of one.
pub(crate) fn keep<T: Artifact>(dataset: &Dataset, from: &str, key: &str) -> Result<()> {
    let folder = artifact::folder::<T>(dataset, from);
    let (content, _) = document::read::<T>(&folder.join(T::FILE))?;
    let staging = Staging::begin(artifact::target::<T>(dataset, key), false)?;
    for name in content.files().keys().map(String::as_str).chain([T::FILE]) {
        let (from, to) = (folder.join(name), staging.path(name));
        fs::hard_link(&from, &to)
            .or_else(|_| fs::copy(&from, &to).map(drop))
            .map_err(Error::io(&to))?;
    }
    staging.commit().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writer::tests::provenance;
    use crate::{Counters, DatasetWriter, MadeFrom, Presample, PresampleConfig, verify};

    fn config() -> PresampleConfig {
        PresampleConfig {
            fanouts: "2".into(),
            batch_size: 1,
            epochs: 1,
            seed: 0,
            draw_by: None,
            negatives: None,
        }
    }

    fn store(dataset: &Dataset, key: &str) -> Presample {
        let counters =
            Counters { input: vec![1], appear: vec![1], work: vec![0], edge: Vec::new() };
        Presample::save(dataset, key, config(), 1, &counters, false).unwrap()
    }

    #[test]
    fn no_listing_has_what_was_tried_and_it_can_be_kept_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let writer = DatasetWriter::create(&folder.path().join("ds"), false, &[0, 0], &[]).unwrap();
        let dataset = writer.finish(provenance()).unwrap();
        assert_eq!(
            (dataset.tried_size().unwrap(), dataset.clean().unwrap()),
            ((0, 0), Cleaned::default())
        );
        store(&dataset, "tried/a");
        store(&dataset, "tried/b");
        assert!(dataset.keys("presample").unwrap().is_empty());
        assert_eq!(dataset.tried("presample").unwrap(), ["tried/a", "tried/b"]);
        let reusable = |config: &PresampleConfig| {
            Presample::reusable(&dataset, "mine", config, &MadeFrom::dataset(&dataset)).unwrap()
        };
        assert!(reusable(&PresampleConfig { seed: 1, ..config() }).is_none());
        let kept = reusable(&config()).unwrap();
        assert_eq!(kept.checksum(), Presample::open(&dataset, "tried/a").unwrap().checksum());
        let (artifacts, bytes) = dataset.tried_size().unwrap();
        assert!(artifacts == 2 && bytes > 0);
        let sound = |dataset: &Dataset| {
            verify(dataset.path()).unwrap().iter().all(|found| found.problem.is_none())
        };
        assert!(sound(&dataset));

        // Files of the user's stay, and so does the artifact that contains them.
        let cache = dataset.path().join(TRIED);
        for name in ["notes.txt", "presample/b/notes.txt", "presample/mine/notes.txt"] {
            fs::create_dir_all(cache.join(name).parent().unwrap()).unwrap();
            fs::write(cache.join(name), "mine").unwrap();
        }
        // Left by a writer that was killed.
        fs::create_dir(cache.join("presample/.c.partial")).unwrap();
        fs::write(cache.join("presample/.c.partial/lock"), "").unwrap();
        assert!(!sound(&dataset));
        let cleaned = dataset.clean().unwrap();
        assert!(
            cleaned.bytes > 0
                && cleaned.bytes < bytes
                && cleaned.removed.contains(&"tried/presample/a".into())
        );
        assert!(cleaned.left.contains(&"tried/presample/b/presample.json".into()), "{cleaned:?}");
        assert!(
            cleaned.left.contains(&"tried/notes.txt".into())
                && !cache.join("presample/.c.partial").exists()
        );
        fs::remove_dir_all(cache.join("presample/mine")).unwrap();
        fs::remove_file(cache.join("presample/b/notes.txt")).unwrap();
        fs::remove_file(cache.join("notes.txt")).unwrap();
        assert_eq!(dataset.clean().unwrap().removed, ["tried/presample/b"]);
        assert!(!cache.exists() && sound(&dataset));
        assert_eq!(dataset.keys("presample").unwrap(), ["mine"]);
        let line = Presample::open(&dataset, "tried/a").unwrap_err().to_string();
        assert!(
            line.contains("`tried/a`") && line.contains("run the plan or comparison again"),
            "{line}"
        );
    }
}
