"""The list of exceptions, `.ci/guards.txt`, and the answer of a guard to it.

The list has sections, `[name]`. In a section, a line at the margin is a reason, and the indented lines below it are the
exceptions that it holds for; a line that is indented further continues the one above. `#` begins a comment.
"""

import re
from dataclasses import dataclass, field

LIST = ".ci/guards.txt"


@dataclass(frozen=True)
class Fault:
    """A place that breaks a rule, and the way to mend it."""

    path: str
    line: int
    message: str
    remedy: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.message}\n    {self.remedy}"


@dataclass(eq=False)
class Entry:
    """An exception: its text, its reason, and the lines it stands on."""

    text: str
    reason: str
    first: int
    last: int


@dataclass
class Found:
    """A violation: the place where it is, and its size if the guard counts something."""

    path: str
    line: int
    message: str
    remedy: str
    size: int | None = None


@dataclass
class Judgement:
    """A guard's answer: faults, and the entries that may take the place of one that is too large (none: it is not needed)."""

    faults: list = field(default_factory=list)
    smaller: dict = field(default_factory=dict)


class List:
    """The list of exceptions, by section."""

    def __init__(self, text):
        self.lines = text.splitlines()
        self.sections = {}
        self.faults = []
        self.parse()

    def parse(self):
        """Reads the sections."""
        entries, reason, entry = [], None, None
        for number, line in enumerate(self.lines, 1):
            words = line.split("#")[0].rstrip()
            indent = len(words) - len(words.lstrip())
            if not words:
                entry = None
            elif found := re.fullmatch(r"\[(.+)\]", words):
                entries, reason, entry = self.sections.setdefault(found[1], []), None, None
            elif indent == 0:
                # Reasons may take several lines: the first after an exception begins a new one.
                reason = f"{reason} {words}" if reason and not entry and self.lines[number - 2].strip() else words
                entry = None
            elif entry and indent > entry_indent:
                entry.text, entry.last = f"{entry.text} {words.strip()}", number
            elif reason is None:
                self.faults.append(Fault(LIST, number, "an exception without a reason", "write the reason above it"))
            else:
                entry, entry_indent = Entry(words.strip(), reason.rstrip(":"), number, number), indent
                entries.append(entry)

    def section(self, name):
        """The exceptions of one section."""
        return self.sections.get(name, [])

    def shrunk(self, smaller):
        """The text of the list after each entry in `smaller` became what it maps to, or went."""
        lines = list(self.lines)
        for entry in sorted(smaller, key=lambda each: -each.first):
            indent = re.match(r"\s*", lines[entry.first - 1])[0]
            lines[entry.first - 1:entry.last] = [line for text in smaller[entry] for line in wrapped(text, indent)]
        return "\n".join(without_bare_reasons(lines)) + "\n"

    def stale(self, smaller):
        """A fault for each entry that is larger than it needs to be."""
        for entry, texts in smaller.items():
            message = f"an exception that is no longer needed{' in full' if texts else ''}: {entry.text}"
            remedy = f"write {' and '.join(f'`{text}`' for text in texts)}" if texts else "remove this line"
            yield Fault(LIST, entry.first, message, f"{remedy} (`.ci/guards --shrink` does it)")


def wrapped(text, indent, width=125):
    """The text in lines of at most `width`, the further ones indented by two more."""
    lines, current = [], indent
    for word in text.split(" "):
        if len(current) + 1 + len(word) > width and current.strip():
            lines.append(current)
            current = f"{indent}  "
        current += word if not current.strip() else f" {word}"
    return [*lines, current]


def without_bare_reasons(lines):
    """The lines without reasons that hold for nothing any more."""
    kept = []
    for line in reversed(lines):
        is_reason = line.strip() and not line[0].isspace() and line[0] not in "#["
        below = kept[-1] if kept else ""
        holds = below.strip() and (below[0].isspace() or below[0] not in "#[")
        if not is_reason or holds:
            kept.append(line)
    # A reason that went leaves an empty line: after another, or below the head of its section.
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(reversed(kept)))
    text = re.sub(r"(?m)^(\[.+\])\n\n(?=[^\[#])", r"\1\n", text)
    return text.rstrip("\n").split("\n")


def compare(entries, found):
    """Compares what was found with the list. Both have keys; a key in the list may be followed by the size it allows."""
    judgement, listed = Judgement(), {}
    for entry in entries:
        key, size = entry.text, None
        if number := re.fullmatch(r"(.+) (\d+)", entry.text):
            key, size = number[1], int(number[2])
        listed[key] = size
        if key not in found:
            judgement.smaller[entry] = []
        elif size is not None and found[key].size < size:
            judgement.smaller[entry] = [f"{key} {found[key].size}"]
    for key, each in found.items():
        if key in listed and (each.size is None or listed[key] is None or each.size <= listed[key]):
            continue
        limit = f" (the list allows {listed[key]})" if key in listed else ""
        judgement.faults.append(Fault(each.path, each.line, each.message + limit, each.remedy))
    return judgement
