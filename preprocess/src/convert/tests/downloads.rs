//! Archives and folders as they are downloaded: the graph in them is found, or asked for, and nothing is left behind.

use std::fs;
use std::io::{Cursor, Write};

use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::*;

type Members<'a> = &'a [(&'a str, &'a str)];

fn tar(members: Members<'_>) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, content) in members {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, content.as_bytes()).unwrap();
    }
    archive.into_inner().unwrap()
}

fn zip(members: Members<'_>) -> Vec<u8> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in members {
        archive.start_file(*name, SimpleFileOptions::default()).unwrap();
        archive.write_all(content.as_bytes()).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

fn packed(mut encoder: impl Write, bytes: &[u8]) {
    encoder.write_all(bytes).unwrap();
    encoder.flush().unwrap();
}

/// The archive in every packing, with its name.
fn archives(members: Members<'_>) -> Vec<(&'static str, Vec<u8>)> {
    let tar = tar(members);
    let [mut gz, mut bz2] = [Vec::new(), Vec::new()];
    packed(flate2::write::GzEncoder::new(&mut gz, flate2::Compression::fast()), &tar);
    packed(bzip2::write::BzEncoder::new(&mut bz2, bzip2::Compression::fast()), &tar);
    let (xz, zst) = (liblzma::encode_all(&tar[..], 1).unwrap(), zstd::encode_all(&tar[..], 1).unwrap());
    vec![
        ("x.tar", tar),
        ("x.tar.gz", gz),
        ("x.tar.bz2", bz2),
        ("x.tar.xz", xz),
        ("x.tar.zst", zst),
        ("x.zip", zip(members)),
    ]
}

/// Edges and first decision of the conversion of `input` in `folder`, or `error: ` and its line. Nothing else is left.
fn converted(folder: &Path, input: &str, options: &ConvertOptions) -> String {
    let before = names(folder);
    let (path, out) = (folder.join(input), folder.join("ds"));
    let found = match convert(&path, &out, options, true, &NoProgress) {
        Ok((dataset, _)) => {
            let topology = dataset.topology();
            let edges = (0..dataset.num_vertices() as u32)
                .flat_map(|v| topology.in_neighbours(v).iter().map(move |u| format!("{u}>{v}")));
            let edges = edges.collect::<Vec<_>>().join(" ");
            let decision = dataset.manifest().provenance.decisions.first().cloned().unwrap_or_default();
            fs::remove_dir_all(&out).unwrap();
            format!("{edges}; {}", decision.replace(&format!("{}/", folder.display()), ""))
        }
        Err(error) => format!("error: {}", error.to_string().replace(&format!("{}/", folder.display()), "")),
    };
    assert_eq!(names(folder), before, "nothing is left behind");
    found
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

const PATTERN: &str = "%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2\n";
const VECTOR: &str = "%%MatrixMarket matrix array real general\n2 1\n0.5\n0.5\n";

#[test]
fn the_graph_is_found_in_archives_and_in_folders() {
    let suitesparse: Members<'_> = &[
        ("net/net.mtx", PATTERN),
        ("net/net_coord.mtx", VECTOR),
        ("net/net_b.mtx", VECTOR),
        ("net/README.txt", "a\n"),
    ];
    let konect: Members<'_> = &[
        ("wiki/out.wiki", "% asym unweighted\n% 1 2 2\n1 2\n"),
        ("wiki/meta.wiki", "name: Wiki\n"),
        ("wiki/README.wiki", "1 2\n"),
        ("wiki/ent.wiki.person", "1 2\n3 4\n"),
    ];
    let one: Members<'_> =
        &[("edges.csv", "src,dst\n1,2\n"), ("LICENSE.txt", "1 2\n"), ("notes.txt", "Some text\nof it here\n")];
    let parts: Members<'_> = &[("part-0.csv", "src,dst\n1,2\n"), ("part-1.csv", "src,dst\n2,1\n")];
    let mac: Members<'_> = &[("__MACOSX/._a.txt", "1 2\n"), ("a.txt", "0 1\n"), (".DS_Store", "0 1\n")];
    for (members, expected) in [
        (suitesparse, "0>1; @/net/net.mtx: found Matrix Market coordinate file (mtx)"),
        (konect, "0>1; @/wiki/out.wiki: found edge list as of SNAP (snap)"),
        (one, "0>1; @/edges.csv: found table of edges in text, as CSV or TSV (csv)"),
        (parts, "1>0 0>1; @: found table of edges in text, as CSV or TSV (csv)"),
        (mac, "0>1; @/a.txt: found edge list as of SNAP (snap)"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let expected = |input: &str| expected.replace('@', input);
        for (name, bytes) in archives(members) {
            fs::write(folder.path().join(name), bytes).unwrap();
            assert_eq!(converted(folder.path(), name, &ConvertOptions::default()), expected(name));
        }
        for (name, content) in members {
            let path = folder.path().join("unpacked").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        assert_eq!(converted(folder.path(), "unpacked", &ConvertOptions::default()), expected("unpacked"));
    }
}

#[test]
fn several_that_could_be_it_are_a_question() {
    let folder = tempfile::tempdir().unwrap();
    let members: Members<'_> =
        &[("x/a.txt", "1 2\n"), ("x/b.txt", "2 3\n3 4\n"), ("x/c/edges.txt", "0 1\n"), ("README", "x")];
    fs::write(folder.path().join("x.zip"), zip(members)).unwrap();
    fs::write(folder.path().join("two.zip"), zip(&[("a.csv", "src,dst\n1,2\n"), ("b.csv", "src,dst\n2,1\n")])).unwrap();
    fs::write(folder.path().join("none.zip"), zip(&[("a.txt", "x\ny z\n"), ("b.txt", "x\ny z\n")])).unwrap();
    fs::write(folder.path().join("bad.zip"), zip(&[("d/a.txt", "1 2\n3 x\n")])).unwrap();
    fs::write(folder.path().join("plain.txt"), "1 2\n").unwrap();
    let with = |member: &str| {
        let read = ReadOptions { member: Some(member.into()).filter(|_| !member.is_empty()), ..Default::default() };
        ConvertOptions { read, ..Default::default() }
    };
    for (input, member, expected) in [
        (
            "x.zip",
            "",
            "error: x.zip/x: 3 files could be the graph, a.txt, b.txt, c/edges.txt: pass one of them as --member",
        ),
        ("x.zip", "b.txt", "0>1 1>2; x.zip/x/b.txt: found edge list"),
        ("x.zip", "x/a.txt", "0>1; x.zip/x/a.txt: found edge list"),
        ("x.zip", "x/c", "0>1; x.zip/x/c/edges.txt: found edge list"),
        (
            "x.zip",
            "d.txt",
            "error: x.zip: has no member `d.txt`: expected one of x/a.txt, x/b.txt, x/c/edges.txt, README",
        ),
        ("two.zip", "", "error: two.zip: 2 files could be the graph, a.csv, b.csv"),
        ("two.zip", "b.csv", "1>0; two.zip/b.csv: found"),
        ("none.zip", "", "error: none.zip: a folder without files of a known format"),
        ("bad.zip", "", "error: bad.zip/d/a.txt, line 2: expected a vertex id"),
        ("plain.txt", "a", "error: --member names a file in an archive"),
    ] {
        let found = converted(folder.path(), input, &with(member));
        assert!(
            found.starts_with(expected) || expected.starts_with("1>0;") && found.contains(&expected[5..]),
            "{found}"
        );
    }
}

#[test]
fn folders_of_datasets_are_read_from_archives_too() {
    fn add(archive: &mut tar::Builder<Vec<u8>>, folder: &str) {
        archive.append_dir_all(format!("top/{folder}"), data(folder)).unwrap();
    }
    for format in ["ogb-csv", "npy", "igb", "graphbolt"] {
        let folder = tempfile::tempdir().unwrap();
        let mut archive = tar::Builder::new(Vec::new());
        add(&mut archive, format);
        fs::write(folder.path().join("x.tar"), archive.into_inner().unwrap()).unwrap();
        let found = converted(folder.path(), "x.tar", &ConvertOptions::default());
        assert!(found.starts_with("2>0 0>1 0>2 1>2 2>3 3>3 3>4 5>4 4>5; x.tar/top"), "{format}: {found}");
    }
}

#[test]
fn the_archive_is_what_is_recorded_reused_and_planned() {
    let folder = tempfile::tempdir().unwrap();
    let (path, out) = (folder.path().join("x.zip"), folder.path().join("ds"));
    fs::write(&path, zip(&[("a.txt", "0 1\n1 2\n")])).unwrap();
    let options = ConvertOptions::default();
    let planned = plan(&path, &out, &options, &NoProgress).unwrap();
    assert_eq!((planned.stages[1].scratch, names(folder.path())), (8, vec!["x.zip".to_string()]));
    let (dataset, outcome) = convert(&path, &out, &options, false, &NoProgress).unwrap();
    let sources: Vec<_> = dataset.manifest().provenance.sources.iter().map(|file| file.path.as_str()).collect();
    assert_eq!((outcome, sources), (Outcome::Converted, vec!["x.zip"]));
    assert_eq!(convert(&path, &out, &options, false, &NoProgress).unwrap().1, Outcome::Reused);
    fs::write(&path, zip(&[("a.txt", "0 1\n1 0\n")])).unwrap();
    let message = convert(&path, &out, &options, false, &NoProgress).unwrap_err().to_string();
    assert!(message.contains("already there, but x.zip has other content"), "{message}");
    assert_eq!(names(folder.path()), ["ds", "x.zip"]);
}
