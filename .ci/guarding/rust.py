"""Rust source as far as the guards need it: code without comments, strings and tests; the items in it; its doc comments."""

import os
import re
from dataclasses import dataclass
from functools import cached_property

# A comment or a literal, by its first character. A lifetime is neither: it has no second quote.
OPAQUE = re.compile(
    r"""
    //[^\n]*
    | /\*.*?\*/
    | \b[bc]?r(?P<hashes>\#*)".*?"(?P=hashes)
    | \b[bc]?"(?:\\.|[^"\\])*" | "(?:\\.|[^"\\])*"
    | '(?:\\(?:u\{[^}]*\}|x[0-9a-fA-F]{2}|.)|[^'\\\n])'
    """,
    re.VERBOSE | re.DOTALL,
)
TEST_ITEM = re.compile(r"#\[cfg\((?:all\()?test\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*")
TEST_FILE = re.compile(r"(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;")
FUNCTION = re.compile(r"\bfn\s+(\w+)")
STRUCT = re.compile(r"\bstruct\s+(\w+)")
TYPE = re.compile(r"^[ \t]*(?:pub(?:\([^)]*\))?\s+)?(?:unsafe\s+)?(struct|enum|union|trait|type)\s+(\w+)", re.MULTILINE)
# What holds associated types.
HOLDER = re.compile(r"^[ \t]*(?:pub(?:\([^)]*\))?\s+)?(?:unsafe\s+)?(?:impl|trait)\b[^;{]*\{", re.MULTILINE)
IMPL = re.compile(r"^[ \t]*(?:unsafe\s+)?impl\b([^;{]*)\{", re.MULTILINE)
FIELD = re.compile(r"(?:^|[,{\n])\s*(?:pub(?:\([^)]*\))?\s+)?(?:r#)?\w+\s*:(?!:)")
DOC = re.compile(r"^[ \t]*(//[/!])(?!/) ?(.*)$")


@dataclass(frozen=True)
class Item:
    """A function or a structure: its name, its line, and its length in lines of code or in fields."""

    name: str
    line: int
    size: int


def blanked(text):
    """The text with spaces for each comment and literal, so that lines and columns stay."""
    return OPAQUE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def closing(code, start):
    """The place after the brace that closes the one at `start`."""
    depth = 0
    for found in re.compile(r"[{}]").finditer(code, start):
        depth += 1 if found[0] == "{" else -1
        if depth == 0:
            return found.end()
    return len(code)


def body(code, start):
    """The place of the brace that opens the body of the item at `start`; None if a semicolon ends it first."""
    depth = 0
    for found in re.compile(r"[(\[{};)\]]").finditer(code, start):
        if found[0] in "([":
            depth += 1
        elif found[0] in ")]":
            depth -= 1
        elif depth == 0:
            return found.start() if found[0] == "{" else None
    return None


class Source:
    """One file of Rust."""

    def __init__(self, path, text):
        self.path = path
        self.text = text

    @cached_property
    def code(self):
        """The code alone: comments, literals and what is only compiled for tests are blank."""
        code = blanked(self.text)
        while found := TEST_ITEM.search(code):
            end = self.end_of_item(code, found.end())
            code = code[:found.start()] + re.sub(r"[^\n]", " ", code[found.start():end]) + code[end:]
        return code

    @staticmethod
    def end_of_item(code, start):
        """The place after an item: its body's brace, or its semicolon."""
        opening = body(code, start)
        if opening is not None and not code[start:opening].lstrip().startswith("use"):
            return closing(code, opening)
        semicolon = code.find(";", start)
        return len(code) if semicolon < 0 else semicolon + 1

    def test_modules(self):
        """The files and the folders (with a slash) of the modules that it declares for tests alone."""
        folder, name = os.path.split(self.path.removesuffix(".rs"))
        beside = folder if name in ("mod", "lib", "main") else f"{folder}/{name}"
        found = set()
        code = blanked(self.text)
        for test in TEST_ITEM.finditer(code):
            if module := TEST_FILE.match(code, test.end()):
                found |= {f"{beside}/{module[1]}.rs", f"{beside}/{module[1]}/"}
        return found

    def line(self, place):
        """The number of the line at a place in the text."""
        return self.text.count("\n", 0, place) + 1

    @cached_property
    def impls(self):
        """(type, place, end) of each `impl` block; the type without path and parameters."""
        found = []
        for each in IMPL.finditer(self.code):
            header = re.sub(r"<[^<>]*>", "", re.sub(r"<[^<>]*>", "", each[1])).split(" where ")[0]
            name = header.split(" for ")[-1].strip().split("::")[-1].strip("&' ")
            found.append((name, each.start() + len(each[0]) - len(each[0].lstrip()), closing(self.code, each.end() - 1)))
        return found

    def functions(self):
        """Each function that has a body, named with its type, and its length in lines of code."""
        for found in FUNCTION.finditer(self.code):
            opening = body(self.code, found.end())
            if opening is None:
                continue
            lines = self.code[found.start():closing(self.code, opening)].splitlines()
            owner = next((name for name, start, end in self.impls if start < found.start() < end), None)
            name = f"{owner}::{found[1]}" if owner else found[1]
            yield Item(name, self.line(found.start()), sum(1 for line in lines if line.strip()))

    def structs(self):
        """Each structure with named fields, and their number."""
        for found in STRUCT.finditer(self.code):
            opening = body(self.code, found.end())
            if opening is None:
                continue
            inside = self.code[opening:closing(self.code, opening)]
            flat = re.sub(r"#\[[^\]]*\]", "", inside)
            # Types in parentheses and braces have colons of their own.
            flat = re.sub(r"(?<=\w)\([^()]*\)", "", flat)
            yield Item(found[1], self.line(found.start()), len(FIELD.findall(flat)))

    def types(self):
        """(name, line) of each type, alias and trait that it defines, in tests as well. An associated type is none."""
        code = blanked(self.text)
        holders = [(found.end(), closing(code, found.end() - 1)) for found in HOLDER.finditer(code)]
        for found in TYPE.finditer(code):
            if found[1] != "type" or not any(start < found.start(2) < end for start, end in holders):
                yield found[2], self.line(found.start(2))

    def docs(self):
        """(line, first line of text) of each doc comment."""
        before = None
        for number, line in enumerate(self.text.splitlines(), 1):
            found = DOC.match(line)
            if found and found[1] != before:
                yield number, found[2]
            before = found[1] if found else None
