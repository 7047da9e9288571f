//! Cutting a dataset into shards ([`crate::ShardInfo`]).
//!
//! Memory: 8 bytes per vertex of a host, and a batch of its feature rows. Cost: a read of the whole
//! dataset, one of the topology for each host, and writing them.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use super::columns::{FEATURES, LABELS};
use super::{DatasetWriter, dataset_target};
use crate::labels::KNOWN_LABELS;
use crate::shard::{OWNED, UNLABELLED};
use crate::staging::{Staging, Target, commit_all, recover};
use crate::{
    Cut, Dataset, DatasetManifest, Error, FeatureTable, FeatureWriter, FileRecord, HashingWriter,
    KIND, Label, PartitionMap, Progress, Provenance, ROWS_PER_BATCH, Result, ShardInfo, Split,
    Stage, Unit, open_file,
};

/// Number of bytes copied at once.
const PIECE: usize = 1 << 20;
/// The file of the column [`KIND`], which links are drawn by.
const KINDS: &str = "nodes/kind.npy";

/// The shards that [`write_shards`] would write, if all exist, made from the same dataset and map
/// in the same way. Leftovers of a killed run are removed.
///
/// # Errors
/// [`Error::Invalid`] as there; [`Error::Busy`] and [`Error::Foreign`] if another process writes
/// them, or left a part.
pub fn finished_shards(
    dataset: &Dataset,
    map: Option<&PartitionMap>,
    hosts: u32,
    out: &Path,
) -> Result<Option<Vec<Dataset>>> {
    let infos = infos(dataset, map, hosts)?;
    recover(&targets(hosts, out))?;
    let found = places(hosts, out).zip(&infos).map(|(place, info)| {
        let shard = Dataset::open_unchecked(place).ok()?;
        let manifest = shard.manifest();
        let is_same = shard.shard() == Some(info)
            && manifest.provenance.tool_version == env!("CARGO_PKG_VERSION");
        is_same.then_some(shard)
    });
    Ok(found.collect())
}

/// Writes `out`/host-0, host-1 ...: the shards of `dataset` for `hosts` hosts, among which the
/// parts of `map` are dealt, or the columns of its features without a map. All become visible
/// together. `replace` allows existing datasets there to be replaced; `provenance` is recorded in
/// each.
///
/// # Errors
/// [`Error::Invalid`] unless `hosts` divides the number of parts, or if there are fewer columns;
/// [`Error::Missing`] for a shard; [`Error::Exists`] and its like; [`Error::Corrupt`] if a file
/// does not match its record.
pub fn write_shards(
    dataset: &Dataset,
    map: Option<&PartitionMap>,
    hosts: u32,
    out: &Path,
    replace: bool,
    provenance: &Provenance,
    progress: &dyn Progress,
) -> Result<Vec<Dataset>> {
    let infos = infos(dataset, map, hosts)?;
    recover(&targets(hosts, out))?;
    // All are locked before the first is written.
    let writers = places(hosts, out)
        .map(|place| DatasetWriter::begin(&place, replace))
        .collect::<Result<Vec<_>>>()?;
    let stage = progress.stage("cutting", Some(total_bytes(dataset, map, hosts)), Unit::Bytes);
    let mut stagings = Vec::new();
    for (shard, writer) in infos.into_iter().zip(writers) {
        stagings.push(writer.cut(dataset, map, shard, provenance.clone(), stage.as_ref())?);
    }
    drop(stage);
    commit_all(stagings)?;
    places(hosts, out).map(Dataset::open_unchecked).collect()
}

fn places(hosts: u32, out: &Path) -> impl Iterator<Item = PathBuf> {
    (0..hosts).map(move |host| out.join(format!("host-{host}")))
}

fn targets(hosts: u32, out: &Path) -> Vec<Target> {
    places(hosts, out).map(|place| dataset_target(&place)).collect()
}

/// Description of each shard.
fn infos(dataset: &Dataset, map: Option<&PartitionMap>, hosts: u32) -> Result<Vec<ShardInfo>> {
    dataset.expect_whole("rows")?;
    dataset.expect_one_type("shard")?;
    let by = match map {
        Some(map) => by_partition(map, hosts)?,
        None => by_columns(dataset, hosts)?,
    };
    let origin = &dataset.manifest().files;
    Ok((0..hosts)
        .map(|host| ShardInfo { origin: origin.clone(), by: by.clone(), host, hosts })
        .collect())
}

/// The parts of `map`, the same number for each host.
fn by_partition(map: &PartitionMap, hosts: u32) -> Result<Cut> {
    let (key, parts) = (map.key(), map.num_parts());
    if hosts == 0 || !parts.is_multiple_of(hosts as usize) {
        return Err(Error::Invalid(format!(
            "{hosts} hosts for {parts} parts: expected a number that divides it"
        )));
    }
    let assignment = map.assignment_checksum().cloned();
    let assignment =
        assignment.ok_or_else(|| Error::Invalid(format!("partition {key}: has no assignment")))?;
    Ok(Cut::Partition(key.to_string(), assignment))
}

/// The columns of the features of `dataset`, at least one for each host.
fn by_columns(dataset: &Dataset, hosts: u32) -> Result<Cut> {
    let columns = dataset.features()?.dim();
    match hosts > 0 && hosts as usize <= columns {
        true => Ok(Cut::Columns(columns as u32)),
        false => Err(Error::Invalid(format!(
            "{hosts} hosts for {columns} columns of features: expected from 1 to {columns}"
        ))),
    }
}

/// Size of the shards in bytes, without the lists of their vertices.
fn total_bytes(dataset: &Dataset, map: Option<&PartitionMap>, hosts: u32) -> u64 {
    let files = dataset.manifest().files.iter();
    let is_cut = |name: &str| {
        if map.is_some() { name.starts_with("nodes/") && name != KINDS } else { name == FEATURES }
    };
    let of_each = |name: &str| if is_cut(name) { 1 } else { u64::from(hosts) };
    let kept = files.filter(|(name, _)| {
        let kept = [FEATURES, LABELS, KNOWN_LABELS, KINDS];
        !name.starts_with("nodes/") || kept.contains(&name.as_str())
    });
    let partition: u64 =
        map.iter().flat_map(|map| map.meta().files.values()).map(|record| record.bytes).sum();
    kept.map(|(name, record)| record.bytes * of_each(name)).sum::<u64>()
        + partition * u64::from(hosts)
}

impl DatasetWriter {
    /// Writes `shard` of `dataset`, cut by `map` or by columns; the caller makes it visible.
    fn cut(
        mut self,
        dataset: &Dataset,
        map: Option<&PartitionMap>,
        shard: ShardInfo,
        provenance: Provenance,
        stage: &dyn Stage,
    ) -> Result<Staging> {
        let manifest = dataset.manifest();
        let all_labels = |name: &str| map.is_none() && [LABELS, KNOWN_LABELS].contains(&name);
        for (name, record) in &manifest.files {
            if !name.starts_with("nodes/") || name == KINDS || all_labels(name) {
                copy(&dataset.path().join(name), &self.place(name)?, record, stage)?;
                self.record(name, record.clone());
            }
        }
        let mut features = manifest.features.clone();
        if let Some(map) = map {
            self.cut_rows(dataset, &map.vertices_of(&shard), stage)?;
        } else if let (Some(info), Some((held, _))) = (&mut features, shard.columns()) {
            info.dim = held.len() as u32;
            info.names = info.names.as_ref().map(|names| names[held.start..held.end].to_vec());
            let every: Vec<u32> = (0..dataset.num_vertices() as u32).collect();
            self.cut_features(&dataset.features()?.columns(held), &every, stage)?;
        }
        let kinds =
            manifest.columns.get_key_value(KIND).map(|(name, info)| (name.clone(), info.clone()));
        self.journal.staged = DatasetManifest {
            features,
            columns: kinds.into_iter().collect(),
            vertex_weights: Vec::new(),
            string_ids: false,
            shard: Some(shard),
            files: std::mem::take(&mut self.journal.staged.files),
            provenance: Provenance::default(),
            ..manifest.clone()
        };
        self.name = manifest.name.clone();
        let staging = self.seal(provenance)?;
        if let Some(map) = map {
            let (from, key) = (PartitionMap::folder(dataset, map.key()), map.key());
            for (name, record) in &map.meta().files {
                copy(
                    &from.join(name),
                    &staging.path(&format!("partition/{key}/{name}")),
                    record,
                    stage,
                )?;
            }
            crate::document::write(
                &staging.path(&format!("partition/{key}/partition.json")),
                map.meta(),
            )?;
        }
        Ok(staging)
    }

    /// Writes the list `owned`, and the feature rows and labels of these vertices.
    fn cut_rows(&mut self, dataset: &Dataset, owned: &[u32], stage: &dyn Stage) -> Result<()> {
        let manifest = dataset.manifest();
        self.add(OWNED, owned)?;
        if manifest.features.is_some() {
            self.cut_features(&dataset.features()?, owned, stage)?;
        }
        if let (Some(classes), true) = (manifest.num_classes, manifest.multi_label) {
            let (labels, mut out) = (dataset.multi_labels()?, self.multi_label_writer(classes)?);
            owned.iter().try_for_each(|&v| match labels.known_row(v) {
                Some(known) => out.push_known(labels.row(v), known),
                None => out.push(labels.row(v)),
            })?;
            self.record_multi_labels(out)?;
        } else if manifest.num_classes.is_some() {
            self.cut_labels(dataset, &dataset.labels()?, owned)?;
        } else if manifest.numeric_label {
            self.cut_labels(dataset, &dataset.numeric_labels()?, owned)?;
        }
        Ok(())
    }

    /// Writes the `labels` of the vertices `owned`, and the list of unlabelled vertices of the
    /// train split.
    fn cut_labels<T: Label>(
        &mut self,
        dataset: &Dataset,
        labels: &[T],
        owned: &[u32],
    ) -> Result<()> {
        self.add(LABELS, &owned.iter().map(|&v| labels[v as usize]).collect::<Vec<T>>())?;
        let has_train = dataset.manifest().splits().contains(&Split::Train);
        let train = has_train.then(|| dataset.split(Split::Train)).transpose()?;
        let train = train.iter().flat_map(|train| train.iter().copied());
        self.add(
            UNLABELLED,
            &train.filter(|&v| !labels[v as usize].is_given()).collect::<Vec<u32>>(),
        )
    }

    /// Writes the rows of `vertices` from `table`, unchanged.
    fn cut_features(
        &mut self,
        table: &FeatureTable,
        vertices: &[u32],
        stage: &dyn Stage,
    ) -> Result<()> {
        let mut out = FeatureWriter::create(self.place(FEATURES)?, table.dtype(), table.dim())?;
        for rows in vertices.chunks(ROWS_PER_BATCH) {
            out.copy_rows(table, rows)?;
            stage.advance((rows.len() * table.dim() * table.dtype().bytes()) as u64);
        }
        self.record(FEATURES, out.finish()?.record);
        Ok(())
    }
}

/// Copies the file `from` to a new file `to`, folders included, and checks the bytes read against
/// its `record`.
fn copy(from: &Path, to: &Path, record: &FileRecord, stage: &dyn Stage) -> Result<()> {
    to.parent().map_or(Ok(()), |folder| fs::create_dir_all(folder).map_err(Error::io(folder)))?;
    let mut source = open_file(from).map_err(Error::io(from))?;
    let mut out = HashingWriter::new(File::create(to).map_err(Error::io(to))?);
    let mut piece = vec![0; PIECE];
    loop {
        let read = source.read(&mut piece).map_err(Error::io(from))?;
        if read == 0 {
            break;
        }
        out.write_all(&piece[..read]).map_err(Error::io(to))?;
        stage.advance(read as u64);
    }
    let (file, bytes, checksum) = out.finish();
    file.sync_all().map_err(Error::io(to))?;
    match (bytes, &checksum) == (record.bytes, &record.checksum) {
        true => Ok(()),
        false => Err(Error::corrupt(
            from,
            format!("has checksum {checksum}, expected {}", record.checksum),
        )),
    }
}
