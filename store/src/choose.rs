//! Chooses the artifact of a dataset that a command uses, if there are several of its kind.

use crate::{Dataset, Error, Result};

/// Returns the artifact of `kind` that the option `--kind` has `named`, otherwise the one of the
/// highest rank among the artifacts that `rank` accepts. `None` if there is none. An artifact that
/// `open` refuses is skipped if another is accepted.
///
/// # Errors
/// The error of `open`, or [`Error::Several`] if several have the highest rank.
pub fn choose<A, R: Ord>(
    dataset: &Dataset,
    kind: &'static str,
    named: Option<&str>,
    open: impl Fn(&Dataset, &str) -> Result<A>,
    mut rank: impl FnMut(&A) -> Option<R>,
) -> Result<Option<A>> {
    if let Some(key) = named {
        return open(dataset, key).map(Some);
    }
    let (mut best, mut refused): (Option<(R, A, Vec<String>)>, _) = (None, None);
    for key in dataset.keys(kind)? {
        match open(dataset, &key) {
            Err(error) => refused = Some(error),
            Ok(artifact) => {
                let Some(rank) = rank(&artifact) else { continue };
                match &mut best {
                    Some((highest, _, keys)) if rank == *highest => keys.push(key),
                    Some((highest, ..)) if rank < *highest => {}
                    _ => best = Some((rank, artifact, vec![key])),
                }
            }
        }
    }
    match (best, refused) {
        (Some((_, _, keys)), _) if keys.len() > 1 => {
            Err(Error::Several { kind, keys: keys.join(", ") })
        }
        (Some((_, artifact, _)), _) => Ok(Some(artifact)),
        (None, Some(error)) => Err(error),
        (None, None) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DatasetWriter;
    use crate::writer::tests::provenance;

    #[test]
    fn the_named_one_is_taken_else_the_only_one_of_the_highest_rank() {
        let folder = tempfile::tempdir().unwrap();
        let writer = DatasetWriter::create(&folder.path().join("ds"), false, &[0, 0], &[]).unwrap();
        let dataset = writer.finish(provenance()).unwrap();
        let choice = |named: Option<&str>, keys: &[&str], ranks: &[(&str, i32)]| {
            let _ = std::fs::remove_dir_all(dataset.path().join("presample"));
            for key in keys {
                let folder = dataset.path().join("presample").join(key);
                std::fs::create_dir_all(&folder).unwrap();
                std::fs::write(folder.join("presample.json"), "").unwrap();
            }
            let open = |_: &Dataset, key: &str| match key {
                "damaged" => Err(Error::Invalid("damaged".into())),
                key => Ok(key.to_string()),
            };
            let rank = |key: &String| {
                ranks.iter().find(|(ranked, _)| ranked == key).map(|(_, rank)| *rank)
            };
            let chosen = choose(&dataset, "presample", named, open, rank);
            chosen.map(Option::unwrap_or_default).unwrap_or_else(|error| error.to_string())
        };
        assert_eq!(choice(None, &[], &[]), "");
        assert_eq!(choice(Some("a"), &["b"], &[]), "a");
        assert_eq!(choice(Some("damaged"), &["b"], &[("b", 1)]), "damaged");
        assert_eq!(choice(None, &["a", "b", "c"], &[("a", 1), ("b", 3), ("c", 2)]), "b");
        assert_eq!(choice(None, &["a", "b"], &[]), "", "none is accepted");
        assert_eq!(
            choice(None, &["a", "b", "c"], &[("a", 1), ("b", 2), ("c", 2)]),
            "choose a presample with --presample: b, c"
        );
        assert_eq!(choice(None, &["a", "damaged"], &[("a", 1)]), "a");
        assert_eq!(choice(None, &["a", "damaged"], &[]), "damaged");
    }
}
