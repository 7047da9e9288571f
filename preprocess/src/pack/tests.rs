//! Round trips of every kind of file, and of damaged ones.

use std::collections::BTreeMap;

use gsplit_store::{DatasetWriter, FeatureDtype, NoProgress, Provenance, Split};

use super::*;

const OPTIONS: PackOptions = PackOptions { level: 3, force: false };

/// All files below a folder with their content.
fn content(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut names = Vec::new();
    files_below(root, root, &mut names).unwrap();
    names.into_iter().map(|name| (name.clone(), fs::read(root.join(name)).unwrap())).collect()
}

/// A dataset of `n` vertices with features of `dtype`.
fn dataset(path: &Path, n: u32, dtype: FeatureDtype) -> Dataset {
    let indices: Vec<u32> = (0..n).flat_map(|v| if v == 0 { [0, 1] } else { [v / 3, v] }).filter(|_| n > 1).collect();
    let indptr: Vec<u64> = (0..=n as u64).map(|v| v * indices.len() as u64 / u64::from(n.max(1))).collect();
    let mut writer = DatasetWriter::create(path, false, &indptr, &indices).unwrap();
    let mut features = writer.feature_writer(dtype, 5).unwrap();
    for v in 0..n {
        features.push_rows(&[0, 1, 2, 3, 4].map(|c| (v as f32 * 0.37 + c as f32).sin())).unwrap();
    }
    writer.add_features(features, dtype, None).unwrap();
    writer.add_labels(&(0..n as i32).map(|v| v % 7 - 1).collect::<Vec<_>>()).unwrap();
    writer.add_original_ids(&(0..u64::from(n)).map(|v| v * v + 3).collect::<Vec<_>>()).unwrap();
    writer.add_split(Split::Train, (0..n / 2).collect()).unwrap();
    let provenance = Provenance {
        tool_version: "test".into(),
        command: "test".into(),
        options: serde_json::Value::Null,
        sources: vec![],
        facts: BTreeMap::new(),
    };
    writer.finish(provenance).unwrap()
}

/// What `verify` finds wrong with the files below `folder`.
fn problems(folder: &Path) -> Vec<(PathBuf, String)> {
    let findings = gsplit_store::verify(folder).unwrap().into_iter();
    findings.filter_map(|found| Some((found.path.strip_prefix(folder).unwrap().into(), found.problem?))).collect()
}

/// Packs and unpacks, and compares every byte. Returns the summary and the forms of all files.
fn round_trip(dataset: &Dataset, folder: &Path) -> (PackSummary, BTreeMap<String, Form>) {
    let (packed, back) = (folder.join("packed"), folder.join("back"));
    let summary = pack(dataset, &packed, &OPTIONS, &NoProgress).unwrap();
    assert_eq!(unpack(&packed, &back, false, &NoProgress).unwrap(), summary);
    let (before, after) = (content(dataset.path()), content(&back));
    assert!(before.keys().eq(after.keys()));
    for (name, bytes) in &before {
        assert!(after[name] == *bytes, "{name} differs");
    }
    // Some tests pack files that no manifest lists: they stay just that.
    assert_eq!(problems(&back), problems(dataset.path()));
    let (manifest, _) = document::read::<PackManifest>(&packed.join(MANIFEST)).unwrap();
    fs::remove_dir_all(&packed).unwrap();
    fs::remove_dir_all(&back).unwrap();
    (summary, manifest.files.into_iter().map(|(name, file)| (name, file.form)).collect())
}

#[test]
fn datasets_of_every_feature_type_and_size_come_back() {
    for (dtype, n) in [
        (FeatureDtype::F32, 0),
        (FeatureDtype::F32, 1),
        (FeatureDtype::F16, 1000),
        (FeatureDtype::Bf16, 16_385),
        (FeatureDtype::F32, 700_001),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let dataset = dataset(&folder.path().join("ds"), n, dtype);
        let (summary, forms) = round_trip(&dataset, folder.path());
        assert_eq!(forms["nodes/feat.arrow"], Form::Arrow);
        assert_eq!(forms["topology/indices.npy"], Form::Array);
        assert!(n < 1000 || summary.packed_bytes < summary.dataset_bytes, "{n} vertices: {summary:?}");
    }
}

/// A `.npy` file as NumPy writes it, of any type and shape; `tail` follows the data.
fn npy(path: &Path, descr: &str, order: &str, shape: &str, data: &[u8]) {
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}");
    header += &" ".repeat((64 - (header.len() + 11) % 64) % 64);
    header += "\n";
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Bytes without any order, NaNs with payloads among them.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 99u64;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..length).map(next).collect()
}

#[test]
fn arrays_of_every_type_and_shape_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = dataset(&folder.path().join("ds"), 10, FeatureDtype::F32);
    let nodes = dataset.path().join("nodes");
    let mut expected = Vec::new();
    let types = ["|i1", "|u1", "|b1", "<i2", "<u2", "<f2", "<i4", "<u4", "<f4", "<i8", "<u8", "<f8"];
    for (number, descr) in types.into_iter().enumerate() {
        let bytes: usize = descr[2..].parse().unwrap();
        npy(&nodes.join(format!("a{number}.npy")), descr, "False", "(1000,)", &noise(1000 * bytes));
        npy(&nodes.join(format!("b{number}.npy")), descr, "False", "(250, 4)", &noise(1000 * bytes));
        expected.extend([(format!("nodes/a{number}.npy"), Form::Array), (format!("nodes/b{number}.npy"), Form::Array)]);
    }
    for (name, descr, order, shape, data, form) in [
        ("fortran", "<f4", "True", "(5, 2)", noise(40), Form::Array),
        ("cube", "<i8", "False", "(2, 3, 4)", noise(192), Form::Array),
        ("scalar", "<i8", "False", "()", noise(8), Form::Array),
        ("empty", "<i8", "False", "(0,)", vec![], Form::Array),
        ("flat", "<i8", "False", "(7, 0)", vec![], Form::Array),
        ("big", ">i8", "False", "(3,)", noise(24), Form::Blob),
        ("tail", "<i8", "False", "(3,)", noise(25), Form::Blob),
        ("short", "<i8", "False", "(1152921504606846976,)", noise(8), Form::Blob),
        ("words", "<U3", "False", "(2,)", noise(24), Form::Blob),
    ] {
        npy(&nodes.join(name).with_extension("npy"), descr, order, shape, &data);
        expected.push((format!("nodes/{name}.npy"), form));
    }
    fs::write(nodes.join("no.npy"), b"no array").unwrap();
    fs::write(nodes.join("nothing"), b"").unwrap();
    fs::write(nodes.join("a0.parquet"), noise(3 << 20)).unwrap();
    fs::write(nodes.join("a0"), b"name clash").unwrap();
    let (_, forms) = round_trip(&dataset, folder.path());
    for (name, form) in expected {
        assert_eq!(forms[&name], form, "{name}");
    }
}

#[test]
fn arrow_files_of_every_kind_come_back() {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Float32Array, Int8Array, LargeStringArray, RecordBatch, StringArray};
    use arrow_ipc::CompressionType;
    use arrow_ipc::writer::{FileWriter, IpcWriteOptions};

    let folder = tempfile::tempdir().unwrap();
    let dataset = dataset(&folder.path().join("ds"), 10, FeatureDtype::F32);
    let text = |range: std::ops::Range<i32>| -> ArrayRef {
        Arc::new(LargeStringArray::from_iter_values(range.map(|v| format!("vertex/{}", v * v))))
    };
    let quantised = |range: std::ops::Range<i32>| -> Vec<(&'static str, ArrayRef)> {
        let values = Int8Array::from_iter_values(range.clone().flat_map(|v| [v as i8, -1, 3]));
        let item = array::item(arrow_schema::DataType::Int8);
        let lists = arrow_array::FixedSizeListArray::new(item, 3, Arc::new(values), None);
        vec![("feat", Arc::new(lists)), ("scale", Arc::new(Float32Array::from_iter_values(range.map(|v| v as f32))))]
    };
    let batch = |columns: Vec<(&'static str, ArrayRef)>| RecordBatch::try_from_iter(columns).unwrap();
    let plain = |name: &str, batches: &[RecordBatch], compression| {
        let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
        let file = fs::File::create(dataset.path().join("nodes").join(name)).unwrap();
        let mut writer = FileWriter::try_new_with_options(file, &batches[0].schema(), options).unwrap();
        batches.iter().for_each(|batch| writer.write(batch).unwrap());
        writer.finish().unwrap();
    };
    let strings = [batch(vec![("original_id", text(0..20_000))]), batch(vec![("original_id", text(5..12))])];
    plain("original_id.arrow", &strings, None);
    plain("quantised.arrow", &[batch(quantised(0..16_384)), batch(quantised(0..100))], None);
    plain("compressed.arrow", &strings, Some(CompressionType::ZSTD));
    plain("without.arrow", &[strings[0].slice(0, 0)], None);
    plain("short.arrow", &[batch(vec![("s", Arc::new(StringArray::from(vec!["a", "b"])))])], None);
    plain("null.arrow", &[batch(vec![("x", Arc::new(Float32Array::from(vec![None, Some(1.0)])))])], None);
    plain("slice.arrow", &[strings[0].slice(3, 8)], None);
    fs::write(dataset.path().join("nodes/no.arrow"), b"ARROW1 no more").unwrap();
    let (_, forms) = round_trip(&dataset, folder.path());
    for (name, form) in [
        ("original_id", Form::Arrow),
        ("quantised", Form::Arrow),
        ("slice", Form::Arrow),
        ("compressed", Form::Blob),
        ("without", Form::Blob),
        ("short", Form::Blob),
        ("null", Form::Blob),
        ("no", Form::Blob),
    ] {
        assert_eq!(forms[&format!("nodes/{name}.arrow")], form, "{name}");
    }
}

#[test]
fn damaged_packs_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = dataset(&folder.path().join("ds"), 300, FeatureDtype::F32);
    let (packed, back) = (folder.path().join("packed"), folder.path().join("back"));
    pack(&dataset, &packed, &OPTIONS, &NoProgress).unwrap();
    for (name, good) in content(&packed) {
        let path = packed.join(&name);
        for at in (0..good.len()).step_by(good.len() / 16 + 1) {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            fs::write(&path, &bad).unwrap();
            let message = unpack(&packed, &back, false, &NoProgress).unwrap_err().to_string();
            assert!(message.contains(name.rsplit('/').next().unwrap()), "{name}: {message}");
            fs::write(&path, &good[..at]).unwrap();
            assert!(unpack(&packed, &back, false, &NoProgress).is_err(), "{name}: cut at {at}");
        }
        fs::remove_file(&path).unwrap();
        assert!(unpack(&packed, &back, false, &NoProgress).is_err(), "{name} is missing");
        fs::write(&path, &good).unwrap();
        assert!(!back.exists());
    }
    unpack(&packed, &back, false, &NoProgress).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "nothing unfinished is left");
}

#[test]
fn wrong_content_behind_right_checksums_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = dataset(&folder.path().join("ds"), 300, FeatureDtype::F32);
    let (packed, back) = (folder.path().join("packed"), folder.path().join("back"));
    pack(&dataset, &packed, &OPTIONS, &NoProgress).unwrap();
    let (good, _) = document::read::<PackManifest>(&packed.join(MANIFEST)).unwrap();
    type Change = fn(&mut PackManifest);
    let changes: [(Change, &str); 4] = [
        (|m| m.files.get_mut("nodes/label.npy").unwrap().form = Form::Blob, "label.npy: unpacking it gives 0 bytes"),
        (|m| m.files.get_mut("nodes/label.npy").unwrap().packed.clear(), "wrong number of packed files"),
        (|m| m.files.get_mut("nodes/feat.arrow").unwrap().packed.reverse(), "feat"),
        (
            |m| {
                let file = m.files["dataset.json"].clone();
                m.files.insert("../evil.json".into(), file);
            },
            "`../evil.json`: expected a name inside",
        ),
    ];
    for (change, expected) in changes {
        let mut manifest = good.clone();
        change(&mut manifest);
        document::write(&packed.join(MANIFEST), &manifest).unwrap();
        let message = unpack(&packed, &back, false, &NoProgress).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
        assert!(!back.exists());
    }
}

#[test]
fn damaged_datasets_and_taken_targets_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = dataset(&folder.path().join("ds"), 300, FeatureDtype::F32);
    let packed = folder.path().join("packed");
    let fails =
        |target: &Path, options: &PackOptions| pack(&dataset, target, options, &NoProgress).unwrap_err().to_string();
    pack(&dataset, &packed, &OPTIONS, &NoProgress).unwrap();
    let force = PackOptions { force: true, ..OPTIONS };
    assert!(fails(&packed, &OPTIONS).contains("already there"));
    assert!(fails(dataset.path(), &force).contains("--force will not replace it"));
    pack(&dataset, &packed, &force, &NoProgress).unwrap();
    let message = unpack(dataset.path(), &folder.path().join("x"), false, &NoProgress).unwrap_err().to_string();
    assert!(message.contains("holds no pack.json"), "{message}");
    let label = dataset.path().join("nodes/label.npy");
    let mut bytes = fs::read(&label).unwrap();
    bytes[200] ^= 1;
    fs::write(&label, bytes).unwrap();
    assert!(fails(&folder.path().join("other"), &OPTIONS).contains("label.npy: has checksum"));
}
