//! placeholder

pub mod tools;
