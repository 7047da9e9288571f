//! Splits of links, in every form.

use gsplit_store::{LinkInfo, LinkNegatives};

use super::bad_input::message;
use super::*;

const TRAIN: [[u32; 2]; 6] = [[0, 1], [0, 2], [1, 2], [2, 0], [3, 4], [0, 1]];

/// The graph of `ogb-csv` with the split of links in `form`, called `split`.
fn with_links(form: &str, split: &str) -> TempDir {
    let folder = copy("ogb-csv");
    fs::remove_dir_all(folder.path().join("split")).unwrap();
    let to = folder.path().join("split").join(split);
    fs::create_dir_all(&to).unwrap();
    for entry in fs::read_dir(data("ogb-links").join(form)).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
    folder
}

#[test]
fn every_form_gives_the_same_split() {
    for form in ["zip", "numpy", "protocol-4", "legacy", "npz", "dict"] {
        let input = with_links(form, "time");
        let (_folder, dataset) = convert_new(input.path(), &ConvertOptions::default()).unwrap();
        let links = dataset.links().unwrap().unwrap();
        let info = LinkInfo { negatives: Some(LinkNegatives::Pairs), metric: "hits@50".into() };
        assert_eq!(*links.info(), info, "{form}");
        assert_eq!(links.pairs(Split::Train), TRAIN, "{form}");
        assert_eq!(
            (links.pairs(Split::Valid), links.pairs(Split::Test)),
            (&[[2, 5], [1, 3]][..], &[[5, 0]][..])
        );
        assert_eq!(links.negatives(Split::Valid), Some((&[0, 5, 1, 5, 5, 3][..], 2)), "{form}");
        assert_eq!(links.negatives(Split::Test), Some((&[4, 0, 4, 1][..], 2)), "{form}");
        assert!(dataset.manifest().splits().is_empty());
        let sources = &dataset.manifest().provenance.sources;
        assert!(
            sources.iter().any(|source| source.path.starts_with("split/time/")),
            "{form}: {sources:?}"
        );
        let problems: Vec<_> = gsplit_store::verify(dataset.path()).unwrap();
        assert!(problems.iter().all(|finding| finding.problem.is_none()), "{form}: {problems:?}");
    }
}

#[test]
fn targets_and_metrics_are_those_of_the_dataset() {
    for form in ["targets", "legacy-targets"] {
        let input = with_links(form, "time");
        let (_folder, dataset) = convert_new(input.path(), &ConvertOptions::default()).unwrap();
        let links = dataset.links().unwrap().unwrap();
        let info = LinkInfo { negatives: Some(LinkNegatives::Targets), metric: "mrr".into() };
        assert_eq!((links.info(), links.pairs(Split::Train)), (&info, &TRAIN[..]), "{form}");
        assert_eq!(links.negatives(Split::Valid), Some((&[3, 4, 5, 0, 5, 4][..], 3)), "{form}");
    }
    for (split, metric) in [
        ("throughput", "hits@100"),
        ("target", "hits@20"),
        ("spatial", "roc-auc"),
        ("x", "hits@50"),
    ] {
        let (_folder, dataset) =
            convert_new(with_links("zip", split).path(), &ConvertOptions::default()).unwrap();
        assert_eq!(dataset.manifest().links.as_ref().unwrap().metric, metric);
    }
}

#[test]
fn a_random_split_of_vertices_stands_beside_the_links() {
    let options = options("--random-split 0.5,0.2,0.2");
    let (_folder, dataset) = convert_new(with_links("zip", "time").path(), &options).unwrap();
    assert!(dataset.links().unwrap().is_some() && dataset.manifest().splits().len() == 3);
    let (_folder, dataset) =
        convert_new(with_links("zip", "time").path(), &ConvertOptions::default()).unwrap();
    let message = dataset.split(Split::Train).unwrap_err().to_string();
    assert!(message.contains("its splits are of links: train with --task link"), "{message}");
}

#[test]
fn bad_splits_of_links_are_one_line() {
    let refused = |form: &str, change: &dyn Fn(&Path), words: &[&str]| {
        let input = with_links(form, "time");
        change(&input.path().join("split/time"));
        let message = message(input.path(), &ConvertOptions::default());
        assert!(words.iter().all(|words| message.contains(words)), "{form}: {words:?}: {message}");
    };
    let replace = |name: &'static str, bytes: Vec<u8>| {
        move |folder: &Path| fs::write(folder.join(name), &bytes).unwrap()
    };
    let zip = |split: &str| fs::read(data(&format!("ogb-links/legacy/{split}.pt"))).unwrap();
    let remove =
        |name: &'static str| move |folder: &Path| fs::remove_file(folder.join(name)).unwrap();
    refused("zip", &remove("valid.pt"), &["expected train, valid and test"]);
    let cut = zip("test")[..300].to_vec();
    refused("zip", &replace("test.pt", cut), &["test.pt", "truncated or damaged", "numpy.savez"]);
    let other_form = fs::read(data("ogb-links/targets/test.pt")).unwrap();
    refused("zip", &replace("test.pt", other_form), &["different forms"]);
    refused("zip", &replace("test.pt", zip("train")), &["different forms"]);
    refused(
        "zip",
        &replace("train.pt", b"\x80\x02cos\nsystem\nX\x01\0\0\0x\x85R.".to_vec()),
        &["os.system"],
    );
    refused("zip", &replace("train.pt", b"\x80\x02]q\0.".to_vec()), &["a list: expected a dict"]);
    refused(
        "zip",
        &replace("train.pt", b"\x80\x02}X\x01\0\0\0aNs.".to_vec()),
        &["a split of a", "expected edge"],
    );
    refused(
        "zip",
        &replace("train.pt", b"\x80\x02}X\x04\0\0\0edgeNs.".to_vec()),
        &["edge: expected an array"],
    );
    let graph = b"\x80\x02}(X\x04\0\0\0headNX\x08\0\0\0relationNX\x04\0\0\0tailNu.".to_vec();
    refused("zip", &replace("train.pt", graph), &["a knowledge graph"]);
}
