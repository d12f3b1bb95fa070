//! The harness of the suite: what a test needs to attack callgate and to show that the same act works bare.

pub mod errno;
