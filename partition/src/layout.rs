//! Layout of the parts: the number of servers, the server of each part, and the target of each
//! part.
//!
//! Parts are assigned in order: part p of K is on server p / (K / S). Traffic between servers costs
//! more than traffic within one, so the multilevel partitioner cuts for the servers first and then
//! moves vertices within them.

use std::ops::Range;

/// `parts` parts on `servers` servers, the same number on each. A number of parts without servers
/// means one server and equal weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Layout<'a> {
    parts: u32,
    servers: u32,
    /// Final number of parts; larger than the current number if there are bundles.
    last: u32,
    /// Target of each part in the end, in proportion.
    targets: Option<&'a [f64]>,
    /// Sum of the targets.
    total: f64,
}

impl<'a> Layout<'a> {
    /// `servers` divides `parts`.
    pub fn new(parts: u32, servers: u32) -> Self {
        Self { parts, servers: servers.max(1), last: parts, targets: None, total: f64::from(parts) }
    }

    /// The same layout with a target for each final part, in proportion.
    pub fn with_targets(self, targets: Option<&'a [f64]>) -> Self {
        let total = targets.map_or(f64::from(self.last), |targets| targets.iter().sum());
        Self { targets, total, ..self }
    }

    /// The same parts, all on one server.
    pub fn on_one_server(self) -> Self {
        Self { servers: 1, ..self }
    }

    /// Layout of bundles of these parts, `per_server` on each server: all parts, or a power of two.
    pub fn bundles(self, per_server: u32) -> Self {
        Self { parts: per_server * self.servers, ..self }
    }

    /// Parts that `part` becomes in the end: a bundle is halved again and again, the smaller half
    /// first.
    pub fn last_of(self, part: u16) -> Range<usize> {
        let (mut bundles, mut last) = (self.per_server(), self.last / self.servers);
        let mut at = u32::from(part) % bundles.max(1);
        let mut first = u32::from(self.server_of(part)) * last;
        while bundles > 1 {
            let left = (bundles / 2, last / 2);
            (bundles, first, last, at) = match at < left.0 {
                true => (left.0, first, left.1, at),
                false => (bundles - left.0, first + left.1, last - left.1, at - left.0),
            };
        }
        first as usize..(first + last) as usize
    }

    /// Number of parts that `part` becomes in the end.
    pub fn last_parts(self, part: u16) -> u32 {
        self.last_of(part).len() as u32
    }

    /// Number of parts in the end.
    pub fn last(self) -> u32 {
        self.last
    }

    /// Layout of the parts that `part` becomes in the end, alone.
    pub fn alone(self, part: u16) -> Self {
        let last = self.last_of(part);
        Self::new(last.len() as u32, 1).with_targets(self.targets.map(|targets| &targets[last]))
    }

    /// Load that `part` is to have, over the mean of all parts. Every limit of a part is a multiple
    /// of it.
    pub fn target(self, part: u16) -> f64 {
        let sum = match self.targets {
            None if self.parts == self.last => return 1.0,
            None => f64::from(self.last_parts(part)),
            Some(targets) if self.parts == self.last => targets[part as usize],
            Some(targets) => targets[self.last_of(part)].iter().sum(),
        };
        sum * f64::from(self.parts) / self.total
    }

    /// The targets of all parts in the end, in proportion; `None` where all are to be equal.
    pub fn targets(self) -> Option<&'a [f64]> {
        self.targets
    }

    /// Mean target of the parts of `server`.
    pub fn server_target(self, server: u16) -> f64 {
        self.parts_of(server).map(|part| self.target(part)).sum::<f64>()
            / f64::from(self.per_server())
    }

    /// The fraction of the whole at which each part ends, were they laid end to end.
    pub fn ends(self) -> Vec<f64> {
        let mut sum = 0.0;
        let end = |part| {
            sum += self.target(part);
            sum / f64::from(self.parts)
        };
        (0..self.parts as u16).map(end).collect()
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

impl From<u32> for Layout<'_> {
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
                for bundles in [1, 2, 4, 8, 16, 32, per_server]
                    .into_iter()
                    .filter(|&bundles| bundles <= per_server)
                {
                    let bundled = layout.bundles(bundles);
                    let held: Vec<u32> =
                        (0..bundled.parts() as u16).map(|part| bundled.last_parts(part)).collect();
                    assert_eq!(held.iter().sum::<u32>(), layout.parts());
                    assert!(
                        held.iter().all(|&held| held.abs_diff(per_server / bundles) <= 1),
                        "{held:?}"
                    );
                    let targets: f64 =
                        (0..bundled.parts() as u16).map(|part| bundled.target(part)).sum();
                    assert!((targets - f64::from(bundled.parts())).abs() < 1e-9);
                    let ends = (0..bundled.parts() as u16).map(|part| bundled.last_of(part));
                    assert_eq!(
                        ends.fold(0, |end, last| if last.start == end {
                            last.end
                        } else {
                            usize::MAX
                        }),
                        layout.parts() as usize
                    );
                }
            }
        }
        assert_eq!(
            [0, 1, 2, 3].map(|part| Layout::from(7).bundles(4).last_parts(part)),
            [1, 2, 2, 2]
        );
    }

    #[test]
    fn parts_are_shared_out_in_order() {
        let layout = Layout::new(6, 2);
        assert_eq!(
            (0..6).map(|part| layout.server_of(part)).collect::<Vec<_>>(),
            [0, 0, 0, 1, 1, 1]
        );
        assert_eq!((layout.siblings(1), layout.siblings(3), layout.per_server()), (0..3, 3..6, 3));
        let flat = Layout::from(65_535);
        assert_eq!((flat.siblings(65_534), flat.server_of(65_534)), (0..65_535, 0));
        assert_eq!(Layout::new(65_535, 65_535).siblings(65_534), 65_534..65_535);
    }

    #[test]
    fn targets_are_those_of_the_parts_and_of_their_servers() {
        let targets = [2.0, 0.5, 0.5, 1.0];
        let layout = Layout::new(4, 2).with_targets(Some(&targets));
        assert_eq!(layout.ends(), [0.5, 0.625, 0.75, 1.0]);
        assert_eq!([0, 1].map(|server| layout.server_target(server)), [1.25, 0.75]);
        assert_eq!((layout.target(3), Layout::from(4).target(3)), (1.0, 1.0));
        let pairs = Layout::from(4).with_targets(Some(&targets)).bundles(2);
        assert_eq!([0, 1].map(|pair| pairs.target(pair)), [1.25, 0.75]);
        assert_eq!([0, 1].map(|part| pairs.alone(1).target(part)), [2.0 / 3.0, 4.0 / 3.0]);
        assert_eq!(Layout::from(2).ends(), [0.5, 1.0]);
    }
}
