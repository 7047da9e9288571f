//! OGB's CSV layout: tables without a header line, one row an edge or a vertex.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gsplit_store::{FeatureWriter, Progress};

use super::field::{self, shown, unsigned};
use super::ogb::{find, find_optional};
use super::splits::{Splits, vertex};
use super::text::{first_line, lines, name_of, read_pieces};
use super::{FeatureShape, Raw, RawFeatures, check_size};
use crate::edges::Piece;
use crate::{Error, Result};

/// The tables of a graph.
pub struct Files {
    num_nodes: PathBuf,
    num_edges: PathBuf,
    edges: PathBuf,
    labels: Option<PathBuf>,
    features: Option<PathBuf>,
}

impl Files {
    /// Finds the tables in the folder `raw`.
    pub fn find(raw: &Path) -> Result<Self> {
        Ok(Self {
            num_nodes: find(raw, "num-node-list")?,
            num_edges: find(raw, "num-edge-list")?,
            edges: find(raw, "edge")?,
            labels: find_optional(raw, "node-label"),
            features: find_optional(raw, "node-feat"),
        })
    }

    /// The tables that are there.
    pub fn all(&self) -> Vec<&Path> {
        let tables = [
            Some(&self.num_nodes),
            Some(&self.num_edges),
            Some(&self.edges),
            self.labels.as_ref(),
            self.features.as_ref(),
        ];
        tables.into_iter().flatten().map(PathBuf::as_path).collect()
    }

    /// Reads everything but the feature rows, the small tables first.
    pub fn read(&self, splits: impl FnOnce(usize) -> Result<Option<Splits>>, progress: &dyn Progress) -> Result<Raw> {
        let num_vertices = count(&self.num_nodes, "vertices", u32::MAX.into(), progress)? as usize;
        let num_edges = count(&self.num_edges, "edges", u64::MAX, progress)?;
        check_size(&self.num_nodes, num_vertices, num_edges)?;
        let labels = self.labels.as_ref().map(|path| read_labels(path, num_vertices, progress)).transpose()?;
        let splits = splits(num_vertices)?;
        let features = self.features.as_ref().map(|path| dim(path)).transpose()?;
        let (sources, targets) = read_edges(&self.edges, num_vertices, progress)?;
        if sources.len() as u64 != num_edges {
            let problem = format!(
                "promises {num_edges} edges, {} has {}: one of them is truncated or damaged, download both again",
                name_of(&self.edges),
                sources.len()
            );
            return Err(Error::line(&self.num_edges, 1, problem));
        }
        let facts = BTreeMap::from([("edges_read".to_string(), num_edges)]);
        Ok(Raw { num_vertices, sources, targets, original_ids: None, labels, splits, features, facts })
    }
}

/// The lines that hold something.
fn rows(piece: &Piece) -> impl Iterator<Item = (u64, &[u8])> {
    lines(piece).map(|(line, text)| (line, text.trim_ascii())).filter(|(_, text)| !text.is_empty())
}

/// The one count in a table of counts, one a graph.
fn count(path: &Path, what: &str, at_most: u64, progress: &dyn Progress) -> Result<u64> {
    let mut counts = Vec::new();
    let parse = |piece: &Piece| -> Result<Vec<u64>> {
        let number = |(line, text): (u64, &[u8])| {
            let number = unsigned(text).filter(|&number| number <= at_most);
            let problem = || format!("expected a number of {what} up to {at_most}, found {}", shown(text));
            number.ok_or_else(|| Error::line(path, line, problem()))
        };
        rows(piece).map(number).collect()
    };
    read_pieces(path, progress, parse, |found| {
        counts.extend(found);
        Ok(())
    })?;
    match counts[..] {
        [only] => Ok(only),
        _ => Err(Error::input(path, format!("expected one graph, found the counts of {}", counts.len()))),
    }
}

fn read_edges(path: &Path, num_vertices: usize, progress: &dyn Progress) -> Result<(Vec<u32>, Vec<u32>)> {
    let parse = |piece: &Piece| {
        let mut edges = (Vec::new(), Vec::new());
        for (line, text) in rows(piece) {
            let mut fields = text.split(|&byte| byte == b',');
            let (Some(source), Some(target), None) = (fields.next(), fields.next(), fields.next()) else {
                return Err(Error::line(path, line, format!("expected two vertex ids, found {}", shown(text))));
            };
            edges.0.push(vertex(path, line, source.trim_ascii(), num_vertices)?);
            edges.1.push(vertex(path, line, target.trim_ascii(), num_vertices)?);
        }
        Ok(edges)
    };
    let (mut sources, mut targets) = (Vec::new(), Vec::new());
    read_pieces(path, progress, parse, |(mut from, mut to)| {
        sources.append(&mut from);
        targets.append(&mut to);
        Ok(())
    })?;
    Ok((sources, targets))
}

/// One label a line. A line with nothing on it is an unlabelled vertex, so empty lines count here.
fn read_labels(path: &Path, num_vertices: usize, progress: &dyn Progress) -> Result<Vec<i32>> {
    let mut labels: Vec<i32> = Vec::new();
    let parse = |piece: &Piece| {
        let label = |(line, text): (u64, &[u8])| {
            let columns = text.split(|&byte| byte == b',').count();
            let label = match columns {
                1 => field::label(text, num_vertices),
                _ => Err(format!("expected one label a line, found {columns}")),
            };
            label.map_err(|problem| Error::line(path, line, problem))
        };
        lines(piece).map(label).collect::<Result<Vec<i32>>>()
    };
    read_pieces(path, progress, parse, |mut found| {
        if labels.len() + found.len() > num_vertices {
            let problem = format!("more labels than the {num_vertices} vertices of num-node-list");
            return Err(Error::line(path, num_vertices as u64 + 1, problem));
        }
        labels.append(&mut found);
        Ok(())
    })?;
    match labels.len() == num_vertices {
        true => Ok(labels),
        false => Err(too_few(path, "labels", labels.len(), num_vertices)),
    }
}

fn too_few(path: &Path, what: &str, found: usize, num_vertices: usize) -> Error {
    let problem = format!(
        "{found} {what} for the {num_vertices} vertices of num-node-list: the file is truncated or damaged, download it again"
    );
    Error::input(path, problem)
}

/// Finds the width of the feature rows in the first one.
fn dim(path: &Path) -> Result<RawFeatures> {
    let first = first_line(path)?.filter(|line| !line.trim_ascii().is_empty());
    let first = first.ok_or_else(|| Error::line(path, 1, "expected a row of features, found nothing"))?;
    let dim = first.split(|&byte| byte == b',').count();
    Ok(RawFeatures { dim, path: path.to_path_buf(), read: write_features })
}

/// Some feature rows and their lines.
#[derive(Default)]
struct Rows {
    values: Vec<f32>,
    lines: Vec<u64>,
}

fn write_features(
    path: &Path,
    shape: &FeatureShape,
    writer: &mut FeatureWriter,
    progress: &dyn Progress,
) -> Result<()> {
    let mut found = 0;
    let parse = |piece: &Piece| {
        let mut parsed = Rows::default();
        for (line, text) in rows(piece) {
            parse_row(text, shape, &mut parsed.values).map_err(|problem| Error::line(path, line, problem))?;
            parsed.lines.push(line);
        }
        Ok(parsed)
    };
    read_pieces(path, progress, parse, |parsed| {
        if let Some(&line) = parsed.lines.get(shape.num_vertices - found) {
            let problem = format!("more feature rows than the {} vertices of num-node-list", shape.num_vertices);
            return Err(Error::line(path, line, problem));
        }
        found += parsed.lines.len();
        Ok(writer.push_rows(&parsed.values)?)
    })?;
    match found == shape.num_vertices {
        true => Ok(()),
        false => Err(too_few(path, "feature rows", found, shape.num_vertices)),
    }
}

fn parse_row(text: &[u8], shape: &FeatureShape, values: &mut Vec<f32>) -> Result<(), String> {
    let start = values.len();
    for field in text.split(|&byte| byte == b',') {
        let field = field.trim_ascii();
        let value = field::real(field).ok_or_else(|| format!("expected a number, found {}", shown(field)))?;
        field::check_feature(value, shape.dtype)?;
        values.push(value);
    }
    let (found, dim) = (values.len() - start, shape.dim);
    if found == dim { Ok(()) } else { Err(format!("expected {dim} features as in the first row, found {found}")) }
}
