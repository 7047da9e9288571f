//! The corpora of the fuzz targets (`fuzz/`) for stored files, replayed, with mutations of each
//! input. The corpora of the readers are replayed by `preprocess/tests/corpora.rs`.
//!
//! Stored files change with their formats, so good inputs are made anew here, and replayed as well
//! as the corpus; `cargo test --test suite write_the_seeds -- --ignored` puts them into it.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use crate::support::{ok, root, scratch};
use input::SEPARATOR;

#[path = "../../fuzz/src/input.rs"]
mod input;
#[path = "../../preprocess/tests/corpora/mutations.rs"]
mod mutations;
#[path = "../../fuzz/src/stored.rs"]
mod stored;
#[cfg(feature = "train")]
#[path = "../../fuzz/src/trained.rs"]
mod trained;

/// Inputs by their names.
type Inputs = BTreeMap<String, Vec<u8>>;

fn corpus(name: &str) -> PathBuf {
    root().join("fuzz/corpus").join(name)
}

/// Datasets that have everything between them.
fn datasets() -> Inputs {
    let (folder, data) = (&*scratch(), root().join("tests/data"));
    let convert = |input: &str, name: &str, options: &str| {
        ok(folder, format!("convert {} --out {name} {options}", data.join(input).display()));
    };
    let nodes =
        format!("--nodes {} --edge-columns weight", data.join("tables/nodes.tsv").display());
    convert(
        "tables/edges.csv",
        "columns",
        &format!("{nodes} --features random:3 --feature-dtype i8"),
    );
    convert("ogb-csv", "derived", "");
    convert("graphsaint-multi", "several", "");
    convert("tables/names.parquet", "names", "--features random:2");
    ok(folder, "presample derived --fanouts 2,2 --epochs 2 --batch-size 2 --key k");
    ok(folder, "partition derived --parts 2 --key k");
    ok(folder, "place derived --cache 50% --key k");
    let place = root();
    let read = |name: &str, file: &str| {
        let bytes = fs::read(folder.join(name).join(file)).unwrap_or_default();
        // Documents name their inputs, whose paths differ between machines.
        match String::from_utf8(bytes) {
            Ok(text) => text.replace(place.to_str().unwrap(), "").into_bytes(),
            Err(error) => error.into_bytes(),
        }
    };
    let all = |name: &str| {
        stored::dataset_files().map(|file| read(name, file)).collect::<Vec<_>>().join(SEPARATOR)
    };
    ["columns", "derived", "several", "names"].map(|name| (name.to_string(), all(name))).into()
}

fn one(name: &str, bytes: Vec<u8>) -> Inputs {
    [(name.to_string(), bytes)].into()
}

/// Good inputs of today's formats.
fn seeds(name: &str) -> Inputs {
    match name {
        "dataset" => datasets(),
        "journal" => one("two-stages", stored::journal()),
        #[cfg(feature = "train")]
        "checkpoint" => one("one-epoch", trained::seed()),
        _ => Inputs::new(),
    }
}

/// Runs the corpus of `name`, its seeds, and `mutations` of all of these; one at least must be
/// accepted, and all the seeds.
fn replay(name: &str, mutations: usize, run: fn(&str, &[u8]) -> bool) {
    let seeds = seeds(name);
    let inputs: Vec<(String, Vec<u8>)> =
        seeds.clone().into_iter().chain(mutations::corpus(&corpus(name))).collect();
    let accepted = mutations::replay(&inputs, mutations, |bytes, what| {
        std::panic::catch_unwind(|| run(name, bytes)).unwrap_or_else(|_| {
            panic!("{name}, {what}; its bytes: {}", mutations::keep(name, bytes).display())
        })
    });
    assert!(
        accepted.contains(&true) && accepted[..seeds.len()].iter().all(|&good| good),
        "{name}: {accepted:?}"
    );
}

#[test]
fn what_is_stored_is_sound_or_refused() {
    stored::TARGETS.into_iter().for_each(|name| replay(name, 400, stored::run));
}

#[cfg(feature = "train")]
#[test]
fn checkpoints_and_configurations_are_read_or_refused() {
    replay("checkpoint", 60, trained::run);
    replay("config", 400, trained::run);
}

/// Not a test: see above.
#[test]
#[ignore = "writes into fuzz/corpus"]
fn write_the_seeds() {
    for name in ["dataset", "journal", "checkpoint"] {
        fs::create_dir_all(corpus(name)).unwrap();
        seeds(name)
            .into_iter()
            .for_each(|(seed, bytes)| fs::write(corpus(name).join(seed), bytes).unwrap());
    }
}
