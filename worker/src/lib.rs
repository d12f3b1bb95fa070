//! placeholder

pub mod seccomp;
mod sys;
