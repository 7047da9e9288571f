//! OGB's CSV layout: tables without a header line, one edge or vertex per row.

use std::path::{Path, PathBuf};

use gsplit_store::Progress;

use super::{find, find_optional, short_name};
use crate::edges::Piece;
use crate::read::options::Schema;
use crate::read::raw::{Column, Ids, Raw, check_size, describe_column};
use crate::read::text::field::{real, shown};
use crate::read::text::value::integer;
use crate::read::text::{first_line, lines, listed_numbers, name_of, read_pieces, snap};
use crate::{Error, Result};

/// Opens the tables in the folder `raw`.
pub fn open(raw: &Path, wanted: &Schema, progress: &dyn Progress) -> Result<Raw> {
    let [num_nodes, num_edges, edges] =
        ["num-node-list", "num-edge-list", "edge"].map(|stem| find(raw, stem));
    let (num_nodes, num_edges, edges) = (num_nodes?, num_edges?, edges?);
    let num_vertices = count(&num_nodes, u32::MAX.into(), progress)?;
    let promised = count(&num_edges, u64::MAX, progress)?;
    check_size(&num_nodes, num_vertices as usize, promised)?;
    let mut files = vec![num_nodes, num_edges, edges.clone()];
    let mut column = |stem, kind| -> Result<Option<Box<dyn Column>>> {
        let Some(path) = find_optional(raw, stem) else { return Ok(None) };
        files.push(path.clone());
        Ok(Some(Box::new(CsvColumn::open(&path, kind, num_vertices)?)))
    };
    let (labels, features) =
        (column("node-label", NumberKind::Labels)?, column("node-feat", NumberKind::Features)?);
    let mut columns: Vec<Box<dyn Column>> = Vec::new();
    let mut values = Vec::new();
    let mut paths = gsplit_store::entries(raw).map_err(Error::io(raw))?;
    paths.sort();
    for path in paths {
        let name = name_of(&path);
        let stem = name.strip_suffix(".gz").unwrap_or(&name).strip_suffix(".csv");
        let short = |kind| stem.and_then(|stem| short_name(stem, kind));
        match (short("node"), short("edge")) {
            (Some("feat" | "label"), _) => continue,
            (Some(name), _) => {
                let column = CsvColumn::open(&path, NumberKind::Column, num_vertices)?;
                columns.push(Box::new(column.named(name)));
            }
            (_, Some(name)) if wanted.keeps(name) => values.push((name.into(), path.clone())),
            _ => continue,
        }
        files.push(path);
    }
    let edges = snap::open_counted(&edges, promised, &values)?;
    let ids = Ids::Dense(Some(num_vertices));
    Ok(Raw { features, labels, columns, ..Raw::of(edges, ids, files) })
}

/// The only count in a table of counts, which has one row per graph.
pub fn count(path: &Path, at_most: u64, progress: &dyn Progress) -> Result<u64> {
    /// Maximum number of counts that are read to say that there are several.
    const MANY: u64 = 1 << 20;
    match listed_numbers(path, MANY, progress)?[..] {
        [count] if count <= at_most => Ok(count),
        [_, _, ..] => Err(Error::input(
            path,
            "counts of several graphs (OGB's ogbg-*): gsplit reads one graph",
        )),
        ref other => Err(Error::input(
            path,
            format!("found {other:?}: expected the count of one graph, up to {at_most}"),
        )),
    }
}

/// Kind of numbers in a table of vertices.
#[derive(Clone, Copy, PartialEq)]
pub enum NumberKind {
    /// Empty lines are skipped.
    Features,
    /// Empty lines are vertices without a label.
    Labels,
    /// Whole numbers, in every line.
    Column,
}

/// A table of vertices: numbers separated by commas, equally many in every line.
pub struct CsvColumn {
    path: PathBuf,
    name: String,
    kind: NumberKind,
    width: usize,
    num_vertices: u64,
}

impl CsvColumn {
    /// Determines the width from the first line.
    pub fn open(path: &Path, kind: NumberKind, num_vertices: u64) -> Result<Self> {
        let first = first_line(path)?;
        if kind == NumberKind::Features
            && first.as_deref().is_none_or(|line| line.trim_ascii().is_empty())
        {
            return Err(Error::line(path, 1, "expected a row of features, found nothing"));
        }
        let width = first.map_or(1, |line| line.split(|&byte| byte == b',').count());
        let name = if kind == NumberKind::Features { "feature rows" } else { "labels" }.into();
        Ok(Self { path: path.to_path_buf(), name, kind, width, num_vertices })
    }

    /// The column under this name.
    pub fn named(self, name: &str) -> Self {
        Self { name: name.into(), ..self }
    }

    fn parse_row(&self, text: &[u8], bytes: &mut Vec<u8>) -> Result<(), String> {
        let mut found = 0;
        for field in text.split(|&byte| byte == b',') {
            found += 1;
            let field = field.trim_ascii();
            match self.kind {
                NumberKind::Features => {
                    let value: f32 = real(field)
                        .ok_or_else(|| format!("expected a number, found {}", shown(field)))?;
                    bytes.extend_from_slice(&value.to_le_bytes());
                }
                NumberKind::Column => {
                    let value = integer(field)
                        .ok_or_else(|| format!("{}: expected a whole number", shown(field)))?;
                    bytes.extend_from_slice(&value.to_le_bytes());
                }
                NumberKind::Labels => {
                    let unquoted =
                        field.strip_prefix(b"\"").and_then(|field| field.strip_suffix(b"\""));
                    let field = unquoted.unwrap_or(field);
                    let value: Option<f64> =
                        if field.is_empty() { Some(f64::NAN) } else { real(field) };
                    let value = value.ok_or_else(|| {
                        format!(
                            "label {}: expected a class number from 0, or NaN or nothing for \
                             unlabelled",
                            shown(field)
                        )
                    })?;
                    bytes.extend_from_slice(&value.to_le_bytes());
                }
            }
        }
        match found == self.width {
            true => Ok(()),
            false => {
                let what = if self.kind == NumberKind::Features { "features" } else { &self.name };
                Err(format!("expected {} {what} as in the first row, found {found}", self.width))
            }
        }
    }
}

impl Column for CsvColumn {
    describe_column!(self:
        &self.path,
        &self.name,
        match self.kind {
            NumberKind::Features => "<f4",
            NumberKind::Labels => "<f8",
            NumberKind::Column => "<i8",
        },
        self.width,
        None
    );

    fn read(
        &self,
        progress: &dyn Progress,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut found = 0u64;
        let parse = |piece: &Piece| {
            let (mut bytes, mut rows) = (Vec::new(), Vec::new());
            for (line, text) in lines(piece) {
                let text = text.trim_ascii();
                if text.is_empty() && self.kind == NumberKind::Features {
                    continue;
                }
                self.parse_row(text, &mut bytes)
                    .map_err(|problem| Error::line(&self.path, line, problem))?;
                rows.push(line);
            }
            Ok((bytes, rows))
        };
        read_pieces(&self.path, progress, parse, |(bytes, rows)| {
            if let Some(&line) =
                rows.get((self.num_vertices - found).try_into().unwrap_or(usize::MAX))
            {
                let (name, n) = (self.name(), self.num_vertices);
                return Err(Error::line(
                    &self.path,
                    line,
                    format!("more {name} than the {n} vertices that the counts promise"),
                ));
            }
            found += rows.len() as u64;
            take(&bytes)
        })?;
        match found == self.num_vertices {
            true => Ok(()),
            false => Err(Error::input(
                &self.path,
                format!(
                    "{found} {} for the {} vertices that the counts promise: the file is truncated \
                     or damaged, download it again",
                    self.name(),
                    self.num_vertices
                ),
            )),
        }
    }

    fn error(&self, row: u64, _column: usize, problem: &str) -> Error {
        // Each line is a row, except empty lines in between.
        Error::line(&self.path, row + 1, problem)
    }
}
