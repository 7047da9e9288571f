//! Part of the second stage: the split of links, where the input has one.

use gsplit_store::DatasetWriter;

use crate::csc::IdMap;
use crate::read::raw::Raw;
use crate::{Error, Result};

/// Writes the split, with ids replaced by vertices.
pub fn write(raw: &Raw, writer: &mut DatasetWriter) -> Result<()> {
    let Some(links) = &raw.links else { return Ok(()) };
    let (ids, n) = (IdMap::of(writer)?, writer.num_vertices());
    for (file, rows) in &links.lists {
        let width = rows.width();
        let mut out = writer.link_writer(*file, width)?;
        let mut vertices: Vec<u32> = Vec::new();
        rows.read(&mut |found| {
            vertices.clear();
            for &id in found {
                let vertex = ids.find(id).filter(|&vertex| u64::from(vertex) < n);
                vertices.push(vertex.ok_or_else(|| {
                    let row = out.len() / width as u64;
                    Error::input(
                        rows.path(),
                        format!("{}, after row {row}: {id} is not a vertex", file.name()),
                    )
                })?);
            }
            Ok(out.push(&vertices)?)
        })?;
        writer.add_link_file(*file, out)?;
    }
    Ok(writer.add_links(links.info.clone())?)
}
