//! `gsplit convert` from outside: killed, refused, and within its budget.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::support::{command, content, fails, json, ok, refused, scratch};

/// Vertices of the medium input.
const VERTICES: u32 = 150_000;
/// Its lines.
const LINES: u32 = 800_000;
/// Values of its feature rows.
const WIDTH: u32 = 64;

/// Turns the medium input into the dataset at the end.
const CONVERT: &str = "--quiet convert edges.txt --nodes nodes --out ds";

/// A step of the generator of Knuth's MMIX; the upper half is random enough.
fn draw(state: &mut u64, below: u32) -> u32 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (((*state >> 32) * u64::from(below)) >> 32) as u32
}

/// Writes `edges.txt`, ids with gaps, and `nodes/{feat,label}.npy` into `folder`.
fn medium_input(folder: &Path) {
    let mut edges = BufWriter::new(File::create(folder.join("edges.txt")).unwrap());
    let mut state = 7;
    for line in 0..LINES {
        // Every vertex occurs.
        let (source, target) = (line % VERTICES, draw(&mut state, VERTICES));
        writeln!(edges, "{}\t{}", 3 * source, 3 * target).unwrap();
    }
    edges.into_inner().unwrap().sync_all().unwrap();
    fs::create_dir(folder.join("nodes")).unwrap();
    let features = (0..VERTICES).flat_map(|v| (0..WIDTH).map(move |column| (v ^ column) as f32));
    npy(
        &folder.join("nodes/feat.npy"),
        "<f4",
        &format!("({VERTICES}, {WIDTH})"),
        features.map(f32::to_le_bytes),
    );
    let labels = (0..VERTICES).map(|v| (v % 7).to_le_bytes());
    npy(&folder.join("nodes/label.npy"), "<i4", &format!("({VERTICES},)"), labels);
    // Manifests hold the stamps of files that are at rest.
    std::thread::sleep(Duration::from_millis(2100));
}

pub fn npy(path: &Path, descr: &str, shape: &str, numbers: impl Iterator<Item = [u8; 4]>) {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut file = BufWriter::new(File::create(path).unwrap());
    file.write_all(b"\x93NUMPY\x01\x00").unwrap();
    file.write_all(&(header.len() as u16).to_le_bytes()).unwrap();
    file.write_all(header.as_bytes()).unwrap();
    numbers.for_each(|number| file.write_all(&number).unwrap());
    file.flush().unwrap();
}

/// Which of the files differ.
fn differences(
    files: &BTreeMap<String, Vec<u8>>,
    expected: &BTreeMap<String, Vec<u8>>,
) -> Vec<String> {
    let names = files.keys().chain(expected.keys());
    let mut names: Vec<String> =
        names.filter(|name| files.get(*name) != expected.get(*name)).cloned().collect();
    names.dedup();
    names
}

#[test]
fn a_conversion_that_is_killed_is_taken_up_and_gives_the_same_bytes() {
    let folder = &*scratch();
    medium_input(folder);
    ok(folder, CONVERT);
    ok(folder, "verify ds");
    let expected = content(&folder.join("ds"));
    assert!(
        expected.contains_key("nodes/feat.arrow") && expected.contains_key("nodes/original_id.npy")
    );
    fs::remove_dir_all(folder.join("ds")).unwrap();
    // Before a stage is finished, and after one: then only the rest remains to do.
    for is_finished in [false, true] {
        let mut child =
            command(folder, CONVERT).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let journal = folder.join(".ds.partial/journal.json");
        let begun = if is_finished { journal } else { folder.join(".ds.partial") };
        while !begun.exists() {
            assert!(child.try_wait().unwrap().is_none(), "it ended before it could be killed");
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let written = |of: &str| {
            fs::metadata(folder.join(of).join("topology/indices.npy")).unwrap().modified().unwrap()
        };
        let left = is_finished.then(|| written(".ds.partial/dataset"));
        ok(folder, CONVERT);
        assert!(left.is_none_or(|left| left == written("ds")), "the graph was built again");
        let wrong = differences(&content(&folder.join("ds")), &expected);
        assert!(wrong.is_empty(), "killed after a stage: {is_finished}: {wrong:?} differ");
        assert!(!folder.join(".ds.partial").exists());
        fs::remove_dir_all(folder.join("ds")).unwrap();
    }
}

/// A budget far below the memory that the medium input takes otherwise.
const LITTLE: &str = "96MiB";

#[test]
fn the_budget_of_memory_is_kept() {
    const EDGES: u32 = 18_000_000;
    let folder = &*scratch();
    let mut state = 11;
    let ends = (0..2 * EDGES).map(|_| draw(&mut state, EDGES / 10).to_le_bytes());
    npy(&folder.join("edges.npy"), "<u4", &format!("(2, {EDGES})"), ends);
    let peak = |memory: &str| {
        let report = json(
            folder,
            format!("convert edges.npy --out ds --threads 2 --memory {memory} --force"),
        );
        report["peak_rss_mb"].as_f64().unwrap()
    };
    // The peaks count pages of mapped files too, of the program and of the arrays by vertex, which
    // the budget leaves out.
    let budget = 96.0 * 1024.0 * 1024.0 / 1e6 + 48.0;
    let (little, plenty) = (peak(LITTLE), peak("4GiB"));
    println!("peak {little} MB of {budget} MB, {plenty} MB with plenty");
    assert!(little <= budget, "{little} MB of {budget} MB");
    assert!(
        plenty > budget,
        "{plenty} MB with plenty: the budget of {budget} MB asked for nothing"
    );
}

#[test]
fn places_that_cannot_be_written_are_one_line() {
    let folder = &*scratch();
    let edges: String =
        (0..50_000u32).map(|line| format!("{} {}\n", line % 1000, line * 7 % 1000)).collect();
    fs::write(folder.join("edges.txt"), edges).unwrap();
    fs::write(folder.join("file"), "x").unwrap();
    for (out, named) in
        [("file/ds", "file"), ("/dev/null/ds", "/dev/null"), ("/proc/no/ds", "/proc")]
    {
        refused(folder, format!("convert edges.txt --out {out}"), 1, named);
    }
    refused(folder, "convert edges.txt --out file", 1, "file");
    // A folder that is not there yet is made.
    ok(folder, "convert edges.txt --out new/folder/ds");

    fs::create_dir(folder.join("locked")).unwrap();
    let mut mode = fs::metadata(folder.join("locked")).unwrap().permissions();
    mode.set_readonly(true);
    fs::set_permissions(folder.join("locked"), mode).unwrap();
    match fs::write(folder.join("locked/x"), "x") {
        Ok(()) => println!("skipped: this user may write everywhere"),
        Err(_) => {
            let line =
                refused(folder, "convert edges.txt --out locked/ds", 1, "check the permissions");
            assert!(line.contains("locked"), "{line}");
        }
    }
}

#[test]
fn a_file_that_grows_too_large_is_one_line() {
    let folder = &*scratch();
    medium_input(folder);
    // In blocks of 512 or of 1024 bytes, as shells have it: below the sizes of the topology and the
    // features.
    for blocks in ["64", "20000"] {
        let script = format!("ulimit -f {blocks}; exec \"$0\" \"$@\"");
        let mut limited = std::process::Command::new("sh");
        limited
            .args(["-c", &script, env!("CARGO_BIN_EXE_gsplit")])
            .args(CONVERT.split(' '))
            .current_dir(folder);
        let output = limited.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{blocks}: {errors}");
        assert_eq!(errors.lines().count(), 1, "{blocks}: {errors}");
        assert!(
            errors.starts_with("error: ") && errors.contains(".ds.partial"),
            "{blocks}: {errors}"
        );
        assert!(errors.contains("ulimit -f"), "{blocks}: {errors}");
        assert!(!folder.join("ds").exists());
    }
}

#[test]
fn a_plan_has_what_the_process_takes_mapped_files_too() {
    let folder = &*scratch();
    let (n, degree) = (10_000, 13);
    let edge =
        |v: u32| (1..=degree).map(move |step| format!("{} {}\n", v + 1, (v + step * step) % n + 1));
    let head =
        format!("%%MatrixMarket matrix coordinate pattern general\n{n} {n} {}\n", n * degree);
    fs::write(folder.join("edges.mtx"), head + &(0..n).flat_map(edge).collect::<String>()).unwrap();
    let convert = "convert edges.mtx --out ds --features fastrp:512 --threads 2";
    let plan = json(folder, format!("{convert} --plan"));
    let planned = plan["memory"].as_f64().unwrap() + plan["plan"]["mapped"].as_f64().unwrap();
    let took = 1e6 * json(folder, convert)["peak_rss_mb"].as_f64().unwrap();
    // Batches of rows are planned with room to spare.
    assert!((0.95..1.4).contains(&(planned / took)), "{planned} planned, {took} taken: {plan}");
}

#[test]
fn a_plan_writes_nothing_and_says_when_the_disk_is_too_small() {
    let folder = &*scratch();
    fs::write(folder.join("edges.txt"), "0 1\n1 2\n2 0\n").unwrap();
    let plan = "convert edges.txt --out ds --features fastrp:8 --plan";
    let text = ok(folder, plan);
    for word in ["snap: about 3 vertices, ", "graph", "features", "peak memory", "on disk at most"]
    {
        assert!(text.contains(word), "{word}: {text}");
    }
    let json = json(folder, plan);
    for key in ["memory", "disk"] {
        assert!(json[key].as_u64().unwrap() > 0, "{key}: {json}");
    }
    assert!(json["seconds"].as_f64().unwrap() >= 0.0, "{json}");
    assert_eq!(fs::read_dir(folder).unwrap().count(), 1, "nothing is written");
    // 2^26 vertices of 65536 features: 16 TiB.
    fs::write(folder.join("edges.txt"), "0 1\n1 67108863\n").unwrap();
    let huge = "convert edges.txt --keep-ids --out ds --features random:65536";
    for more in ["--plan", ""] {
        let line = fails(folder, format!("{huge} {more}"), 1);
        assert!(line.contains("the dataset takes about") && line.contains("are free"), "{line}");
    }
    assert_eq!(fs::read_dir(folder).unwrap().count(), 1, "nothing is written");
}
