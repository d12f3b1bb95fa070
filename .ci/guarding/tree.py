"""The checkout that the guards read: its files, its crates, and the Rust in them."""

import os
import pathlib
import tomllib
from dataclasses import dataclass
from functools import cached_property

from .rust import Source
from .uses import Uses

# Folders that hold no text of the project's.
SKIPPED = {".git", "target", "node_modules", "__pycache__"}


@dataclass(frozen=True)
class Target:
    """A library or program of a crate: the tree of modules below one root file."""

    name: str
    root: str

    @property
    def folder(self):
        """The folder of the root's modules."""
        return os.path.dirname(self.root)

    def module(self, path):
        """The module path of one of its files: `src/a/b.rs` is `("a", "b")`."""
        if path == self.root:
            return ()
        parts = os.path.relpath(path, self.folder).removesuffix(".rs").split("/")
        return tuple(parts[:-1] if parts[-1] == "mod" else parts)


class Tree:
    """A checkout, read once."""

    def __init__(self, root):
        self.root = pathlib.Path(root)

    @cached_property
    def paths(self):
        """All files, relative to the root, in order."""
        found = []
        for folder, folders, files in os.walk(self.root):
            folders[:] = [name for name in folders if name not in SKIPPED]
            below = os.path.relpath(folder, self.root)
            found += [os.path.normpath(os.path.join(below, name)) for name in files]
        return sorted(found)

    @cached_property
    def files(self):
        """A set of all paths."""
        return set(self.paths)

    @cached_property
    def folders(self):
        """All folders that hold a file at some depth."""
        return {str(parent) for path in self.paths for parent in pathlib.PurePath(path).parents}

    def read(self, path):
        """The text of a file; empty if there is no such file."""
        try:
            return (self.root / path).read_text()
        except FileNotFoundError:
            return ""

    @cached_property
    def rust(self):
        """The source of each Rust file, by path."""
        return {path: Source(path, self.read(path)) for path in self.paths if path.endswith(".rs")}

    @cached_property
    def product(self):
        """The source of each Rust file that is neither a test nor only compiled for tests."""
        tests = set()
        for source in self.rust.values():
            tests |= source.test_modules()
        is_test = lambda path: "tests" in path.split("/") or any(path == at or path.startswith(at) for at in tests)
        return {path: source for path, source in self.rust.items() if not is_test(path)}

    @cached_property
    def targets(self):
        """The libraries and programs of the workspace."""
        found = []
        for member in tomllib.loads(self.read("Cargo.toml"))["workspace"]["members"]:
            manifest = tomllib.loads(self.read(f"{member}/Cargo.toml"))
            name = manifest["package"]["name"].replace("-", "_")
            roots = [manifest.get("lib", {}).get("path", "src/lib.rs"), "src/main.rs"]
            roots += [program["path"] for program in manifest.get("bin", []) if "path" in program]
            found += [Target(name, f"{member}/{root}") for root in dict.fromkeys(roots) if f"{member}/{root}" in self.rust]
        return found

    @cached_property
    def uses(self):
        """The names that files use of one another."""
        return Uses(self)

    def target(self, path):
        """The library or program that a file belongs to, or None."""
        owners = [each for each in self.targets if path == each.root]
        owners += sorted(
            (each for each in self.targets if path.startswith(f"{each.folder}/")),
            # The deepest folder; where a library and programs share one, its modules are the library's.
            key=lambda each: (-len(each.folder), not each.root.endswith("/lib.rs")),
        )
        return owners[0] if owners else None
