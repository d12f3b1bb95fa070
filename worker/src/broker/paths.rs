//! Paths as the kernel spells them.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The granted path as the kernel spells it. One that does not exist yet is its existing part and the rest.
#[expect(
    clippy::disallowed_methods,
    reason = "spells a granted path as the kernel does, in the session's domain; what is done goes by a descriptor"
)]
pub(super) fn real(path: &Path) -> PathBuf {
    if let Ok(real) = fs::canonicalize(path) {
        return real;
    }
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => real(parent).join(name),
        _ => path.to_owned(),
    }
}

/// True if a path lies in a tree, both as the kernel spells them. By their bytes, which takes a fraction of the time of
/// [`Path::starts_with`].
pub(super) fn lies_in(path: &Path, tree: &Path) -> bool {
    let (path, tree) = (path.as_os_str().as_bytes(), tree.as_os_str().as_bytes());
    let rest = path.strip_prefix(tree);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/") || tree.ends_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_lies_in_a_tree_by_whole_names() {
        for (path, tree, lies) in [
            ("/a/b", "/a", true),
            ("/a", "/a", true),
            ("/a", "/", true),
            ("/ab", "/a", false),
            ("/", "/a", false),
            ("/b/a", "/a", false),
            ("pipe:[7]", "/", false),
        ] {
            assert_eq!(lies_in(Path::new(path), Path::new(tree)), lies, "{path} in {tree}");
            assert_eq!(Path::new(path).starts_with(tree), lies, "the control: {path} in {tree}");
        }
    }
}
