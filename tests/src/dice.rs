//! Numbers to choose by, the same for the same seed.

/// xorshift64*: good enough to choose by.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// From a seed, whose last bit does not count.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        // Zero would stay zero.
        Self(seed | 1)
    }

    /// Any number.
    pub fn roll(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Below `bound`; zero if that is zero.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.roll() >> 33).unwrap_or(0) % bound.max(1)
    }

    /// One of these.
    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}
