//! Layout of the parts: the number of servers, and the server of each part.
//!
//! Parts are shared out in order: part p of K lies on server p / (K / S). What crosses between servers costs more than what
//! crosses within one, so the multilevel partitioner cuts for the servers first and then moves vertices within them.

use std::ops::Range;

/// `parts` parts on `servers` servers, the same number on each. A number of parts alone is all of them on one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    parts: u32,
    servers: u32,
    /// Parts in the end: as many, but for bundles.
    last: u32,
}

impl Layout {
    /// `servers` divides `parts`.
    pub fn new(parts: u32, servers: u32) -> Self {
        Self { parts, servers: servers.max(1), last: parts }
    }

    /// Layout of bundles of these parts, `per_server` on each server: all parts, or a power of two.
    pub fn bundles(self, per_server: u32) -> Self {
        Self { parts: per_server * self.servers, ..self }
    }

    /// Number of parts that `part` becomes in the end: a bundle is halved again and again, the smaller half first.
    pub fn last_parts(self, part: u16) -> u32 {
        let (mut bundles, mut last) = (self.per_server(), self.last / self.servers);
        let mut at = u32::from(part) % bundles.max(1);
        while bundles > 1 {
            let left = (bundles / 2, last / 2);
            (bundles, last, at) = match at < left.0 {
                true => (left.0, left.1, at),
                false => (bundles - left.0, last - left.1, at - left.0),
            };
        }
        last
    }

    /// Share of `part` in the weight of all.
    pub fn share(self, part: u16) -> f64 {
        match self.parts == self.last {
            true => 1.0 / f64::from(self.parts),
            false => f64::from(self.last_parts(part)) / f64::from(self.last),
        }
    }

    pub fn parts(self) -> u32 {
        self.parts
    }

    pub fn servers(self) -> u32 {
        self.servers
    }

    /// Parts of one server.
    pub fn per_server(self) -> u32 {
        self.parts / self.servers
    }

    /// The server of `part`.
    #[inline]
    pub fn server_of(self, part: u16) -> u16 {
        (u32::from(part) / self.per_server().max(1)) as u16
    }

    /// The parts of `server`.
    pub fn parts_of(self, server: u16) -> Range<u16> {
        let first = u32::from(server) * self.per_server();
        first as u16..(first + self.per_server()) as u16
    }

    /// The parts on the server of `part`, itself among them.
    #[inline]
    pub fn siblings(self, part: u16) -> Range<u16> {
        match self.servers {
            1 => 0..self.parts as u16,
            _ => self.parts_of(self.server_of(part)),
        }
    }
}

impl From<u32> for Layout {
    fn from(parts: u32) -> Self {
        Self::new(parts, 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundles_hold_as_many_parts_as_halving_leaves_them() {
        for servers in 1..4 {
            for per_server in 1..40 {
                let layout = Layout::new(servers * per_server, servers);
                for bundles in [1, 2, 4, 8, 16, 32, per_server].into_iter().filter(|&bundles| bundles <= per_server) {
                    let bundled = layout.bundles(bundles);
                    let held: Vec<u32> = (0..bundled.parts() as u16).map(|part| bundled.last_parts(part)).collect();
                    assert_eq!(held.iter().sum::<u32>(), layout.parts());
                    assert!(held.iter().all(|&held| held.abs_diff(per_server / bundles) <= 1), "{held:?}");
                    let shares = (0..bundled.parts() as u16).map(|part| bundled.share(part));
                    assert!((shares.sum::<f64>() - 1.0).abs() < 1e-12);
                }
            }
        }
        assert_eq!([0, 1, 2, 3].map(|part| Layout::from(7).bundles(4).last_parts(part)), [1, 2, 2, 2]);
    }

    #[test]
    fn parts_are_shared_out_in_order() {
        let layout = Layout::new(6, 2);
        assert_eq!((0..6).map(|part| layout.server_of(part)).collect::<Vec<_>>(), [0, 0, 0, 1, 1, 1]);
        assert_eq!((layout.siblings(1), layout.siblings(3), layout.per_server()), (0..3, 3..6, 3));
        let flat = Layout::from(65_535);
        assert_eq!((flat.siblings(65_534), flat.server_of(65_534)), (0..65_535, 0));
        assert_eq!(Layout::new(65_535, 65_535).siblings(65_534), 65_534..65_535);
    }
}
