//! Rounds in which subjects take turns: their order, and the pause before each sample.

use std::time::{Duration, Instant};

/// A pause before each sample, so that what the sample before has left to tidy up does not run into it.
const SETTLE: Duration = Duration::from_millis(1);

/// Lets what the sample before has left come to its end. Busy: what is to be measured is work, not how long a processor
/// that was put to sleep takes to wake up, which on a virtual one is longer than a call.
pub(super) async fn settle() {
    tokio::task::yield_now().await;
    let started = Instant::now();
    while started.elapsed() < SETTLE {
        std::hint::spin_loop();
    }
}

/// Orders that are the same in every run of the program: xorshift, because nothing hangs on its quality.
pub(super) struct Shuffle(pub(super) u64);

impl Shuffle {
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(super) fn order(&mut self, len: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..len).collect();
        for at in (1..len).rev() {
            let other = usize::try_from(self.next() % (at as u64 + 1)).unwrap_or(0);
            order.swap(at, other);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_has_every_subject_once_and_orders_differ() {
        let mut shuffle = Shuffle(1);
        let orders: Vec<Vec<usize>> = (0..20).map(|_| shuffle.order(7)).collect();
        for order in &orders {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..7).collect::<Vec<_>>());
        }
        assert!(orders.iter().any(|order| order != &orders[0]));
    }
}
