//! From the ids of the input to vertices, for ids of any size.
//!
//! Idea: the ids, ascending, with an index of their high bits, so that a search looks at few of
//! them. Cost: 8 to 13 bytes an id; a search reads two or three cache lines.

/// Ids and the vertex of each.
#[derive(Debug, Default)]
pub struct IdTable {
    keys: Vec<u64>,
    /// Vertex of each key; `None` where it is the key's position.
    vertices: Option<Vec<u32>>,
    /// Starts of the keys with given high bits; one entry more than there are high bits.
    starts: Vec<u32>,
    shift: u32,
}

impl IdTable {
    /// A table of `keys` that ascend and are distinct, fewer than 2^32: vertex v is the v-th.
    pub fn ascending(keys: Vec<u64>) -> Self {
        let largest = keys.last().copied().unwrap_or(0);
        let index_bits = keys.len().max(2).ilog2();
        let shift = (u64::BITS - largest.leading_zeros()).saturating_sub(index_bits);
        let mut starts = vec![0u32; (largest >> shift) as usize + 2];
        for &key in &keys {
            starts[(key >> shift) as usize + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        Self { keys, vertices: None, starts, shift }
    }

    /// A table of distinct keys and their vertices, in any order.
    pub fn of(mut pairs: Vec<(u64, u32)>) -> Self {
        pairs.sort_unstable();
        let (keys, vertices) = pairs.into_iter().unzip();
        Self { vertices: Some(vertices), ..Self::ascending(keys) }
    }

    /// The vertex of `key`.
    pub fn find(&self, key: u64) -> Option<u32> {
        let high = (key >> self.shift) as usize;
        let (&start, &end) = (self.starts.get(high)?, self.starts.get(high + 1)?);
        let at =
            start as usize + self.keys[start as usize..end as usize].binary_search(&key).ok()?;
        Some(self.vertices.as_ref().map_or(at as u32, |vertices| vertices[at]))
    }

    /// The keys, ascending.
    pub fn keys(&self) -> &[u64] {
        &self.keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oracle_every_key_is_found_and_no_other() {
        for keys in [
            vec![],
            vec![0],
            vec![u64::MAX],
            (0..1000).collect(),
            (0..1000u64).map(|i| i * i * i).collect(),
            vec![1, 2, 3, u64::MAX - 1, u64::MAX],
        ] {
            let table = IdTable::ascending(keys.clone());
            assert!(keys.iter().enumerate().all(|(at, &key)| table.find(key) == Some(at as u32)));
            let others = keys
                .iter()
                .flat_map(|key| [key.wrapping_add(1), key.wrapping_sub(1), key ^ (1 << 40)]);
            for other in others.filter(|other| !keys.contains(other)) {
                assert_eq!(table.find(other), None, "{other}");
            }
            let pairs =
                keys.iter().enumerate().map(|(at, &key)| (key, 7 * at as u32)).rev().collect();
            let table = IdTable::of(pairs);
            assert!(
                keys.iter().enumerate().all(|(at, &key)| table.find(key) == Some(7 * at as u32))
            );
        }
    }
}
