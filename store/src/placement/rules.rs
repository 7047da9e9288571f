//! Rules shared by all placements: who loads a row, which rows are hottest, and how they are dealt
//! to devices.
//!
//! `gsplit place` predicts the effect of a rule, `gsplit train` follows it; both compute the rows
//! of each device here.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// Ranks that load a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Readers {
    /// The owner of the vertex, once a mini-batch
    #[default]
    Split,
    /// Every device whose share of the mini-batch needs it
    Data,
}

impl std::fmt::Display for Readers {
    /// Its name on the command line.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Split => "split",
            Self::Data => "data",
        })
    }
}

/// Number of edges whose source is each of `n` vertices, from the sources `indices`: the heat of a
/// row without a presample. Sources outside of the vertices are ignored.
pub fn out_degrees(n: usize, indices: &[u32]) -> Vec<u32> {
    let degrees: Vec<AtomicU32> = (0..n).map(|_| AtomicU32::new(0)).collect();
    indices.par_iter().filter_map(|&source| degrees.get(source as usize)).for_each(|degree| {
        degree.fetch_add(1, Relaxed);
    });
    degrees.into_iter().map(AtomicU32::into_inner).collect()
}

/// The `count` vertices with the highest `heat` (one number per vertex), hottest first, ties by
/// vertex number. All vertices if there are no more.
pub fn hottest_rows(heat: &[u32], count: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..heat.len() as u32).collect();
    let rank = |&v: &u32| (Reverse(heat[v as usize]), v);
    if count < heat.len() {
        order.select_nth_unstable_by_key(count, rank);
        order.truncate(count);
    }
    order.par_sort_unstable_by_key(rank);
    order
}

/// Deals `rows` in turn to devices; device `i` has room for `room[i]` rows, together one copy
/// (Quiver).
pub fn deal_rows(rows: &[u32], room: &[usize]) -> Vec<Vec<u32>> {
    let mut lists = vec![Vec::new(); room.len()];
    let mut turn = 0;
    for &v in rows {
        let next = (0..room.len())
            .map(|step| (turn + step) % room.len())
            .find(|&device| lists[device].len() < room[device]);
        let Some(device) = next else { break };
        lists[device].push(v);
        turn = device + 1;
    }
    lists
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hottest_first_ties_by_number() {
        let degrees = out_degrees(4, &[1, 2, 3, 1, 3, 3, 0, 1, 3, 9]);
        assert_eq!(degrees, [1, 3, 1, 4]);
        for (count, expected) in
            [(0, &[][..]), (2, &[3, 1]), (3, &[3, 1, 0]), (4, &[3, 1, 0, 2]), (9, &[3, 1, 0, 2])]
        {
            assert_eq!(hottest_rows(&degrees, count), expected);
        }
    }

    #[test]
    fn rows_are_dealt_in_turn_to_those_with_room() {
        assert_eq!(deal_rows(&[5, 3, 9, 1, 7], &[2, 2]), [[5, 9], [3, 1]]);
        assert_eq!(deal_rows(&[5, 3, 9, 1, 7], &[1, 3, 0]), [vec![5], vec![3, 9, 1], vec![]]);
        assert_eq!(deal_rows(&[5], &[3, 3]), [vec![5], vec![]]);
        assert_eq!(deal_rows(&[5], &[0]), [[0u32; 0]]);
        assert_eq!(deal_rows(&[5], &[]), [[0u32; 0]; 0]);
    }

    #[test]
    fn readers_are_stored_by_their_names() {
        for readers in [Readers::Split, Readers::Data] {
            assert_eq!(serde_json::to_string(&readers).unwrap(), format!("\"{readers}\""));
        }
    }
}
