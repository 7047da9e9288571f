//! Sources that a file lists by their original ids, one per line.

use std::collections::HashMap;
use std::path::Path;

use gsplit_store::{Error as StoreError, Kinds, read_text};

use crate::infer::table::OutputIds;
use crate::{Error, Result};

/// Returns the vertices that the file at `path` lists, in its order and without duplicates.
pub fn listed(path: &Path, ids: &OutputIds, kinds: Kinds) -> Result<Vec<u32>> {
    let text = read_text(path).map_err(StoreError::io(path))?;
    let lines = text.lines().map(str::trim).zip(1..).filter(|(id, _)| !id.is_empty());
    let mut first: HashMap<&str, usize> = HashMap::new();
    for (id, line) in lines.clone() {
        first.entry(id).or_insert(line);
    }
    let shown = path.display();
    if first.is_empty() {
        return Err(Error::Option(format!(
            "--sources {shown}: is empty: expected the id of a source on each line"
        )));
    }
    let mut vertices: Vec<(usize, u32)> = Vec::with_capacity(first.len());
    for v in kinds.sources() {
        vertices.extend(first.remove(&*ids.text(v)?).map(|line| (line, v)));
    }
    if let Some((id, line)) = first.into_iter().min_by_key(|(_, line)| *line) {
        let problem = "is not the id of a source in the dataset: leave it out, or convert it with the dataset";
        return Err(Error::Option(format!("--sources {shown}:{line}: `{id}` {problem}")));
    }
    vertices.sort_unstable();
    Ok(vertices.into_iter().map(|(_, v)| v).collect())
}
