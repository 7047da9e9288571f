//! Layout of the parts: the number of servers, the server of each part, and what each part is to carry.
//!
//! Parts are shared out in order: part p of K lies on server p / (K / S). What crosses between servers costs more than what
//! crosses within one, so the multilevel partitioner cuts for the servers first and then moves vertices within them.

use std::ops::Range;

/// `parts` parts on `servers` servers, the same number on each. A number of parts alone is all of them on one server, of equal weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Layout<'a> {
    parts: u32,
    servers: u32,
    /// Target of each part over the mean.
    targets: Option<&'a [f64]>,
}

impl<'a> Layout<'a> {
    /// `servers` divides `parts`.
    pub fn new(parts: u32, servers: u32) -> Self {
        Self { parts, servers: servers.max(1), targets: None }
    }

    /// The same with a target for each part, over their mean.
    pub fn with_targets(self, targets: Option<&'a [f64]>) -> Self {
        Self { targets, ..self }
    }

    /// The same parts on one server.
    pub fn on_one_server(self) -> Self {
        Self { servers: 1, ..self }
    }

    /// Load that `part` is to have, over the mean of all parts. Every limit of a part is a multiple of it.
    #[inline]
    pub fn target(self, part: u16) -> f64 {
        self.targets.map_or(1.0, |targets| targets[part as usize])
    }

    /// The targets of all parts, over their mean; `None` where all are to be equal.
    pub fn targets(self) -> Option<&'a [f64]> {
        self.targets
    }

    /// Mean target of the parts of `server`.
    pub fn server_target(self, server: u16) -> f64 {
        self.parts_of(server).map(|part| self.target(part)).sum::<f64>() / f64::from(self.per_server())
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
    fn parts_are_shared_out_in_order() {
        let layout = Layout::new(6, 2);
        assert_eq!((0..6).map(|part| layout.server_of(part)).collect::<Vec<_>>(), [0, 0, 0, 1, 1, 1]);
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
        assert_eq!(Layout::from(2).ends(), [0.5, 1.0]);
    }
}
