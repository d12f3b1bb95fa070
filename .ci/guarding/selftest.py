"""Test of the guards: each violation is planted in a scratch checkout, and must be caught with its place and its remedy."""

import pathlib
import re
import tempfile
from dataclasses import dataclass, field

from .listed import LIST

# A checkout that no guard objects to.
CLEAN = {
    "Cargo.toml": '[workspace]\nmembers = ["policy", "supervisor"]\n',
    "README.md": "# Scratch\n\nSee [the map](docs/map.md#the-map) and `policy/src/lib.rs`.\n",
    "docs/map.md": "# The map\n\n`supervisor/src/session/` and `session/mod.rs`; [up](../README.md#scratch).\n",
    "docs/decisions/0001.md": "# A record\n\n`policy/src/gone.rs` was here. [map](../map.md)\n",
    "policy/Cargo.toml": '[package]\nname = "callgate-policy"\n',
    "policy/src/lib.rs": "//! The policy.\n\nmod one;\nmod two;\nmod three;\n",
    "policy/src/one.rs": "//! First.\nuse crate::two::Two;\npub struct One(Two);\n",
    "policy/src/two.rs": "//! Second.\nuse super::three;\npub struct Two(three::Three);\n",
    # Comments, strings and tests name what they like.
    "policy/src/three.rs": '//! Third. Of no use: crate::one::One.\n'
    'pub struct Three;\nconst TEXT: &str = "crate::one::One { ";\n'
    "#[cfg(test)]\nmod tests {\n    use crate::one::One;\n}\n",
    "supervisor/Cargo.toml": '[package]\nname = "callgate"\n',
    "supervisor/src/lib.rs": "//! The supervisor.\n\nmod gate;\nmod session;\nmod store;\n",
    "supervisor/src/session/mod.rs": "//! Sessions.\nuse crate::gate::Gate;\npub struct Session(Gate);\nimpl Session {}\n",
    "supervisor/src/gate/mod.rs": "//! The gate.\npub struct Gate;\n",
    "supervisor/src/store.rs": "//! The store.\npub struct Store;\n",
    LIST: "[order]\ntop down:\n    lib session\n    gate store\n",
}


@dataclass
class Case:
    """A violation: the files that plant it, and what the guards must say, each as a pattern."""

    name: str
    files: dict
    says: list = field(default_factory=list)


def function(lines):
    """A file with a function of so many lines of code, and comments and empty lines that do not count."""
    return "//! Long.\nfn long() {\n" + "    // Why.\n\n    step();\n" * (lines - 2) + "}\n"


def structure(fields):
    """A file with a structure of so many fields."""
    members = "".join(f"    /// Field: one of many.\n    pub field_{n}: Vec<(u8, [u8; {n}])>,\n" for n in range(fields))
    return f"//! Large.\npub struct Large {{\n{members}}}\n"


def with_list(text):
    """The list of the clean checkout with more at its end."""
    return CLEAN[LIST] + text


CIRCLE = {"policy/src/three.rs": "//! Third.\npub fn three() -> crate::one::One {}\npub struct Three;\n"}
UPWARD = {"supervisor/src/store.rs": "//! The store.\nuse crate::session::{self, Session};\npub struct Store(Session);\n"}
IMPL = {"supervisor/src/gate/mod.rs": "//! The gate.\npub struct Gate;\n\nimpl Session {\n    fn a() {}\n}\n"}
WHAT = {"policy/src/one.rs": "//! First.\n\n/// What it is.\npub struct One;\n"}
SHARED = {"policy/src/one.rs": "//! First.\npub struct One;\n#[cfg(test)]\nmod tests {\n    enum Store {}\n}\n"}
TYPES = "[type names]\nreason:\n    types that share their name, in percent {}\n"
ASSOCIATED = "//! First.\npub struct One;\nimpl A for One {\n    type Store = u8;\n}\npub trait A {\n    type Store;\n}\n"
NEEDED = r".*no longer needed.*\n +remove this line"

CASES = [
    Case("nothing planted", {}),
    Case("a circle", CIRCLE, [r"policy/src/one\.rs:2: a circle of 3 files: .*`Two`.*\n +move what both need below"]),
    Case("a circle that is listed", {**CIRCLE, LIST: with_list("[circles]\nreason:\n    policy/src: one.rs three.rs\n      two.rs\n")}),
    Case(
        "a circle that has grown",
        {**CIRCLE, LIST: with_list("[circles]\nreason:\n    policy/src: one.rs three.rs\n")},
        [r"policy/src/two\.rs:3: a circle of 3 files.*1 new: policy/src/two\.rs"],
    ),
    Case("a circle that is gone", {LIST: with_list("[circles]\nreason:\n    policy/src: one.rs two.rs\n")}, [rf"{LIST}:7:{NEEDED}"]),
    Case(
        "a circle that has shrunk",
        {**CIRCLE, LIST: with_list("[circles]\nreason:\n    policy/src: gone.rs one.rs three.rs two.rs\n")},
        [rf"{LIST}:7: .*\n +write `policy/src: one\.rs three\.rs two\.rs`"],
    ),
    Case(
        "a circle that has fallen apart",
        {
            **CIRCLE,
            **{f"policy/src/{a}.rs": f"//! {a}.\npub fn {a}() {{ crate::{b}::{b}() }}\n" for a, b in ("ab", "bc", "ca")},
            LIST: with_list("[circles]\nreason:\n    policy/src: a.rs b.rs c.rs one.rs three.rs two.rs\n"),
        },
        [rf"{LIST}:7: .*\n +write `policy/src: a\.rs b\.rs c\.rs` and `policy/src: one\.rs three\.rs two\.rs`"],
    ),
    Case("two files that use one another", {"policy/src/two.rs": "//! Second.\npub struct Two(crate::one::One);\n"}),
    Case("an upward use", UPWARD, [r"supervisor/src/store\.rs:2: `Session` of session/mod\.rs is above.*\n +move what it needs down"]),
    Case(
        "an upward use that is listed",
        {**UPWARD, LIST: with_list("[upward]\nreason:\n    store.rs -> session/mod.rs: Session\n")},
    ),
    Case(
        "an upward use that is gone",
        {**UPWARD, LIST: with_list("[upward]\nreason:\n    store.rs -> session/mod.rs: Other, Session\n")},
        [rf"{LIST}:7: .*\n +write `store\.rs -> session/mod\.rs: Session`"],
    ),
    Case(
        "a file below its folder",
        {
            "supervisor/src/gate/mod.rs": "//! The gate.\npub mod data;\npub struct Gate;\n",
            "supervisor/src/gate/data.rs": "//! Data.\nuse crate::store::Store;\npub struct Data(Store);\n",
            LIST: "[order]\ntop down:\n    lib session\n    gate store gate/data\n",
        },
        [r"supervisor/src/gate/data\.rs:2: `Store` of store\.rs is above: in \[order\], `store` may use `gate/data`"],
    ),
    Case(
        "a file above its folder",
        {
            "supervisor/src/gate/mod.rs": "//! The gate.\npub mod calls;\npub struct Gate;\n",
            "supervisor/src/gate/calls.rs": "//! Calls.\nuse crate::session::Session;\npub struct Calls(Session);\n",
            LIST: "[order]\ntop down:\n    lib gate/calls session\n    gate store\n",
        },
    ),
    Case(
        "a folder without a place",
        {"supervisor/src/new.rs": "//! New.\n"},
        [r"supervisor/src/new\.rs:1: `new` has no place in \[order\]\n +write it in"],
    ),
    Case("`impl Session` outside", IMPL, [r"supervisor/src/gate/mod\.rs:4: `impl Session` outside its rooms\n +make it a function"]),
    Case(
        "`impl Trait for Session` outside",
        {"supervisor/src/gate/mod.rs": "//! The gate.\npub struct Gate;\nimpl<T> Act<T> for Session {\n}\n"},
        [r"supervisor/src/gate/mod\.rs:3: `impl Session` outside"],
    ),
    Case(
        "`impl Session` by its path",
        {"supervisor/src/gate/mod.rs": "//! The gate.\npub struct Gate;\nimpl crate::session::Session {}\n"},
        [r"supervisor/src/gate/mod\.rs:3: `impl Session` outside", r"supervisor/src/gate/mod\.rs:3: `Session` of session/mod\.rs is above"],
    ),
    Case("`impl Session` that is listed", {**IMPL, LIST: with_list("[impl Session]\nreason:\n    supervisor/src/gate/mod.rs\n")}),
    Case(
        "`impl Session` that is gone",
        {LIST: with_list("[impl Session]\nreason:\n    supervisor/src/gate/mod.rs\n")},
        [rf"{LIST}:7:{NEEDED}"],
    ),
    Case("a function of 80 lines", {"policy/src/one.rs": function(80)}),
    Case("a long function", {"policy/src/one.rs": function(81)}, [r"policy/src/one\.rs:2: `long` has 81 lines.*\n +split it"]),
    Case("a long function of a test", {"policy/src/one.rs": "//! T.\n#[cfg(test)]\nmod tests {\n" + function(90) + "}\n"}),
    Case(
        "a long function that has grown",
        {"policy/src/one.rs": function(82), LIST: with_list("[functions]\nreason:\n    policy/src/one.rs: long 81\n")},
        [r"policy/src/one\.rs:2: `long` has 82 lines.*\(the list allows 81\)"],
    ),
    Case(
        "a long function that has shrunk",
        {"policy/src/one.rs": function(82), LIST: with_list("[functions]\nreason:\n    policy/src/one.rs: long 99\n")},
        [rf"{LIST}:7: .*\n +write `policy/src/one\.rs: long 82`"],
    ),
    Case("a structure of 20 fields", {"policy/src/one.rs": structure(20)}),
    Case("a large structure", {"policy/src/one.rs": structure(21)}, [r"policy/src/one\.rs:2: `Large` has 21 fields.*\n +find the parts"]),
    Case(
        "types of one name",
        SHARED,
        [r"policy/src/one\.rs:5: 2 of 7 types \(29 %\) share their name.*most: `Store` 2\n +name what you add"],
    ),
    Case("associated types of one name", {"policy/src/one.rs": ASSOCIATED}),
    Case("types of one name that are listed", {**SHARED, LIST: with_list(TYPES.format(29))}),
    Case(
        "types of one name that have become more",
        {**SHARED, LIST: with_list(TYPES.format(28))},
        [r"policy/src/one\.rs:5: 2 of 7 types .*\(the list allows 28\)"],
    ),
    Case(
        "types of one name that have become fewer",
        {**SHARED, LIST: with_list(TYPES.format(30))},
        [rf"{LIST}:7: .*\n +write `types that share their name, in percent 29`"],
    ),
    Case("types of one name that are gone", {LIST: with_list(TYPES.format(30))}, [rf"{LIST}:7:{NEEDED}"]),
    Case(
        "a dead link",
        {"README.md": "# Scratch\n\nSee [the\nmap](docs/gone.md).\n"},
        [r"README\.md:4: the link `docs/gone\.md` leads nowhere: there is no docs/gone\.md\n +correct"],
    ),
    Case(
        "a dead link in a record",
        {"docs/decisions/0001.md": "# A record\n\n[map](map.md)\n"},
        [r"docs/decisions/0001\.md:3: the link `map\.md` leads nowhere"],
    ),
    Case(
        "a dead anchor",
        {"README.md": "# Scratch\n\n[the map](docs/map.md#the-mop)\n"},
        [r"README\.md:3: .*docs/map\.md has no heading `#the-mop`\n +correct the link; the nearest is `#the-map`"],
    ),
    Case("a link in code", {"README.md": "# Scratch\n\n```md\n[a](gone.md)\n```\n\n`[a](gone.md)`\n"}),
    Case(
        "a dead path",
        {"docs/map.md": "# The map\n\n`policy/src/{one,two}.rs`, `NAME.rs`, `policy/src/gone.rs`\n"},
        [r"docs/map\.md:3: `policy/src/gone\.rs` looks like a path.*\n +correct it"],
    ),
    Case(
        "a dead path below a folder",
        {"docs/map.md": "# The map\n\n`gate/gone.rs`\n"},
        [r"docs/map\.md:3: `gate/gone\.rs` looks like a path"],
    ),
    Case("a doc comment", WHAT, [r"policy/src/one\.rs:3: 1 doc comment\(s\).*“What”\n +begin with a noun or a verb"]),
    Case("a doc comment that is listed", {**WHAT, LIST: with_list("[doc comments]\nreason:\n    policy/src/one.rs 1\n")}),
    Case(
        "a doc comment that is mended",
        {**WHAT, LIST: with_list("[doc comments]\nreason:\n    policy/src/one.rs 2\n")},
        [rf"{LIST}:7: .*\n +write `policy/src/one\.rs 1`"],
    ),
    Case("a wrapped doc comment", {"policy/src/one.rs": "//! First: it says\n//! What it is.\npub struct One;\n"}),
    Case(
        "an exception without a reason",
        {**IMPL, LIST: with_list("[impl Session]\n    supervisor/src/gate/mod.rs\n")},
        [rf"{LIST}:6: an exception without a reason\n +write the reason", r"`impl Session` outside"],
    ),
    Case("a section that nobody reads", {LIST: with_list("[circle]\n")}, [rf"{LIST}:1: no guard reads the section \[circle\]"]),
]


def plant(root, files):
    """Writes the clean checkout, and the case's files over it."""
    for path, text in {**CLEAN, **files}.items():
        file = pathlib.Path(root) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def complaints(case, faults):
    """Complaints about the answer to a case."""
    texts = [str(fault) for fault in faults]
    for pattern in case.says:
        matching = [text for text in texts if re.search(pattern, text)]
        if not matching:
            yield f"not caught: {pattern}"
        texts = [text for text in texts if text not in matching]
    yield from (f"not planted, but found: {text}" for text in texts)


def shrinks(check, root):
    """Complaints about `--shrink`, which removes what is not needed with its reason, and adds nothing."""
    listed = with_list("[impl Session]\ngone:\n    supervisor/src/store.rs\n\nhere:\n    supervisor/src/gate/mod.rs\n")
    plant(root, {**IMPL, **WHAT, LIST: listed})
    left = check(root, shrink=True)
    if (pathlib.Path(root) / LIST).read_text() != with_list("[impl Session]\nhere:\n    supervisor/src/gate/mod.rs\n"):
        yield f"--shrink wrote:\n{(pathlib.Path(root) / LIST).read_text()}"
    if [fault.path for fault in left] != ["policy/src/one.rs"]:
        yield "--shrink let a new violation pass"


def run(check):
    """Plants each case, and returns the exit status."""
    failed = 0
    for case in CASES:
        with tempfile.TemporaryDirectory() as root:
            plant(root, case.files)
            wrong = list(complaints(case, check(root)))
        failed += bool(wrong)
        for each in wrong:
            print(f"{case.name}: {each}")
    with tempfile.TemporaryDirectory() as root:
        wrong = list(shrinks(check, root))
    failed += bool(wrong)
    print("\n".join([*wrong, f"{len(CASES) + 1 - failed} of {len(CASES) + 1} cases of the guards' own test pass"]))
    return 1 if failed else 0
