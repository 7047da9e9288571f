//! Damaged files end in one line that names them, never in a panic that is seen or an allocation
//! that a header asks for.

use std::fs;

use super::*;

/// A small generator, so that failures repeat.
pub fn random(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize
}

/// Reads the table at `path`; errors have to name it.
fn survives(path: &Path, case: &str) {
    let raw = by_default(path);
    if let Err(error) = raw.and_then(|raw| read_once(raw.edges.as_ref())) {
        let message = error.to_string();
        assert!(message.contains("damaged.") && !message.contains('\n'), "{case}: {message}");
    }
}

#[test]
fn flipped_bits_and_cut_ends_are_survived() {
    let folder = tempfile::tempdir().unwrap();
    // Panics of the decoders are caught; their traces would drown the others.
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.location().is_some_and(|place| !place.file().starts_with('/')) {
            default(info);
        }
    }));
    for name in [
        "snappy.parquet",
        "plain.parquet",
        "names.parquet",
        "file.arrow",
        "lz4.feather",
        "names.arrows",
    ] {
        let good = fs::read(fixture(name)).unwrap();
        let path =
            folder.path().join("damaged").with_extension(Path::new(name).extension().unwrap());
        let mut state = 7;
        for round in 0..400 {
            let mut bad = good.clone();
            for _ in 0..=round % 3 {
                let at = random(&mut state) % bad.len();
                bad[at] ^= 1 << (random(&mut state) % 8);
            }
            fs::write(&path, &bad).unwrap();
            survives(&path, &format!("{name}, round {round}"));
        }
        for length in (0..good.len()).step_by(good.len() / 60 + 1) {
            fs::write(&path, &good[..length]).unwrap();
            survives(&path, &format!("{name}, {length} bytes"));
        }
    }
}
