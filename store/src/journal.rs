//! Journal of a dataset's writer: the finished stages, so that the next run can resume.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::document::{self, Document};
use crate::staging::tree::{self, sync};
use crate::{Checksum, DatasetManifest, Error, Result};

pub(crate) const JOURNAL: &str = "journal.json";

/// Content of `journal.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Journal {
    /// Version of gsplit: another version may compute the stages differently.
    tool_version: String,
    /// Identity of the dataset and its input.
    pub(crate) identity: Value,
    /// Finished stages, in their order.
    pub(crate) stages: Vec<String>,
    /// The manifest so far, with the counts and decisions that were made about the input until the
    /// last stage ended.
    pub(crate) staged: DatasetManifest,
    /// Length of every file of the scratch folder.
    scratch: BTreeMap<String, u64>,
    /// The manifest that is about to become visible, or has become.
    committing: Option<Checksum>,
}

impl Document for Journal {
    const FORMAT: &'static str = "gsplit-journal";
    const VERSION: u32 = 2;
}

impl Journal {
    /// Nothing is finished.
    pub(crate) fn new(identity: Value) -> Self {
        Self {
            tool_version: env!("CARGO_PKG_VERSION").into(),
            identity,
            stages: Vec::new(),
            staged: DatasetManifest::default(),
            scratch: BTreeMap::new(),
            committing: None,
        }
    }

    /// The journal in `root`, if it is sound, has the same `identity`, and everything it records is
    /// in `content` and `scratch` with its recorded length. Removes everything that is not
    /// recorded.
    pub(crate) fn resume(
        root: &Path,
        content: &Path,
        scratch: &Path,
        identity: &Value,
    ) -> Result<Option<Self>> {
        let Ok((mut journal, _)) = document::read::<Self>(&root.join(JOURNAL)) else {
            return Ok(None);
        };
        if !journal.holds(content, scratch, identity) {
            return Ok(None);
        }
        if journal.committing.take().is_some() {
            // Write this before the manifest is removed, so that its absence does not look like a
            // commit.
            journal.write(root)?;
        }
        tree::prune(content, |name| journal.staged.files.contains_key(name))?;
        tree::prune(scratch, |name| journal.scratch.contains_key(name))?;
        Ok(Some(journal))
    }

    fn holds(&self, content: &Path, scratch: &Path, identity: &Value) -> bool {
        let fresh = Self::new(identity.clone());
        let same = (&self.tool_version, &self.identity) == (&fresh.tool_version, &fresh.identity);
        let complete = || {
            let lengths = |folder| tree::lengths(folder).unwrap_or_default();
            let (content, in_scratch) = (lengths(content), lengths(scratch));
            let staged = self
                .staged
                .files
                .iter()
                .all(|(name, record)| content.get(name) == Some(&record.bytes));
            staged && self.scratch.iter().all(|(name, bytes)| in_scratch.get(name) == Some(bytes))
        };
        same && !self.stages.is_empty() && complete() && !self.is_committed(content)
    }

    /// After a commit, `content` is gone, or holds the dataset that was replaced.
    fn is_committed(&self, content: &Path) -> bool {
        self.committing.as_ref().is_some_and(|manifest| {
            let found = document::read::<DatasetManifest>(&content.join("dataset.json"));
            found.map_or(true, |(_, found)| found != *manifest)
        })
    }

    /// The journal in `root`, if it is sound and its dataset has not become visible.
    pub(crate) fn unfinished(root: &Path, content: &Path) -> Option<Self> {
        let (journal, _) = document::read::<Self>(&root.join(JOURNAL)).ok()?;
        (!journal.is_committed(content)).then_some(journal)
    }

    /// Makes everything that is recorded durable, then the journal itself, in one step.
    pub(crate) fn save(&mut self, root: &Path, content: &Path, scratch: &Path) -> Result<()> {
        tree::sync_tree(content)?;
        self.scratch = tree::lengths(scratch)?;
        for name in self.scratch.keys() {
            sync(&scratch.join(name))?;
        }
        if scratch.exists() {
            tree::sync_tree(scratch)?;
        }
        self.write(root)
    }

    /// Notes that the dataset with this manifest becomes visible next.
    pub(crate) fn committing(saved: &Path, manifest: Checksum) -> Result<()> {
        let (mut journal, _) = document::read::<Self>(&saved.join(JOURNAL))?;
        journal.committing = Some(manifest);
        journal.write(saved)
    }

    fn write(&self, root: &Path) -> Result<()> {
        let (path, next) = (root.join(JOURNAL), root.join("journal.json.next"));
        document::write(&next, self)?;
        fs::rename(&next, &path).map_err(Error::io(&path))?;
        sync(root)
    }
}
