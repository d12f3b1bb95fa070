//! Figures of many samples: the median, the 99th percentile, the CPU time.

use std::time::Duration;

/// Figures of one subject's samples.
pub(super) struct Figures {
    pub(super) median: Duration,
    pub(super) p99: Duration,
    /// Mean CPU time of one run; `None` where nobody is told it.
    pub(super) cpu: Option<Duration>,
}

impl Figures {
    pub(super) fn of(samples: &[Duration], cpu: Option<Duration>) -> Self {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable();
        let at = |part: usize| {
            // Nearest rank: the smallest sample that `part` hundredths of all do not exceed.
            let rank = (sorted.len() * part).div_ceil(100).max(1) - 1;
            sorted.get(rank).copied().unwrap_or_default()
        };
        Self { median: at(50), p99: at(99), cpu }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_and_p99_are_samples_by_nearest_rank() {
        let samples: Vec<Duration> = (1..=100).rev().map(Duration::from_micros).collect();
        let figures = Figures::of(&samples, None);
        assert_eq!(figures.median, Duration::from_micros(50));
        assert_eq!(figures.p99, Duration::from_micros(99));
        let one = Figures::of(&[Duration::from_micros(7)], None);
        assert_eq!((one.median, one.p99), (Duration::from_micros(7), Duration::from_micros(7)));
    }
}
