//! Features as a list per vertex: a JSON object `{"VERTEX": [FEATURE, ...], ...}`, e.g. of MUSAE's graphs (Rozemberczki
//! et al., 2021). Feature f of a vertex is 1 if its list contains f, otherwise 0.
//!
//! The object lists vertices in any order, so it is held: 4 bytes per feature in the lists, 28 per vertex.

use std::collections::HashMap;
use std::fmt;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use gsplit_store::{Progress, Unit, open_file};
use serde::de::{Deserializer, MapAccess, Visitor};
use xxhash_rust::xxh3::xxh3_64;

use crate::edges::{EdgeBatch, EdgeSource, Piece};
use crate::read::raw::Column;
use crate::{Error, Result};

/// Most features.
const MAX_WIDTH: usize = 1 << 24;
/// Bytes of rows made at a time, about.
const BYTES_PER_TAKE: usize = 1 << 18;

/// Rows of zeros and ones.
pub struct MultiHot {
    path: PathBuf,
    lists: FeatureLists,
    /// The list of every row.
    order: Vec<u32>,
    width: usize,
}

/// Contents of the object.
#[derive(Default)]
struct FeatureLists {
    vertices: HashMap<String, u32>,
    /// Ends of the lists among the features.
    ends: Vec<usize>,
    features: Vec<u32>,
}

impl MultiHot {
    /// Reads the object at `path`. The rows are in the order of `ids`, and each must have a list.
    pub fn open(path: &Path, ids: &dyn EdgeSource) -> Result<Self> {
        let file = BufReader::new(open_file(path).map_err(Error::io(path))?);
        let mut json = serde_json::Deserializer::from_reader(file);
        let mut lists = json
            .deserialize_map(ListsVisitor)
            .and_then(|lists| json.end().map(|()| lists))
            .map_err(|error| Error::input(path, format!("expected {{\"VERTEX\": [FEATURE, ...], ...}}: {error}")))?;
        let width = lists.features.iter().max().map_or(0, |&largest| largest as usize + 1);
        if !(1..=MAX_WIDTH).contains(&width) {
            return Err(Error::input(
                path,
                format!("{width} features: expected numbers of features below {MAX_WIDTH}"),
            ));
        }
        let strings = ids.has_string_ids();
        let mut places: HashMap<u64, u32> = HashMap::new();
        for (vertex, list) in lists.vertices.drain() {
            let id = if strings { Some(xxh3_64(vertex.as_bytes())) } else { vertex.parse().ok() };
            let wrong = || format!("vertex \"{}\": expected an id, as those of the edges", vertex.escape_debug());
            places.insert(id.ok_or_else(|| Error::input(path, wrong()))?, list);
        }
        let (mut piece, mut batch, mut order) = (Piece::default(), EdgeBatch::default(), Vec::new());
        ids.rewind()?;
        while ids.next(&mut piece)? {
            batch.clear();
            ids.parse(&mut piece, &mut batch)?;
            for id in &batch.sources {
                let name =
                    batch.names.iter().find(|(hash, _)| hash == id).map_or(id.to_string(), |(_, name)| name.clone());
                let missing = || Error::input(path, format!("has no list of vertex {name}: expected one for each"));
                order.push(*places.get(id).ok_or_else(missing)?);
            }
        }
        ids.rewind()?;
        Ok(Self { path: path.to_path_buf(), lists, order, width })
    }
}

struct ListsVisitor;

impl<'de> Visitor<'de> for ListsVisitor {
    type Value = FeatureLists;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of lists of numbers")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FeatureLists, A::Error> {
        let mut lists = FeatureLists::default();
        while let Some((vertex, features)) = map.next_entry::<String, Vec<u32>>()? {
            let list = lists.ends.len() as u32;
            lists.features.extend(features);
            lists.ends.push(lists.features.len());
            if let Some(twice) = lists.vertices.insert(vertex, list) {
                let problem = format!("lists {twice} and {list} are of one vertex");
                return Err(serde::de::Error::custom(problem));
            }
        }
        Ok(lists)
    }
}

impl Column for MultiHot {
    fn path(&self) -> &Path {
        &self.path
    }

    fn name(&self) -> &str {
        "features"
    }

    fn descr(&self) -> &'static str {
        "<f4"
    }

    fn width(&self) -> usize {
        self.width
    }

    fn num_rows(&self) -> Option<u64> {
        Some(self.order.len() as u64)
    }

    fn read(&self, progress: &dyn Progress, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let stage = progress.stage("reading features", self.num_rows(), Unit::Items("rows"));
        let mut rows: Vec<f32> = Vec::new();
        for lists in self.order.chunks((BYTES_PER_TAKE / (4 * self.width)).max(1)) {
            rows.clear();
            rows.resize(lists.len() * self.width, 0.0);
            for (&list, row) in lists.iter().zip(rows.chunks_exact_mut(self.width)) {
                let list = list as usize;
                let start = list.checked_sub(1).map_or(0, |before| self.lists.ends[before]);
                self.lists.features[start..self.lists.ends[list]]
                    .iter()
                    .for_each(|&feature| row[feature as usize] = 1.0);
            }
            stage.advance(lists.len() as u64);
            take(bytemuck::cast_slice(&rows))?;
        }
        Ok(())
    }
}
