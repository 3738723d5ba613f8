//! Samples to figures: median, 95th percentile, extremes.

/// What a series of samples comes to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Figures {
    /// How many samples.
    pub(crate) count: usize,
    /// The middle one (of two, their mean).
    pub(crate) median: f64,
    /// 95 % are not above it.
    pub(crate) p95: f64,
    /// The smallest.
    pub(crate) min: f64,
    /// The largest.
    pub(crate) max: f64,
}

impl Figures {
    /// Of samples; none when there are none.
    pub(crate) fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> = samples.iter().copied().filter(|s| s.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let count = sorted.len();
        let median = if count.is_multiple_of(2) {
            f64::midpoint(sorted[count / 2 - 1], sorted[count / 2])
        } else {
            sorted[count / 2]
        };
        // The nearest rank: the smallest sample with at least 95 % at or below it.
        let rank = (count * 95).div_ceil(100).max(1);
        Some(Self {
            count,
            median,
            p95: sorted[rank - 1],
            min,
            max,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_and_the_95th_percentile_are_what_they_say() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let figures = Figures::of(&hundred).expect("figures");
        assert_eq!(
            (figures.count, figures.median, figures.p95),
            (100, 50.5, 95.0)
        );
        assert_eq!((figures.min, figures.max), (1.0, 100.0));
        assert_eq!(Figures::of(&[3.0, 1.0, 2.0]).map(|f| f.median), Some(2.0));
        assert_eq!(
            Figures::of(&[7.0]).map(|f| (f.count, f.p95)),
            Some((1, 7.0))
        );
    }

    #[test]
    fn nothing_measured_is_no_figure() {
        assert_eq!(Figures::of(&[]), None);
        assert_eq!(Figures::of(&[f64::NAN]), None);
    }
}
