//! The processes that confine: launcher, broker, egress, zygotes and workers. The tools that workers carry out are handed to them
//! ([`toolset`]).
//!
//! The worker decides nothing: it performs a plan, or stops and says which step failed.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make and look at what they are about by path"))]

// The names that the fuzz targets know this crate by, which are tried with their seeds.
#[cfg(test)]
extern crate self as callgate_worker;

pub mod apply;
pub mod asked;
mod broker;
pub mod directory;
#[cfg(not(fuzzing))]
mod egress;
#[cfg(fuzzing)]
pub mod egress;
mod family;
mod filters;
pub mod launcher;
mod meter;
pub mod mountinfo;
pub mod probe;
mod procfs;
mod programs;
pub mod protocol;
pub mod seccomp;
pub mod sys;
pub mod toolset;
pub mod way;
mod worker;
mod zygote;

#[cfg(test)]
mod lints {
    /// This crate's list takes the place of the workspace's (clippy reads the nearest alone), and must have all that is in it.
    #[test]
    fn the_stricter_list_has_the_common_one() {
        let paths = |text: &'static str| text.lines().filter_map(|line| line.trim().strip_prefix("{ path = "));
        let names = |text| paths(text).filter_map(|line| line.split('"').nth(1)).collect::<Vec<_>>();
        let own = names(include_str!("../clippy.toml"));
        let missing: Vec<_> =
            names(include_str!("../../clippy.toml")).into_iter().filter(|name| !own.contains(name)).collect();
        assert!(missing.is_empty(), "worker/clippy.toml lacks {missing:?}");
        assert!(own.contains(&"rustix::fs::open") && own.contains(&"std::fs::remove_dir_all"), "{own:?}");
    }
}
