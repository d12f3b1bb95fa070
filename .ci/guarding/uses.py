"""Names that the files of the workspace use of one another.

A use is a path in the code (`crate::a::Name`, `super::Name`, `imported::Name`) or in a `use` declaration. A re-export is
not a use: who names the re-exported item uses the file that defines it. A module's bare name is not a use either.
Methods are not seen, because their paths are not written.
"""

import re
from collections import defaultdict
from dataclasses import dataclass

USE = re.compile(r"(?P<public>\bpub(?:\([^)]*\))?\s+)?\buse\s+(?P<tree>[^;]+);")
PATH = re.compile(r"(?<![\w:])(?:r#)?[A-Za-z_]\w*(?:\s*::\s*[A-Za-z_]\w*)+")
# Not the lifetime of `&'static Name`.
DEFINED = re.compile(r"(?<!')\b(?:struct|enum|trait|fn|const|static|type|union|macro_rules!)\s+(?:mut\s+)?(\w+)")
# A re-export of a re-export, and so on; more is a circle.
DEEPEST = 8


@dataclass(frozen=True)
class Import:
    """A name that a `use` declaration brings into a module."""

    name: str
    path: tuple
    place: int
    is_public: bool


def branches(text):
    """The paths of a `use` tree, each a tuple of names with the name it is given: `a::{b, c as d}` is a::b, a::c as d."""
    text = text.strip()
    opening = text.find("{")
    if opening < 0:
        path, _, alias = text.partition(" as ")
        names = tuple(name.strip() for name in path.split("::") if name.strip())
        if names[-1:] == ("self",) and len(names) > 1:
            names = names[:-1]
        if names:
            yield names, alias.strip() or names[-1]
        return
    head = tuple(name.strip() for name in text[:opening].split("::") if name.strip())
    for part in at_commas(text[opening + 1:text.rindex("}")]):
        for names, alias in branches(part):
            yield (head, head[-1]) if names == ("self",) else (head + names, alias)


def at_commas(text):
    """The parts of a text between commas that stand in no braces."""
    depth, part = 0, ""
    for char in text:
        depth += {"{": 1, "}": -1}.get(char, 0)
        if char == "," and depth == 0:
            yield part
            part = ""
        else:
            part += char
    if part.strip():
        yield part


class Uses:
    """The names that the files of the workspace use of one another."""

    def __init__(self, tree):
        self.sources = {path: source for path, source in tree.product.items() if tree.target(path)}
        self.owner = {path: tree.target(path) for path in self.sources}
        self.libraries = {each.name: each for each in tree.targets if each.root.endswith("lib.rs")}
        self.files = {self.module(path): path for path in self.sources}
        self.defined = {self.module(path): set(DEFINED.findall(source.code)) for path, source in self.sources.items()}
        self.imports = {path: list(self.declared(path)) for path in self.sources}
        self.edges = defaultdict(lambda: defaultdict(dict))
        for path in self.sources:
            self.collect(path)

    def module(self, path):
        """The module of a file: its target, and its path there."""
        target = self.owner[path]
        return (target, *target.module(path))

    def declared(self, path):
        """The imports of one file."""
        source = self.sources[path]
        for use in USE.finditer(source.code):
            for names, alias in branches(use["tree"]):
                if whole := self.absolute(path, names):
                    yield Import(alias, whole, use.start("tree"), bool(use["public"]))

    def absolute(self, path, names):
        """A path from the root of its target; None if it leads out of the workspace, or if only an import explains it."""
        module, (first, *rest) = self.module(path), names
        if first == "crate":
            return (module[0], *rest)
        if first == "self":
            return (*module, *rest)
        if first == "super":
            while names and names[0] == "super":
                module, names = module[:-1] or module, names[1:]
            return (*module, *names)
        if (*module, first) in self.files:
            return (*module, *names)
        return (self.libraries[first], *rest) if first in self.libraries else None

    def resolve(self, path, depth=0):
        """(file, name) that a whole path leads to, through imports and re-exports; None if it is a module alone."""
        for end in range(len(path), 0, -1):
            module, rest = path[:end], path[end:]
            if module not in self.files:
                continue
            if not rest:
                return None
            if rest[0] not in self.defined[module] and depth < DEEPEST:
                if further := self.through(module, rest, depth):
                    return further
            return self.files[module], rest[0]
        return None

    def through(self, module, rest, depth):
        """What a name stands for that a module does not define: something it imports."""
        for each in self.imports_of(module):
            if each.name == rest[0] and each.path != (*module, *rest):
                return self.resolve((*each.path, *rest[1:]), depth + 1)
            if each.name == "*" and each.path[:-1] in self.files and rest[0] in self.defined[each.path[:-1]]:
                return self.resolve((*each.path[:-1], *rest), depth + 1)
        return None

    def imports_of(self, module):
        """The imports of a module."""
        return self.imports[self.files[module]]

    def collect(self, path):
        """Records what one file uses of others."""
        source = self.sources[path]
        named = {each.name: each.path for each in self.imports[path]}
        for each in self.imports[path]:
            if each.name == "*":
                self.collect_glob(path, each)
            elif not each.is_public:
                self.record(path, each.path, each.place)
        # The `use` declarations are done; paths in the rest may begin with a name that one of them brought.
        code = USE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), source.code)
        for found in PATH.finditer(code):
            names = tuple(re.split(r"\s*::\s*", found[0]))
            whole = (*named[names[0]], *names[1:]) if names[0] in named else self.absolute(path, names)
            if whole:
                self.record(path, whole, found.start())

    def collect_glob(self, path, each):
        """Records the names that a file uses of a module that it imports whole."""
        module = each.path[:-1]
        if module in self.files and not each.is_public:
            words = set(re.findall(r"\w+", self.sources[path].code))
            for name in self.defined[module] & words:
                self.record(path, (*module, name), each.place)

    def record(self, path, whole, place):
        """Adds one use."""
        resolved = self.resolve(whole)
        if resolved and resolved[0] != path:
            file, name = resolved
            self.edges[path][file].setdefault(name, self.sources[path].line(place))


def circles(edges, nodes):
    """The strongly connected components of more than two nodes, largest first (Tarjan's algorithm, without recursion)."""
    index, low, stack, on_stack, found = {}, {}, [], set(), []
    for start in nodes:
        if start in index:
            continue
        work = [(start, iter(edges.get(start, ())))]
        index[start] = low[start] = len(index)
        stack.append(start)
        on_stack.add(start)
        while work:
            node, others = work[-1]
            for other in others:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(edges.get(other, ()))))
                    break
                if other in on_stack:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = stack[stack.index(node):]
                    del stack[stack.index(node):]
                    on_stack -= set(component)
                    if len(component) > 2:
                        found.append(sorted(component))
    return sorted(found, key=lambda each: (-len(each), each))
