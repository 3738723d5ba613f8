//! One line of the result: our figures, the peer's, what was promised, and whether it holds.

use crate::figures::Figures;
use std::fmt;

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Milliseconds.
    Ms,
    /// Microseconds.
    Us,
    /// 2^20 bytes.
    Mib,
    /// 10^6 bytes a second.
    MbPerS,
    /// Milliseconds for 10^9 bytes.
    MsPerGb,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ms => "ms",
            Self::Us => "µs",
            Self::Mib => "MiB",
            Self::MbPerS => "MB/s",
            Self::MsPerGb => "ms/GB",
        })
    }
}

/// Which side of a number is good.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Bound {
    /// Not above it.
    AtMost(f64),
    /// Not below it.
    AtLeast(f64),
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(limit) => write!(f, "≤ {limit}"),
            Self::AtLeast(limit) => write!(f, "≥ {limit}"),
        }
    }
}

/// What was promised of the medians.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Target {
    /// Ours, in the line's unit.
    Value(Bound),
    /// Ours divided by the peer's.
    Ratio(Bound),
    /// Ours less the peer's, in the line's unit.
    Added(Bound),
}

/// Whom we are compared with.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Peer {
    /// Nobody: the figure stands for itself.
    None,
    /// Somebody who is not here.
    Absent {
        /// Who.
        name: String,
        /// Why.
        why: String,
    },
    /// Somebody measured in turns with us.
    Measured {
        /// Who.
        name: String,
        /// Their figures.
        figures: Figures,
    },
}

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Line {
    /// `row/what`, stable, for comparing documents.
    pub(crate) id: String,
    /// For people.
    pub(crate) what: String,
    /// Of both sides' figures.
    pub(crate) unit: Unit,
    /// Our figures; none when nothing of ours was measured for lack of the peer.
    pub(crate) ours: Option<Figures>,
    /// The other side.
    pub(crate) peer: Peer,
    /// What was promised; none: for information.
    pub(crate) target: Option<Target>,
    /// Anything else worth saying.
    pub(crate) note: String,
}

impl Line {
    /// A line with our figures alone.
    pub(crate) fn new(id: &str, what: &str, unit: Unit, samples: &[f64]) -> Self {
        Self {
            id: id.to_owned(),
            what: what.to_owned(),
            unit,
            ours: Figures::of(samples),
            peer: Peer::None,
            target: None,
            note: String::new(),
        }
    }

    /// With a peer's samples.
    pub(crate) fn against(mut self, name: &str, samples: &[f64]) -> Self {
        if let Some(figures) = Figures::of(samples) {
            self.peer = Peer::Measured {
                name: name.to_owned(),
                figures,
            };
        }
        self
    }

    /// With a peer that is not here.
    pub(crate) fn without(mut self, name: &str, why: &str) -> Self {
        self.peer = Peer::Absent {
            name: name.to_owned(),
            why: why.to_owned(),
        };
        self
    }

    /// With what was promised.
    pub(crate) fn promised(mut self, target: Target) -> Self {
        self.target = Some(target);
        self
    }

    /// With a remark.
    pub(crate) fn noted(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Our median divided by the peer's.
    pub(crate) fn ratio(&self) -> Option<f64> {
        match &self.peer {
            Peer::Measured { figures, .. } if figures.median > 0.0 => {
                Some(self.ours?.median / figures.median)
            }
            _ => None,
        }
    }

    /// Our median less the peer's.
    pub(crate) fn added(&self) -> Option<f64> {
        match &self.peer {
            Peer::Measured { figures, .. } => Some(self.ours?.median - figures.median),
            _ => None,
        }
    }

    /// Whether the promise holds; none when there is none, or the peer is missing.
    pub(crate) fn is_met(&self) -> Option<bool> {
        match self.target? {
            Target::Value(bound) => Some(bound.holds(self.ours?.median)),
            Target::Ratio(bound) => self.ratio().map(|ratio| bound.holds(ratio)),
            Target::Added(bound) => self.added().map(|added| bound.holds(added)),
        }
    }

    /// What was promised, in words.
    pub(crate) fn target_text(&self) -> String {
        match self.target {
            None => String::new(),
            Some(Target::Value(bound)) => format!("{bound} {}", self.unit),
            Some(Target::Ratio(bound)) => format!("{bound}×"),
            Some(Target::Added(bound)) => format!("{bound} {} added", self.unit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> Line {
        Line::new("a/b", "it", Unit::Ms, &[10.0, 20.0, 30.0])
    }

    #[test]
    fn a_promise_is_judged_by_value_ratio_or_difference() {
        let value = |bound| line().promised(Target::Value(bound)).is_met();
        assert_eq!(value(Bound::AtMost(20.0)), Some(true));
        assert_eq!(value(Bound::AtMost(19.9)), Some(false));
        assert_eq!(value(Bound::AtLeast(20.1)), Some(false));
        let ratio = |bound| {
            line()
                .against("p", &[40.0])
                .promised(Target::Ratio(bound))
                .is_met()
        };
        assert_eq!(ratio(Bound::AtMost(0.5)), Some(true));
        assert_eq!(ratio(Bound::AtLeast(0.6)), Some(false));
        let added = |bound| {
            line()
                .against("p", &[15.0])
                .promised(Target::Added(bound))
                .is_met()
        };
        assert_eq!(added(Bound::AtMost(5.0)), Some(true));
        assert_eq!(added(Bound::AtMost(4.0)), Some(false));
    }

    #[test]
    fn a_missing_peer_leaves_the_promise_open() {
        let absent = line()
            .without("p", "not installed")
            .promised(Target::Ratio(Bound::AtMost(1.0)));
        assert_eq!((absent.is_met(), absent.ratio()), (None, None));
        assert_eq!(line().is_met(), None);
    }
}
