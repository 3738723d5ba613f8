//! Repetitions: warmed up, in turns, the order swapped each round.

use std::time::{Duration, Instant};

/// The pause before each start that is measured. What the one before left to the kernel (dying namespaces,
/// a cgroup lock that stays cheap for a moment after it was taken) must not be in the next one's time.
pub(crate) const REST: Duration = Duration::from_millis(40);

/// Both sides' samples, in the order in which they were taken.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    /// Ours.
    pub(crate) ours: Vec<f64>,
    /// The other's.
    pub(crate) theirs: Vec<f64>,
}

/// Measures two things in turns, `rounds` times each after `warm` rounds that do not count.
pub(crate) async fn pairs(
    warm: usize,
    rounds: usize,
    mut ours: impl AsyncFnMut() -> anyhow::Result<f64>,
    mut theirs: impl AsyncFnMut() -> anyhow::Result<f64>,
) -> anyhow::Result<Pairs> {
    let mut pairs = Pairs::default();
    for round in 0..warm + rounds {
        let (our, their);
        // Whoever comes second finds the machine as the other left it: swapped, so that it evens out.
        if round % 2 == 0 {
            our = ours().await?;
            their = theirs().await?;
        } else {
            their = theirs().await?;
            our = ours().await?;
        }
        if round >= warm {
            pairs.ours.push(our);
            pairs.theirs.push(their);
        }
    }
    Ok(pairs)
}

/// Measures one thing `rounds` times after `warm` that do not count.
pub(crate) async fn series(
    warm: usize,
    rounds: usize,
    mut ours: impl AsyncFnMut() -> anyhow::Result<f64>,
) -> anyhow::Result<Vec<f64>> {
    let mut samples = Vec::with_capacity(rounds);
    for round in 0..warm + rounds {
        let sample = ours().await?;
        if round >= warm {
            samples.push(sample);
        }
    }
    Ok(samples)
}

/// Milliseconds.
pub(crate) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Milliseconds since.
pub(crate) fn ms_since(began: Instant) -> f64 {
    ms(began.elapsed())
}

/// Microseconds since.
pub(crate) fn us_since(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e6
}

/// 10^6 bytes a second.
#[expect(clippy::cast_precision_loss, reason = "amounts are far below 2^52")]
pub(crate) fn mb_per_s(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / 1e6 / time.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[tokio::test]
    async fn the_order_is_swapped_and_the_warm_up_does_not_count() {
        let order = RefCell::new(String::new());
        let pairs = pairs(
            1,
            2,
            async || {
                order.borrow_mut().push('a');
                #[expect(clippy::cast_precision_loss, reason = "a small number")]
                Ok(order.borrow().len() as f64)
            },
            async || {
                order.borrow_mut().push('b');
                Ok(0.0)
            },
        )
        .await
        .expect("pairs");
        assert_eq!(order.borrow().as_str(), "abbaab");
        assert_eq!(pairs.ours, [4.0, 5.0]);
        assert_eq!(pairs.theirs.len(), 2);
    }

    #[tokio::test]
    async fn a_failure_ends_the_series() {
        let mut left = 2;
        let result = series(0, 5, async || {
            left -= 1;
            anyhow::ensure!(left >= 0, "broken");
            Ok(1.0)
        })
        .await;
        assert!(result.is_err());
    }
}
