//! Files that count their vertices from 1, together with tables.

use gsplit_store::verify;

use super::bad_input::message;
use super::*;

/// The edges 1 -> 2 and 3 -> 1, or both directions of these, in each format.
const GRAPHS: [(&str, &str); 2] = [
    ("g.mtx", "%%MatrixMarket matrix coordinate pattern general\n3 3 2\n1 2\n3 1\n"),
    ("g.graph", "3 2\n2 3\n1\n1\n"),
];

fn beside(nodes: &str, (name, graph): (&str, &str)) -> (TempDir, PathBuf, ConvertOptions) {
    let folder = tempfile::tempdir().unwrap();
    let (path, table) = (folder.path().join(name), folder.path().join("nodes.csv"));
    std::fs::write(&path, graph).unwrap();
    std::fs::write(&table, nodes).unwrap();
    let options = options(&format!("--nodes {} --label-column class", table.display()));
    (folder, path, options)
}

#[test]
fn tables_name_vertices_as_the_graph_file_does() {
    // The running number from 0 is not the id.
    let nodes = "row,vertex,class,split\n0,3,2,test\n1,1,0,train\n2,2,1,valid\n";
    for graph in GRAPHS {
        let (_input, path, options) = beside(nodes, graph);
        let (_out, dataset) = convert_new(&path, &options).unwrap();
        assert!(verify(dataset.path()).unwrap().iter().all(|finding| finding.problem.is_none()));
        assert_eq!(dataset.labels().unwrap()[..], [0, 1, 2], "{}", graph.0);
        let splits = Split::ALL.map(|split| dataset.split(split).unwrap().to_vec());
        assert_eq!(splits, [vec![0], vec![1], vec![2]], "{}", graph.0);
        assert_eq!(dataset.original_ids().unwrap().unwrap().to_vec(), [1, 2, 3]);
        let (_alone, plain) = convert_new(&path, &ConvertOptions::default()).unwrap();
        assert_eq!(
            plain.topology().indices(),
            dataset.topology().indices(),
            "the graph is the same"
        );
        assert_eq!(plain.manifest().first_id, 1);
        assert!(
            !plain.path().join("nodes/original_id.npy").exists(),
            "ids that count are not listed"
        );
    }
}

#[test]
fn ids_that_the_graph_file_does_not_have_are_named_with_their_line() {
    for graph in GRAPHS {
        for (nodes, part) in [
            (
                "vertex,class\n1,0\n0,1\n2,0\n",
                "line 3: 0 (ids count from 1 to 3) is not a vertex of the graph",
            ),
            (
                "vertex,class\n1,0\n2,1\n3,0\n4,0\n",
                "nodes.csv: line 5: 4 (ids count from 1 to 3) is not a vertex",
            ),
            (
                "vertex,class\n1,0\n3,0\n",
                "nodes.csv: 1 of 3 vertices have edges and no row, for example 2",
            ),
        ] {
            let (_input, path, options) = beside(nodes, graph);
            let message = message(&path, &options);
            assert!(message.contains(part), "{}: {message}", graph.0);
        }
    }
}
