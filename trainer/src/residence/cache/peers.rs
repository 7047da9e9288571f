//! Peers: the ranks that read each other's caches, and how rows are dealt to them.
//!
//! Returns: for each rank, the others whose caches it reads; groups of ranks that all read each
//! other's, with the vertices that each keeps. Input: which GPU reads the memory of which. Idea:
//! GPUs without a link between them cannot share one copy of a row, so each group has its own
//! (Quiver, Tan et al., 2023). Groups are found greedily, in the order of ranks: with the links of
//! real boards, all to all or within halves, these are the largest possible. Cost: the pairs of
//! ranks.

use gsplit_store::{Progress, deal_rows};

use super::reach::Sight;

/// For each rank, the others whose caches it reads: ranks after it come first, to spread the load.
pub fn peers(sights: &[Vec<Sight>], progress: &dyn Progress) -> Vec<Vec<usize>> {
    let ranks = sights.len();
    let of_rank = |reader: usize| {
        let (mut reached, mut apart, mut why) = (Vec::new(), Vec::new(), String::new());
        for owner in (1..ranks).map(|step| (reader + step) % ranks) {
            match &sights[reader][owner] {
                Sight::Reached => reached.push(owner),
                Sight::OtherHost => {}
                Sight::Apart(reason) => {
                    apart.push(owner.to_string());
                    if !reason.is_empty() {
                        why = format!(" ({reason})");
                    }
                }
            }
        }
        if !apart.is_empty() {
            let apart = apart.join(", ");
            progress.note(&format!(
                "the GPU of rank {reader} cannot read the rows that ranks {apart} keep{why}: it \
                 reads rows that only these keep \
                 from host memory"
            ));
        }
        reached
    };
    if sights.iter().flatten().any(|sight| *sight == Sight::OtherHost) {
        progress.note(
            "GPUs cannot read other hosts' caches: rows only kept there come from host memory",
        );
    }
    (0..ranks).map(of_rank).collect()
}

/// Groups of ranks in which each reads the caches of all others; every rank is in one group.
pub fn cliques(peers: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let both = |a: usize, b: usize| peers[a].contains(&b) && peers[b].contains(&a);
    let mut cliques: Vec<Vec<usize>> = Vec::new();
    for rank in 0..peers.len() {
        match cliques.iter_mut().find(|clique| clique.iter().all(|&other| both(rank, other))) {
            Some(clique) => clique.push(rank),
            None => cliques.push(vec![rank]),
        }
    }
    cliques
}

/// Deals vertices to the ranks of each clique; returns the list of each rank.
pub fn deal_to_cliques(vertices: &[u32], cliques: &[Vec<usize>], room: &[usize]) -> Vec<Vec<u32>> {
    let mut lists = vec![Vec::new(); room.len()];
    for clique in cliques {
        let dealt = deal_rows(vertices, &clique.iter().map(|&rank| room[rank]).collect::<Vec<_>>());
        for (&rank, list) in clique.iter().zip(dealt) {
            lists[rank] = list;
        }
    }
    lists
}

#[cfg(test)]
mod tests {
    use gsplit_store::{NoProgress, Notes};

    use super::super::reach::of_threads;
    use super::*;
    use crate::Error;

    #[test]
    fn peers_are_those_that_are_reached_and_the_others_are_named() {
        let notes = Notes::default();
        assert_eq!(peers(&of_threads(3, |_, _| Ok(true)), &notes), [[1, 2], [2, 0], [0, 1]]);
        assert!(notes.lines().is_empty());
        // Two pairs, as on a board with two bridges.
        let found = peers(&of_threads(4, |reader, owner| Ok(reader / 2 == owner / 2)), &notes);
        assert_eq!(found, [[1], [0], [3], [2]]);
        assert_eq!(cliques(&found), [[0, 1], [2, 3]]);
        let dealt = deal_to_cliques(&[5, 3, 9, 1, 7], &cliques(&found), &[1, 2, 3, 0]);
        assert_eq!(dealt, [vec![5], vec![3, 9], vec![5, 3, 9], vec![]]);
        // A chain, one end of which is left over.
        assert_eq!(cliques(&[vec![1], vec![2, 0], vec![1]]), [vec![0, 1], vec![2]]);
        let told = notes.lines();
        assert_eq!(told.len(), 4);
        assert!(told[1].contains("rank 1") && told[1].contains("ranks 2, 3"), "{told:?}");
        let refused = |_, _| Err(Error::Option("the driver says no".into()));
        assert_eq!(peers(&of_threads(2, refused), &notes), [[0usize; 0]; 2]);
        assert!(notes.lines()[4].contains("the driver says no"));
        assert_eq!(peers(&of_threads(1, |_, _| Ok(true)), &NoProgress), [[0usize; 0]]);
    }

    #[test]
    fn each_host_is_named_once() {
        let notes = Notes::default();
        let sight = |reader: usize, owner: usize| match reader / 2 == owner / 2 {
            true => Sight::Reached,
            false => Sight::OtherHost,
        };
        let sights: Vec<Vec<Sight>> =
            (0..4).map(|r| (0..4).map(|o| sight(r, o)).collect()).collect();
        assert_eq!(peers(&sights, &notes), [[1], [0], [3], [2]]);
        assert_eq!(
            notes.lines(),
            ["GPUs cannot read other hosts' caches: rows only kept there come from host memory"]
        );
    }
}
