"""Guards of the documentation: links lead somewhere, and so do the paths in backticks."""

import fnmatch
import os
import re
from urllib.parse import unquote

from .listed import Found, compare

FENCE = re.compile(r"^([ \t]*)(```+|~~~+)[^\n]*\n.*?(?:^\1\2[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(r"\]\(\s*<?([^()\s>]+(?:\([^()\s]*\)[^()\s>]*)*)>?(?:\s+\"[^\"]*\")?\s*\)")
REFERENCE = re.compile(r"^[ ]{0,3}\[[^\]]+\]:\s*<?(\S+?)>?\s*$", re.MULTILINE)
HEADING = re.compile(r"^#{1,6}[ \t]+(.+?)[ \t]*#*$", re.MULTILINE)
ANCHOR = re.compile(r"<[^>]+\b(?:id|name)=\"([^\"]+)\"")
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)
# Records speak of the tree as it was, so their paths may be gone; their links are read today.
RECORDS = ("docs/decisions/", "docs/reviews/", "CHANGELOG.md")
PATH = re.compile(r"\.?[\w*{},-]+(?:[/.][\w*{},.-]+)*/?")
# A name with one of these endings is looked for at any depth: `call/spawn.rs`.
ENDINGS = (".rs", ".snap")


def without(text, pattern):
    """The text with spaces for what the pattern matches; lines stay."""
    return pattern.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def anchors(text):
    """The anchors of a page as GitHub makes them from headings, and those that HTML sets."""
    found, seen = set(ANCHOR.findall(text)), {}
    for heading in HEADING.findall(without(text, FENCE)):
        # The text of links without their target, and no mark-up.
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        count = seen.get(slug, 0)
        seen[slug] = count + 1
        found.add(f"{slug}-{count}" if count else slug)
    return found


def judge_links(tree, entries):
    """Relative links in Markdown lead to a file or folder, and to a heading if they name one. An entry: `PAGE: LINK`."""
    found, known = {}, {}
    for page in (path for path in tree.paths if path.endswith(".md")):
        text = without(without(tree.read(page), FENCE), SPAN)
        for link in (*LINK.finditer(text), *REFERENCE.finditer(text)):
            if ELSEWHERE.match(link[1]):
                continue
            path, _, anchor = unquote(link[1]).partition("#")
            target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            line = text.count("\n", 0, link.start(1)) + 1
            if target not in tree.folders and target not in tree.files:
                message = f"the link `{link[1]}` leads nowhere: there is no {target}"
                found[f"{page}: {link[1]}"] = Found(page, line, message, "correct the link, or remove it")
            elif anchor and target.endswith(".md"):
                if target not in known:
                    known[target] = anchors(tree.read(target))
                if anchor not in known[target]:
                    near = sorted(known[target], key=lambda each: -len(os.path.commonprefix([each, anchor])))[:1]
                    message = f"the link `{link[1]}` leads nowhere: {target} has no heading `#{anchor}`"
                    remedy = f"correct the link{f'; the nearest is `#{near[0]}`' if near else ''}"
                    found[f"{page}: {link[1]}"] = Found(page, line, message, remedy)
    return compare(entries, found)


def judge_paths(tree, entries):
    """Paths of the repository in backticks exist; records are exempt. An entry: `PAGE: PATH`."""
    found = {}
    tops = {path.split("/")[0] for path in tree.paths if "/" in path and (path[0] != "." or path.startswith(".ci/"))}
    for page in (path for path in tree.paths if path.endswith(".md") and not path.startswith(RECORDS)):
        text = without(tree.read(page), FENCE)
        for span in SPAN.finditer(text):
            path = re.sub(r"(?::\d+)+$", "", span[2].strip())
            if not PATH.fullmatch(path) or not is_ours(path, tops) or exists(tree, path):
                continue
            line = text.count("\n", 0, span.start()) + 1
            message = f"`{path}` looks like a path of this repository, and there is none"
            found[f"{page}: {path}"] = Found(page, line, message, "correct it, or list it if it is an example")
    return compare(entries, found)


def is_ours(path, tops):
    """True if a text reads as a path of this repository: it begins at the top, or ends as its files do."""
    return ("/" in path.rstrip("/") and path.split("/")[0] in tops) or path.endswith(ENDINGS)


def exists(tree, path):
    """True if a file or folder has this path; `{a,b}` are two paths, and `*` or a word in capitals stands for any name."""
    for one in alternatives(path):
        pattern = re.sub(r"\b[A-Z]{3,}\b(?=\.|/|$)", "*", one.rstrip("/"))
        patterns = [pattern] + ([f"*/{pattern}"] if path.endswith(ENDINGS) else [])
        exact = one.rstrip("/") in tree.files or one.rstrip("/") in tree.folders
        if not exact and not any(fnmatch.filter(tree.files | tree.folders, each) for each in patterns):
            return False
    return True


def alternatives(path):
    """The paths that braces stand for."""
    if not (found := re.search(r"\{([^{}]*)\}", path)):
        return [path]
    return [each for part in found[1].split(",") for each in alternatives(path[:found.start()] + part + path[found.end():])]
