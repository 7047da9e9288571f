//! Metadata that every artifact records about its files and its origin.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::dataset::check_lengths;
use crate::document::{self, Document};
use crate::staging::{Mark, Target};
use crate::tried::{TRIED, keep};
use crate::{Checksum, Dataset, Error, Presample, Result, Stamp, bare_key, check};

/// Length and digest of one file of an artifact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRecord {
    /// Length in bytes.
    pub bytes: u64,
    /// Digest of the whole file.
    pub checksum: Checksum,
}

/// The files of an artifact by their path below its directory, with `/` between the parts.
pub type Files = BTreeMap<String, FileRecord>;

/// A raw file that a dataset was converted from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceFile {
    /// Name, relative to the path that the user gave.
    pub path: String,
    /// Length in bytes.
    pub bytes: u64,
    /// Shows whether the file was touched since; `None` if it had changed just before it was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stamp: Option<Stamp>,
    /// Digest of the whole file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<Checksum>,
}

/// Identifies the inputs of a presample, a partition or a placement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MadeFrom {
    /// Name of the dataset, for messages only.
    pub dataset: String,
    /// [`Dataset::topology_checksum`].
    pub topology: Checksum,
    /// Digest of the training split, if it was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train: Option<Checksum>,
    /// Key and digest of the presample, if one was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub presample: Option<(String, Checksum)>,
    /// Key and digest of the partition, if one was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<(String, Checksum)>,
}

/// Checks the name of a derived artifact, which becomes a directory: letters, digits, `-`, `_` and
/// `.`, not first.
pub fn artifact_key(text: &str) -> Result<String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if text.is_empty() || text.starts_with('.') || !text.chars().all(allowed) {
        let expected = "expected letters, digits, `-`, `_` and `.`, not starting with `.`";
        return Err(Error::Invalid(format!("`{text}` cannot name an artifact: {expected}")));
    }
    Ok(text.to_string())
}

/// The document of an artifact that is derived from a dataset: `<KIND>/<key>/<KIND>.json`.
pub(crate) trait Artifact: Document {
    /// `presample`, `partition` or `placement`.
    const KIND: &'static str;
    /// Its document.
    const FILE: &'static str;
    /// The subcommand that makes it.
    const COMMAND: &'static str;
    /// The options that it was made with.
    type Config: PartialEq + Serialize;
    /// The options that it was made with.
    fn config(&self) -> &Self::Config;
    /// The artifacts that it was made from.
    fn made_from(&self) -> &MadeFrom;
    /// Its files besides the document.
    fn files(&self) -> &Files;
}

/// Makes `$meta` the document of the artifacts `$stored`, which are made with options `$config`, in
/// folders `$kind/<key>/`, and gives these what all artifacts have.
macro_rules! artifact {
    ($meta:ident, $stored:ident, $config:ident, $kind:literal, $command:literal) => {
        impl $crate::document::Document for $meta {
            const FORMAT: &'static str = concat!("gsplit-", $kind);
            const VERSION: u32 = 1;
        }

        impl $crate::artifact::Artifact for $meta {
            const KIND: &'static str = $kind;
            const FILE: &'static str = concat!($kind, ".json");
            const COMMAND: &'static str = $command;
            type Config = $config;

            fn config(&self) -> &$config {
                &self.config
            }

            fn made_from(&self) -> &$crate::MadeFrom {
                &self.made_from
            }

            fn files(&self) -> &$crate::Files {
                &self.files
            }
        }

        impl $stored {
            #[doc = concat!("Folder of the ", $kind, " `key` of `dataset`.")]
            pub fn folder(dataset: &$crate::Dataset, key: &str) -> std::path::PathBuf {
                $crate::artifact::folder::<$meta>(dataset, key)
            }

            #[doc = concat!("Target for writing the ", $kind, " `key` of `dataset`.")]
            pub fn target(dataset: &$crate::Dataset, key: &str) -> $crate::staging::Target {
                $crate::artifact::target::<$meta>(dataset, key)
            }

            #[doc = concat!("The ", $kind, " `key` of `dataset` if it was made from `made_from`")]
            /// with `config`. If there is none, one in the cache that was becomes it.
            ///
            /// # Errors
            /// [`Error::Differs`](crate::Error::Differs) or [`Error::Exists`](crate::Error::Exists)
            /// if it was made otherwise.
            pub fn reusable(
                dataset: &$crate::Dataset,
                key: &str,
                config: &$config,
                made_from: &$crate::MadeFrom,
            ) -> $crate::Result<Option<Self>> {
                match $crate::artifact::is_reusable::<$meta>(dataset, key, config, made_from)? {
                    true => Self::open(dataset, key).map(Some),
                    false => Ok(None),
                }
            }

            /// Its key.
            pub fn key(&self) -> &str {
                &self.key
            }

            #[doc = concat!("Content of `", $kind, ".json`.")]
            pub fn meta(&self) -> &$meta {
                &self.meta
            }

            #[doc = concat!("Digest of `", $kind, ".json`, and through it of all files.")]
            pub fn checksum(&self) -> &$crate::Checksum {
                &self.checksum
            }
        }
    };
}
pub(crate) use artifact;

/// Folder of the artifact `key` of `dataset`.
pub(crate) fn folder<T: Artifact>(dataset: &Dataset, key: &str) -> PathBuf {
    match bare_key(key) {
        bare if bare == key => dataset.path().join(T::KIND).join(key),
        bare => dataset.path().join(TRIED).join(T::KIND).join(bare),
    }
}

/// Target for writing the artifact `key` of `dataset`.
pub(crate) fn target<T: Artifact>(dataset: &Dataset, key: &str) -> Target {
    Target::within(dataset, folder::<T>(dataset, key), Mark::document::<T>(T::FILE))
}

/// Reads the document of the artifact `key` and checks that it belongs to `dataset` and that its
/// files have their lengths. If it does not exist, the error names the existing ones.
pub(crate) fn open<T: Artifact>(dataset: &Dataset, key: &str) -> Result<(T, Checksum)> {
    let folder = folder::<T>(dataset, key);
    let path = folder.join(T::FILE);
    if !path.exists() {
        let (kind, command, keys) = (T::KIND, T::COMMAND, dataset.keys(T::KIND)?);
        let remedy = match keys.is_empty() {
            _ if bare_key(key) != key => {
                "it is no longer in the cache: run the plan or comparison again".to_string()
            }
            true => format!("run `gsplit {command}` first"),
            false => format!("there are {}; or run `gsplit {command}`", keys.join(", ")),
        };
        return Err(dataset.missing(format!("{kind} `{key}`"), remedy));
    }
    let (content, checksum) = document::read::<T>(&path)?;
    content.made_from().check(&folder, dataset)?;
    check_lengths(&folder, content.files())?;
    for (name, record) in content.files().iter().filter(|_| dataset.is_checked()) {
        check::opened(&folder, name, record)?;
    }
    Ok((content, checksum))
}

/// Whether the artifact `key` of `dataset` was made from `made_from` with `config`, or one in the
/// cache was, which becomes it.
pub(crate) fn is_reusable<T: Artifact>(
    dataset: &Dataset,
    key: &str,
    config: &T::Config,
    made_from: &MadeFrom,
) -> Result<bool> {
    let is_same = |found: &T| found.config() == config && found.made_from() == made_from;
    let path = folder::<T>(dataset, key);
    if !path.exists() {
        let is_usable =
            |name: &String| open::<T>(dataset, name).is_ok_and(|(found, _)| is_same(&found));
        let cached = if bare_key(key) == key { dataset.tried(T::KIND)? } else { Vec::new() };
        let Some(name) = cached.into_iter().find(is_usable) else { return Ok(false) };
        return keep::<T>(dataset, &name, key).map(|()| true);
    }
    if !path.join(T::FILE).exists() {
        return Err(Error::Exists(path));
    }
    let (found, _) = open::<T>(dataset, key)?;
    if is_same(&found) {
        return Ok(true);
    }
    let difference = other_option(&json!(found.config()), &json!(config))
        .unwrap_or_else(|| "it was made from another presample or other input".to_string());
    Err(Error::Differs { path, difference })
}

impl MadeFrom {
    /// The identity of `dataset`, with its training split when there is one.
    pub fn dataset(dataset: &Dataset) -> Self {
        Self {
            dataset: dataset.name().to_string(),
            topology: dataset.topology_checksum(),
            train: dataset
                .manifest()
                .files
                .get("splits/train.npy")
                .map(|record| record.checksum.clone()),
            presample: None,
            partition: None,
        }
    }

    /// The identity of `dataset` and of `presample`, if one is used.
    pub fn with(dataset: &Dataset, presample: Option<&Presample>) -> Self {
        let identity =
            |used: &Presample| (bare_key(used.key()).to_string(), used.checksum().clone());
        Self { presample: presample.map(identity), ..Self::dataset(dataset) }
    }

    /// Fails unless the artifact at `path` was made from the graph of `dataset`, and from its
    /// training split if one is recorded.
    pub fn check(&self, path: &Path, dataset: &Dataset) -> Result<()> {
        let now = Self::dataset(dataset);
        let same_train = self.train.is_none() || self.train == now.train;
        if self.topology == now.topology && same_train {
            return Ok(());
        }
        Err(Error::Mismatch {
            path: path.to_path_buf(),
            made_from: self.to_string(),
            used_with: now.to_string(),
        })
    }
}

impl std::fmt::Display for MadeFrom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}` (topology {}", self.dataset, self.topology)?;
        if let Some(train) = &self.train {
            write!(f, ", training split {train}")?;
        }
        f.write_str(")")
    }
}

/// Compares two sets of options, as JSON objects by name, and describes the first difference, e.g.
/// `it was made with --seed 1 and is asked for with --seed 2`.
pub fn other_option(was: &Value, now: &Value) -> Option<String> {
    /// Options by name; the keys of `--schema` are options too.
    fn flat<'a>(options: &'a Value, prefix: &str) -> BTreeMap<String, &'a Value> {
        let all = options.as_object().into_iter().flatten();
        let named = all.flat_map(|(key, value)| match value {
            Value::Object(_) => flat(value, &format!("{key} ")),
            value => BTreeMap::from([(format!("{prefix}{key}"), value)]),
        });
        named.collect()
    }
    let (was, now) = (flat(was, ""), flat(now, ""));
    let key = was.keys().chain(now.keys()).filter(|key| was.get(*key) != now.get(*key)).min()?;
    let words =
        |value: Option<&&Value>| match (key.as_str(), value.map_or(&Value::Null, |value| value)) {
            ("input", Value::String(path)) => format!("from {path}"),
            ("found", Value::String(format)) => format!("from {format}"),
            (option, value) => {
                let mark = if option.starts_with("schema ") { '=' } else { ' ' };
                let option = option.replace('_', "-");
                match value {
                    Value::Null | Value::Bool(false) => format!("without --{option}"),
                    Value::Bool(true) => format!("with --{option}"),
                    Value::String(text) => format!("with --{option}{mark}{text}"),
                    value => format!("with --{option}{mark}{value}"),
                }
            }
        };
    Some(format!("it was made {} and is asked for {}", words(was.get(key)), words(now.get(key))))
}
