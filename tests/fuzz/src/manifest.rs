//! Any bytes as a manifest: an error that says something, or rights that are within what was asked for (S0-36 to S0-41, C-1).

use callgate_policy::effective::{Bound, Contribution, Declared, Source, narrow};
use callgate_policy::manifest::{Format, Manifest};
use callgate_policy::path::HostPath;
use callgate_policy::variable::Variables;

const PATHS: [&str; 8] =
    ["/", "/w", "/w/src/a.rs", "/w/.env", "/etc/passwd", "/root/.ssh/id_rsa", "/proc/1/mem", "/w2/x"];

/// The target.
pub fn target(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for format in [Format::Toml, Format::Json] {
        match Manifest::parse(text, format, "callgate.toml") {
            Err(error) => assert!(error.to_string().contains("callgate.toml"), "an error names its file: {error}"),
            Ok(manifest) => within_what_was_asked(&manifest),
        }
    }
}

fn within_what_was_asked(manifest: &Manifest) {
    let variables = Variables::new(vec!["/w".into()], vec![], vec![]).expect("these are well formed");
    let Ok(declared) = Declared::union(&[Contribution::manifest(manifest)], &variables, &[]) else { return };
    let all = narrow(&declared, &[]);
    let again =
        narrow(&declared, &[Bound::unlimited(Source::Default), Bound::at_most(Source::Default, all.rights().clone())]);
    for path in PATHS.map(HostPath::from) {
        assert!(!all.rights().allows_write(&path) || declared.rights().allows_write(&path), "{path}");
        assert!(
            !all.rights().allows_write(&path) || all.rights().allows_read(&path),
            "what is written can be read: {path}"
        );
        assert_eq!(all.rights().allows_read(&path), again.rights().allows_read(&path), "narrowing by itself: {path}");
        assert_eq!(all.rights().allows_write(&path), again.rights().allows_write(&path), "narrowing by itself: {path}");
    }
}
