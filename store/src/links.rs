//! A split of links that came with the graph, as in OGB's datasets for link prediction.
//!
//! ```text
//! links/{train,valid,test}.npy      u32[m, 2]   pairs (source, target), in the input's order; a pair may come twice
//! links/{valid,test}_negative.npy   u32[k, 2]   pairs that are not links: each pair of the split is ranked among all of them;
//!                                or u32[m, w]   row i: negative targets of the source of pair i, which is ranked among them
//! ```
//! The manifest says which of the two forms the negatives have ([`LinkInfo`]). Pairs of `train` are
//! edges of the graph; pairs of `valid` and `test` need not be.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{ColumnFile, Dataset, Error, NpyWriter, Result, Split};

/// Kind of the negatives of valid and test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkNegatives {
    /// Pairs for all pairs of the split together.
    Pairs,
    /// Targets for each pair of the split.
    Targets,
}

/// The split of links in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkInfo {
    /// Form of the negatives; `None` where the input has none.
    pub negatives: Option<LinkNegatives>,
    /// Metric of the split, as `gsplit train --metric` names it.
    pub metric: String,
}

/// The split of links, mapped.
#[derive(Clone, Debug)]
pub struct Links {
    info: LinkInfo,
    pairs: [ColumnFile; 3],
    /// Negatives of valid and test.
    negatives: Option<[ColumnFile; 2]>,
}

/// The files of a split of links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkFile {
    /// The split that it belongs to.
    pub split: Split,
    /// Whether it holds the negatives.
    pub negative: bool,
}

impl LinkFile {
    /// All files of a split of links with such negatives.
    pub fn all(negatives: Option<LinkNegatives>) -> Vec<Self> {
        let mut files = Split::ALL.map(|split| Self { split, negative: false }).to_vec();
        if negatives.is_some() {
            files.extend([Split::Valid, Split::Test].map(|split| Self { split, negative: true }));
        }
        files
    }

    /// Its path below the dataset.
    pub fn name(self) -> String {
        format!("links/{}{}.npy", self.split.name(), if self.negative { "_negative" } else { "" })
    }
}

impl Links {
    /// The split in short.
    pub fn info(&self) -> &LinkInfo {
        &self.info
    }

    /// The pairs (source, target) of `split`.
    pub fn pairs(&self, split: Split) -> &[[u32; 2]] {
        rows(&self.pairs[split as usize])
    }

    /// The negatives of valid or test, row after row, and the length of a row. `None` for train,
    /// and where there are none.
    pub fn negatives(&self, split: Split) -> Option<(&[u32], usize)> {
        let file = self.negatives.as_ref()?.get((split as usize).checked_sub(1)?)?;
        Some((bytemuck::cast_slice(file.bytes()), file.width()))
    }
}

/// The rows of a file whose type and width were checked.
fn rows(file: &ColumnFile) -> &[[u32; 2]] {
    bytemuck::cast_slice::<u8, u32>(file.bytes()).as_chunks().0
}

impl Dataset {
    /// The split of links, if it has one: every vertex is one of the graph.
    pub fn links(&self) -> Result<Option<Links>> {
        let Some(info) = self.manifest().links.clone() else { return Ok(None) };
        let [train, valid, test] =
            Split::ALL.map(|split| self.link_file(LinkFile { split, negative: false }, Some(2)));
        let pairs = [train?, valid?, test?];
        let width = (info.negatives != Some(LinkNegatives::Targets)).then_some(2);
        let negative = |split| self.link_file(LinkFile { split, negative: true }, width);
        let negatives = info
            .negatives
            .map(|_| Ok::<_, Error>([negative(Split::Valid)?, negative(Split::Test)?]));
        Ok(Some(Links { info, pairs, negatives: negatives.transpose()? }))
    }

    /// A file of the split of links, with rows of `width` vertices, if that is given.
    fn link_file(&self, file: LinkFile, width: Option<usize>) -> Result<ColumnFile> {
        let file = ColumnFile::open(self.part(&file.name(), "split of links", "rebuild it")?)?;
        let n = self.num_vertices();
        let is_there = file.as_slice::<u32>()?.par_iter().all(|&v| (v as usize) < n);
        match is_there && width.is_none_or(|width| file.width() == width) {
            true => Ok(file),
            false => Err(Error::corrupt(
                file.path(),
                format!("expected rows of vertices, with ids below {n}"),
            )),
        }
    }
}

impl crate::DatasetWriter {
    /// Opens a file of the split of links, with rows of `width` vertices; hand the writer back to
    /// [`Self::add_link_file`].
    pub fn link_writer(&self, file: LinkFile, width: usize) -> Result<NpyWriter<u32>> {
        NpyWriter::create_rows(self.place(&file.name())?, width as u64)
    }

    /// Closes a file of the split of links.
    pub fn add_link_file(&mut self, file: LinkFile, writer: NpyWriter<u32>) -> Result<()> {
        let record = writer.finish()?;
        self.record(&file.name(), record);
        Ok(())
    }

    /// Makes the files that were added the dataset's split of links.
    pub fn add_links(&mut self, info: LinkInfo) -> Result<()> {
        for file in LinkFile::all(info.negatives) {
            if !self.has(&file.name()) {
                return Err(Error::Invalid(format!("{} must be added before this", file.name())));
            }
        }
        self.set_links(info);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::writer::tests::provenance;
    use crate::{DatasetWriter, verify};

    fn pushed(writer: &mut DatasetWriter, file: LinkFile, width: usize, vertices: &[u32]) {
        let mut out = writer.link_writer(file, width).unwrap();
        out.push(vertices).unwrap();
        writer.add_link_file(file, out).unwrap();
    }

    /// A ring of four vertices with a split of links whose negatives have rows of `width`.
    fn dataset(path: &Path, negatives: Option<LinkNegatives>, width: usize) -> Dataset {
        let mut writer =
            DatasetWriter::create(path, false, &[0, 1, 2, 3, 4], &[3, 0, 1, 2]).unwrap();
        for file in LinkFile::all(negatives) {
            match file.negative {
                false => pushed(&mut writer, file, 2, &[0, 1, 1, 2]),
                true => pushed(&mut writer, file, width, &[0, 2, 3, 1, 2, 0][..width * 2]),
            }
        }
        writer.add_links(LinkInfo { negatives, metric: "hits@50".into() }).unwrap();
        writer.finish(provenance()).unwrap()
    }

    #[test]
    fn a_split_of_links_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        for (name, negatives, width) in [
            ("none", None, 0),
            ("pairs", Some(LinkNegatives::Pairs), 2),
            ("targets", Some(LinkNegatives::Targets), 3),
        ] {
            let path = folder.path().join(name);
            let found = dataset(&path, negatives, width);
            let links = found.links().unwrap().unwrap();
            assert_eq!(links.info().negatives, negatives);
            assert_eq!(links.pairs(Split::Test), [[0, 1], [1, 2]]);
            assert_eq!(links.negatives(Split::Train), None);
            let expected = (width > 0).then(|| (&[0, 2, 3, 1, 2, 0][..2 * width], width));
            assert_eq!(links.negatives(Split::Valid), expected);
            let problems: Vec<_> =
                verify(&path).unwrap().into_iter().filter_map(|finding| finding.problem).collect();
            assert!(problems.is_empty(), "{problems:?}");
        }
    }

    #[test]
    fn verify_finds_what_is_wrong_with_links() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ds");
        dataset(&path, Some(LinkNegatives::Pairs), 2);
        let file = path.join("links/valid_negative.npy");
        let mut bytes = std::fs::read(&file).unwrap();
        let at = bytes.len() - 4;
        bytes[at] = 200;
        std::fs::write(&file, bytes).unwrap();
        std::fs::write(path.join("links/stray.npy"), "x").unwrap();
        let found: Vec<String> =
            verify(&path).unwrap().into_iter().filter_map(|finding| finding.problem).collect();
        for words in ["with checksum", "with ids below 4", "is not part of the dataset"] {
            assert!(found.iter().any(|problem| problem.contains(words)), "{words}: {found:?}");
        }
    }

    #[test]
    fn a_split_of_links_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer =
            DatasetWriter::create(&folder.path().join("ds"), false, &[0, 1, 2], &[1, 0]).unwrap();
        let file = LinkFile { split: Split::Train, negative: false };
        pushed(&mut writer, file, 2, &[0, 1]);
        let message = writer
            .add_links(LinkInfo { negatives: None, metric: "mrr".into() })
            .unwrap_err()
            .to_string();
        assert!(message.contains("links/valid.npy must be added"), "{message}");
        assert!(writer.link_writer(file, 2).is_err(), "twice");
    }
}
