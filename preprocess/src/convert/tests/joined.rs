//! New rows joined to the graph of a dataset.

use std::collections::BTreeMap;

use super::*;
use crate::convert::{NewRows, Older, join};
use crate::export::f32_rows;

/// Weights of the edges by their ends, and the features of every vertex by its id.
type Described = (BTreeMap<(String, String), f32>, BTreeMap<String, Vec<f32>>);

fn described(dataset: &Dataset) -> Described {
    let (numbers, names) = (dataset.original_ids().unwrap(), dataset.original_names().unwrap());
    let id = |v: u32| match (&numbers, &names) {
        (_, Some(names)) => names.get(v).unwrap().to_string(),
        (Some(numbers), _) => numbers.get(v as usize).to_string(),
        _ => v.to_string(),
    };
    let weights = dataset.edge_column("weight").unwrap();
    let weights = weights.as_slice::<f32>().unwrap();
    let (mut edges, topology) = (BTreeMap::new(), dataset.topology());
    for (v, ends) in (0..).zip(topology.indptr().windows(2)) {
        let range = ends[0] as usize..ends[1] as usize;
        for (&u, &weight) in topology.indices()[range.clone()].iter().zip(&weights[range]) {
            edges.insert((id(u), id(v)), weight);
        }
    }
    let table = dataset.features().unwrap();
    let row = |v: u32| (id(v), f32_rows(&table, std::iter::once(v)));
    (edges, (0..dataset.num_vertices() as u32).map(row).collect())
}

#[test]
fn oracle_tables_joined_to_a_dataset_are_the_graph_of_both() {
    for prefix in ["", "v"] {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let id = |v: u32| format!("{prefix}{}", v * 3);
        let row = |v: u32| format!("{},{}.5,{}\n", id(v), v * v % 17, ["x", "y"][v as usize % 2]);
        let edge = |(u, v): (u32, u32)| format!("{},{},{}.25\n", id(u), id(v), 1 + (u + 2 * v) % 5);
        let old: String =
            (0..60).flat_map(|v| [(v, (v + 1) % 60), (v, (v + 7) % 60)]).map(edge).collect();
        let new: String = [(60, 5), (6, 60), (61, 60), (30, 61), (61, 62)].map(edge).concat();
        let rows = |range: std::ops::Range<u32>| range.map(row).collect::<String>();
        for (name, edges, rows) in [
            ("old", old.clone(), rows(0..60)),
            ("new", new.clone(), rows(60..63)),
            ("all", old + &new, rows(0..63)),
        ] {
            fs::write(at(&format!("{name}.csv")), format!("source,target,weight\n{edges}"))
                .unwrap();
            fs::write(at(&format!("{name}-nodes.csv")), format!("id,age,label\n{rows}")).unwrap();
        }
        let converted = |name: &str, options: &ConvertOptions| {
            let mut options = options.clone();
            options.read.nodes = Some(at(&format!("{name}-nodes.csv")));
            convert(&at(&format!("{name}.csv")), &at(name), &options, false, &NoProgress).unwrap().0
        };
        let dataset = converted("old", &options("--symmetrise"));
        let mut by_recipe = ConvertOptions::default();
        by_recipe.read.recipe = Some(at("old"));
        let whole = described(&converted("all", &by_recipe));
        by_recipe.read.nodes = Some(at("new-nodes.csv"));
        for (layers, least) in [(None, 63), (Some(1), 5)] {
            let new = NewRows {
                edges: Some(&at("new.csv")),
                edge_columns: &["weight".into()],
                older: Some(Older { dataset: &dataset, layers }),
            };
            let out = at(&format!("joined-{layers:?}"));
            let (joined, rows) = join(&new, &out, &by_recipe, &NoProgress).unwrap();
            assert_eq!(rows.len(), 3);
            let (edges, features) = described(&joined);
            assert!(edges.iter().all(|(ends, weight)| whole.0[ends] == *weight), "{prefix}");
            assert!(features.iter().all(|(id, row)| whole.1[id] == *row), "{prefix}");
            assert!(features.len() >= least);
            assert!(layers.is_some() || (edges, features) == whole, "{prefix}");
        }
    }
}
