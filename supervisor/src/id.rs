//! Ids that sort by the time at which they were made (X0-58).

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::host;

/// In ASCII's order, so that ids compare as text.
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Random digits: 83 bits.
const DIGITS: usize = 14;
/// The stamp's 48 bits last for 8,900 years of milliseconds.
const STAMP: u64 = (1 << 48) - 1;

/// A new id: what it is of (`ses_`), 12 hexadecimal digits of Unix time in milliseconds, 14 random characters.
///
/// Ids that this process makes one after another sort in that order, also within a millisecond and when the clock is set
/// back. Ids of several processes sort by their clock. The random part cannot be guessed from other ids.
///
/// # Errors
/// If the kernel gives no random bytes.
pub(crate) fn new_id(of: &str) -> io::Result<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let stamp = next(u64::try_from(now).unwrap_or(STAMP));
    Ok(format!("{of}{:012x}{}", stamp & STAMP, random_digits()?))
}

/// This time, or the first after the last stamp of this process.
fn next(now: u64) -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let later = |last: u64| now.max(last + 1);
    let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(later(last)));
    later(last.unwrap_or_else(|last| last))
}

fn random_digits() -> io::Result<String> {
    let mut digits = String::with_capacity(DIGITS);
    while digits.len() < DIGITS {
        // The greatest bytes are let go: they would make the first digits more likely than the others.
        let fair = host::random_bytes()?.into_iter().map(usize::from).filter(|byte| *byte < 4 * BASE62.len());
        digits.extend(fair.take(DIGITS - digits.len()).map(|byte| char::from(BASE62[byte % BASE62.len()])));
    }
    Ok(digits)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
    use super::*;

    #[test]
    fn x0_58_ids_sort_in_the_order_in_which_they_are_made() {
        let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        let ids: Vec<String> = (0..1000).map(|_| new_id("ses_").unwrap()).collect();
        assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
        for id in &ids {
            assert_eq!((id.len(), &id[..4]), (30, "ses_"));
            assert!(id[16..].bytes().all(|digit| BASE62.contains(&digit)), "{id}");
        }
        let stamp = u128::from_str_radix(&ids[0][4..16], 16).unwrap();
        assert!((before..before + 60_000).contains(&stamp), "{stamp} is not the time, {before}");
    }

    #[test]
    fn x0_58_a_clock_that_is_set_back_does_not_unsort_them() {
        let first = next(1 << 47);
        assert!(next(5) > first);
    }

    #[test]
    fn every_digit_is_drawn() {
        let drawn: String = (0..500).map(|_| random_digits().unwrap()).collect();
        for digit in BASE62 {
            let times = drawn.bytes().filter(|drawn| drawn == digit).count();
            // 113 on average; further away than this less than once in a million.
            assert!((50..200).contains(&times), "{} was drawn {times} times of 7000", char::from(*digit));
        }
    }
}
