//! The imports that crates and modules may have, and the files that may have unsafe code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::root;

/// The workspace crates that the manifest of `package` depends on, by folder name: always, and for
/// its tests.
fn workspace_dependencies(package: &str) -> [BTreeSet<String>; 2] {
    let manifest = fs::read_to_string(root().join(package).join("Cargo.toml")).unwrap();
    ["[dependencies]\n", "[dev-dependencies]\n"].map(|section| {
        let entries = manifest
            .split(section)
            .nth(1)
            .and_then(|rest| rest.split("\n[").next())
            .unwrap_or_default();
        let names = entries.lines().filter_map(|line| line.strip_prefix("gsplit-"));
        names
            .map(|rest| rest.chars().take_while(|&c| c.is_alphanumeric() || c == '-').collect())
            .collect()
    })
}

#[test]
fn crates_meet_in_store_and_kernels_only() {
    let both = ["kernels", "store"];
    let to_sample = ["kernels", "sample", "store"];
    for (package, allowed) in [
        ("store", &[][..]),
        ("kernels", &[]),
        ("gpu-sim", &["kernels"]),
        ("sample", &both),
        ("preprocess", &both),
        ("partition", &both),
        ("trainer", &to_sample),
        ("python/native", &["kernels", "partition", "sample", "store"]),
    ] {
        let [found, by_tests] = workspace_dependencies(package);
        assert!(found.iter().eq(allowed), "{package} imports {found:?}, expected {allowed:?}");
        assert!(
            by_tests.iter().all(|name| name == "gpu-sim"),
            "the tests of {package} import {by_tests:?}"
        );
    }
    let [found, _] = workspace_dependencies(".");
    assert!(
        found.contains("trainer") && !found.contains("gpu-sim"),
        "only tests have GPUs that are not there"
    );
}

/// Samples are plain data, for callers that have another torch or none.
#[test]
fn sampling_knows_no_torch() {
    let files = [rust_files("sample/src"), vec![root().join("sample/Cargo.toml")]].concat();
    assert!(files.len() > 4);
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        assert!(words(&text).all(|word| !["tch", "torch"].contains(&word)), "{}", path.display());
    }
}

/// The folders of the crates' sources.
pub const CRATES: &str = "src store/src kernels/src sample/src preprocess/src partition/src trainer/src gpu-sim/src python/native/src";

/// The Rust files below a folder of the repository.
pub fn rust_files(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join(folder)).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(rust_files(path.to_str().unwrap()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

pub fn is_test(path: &Path) -> bool {
    path.iter().any(|part| part == "tests" || part == "tests.rs")
}

/// The Rust files below these folders, without test files.
pub fn product_files(folders: &str) -> Vec<PathBuf> {
    let files: Vec<_> =
        folders.split(' ').flat_map(rust_files).filter(|path| !is_test(path)).collect();
    assert!(files.len() > 40, "{folders}");
    files
}

/// The rooms of a crate, its modules at the root, and which of them each imports.
fn rooms(package: &str) -> BTreeMap<String, BTreeSet<String>> {
    let source = root().join(package).join("src");
    let library = fs::read_to_string(source.join("lib.rs")).unwrap();
    let declared = library.lines().filter_map(|line| {
        let line = line.strip_prefix("pub ").unwrap_or(line);
        line.strip_prefix("mod ")?.strip_suffix(';')
    });
    let names: BTreeSet<&str> = declared.filter(|name| *name != "tests").collect();
    // A name that the root re-exports counts as an import from its own module.
    let mut at_root = BTreeMap::new();
    for item in library.split("pub use ").skip(1).filter_map(|item| item.split(';').next()) {
        let mut path = words(item).filter(|word| !word.is_empty());
        let room = path.next().unwrap_or_default();
        at_root.extend(path.map(|name| (name, room)));
    }
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in rust_files(source.to_str().unwrap()) {
        let within = path.strip_prefix(&source).unwrap();
        let room =
            within.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs").to_string();
        if !names.contains(&*room) || is_test(within) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let code: Vec<&str> =
            code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let imports = found.entry(room.clone()).or_default();
        for path in code.join("\n").split("crate::").skip(1) {
            let end = if path.starts_with('{') { path.find(';').unwrap_or(0) } else { 0 };
            let named =
                words(path).find(|word| !word.is_empty()).into_iter().chain(words(&path[..end]));
            let of = named.filter_map(|name| names.get(name).or_else(|| at_root.get(name)));
            imports.extend(of.filter(|other| **other != room).map(|other| (*other).to_string()));
        }
    }
    found
}

/// The rooms of the trainer, each above all that it imports. `error` is an exception: everything
/// may fail.
const TRAINER: &str = "train rates evaluate run infer epoch step report optimizer batch residence job task model sample exchange \
                       ranks operator systems config metric autograd error";

#[test]
fn rooms_of_the_trainer_import_those_below_alone() {
    let found = rooms("trainer");
    let names: BTreeSet<&str> = found.keys().map(String::as_str).collect();
    assert_eq!(names, TRAINER.split(' ').collect(), "every room has its place");
    let place = |room: &str| TRAINER.split(' ').position(|name| name == room).unwrap();
    for (room, imports) in &found {
        let up: Vec<&String> = imports.iter().filter(|other| place(other) < place(room)).collect();
        assert!(up.is_empty(), "{room} imports {up:?}, which stand above it");
    }
}

/// Takes away rooms that import only rooms already taken away, until there are none: the rest
/// imports in circles.
#[test]
fn rooms_do_not_import_each_other_in_circles() {
    let mut left = rooms("preprocess");
    assert!(left.len() > 5 && left.values().any(|imports| !imports.is_empty()), "{left:?}");
    loop {
        let free: BTreeSet<String> = left.keys().cloned().collect();
        let before = left.len();
        left.retain(|_, imports| imports.iter().any(|other| free.contains(other)));
        if left.len() == before {
            break;
        }
    }
    assert!(left.is_empty(), "circles among {left:#?}");
}

/// Readers of arrays and of tables may read lines; text knows neither, they do not know each other,
/// and no reader asks for the format.
#[test]
fn readers_share_text_alone() {
    for (folder, others) in
        [("text", &["arrays", "table"][..]), ("arrays", &["table"]), ("table", &["arrays"])]
    {
        let files = rust_files(&format!("preprocess/src/read/{folder}"));
        assert!(files.len() > 5);
        for path in files {
            let text = fs::read_to_string(&path).unwrap();
            let code: Vec<&str> =
                text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
            let code = code.join("\n");
            for other in others.iter().chain(&["detect"]) {
                let imports = ["read", "super"]
                    .iter()
                    .any(|from| code.contains(&format!("{from}::{other}::")));
                assert!(!imports, "{} imports {other}", path.display());
            }
        }
    }
}

/// A FIFO in place of a file would be waited for: `store/src/open.rs` refuses it. What only the
/// system has needs no such door.
#[test]
fn files_are_opened_by_one_door() {
    let of_system = [
        "memory.rs",
        "src/doctor.rs",
        "doctor/advice.rs",
        "staging/lock.rs",
        "ranks/hosts.rs",
        "cuda/compile.rs",
    ];
    for path in product_files(CRATES) {
        if of_system.iter().any(|end| path.ends_with(end)) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for line in code
            .lines()
            .filter(|line| !["/proc/", "/dev/", "sync_all"].iter().any(|word| line.contains(word)))
        {
            let opens = [
                "fs::read(",
                "fs::read_to_string(",
                " File::open(",
                "(File::open(",
                "fs::File::open(",
            ];
            assert!(!opens.iter().any(|call| line.contains(call)), "{}: {line}", path.display());
        }
    }
}

/// The files that may have unsafe code; and the ones of them in the folder of CUDA.
pub const UNSAFE: &str = "store/src/mmap.rs store/src/faults.rs store/src/features/reads/ring.rs kernels/src/prefetch.rs \
                      kernels/src/product/amx.rs kernels/src/product/cpu.rs \
                      kernels/src/product/x86.rs \
                      trainer/src/autograd/raw.rs trainer/src/ranks/c10d/raw.rs \
                      gpu-sim/src/emulated/mod.rs gpu-sim/src/fake/mod.rs \
                      python/native/src/memory.rs";
const OF_CUDA: &str = "buffer compile device driver event facts late library nccl pool staging";

#[test]
fn unsafe_code_is_in_its_room() {
    let word = ["un", "safe"].concat();
    let of_cuda = OF_CUDA.split(' ').map(|name| format!("kernels/src/cuda/{name}.rs"));
    let rooms: Vec<String> = UNSAFE.split(' ').map(str::to_string).chain(of_cuda).collect();
    for path in CRATES.split(' ').flat_map(rust_files) {
        let text = fs::read_to_string(&path).unwrap();
        let used = text.lines().any(|line| {
            let code = line.split("//").next().unwrap_or_default();
            ["{", "fn", "impl"].iter().any(|what| code.contains(&format!("{word} {what}")))
        });
        assert!(!used || rooms.iter().any(|room| path.ends_with(room)), "{}", path.display());
    }
}

/// The functions that a `library` offers, by its `pub use` lines. (Types and constants may be there
/// for what functions take, return and say.)
fn offered(library: &str) -> Vec<&str> {
    let items = library.split("pub use ").skip(1).filter_map(|item| item.split(';').next());
    let is_function =
        |name: &&str| name.contains('_') && name.starts_with(|c: char| c.is_ascii_lowercase());
    items.flat_map(words).filter(is_function).collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// The patterns of three names and more that a parameter in `text` is taken apart by, as `(a, b,
/// c): (A, B, C)`.
fn long_tuples(text: &str) -> Vec<&str> {
    let ends = text.match_indices("): (").chain(text.match_indices("): &(")).map(|(at, _)| at);
    let pattern = |end: usize| {
        let mut depth = 0;
        let begin = text[..end].rfind(|c| {
            depth += i32::from(c == ')') - i32::from(c == '(');
            depth < 0
        })?;
        Some(&text[begin + 1..end])
    };
    let num_names = |pattern: &str| {
        let mut depth = 0;
        let commas = pattern.chars().filter(|&c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            c == ',' && depth == 0
        });
        commas.count() + 1
    };
    ends.filter_map(pattern).filter(|pattern| num_names(pattern) > 2).collect()
}

#[test]
fn parameters_that_travel_together_have_a_type_with_names() {
    assert_eq!(long_tuples("fn f((a, b, c): (A, B, C), (d, (e, f)): &(D, (E, F)))"), ["a, b, c"]);
    for path in product_files("src store/src preprocess/src partition/src") {
        let text = fs::read_to_string(&path).unwrap();
        assert!(long_tuples(&text).is_empty(), "{}: {:?}", path.display(), long_tuples(&text));
    }
}

#[test]
fn what_kernels_and_store_offer_is_used() {
    for package in ["kernels", "store"] {
        let others: Vec<&str> =
            CRATES.split(' ').filter(|folder| !folder.starts_with(package)).collect();
        let text: String = product_files(&others.join(" "))
            .into_iter()
            .map(|path| fs::read_to_string(path).unwrap())
            .collect();
        let used: std::collections::HashSet<&str> = words(&text).collect();
        let library = fs::read_to_string(root().join(package).join("src/lib.rs")).unwrap();
        let names = offered(&library);
        assert!(!names.is_empty());
        let unused: Vec<&str> = names.into_iter().filter(|name| !used.contains(name)).collect();
        assert!(unused.is_empty(), "{package} offers what nobody uses: {unused:?}");
    }
}

/// The dependencies of `package`, or of the whole workspace, and their features: direct ones, and
/// all.
fn features(package: Option<&str>) -> [BTreeMap<String, BTreeSet<String>>; 2] {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root()).args([
        "tree",
        "--locked",
        "--edges",
        "normal,build,dev",
        "--no-dedupe",
    ]);
    cargo.args(["--prefix", "depth", "--format", " {p} |{f}|"]);
    match package {
        Some(package) => cargo.args(["--package", package]),
        None => cargo.arg("--workspace"),
    };
    let output = cargo.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let [mut direct, mut all] = [BTreeMap::new(), BTreeMap::new()];
    for line in String::from_utf8(output.stdout).unwrap().lines().filter(|line| line.contains('|'))
    {
        let mut fields = line.split('|');
        let (depth, name) = fields.next().unwrap().split_once(' ').unwrap();
        let features = fields
            .next()
            .unwrap()
            .split(',')
            .filter(|feature| !feature.is_empty())
            .map(str::to_string);
        let features: Vec<String> = features.collect();
        for (found, wanted) in [(&mut direct, depth == "1"), (&mut all, true)] {
            if wanted {
                found
                    .entry(name.to_string())
                    .or_insert_with(BTreeSet::new)
                    .extend(features.clone());
            }
        }
    }
    [direct, all]
}

/// A feature that only the whole workspace brings would let a crate compile with the others and not
/// by itself.
#[test]
fn crates_ask_for_the_features_that_they_have() {
    // Of other processors, of another decompressor than the one that is used, and of Arrow files
    // that only tables have.
    const OTHERS: [&str; 8] = [
        "aarch64_simd",
        "avx512_simd",
        "wasm_simd",
        "miniz_oxide",
        "rust_backend",
        "lz4",
        "lz4_flex",
        "zstd",
    ];
    let [_, together] = features(None);
    for package in [
        "gsplit-store",
        "gsplit-kernels",
        "gsplit-sample",
        "gsplit-preprocess",
        "gsplit-partition",
        "gsplit-trainer",
    ] {
        let [direct, _] = features(Some(package));
        assert!(direct.len() > 3, "{direct:?}");
        for (name, alone) in direct.into_iter().filter(|(name, _)| !name.starts_with("gsplit")) {
            let more: Vec<&String> = together[&name]
                .difference(&alone)
                .filter(|name| !OTHERS.contains(&name.as_str()))
                .collect();
            assert!(
                more.is_empty(),
                "{package} alone has not the features {more:?} of {name}: ask for them in \
                 Cargo.toml"
            );
        }
    }
}
