//! Number of in-neighbours that a vertex, or a row of a relation, keeps at one layer.

use std::fmt;
use std::str::FromStr;

use super::RowLayout;
use crate::error::KernelError;
use crate::philox::DRAWS_PER_ITEM;

/// Number of in-neighbours that a vertex keeps at one layer. Parsed and printed like `15` or `all`
/// (`-1` is read as `all`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fanout {
    /// At most this many: from 1 to [`DRAWS_PER_ITEM`], or 0 for a relation ([`LayerFanout`]).
    Take(u32),
    /// Every in-neighbour.
    All,
}

impl Fanout {
    /// The number kept of `degree` in-edges.
    #[inline]
    pub fn kept(self, degree: u64) -> u64 {
        match self {
            Self::Take(n) => degree.min(u64::from(n)),
            Self::All => degree,
        }
    }

    /// Refuses invalid fanouts: 0, and more than one vertex has random words for.
    pub(crate) fn check(self) -> Result<(), KernelError> {
        match self {
            Self::Take(n) if n == 0 || n > DRAWS_PER_ITEM => {
                Err(KernelError::Fanout { got: n.to_string() })
            }
            _ => Ok(()),
        }
    }
}

impl FromStr for Fanout {
    type Err = KernelError;

    fn from_str(text: &str) -> Result<Self, KernelError> {
        if matches!(text, "all" | "-1") {
            return Ok(Self::All);
        }
        let fanout =
            Self::Take(text.parse().map_err(|_| KernelError::Fanout { got: text.to_owned() })?);
        fanout.check()?;
        Ok(fanout)
    }
}

impl fmt::Display for Fanout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Take(n) => n.fmt(f),
            Self::All => "all".fmt(f),
        }
    }
}

/// Fanouts of one layer: one for all vertices or, in a graph with several types of vertices, for
/// the rows of each relation.
///
/// Parsed and printed like `10`, `10+cites=5` or `cites=5+author/writes/paper=0`. A relation has
/// the fanout that is given for its `SOURCE/NAME/TARGET`, else that for its name, else the number
/// without a name. Nothing is drawn for relations of fanout 0.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LayerFanout {
    others: Option<Fanout>,
    relations: Vec<(String, Fanout)>,
}

impl LayerFanout {
    /// The fanout of every vertex.
    ///
    /// # Errors
    /// [`KernelError::Relations`] if there are fanouts of relations.
    pub fn of_vertices(&self) -> Result<Fanout, KernelError> {
        match (self.others, self.relations.first()) {
            (Some(fanout), None) => Ok(fanout),
            (_, relation) => Err(KernelError::Relations {
                name: relation.map_or_else(String::new, |(name, _)| name.clone()),
                problem: "the graph has one type of vertices and no relations".into(),
            }),
        }
    }

    /// The fanout of each relation of `layout` in its order, unless all have the same.
    ///
    /// # Errors
    /// [`KernelError::Relations`] if a relation that is named does not exist, or one that exists
    /// has no fanout.
    pub(super) fn of_relations(
        &self,
        layout: Option<&RowLayout>,
    ) -> Result<Option<Vec<Fanout>>, KernelError> {
        let Some(layout) = layout.filter(|_| !self.relations.is_empty()) else {
            return self.of_vertices().map(|_| None);
        };
        let relations = layout.relations();
        let is_called = |relation: &str, name: &str| {
            relation == name || relation.split('/').nth(1) == Some(name)
        };
        let refuse = |name: &str, problem: String| {
            Err(KernelError::Relations { name: name.to_owned(), problem })
        };
        for (name, _) in &self.relations {
            if !relations.iter().any(|relation| is_called(relation, name)) {
                return refuse(name, format!("expected one of {}", relations.join(", ")));
            }
        }
        let mut fanouts = Vec::with_capacity(relations.len());
        for relation in relations {
            let named = |by: &dyn Fn(&str) -> bool| {
                self.relations.iter().find(|(name, _)| by(name)).map(|&(_, fanout)| fanout)
            };
            let own = named(&|name| name == relation)
                .or_else(|| named(&|name| is_called(relation, name)))
                .or(self.others);
            let Some(fanout) = own else {
                return refuse(
                    relation,
                    "it has no fanout; give one for it or a number for all others".into(),
                );
            };
            fanouts.push(fanout);
        }
        Ok(Some(fanouts))
    }

    /// Refuses fanouts that do not suit the relations of `layout`, or of a graph without types.
    ///
    /// # Errors
    /// [`KernelError::Relations`].
    pub fn check(&self, layout: Option<&RowLayout>) -> Result<(), KernelError> {
        self.of_relations(layout).map(drop)
    }
}

impl From<Fanout> for LayerFanout {
    fn from(fanout: Fanout) -> Self {
        Self { others: Some(fanout), relations: Vec::new() }
    }
}

impl FromStr for LayerFanout {
    type Err = KernelError;

    fn from_str(text: &str) -> Result<Self, KernelError> {
        let mut layer = Self { others: None, relations: Vec::new() };
        for part in text.split('+') {
            match part.split_once('=') {
                Some((name, fanout)) if !name.trim().is_empty() => {
                    let (name, fanout) = (name.trim(), fanout.trim());
                    let fanout = if fanout == "0" { Fanout::Take(0) } else { fanout.parse()? };
                    if layer.relations.iter().any(|(other, _)| other == name) {
                        return Err(KernelError::Fanout { got: format!("{name} twice") });
                    }
                    layer.relations.push((name.to_owned(), fanout));
                }
                None if layer.others.is_none() => layer.others = Some(part.trim().parse()?),
                _ => return Err(KernelError::Fanout { got: text.to_owned() }),
            }
        }
        Ok(layer)
    }
}

impl fmt::Display for LayerFanout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.relations.iter().map(|(name, fanout)| format!("{name}={fanout}"));
        let all: Vec<String> = self.others.iter().map(Fanout::to_string).chain(named).collect();
        f.write_str(&all.join("+"))
    }
}

/// Lets `serde` write a type as the text that it prints, and read it by parsing.
macro_rules! serde_by_text {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use serde_by_text;

serde_by_text!(Fanout);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_prints() {
        for (text, fanout) in
            [("15", Fanout::Take(15)), ("262144", Fanout::Take(1 << 18)), ("all", Fanout::All)]
        {
            assert_eq!(text.parse(), Ok(fanout));
            assert_eq!(fanout.to_string(), text);
        }
        assert_eq!("-1".parse(), Ok(Fanout::All));
    }

    #[test]
    fn relations_have_the_fanout_of_their_full_name_then_of_their_name_then_of_all() {
        let relations = ["a/cites/a", "b/writes/a", "c/writes/a"].map(String::from).to_vec();
        let layout = RowLayout::new([(3, relations), (2, Vec::new())]).unwrap();
        for (text, expected) in [
            ("10", None),
            ("10+cites=0", Some([0, 10, 10])),
            ("cites=3+writes=4+b/writes/a=5", Some([3, 5, 4])),
        ] {
            let layer: LayerFanout = text.parse().unwrap();
            let fanouts = expected.map(|fanouts| fanouts.map(Fanout::Take).to_vec());
            assert_eq!(layer.of_relations(Some(&layout)), Ok(fanouts), "{text}");
            assert_eq!(layer.to_string(), text);
            assert_eq!(layer.check(None).is_ok(), expected.is_none(), "{text}");
        }
        for (text, says) in [
            ("10+reads=1", "relation `reads`: expected one of a/cites/a, b/writes/a, c/writes/a"),
            ("cites=1", "relation `b/writes/a`: it has no fanout"),
        ] {
            let layer: LayerFanout = text.parse().unwrap();
            let problem = layer.check(Some(&layout)).unwrap_err().to_string();
            assert!(problem.contains(says), "{problem}");
        }
        for text in ["10+5", "10+", "=3", "cites=-2", "cites=1+cites=2", "0+cites=1"] {
            assert!(text.parse::<LayerFanout>().is_err(), "{text}");
        }
    }

    #[test]
    fn refuses_what_cannot_be_drawn() {
        for text in ["0", "", "-2", "1.5", "ten", "262145", "99999999999"] {
            assert_eq!(text.parse::<Fanout>(), Err(KernelError::Fanout { got: text.to_owned() }));
        }
    }
}
