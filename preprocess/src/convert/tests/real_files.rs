//! Real graphs, where they are at hand: the counts that other programs found.

use super::*;
use crate::read::golden::real;

/// Folder, source, vertices, edges after merging, self-loops kept, whether ids were changed.
type Case = (&'static str, fn(PathBuf) -> PathBuf, [usize; 3], bool);

const CASES: [Case; 11] = [
    ("wiki-Vote/wiki-Vote.txt", snap, [7_115, 103_689, 0], true),
    ("soc-Slashdot0902/soc-Slashdot0902.txt.gz", snap, [82_168, 948_464, 78_303], false),
    ("email-Eu-core/email-Eu-core.txt", snap, [1_005, 25_571, 642], false),
    ("email-Eu-core/email-Eu-core.txt.gz", snap, [1_005, 25_571, 642], false),
    ("facebook_combined/facebook_combined.txt.gz", snap, [4_039, 88_234, 0], false),
    ("p2p-Gnutella31/p2p-Gnutella31.txt", snap, [62_586, 147_892, 0], false),
    ("com-dblp/dblp.csv.gz", snap, [317_080, 1_049_866, 0], true),
    ("ogbn_arxiv", ogb, [169_343, 1_166_243, 0], false),
    ("ogb-layout-cora", ogb, [2_708, 10_556, 0], false),
    ("ogb-layout-tolokers", ogb, [11_758, 519_000, 0], false),
    ("ogb-binary-amazon-computers", ogb, [13_752, 287_209, 0], false),
];

#[test]
fn counts_agree() {
    for (name, source, [vertices, edges, loops], renumbered) in CASES {
        let Some(path) = real(name) else { continue };
        let (_folder, dataset) = convert_new(&source(path), &ConvertOptions::default()).unwrap();
        let topology = dataset.topology();
        let found =
            (0..vertices as u32).filter(|&v| topology.in_neighbours(v).contains(&v)).count();
        assert_eq!(
            [topology.num_vertices(), topology.num_edges(), found],
            [vertices, edges, loops],
            "{name}"
        );
        assert_eq!(dataset.original_ids().unwrap().is_some(), renumbered, "{name}");
        if name == "ogbn_arxiv" {
            let sizes = Split::ALL.map(|split| dataset.split(split).unwrap().len());
            assert_eq!(
                (sizes, dataset.manifest().num_classes),
                ([90_941, 29_799, 48_603], Some(40))
            );
        }
    }
}
