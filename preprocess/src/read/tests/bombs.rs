//! Small files that claim much memory are refused, however they are packed.
//!
//! The budget of these tests leaves 16 MiB, the least that is ever left.

use std::fs;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};

use gsplit_store::NoProgress;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::golden::{read_column, read_edges};
use crate::Result;
use crate::memory::Memory;
use crate::read::detect::Format;
use crate::read::options::ReadOptions;
use crate::read::{arrays, attach_nodes, open};

/// Reads all of the input at `path`. Returns the one line that refuses it.
fn refusal(path: &Path, format: Format, nodes: Option<PathBuf>) -> String {
    let options = ReadOptions { memory: Some(Memory::bytes(1)), nodes, ..Default::default() };
    let read = || -> Result<()> {
        let mut raw = open(path, format, &options, true, &NoProgress, &mut Vec::new())?;
        if let Some(nodes) = &options.nodes {
            attach_nodes(nodes, &mut raw, &options, &NoProgress, &mut Vec::new())?;
        }
        read_edges(&*raw.edges)?;
        raw.features
            .iter()
            .chain(&raw.labels)
            .try_for_each(|column| read_column(&**column).map(drop))
    };
    let message = read().unwrap_err().to_string();
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.len() < 1000, "{message}");
    message
}

/// Asserts that the file called `name` is refused for the memory that it asks for.
#[track_caller]
fn assert_too_much(message: &str, name: &str) {
    let said =
        [name, "would take", "of memory", "of the budget of 1 B are left: pass a larger --memory"];
    assert!(said.iter().all(|words| message.contains(words)), "{message}");
}

fn zip(members: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
    for (name, bytes) in members {
        archive.start_file(*name, options).unwrap();
        archive.write_all(bytes).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

/// A file of NumPy.
fn npy(descr: &str, shape: &str, bytes: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), bytes]
        .concat()
}

/// A file called `name` with `bytes` in a folder.
fn written(folder: &tempfile::TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    assert!(bytes.len() < 400_000, "{name}: {} bytes are not small", bytes.len());
    let path = folder.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, bytes).unwrap();
    path
}

/// `torch.save`'s archive of a pickle.
fn pt(pickle: &[&[u8]]) -> Vec<u8> {
    zip(&[
        ("x/data.pkl", [&b"\x80\x02"[..], &pickle.concat(), b"."].concat()),
        ("x/byteorder", b"little".to_vec()),
    ])
}

#[test]
fn pickles_whose_values_grow() {
    let folder = tempfile::tempdir().unwrap();
    let csr = b"cscipy.sparse.csr\ncsr_matrix\n)\x81";
    // A dict that is copied into object after object.
    let copies = pt(&[
        b"}q\0(",
        &b"NN".repeat(20_000),
        b"u0(",
        &[&csr[..], b"h\0b"].concat().repeat(500),
        b"t",
    ]);
    // More lists than may be.
    let lists = pt(&[b"](", &b"]".repeat(1_100_000), b"e"]);
    for bytes in [copies, lists] {
        let message = refusal(&written(&folder, "x.pt", &bytes), Format::Pt, None);
        assert!(
            message.contains("x.pt: ") && message.contains("expected a few arrays"),
            "{message}"
        );
    }
    // Names that are referenced repeatedly are held once, and types have short names.
    let name = [&b"X\x00\x04\0\0"[..], &[b'k'; 1024], b"q\x01"].concat();
    let storages = [&b"X\x07\0\0\0storageq\x02ctorch\nLongStorage\nq\x03("[..], &name].concat();
    let storages = pt(&[&storages, &b"(h\x02h\x03h\x01NK\x01tQ".repeat(20_000), b"t"]);
    assert!(
        refusal(&written(&folder, "x.pt", &storages), Format::Pt, None)
            .contains("expected a Data of PyG")
    );
    let types = pt(&[&name, b"cnumpy\ndtype\nq\x02(", &b"h\x02h\x01\x85R".repeat(20_000), b"t"]);
    assert!(
        refusal(&written(&folder, "x.pt", &types), Format::Pt, None)
            .contains("a dtype without a name")
    );
}

#[test]
fn dicts_with_one_key_again_and_again() {
    // Half of a dict's entries have the key `a`, which a search from the end passes the other half
    // for: minutes, were it done for every one of them.
    let folder = tempfile::tempdir().unwrap();
    let pickle =
        pt(&[b"X\x01\0\0\0aq\0}(", &b"h\0N".repeat(200_000), &b"NN".repeat(200_000), b"u"]);
    let path = folder.path().join("x.pt");
    fs::write(&path, pickle).unwrap();
    let read = |options: &ReadOptions| {
        open(&path, Format::Pt, options, true, &NoProgress, &mut Vec::new())
            .err()
            .unwrap()
            .to_string()
    };
    assert!(read(&ReadOptions::default()).contains("x.pt: expected edges in it"));
    let links = folder.path().join("split");
    fs::create_dir(&links).unwrap();
    for name in ["train.pt", "valid.pt", "test.pt"] {
        fs::copy(&path, links.join(name)).unwrap();
    }
    let message =
        arrays::folders::ogb::RawLinks::open(&links, &NoProgress).err().unwrap().to_string();
    assert!(message.contains("a split of a: expected edge"), "{message}");
}

#[test]
fn texts_packed_by_every_means() {
    let folder = tempfile::tempdir().unwrap();
    // A count for each of many graphs, where one is expected.
    let text = "1\n".repeat(3_000_000);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(text.as_bytes()).unwrap();
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    bzip2.write_all(text.as_bytes()).unwrap();
    let zstd = zstd::encode_all(text.as_bytes(), 1).unwrap();
    let xz = liblzma::encode_all(text.as_bytes(), 0).unwrap();
    written(&folder, "raw/edge.csv", b"0,0\n");
    for packed in [gzip.finish().unwrap(), bzip2.finish().unwrap(), zstd, xz] {
        for name in ["raw/num-node-list.csv", "raw/num-edge-list.csv"] {
            written(&folder, name, &packed);
        }
        let message = refusal(folder.path(), Format::Ogb, None);
        assert!(
            message.contains("num-node-list.csv: more than 1048576 lines of numbers"),
            "{message}"
        );
    }
    // A table of more rows than their splits may take.
    let edges = written(&folder, "edges.txt", b"1 1\n");
    let text = format!("id,split\n{}", "1,train\n".repeat(1_200_000));
    let nodes = written(&folder, "nodes.csv.zst", &zstd::encode_all(text.as_bytes(), 1).unwrap());
    assert_too_much(&refusal(&edges, Format::Snap, Some(nodes)), "nodes.csv.zst: its splits");
}

#[test]
fn pages_and_batches_of_tables() {
    use ::parquet::arrow::ArrowWriter;
    use ::parquet::basic::{Compression, ZstdLevel};
    use ::parquet::file::properties::WriterProperties;
    use arrow_array::{ArrayRef, Int64Array, RecordBatch};

    let folder = tempfile::tempdir().unwrap();
    let ids: ArrayRef = std::sync::Arc::new(Int64Array::from(vec![0; 2_500_000]));
    let batch = RecordBatch::try_from_iter([("u", ids.clone()), ("v", ids)]).unwrap();
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_data_page_size_limit(1 << 30)
        .set_data_page_row_count_limit(1 << 30)
        .set_write_batch_size(1 << 30)
        .set_max_row_group_row_count(None)
        .set_compression(Compression::ZSTD(ZstdLevel::default()));
    let mut writer =
        ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties.build())).unwrap();
    writer.write(&batch).unwrap();
    let path = written(&folder, "x.parquet", &writer.into_inner().unwrap());
    assert_too_much(
        &refusal(&path, Format::Parquet, None),
        "the page at byte 4, inflated, would take 19.1 MiB",
    );

    let zstd = Some(arrow_ipc::CompressionType::ZSTD);
    let options = arrow_ipc::writer::IpcWriteOptions::default().try_with_compression(zstd).unwrap();
    let mut writer =
        arrow_ipc::writer::FileWriter::try_new_with_options(Vec::new(), &batch.schema(), options)
            .unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let path = written(&folder, "x.arrow", &writer.into_inner().unwrap());
    assert_too_much(
        &refusal(&path, Format::Arrow, None),
        "x.arrow: damaged, or in a way that is not known here: inflated",
    );
}

#[test]
fn labels_of_graphsaint() {
    let folder = tempfile::tempdir().unwrap();
    const N: usize = 1 << 17;
    let member = |name, descr, shape: &str, bytes: &[u8]| (name, npy(descr, shape, bytes));
    let matrix = [
        member("format.npy", "|S3", "()", b"csr"),
        member("shape.npy", "<i8", "(2,)", &[N as u64, N as u64].map(u64::to_le_bytes).concat()),
        member("indptr.npy", "|u1", &format!("({},)", N + 1), &[vec![0; N], vec![1]].concat()),
        member("indices.npy", "|u1", "(1,)", &[0]),
        member("data.npy", "|u1", "(1,)", &[1]),
    ];
    written(&folder, "adj_full.npz", &zip(&matrix));
    written(&folder, "class_map.json", format!("{{\"0\": [{}0]}}", "0,".repeat(2047)).as_bytes());
    assert_too_much(
        &refusal(folder.path(), Format::Graphsaint, None),
        "class_map.json: labels of 131072 vertices",
    );
}
