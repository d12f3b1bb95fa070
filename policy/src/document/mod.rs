//! A document that a person writes, as a tree of values with their places: TOML, JSON and YAML.
//!
//! The manifest and the profile are read through it. Each value knows its place in the text, so that a mistake, of syntax or
//! of sense, is shown at its line.

pub(crate) mod error;
pub(crate) mod table;
pub(crate) mod tree;
pub(crate) mod yaml;

pub use error::ManifestError;
pub use tree::Format;
