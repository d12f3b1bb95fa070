"""Guards of the structure: circles of files, the order of the supervisor's folders, and the rooms of `impl Session`."""

from .listed import LIST, Fault, Found, Judgement, compare
from .uses import circles

SUPERVISOR = "supervisor/src/"
# The folders that may add methods to `Session`: its own, and those of the calls.
ROOMS = ("session/", "call/", "agents/", "background/")


# Circles.


def judge_circles(tree, entries):
    """No more than two files of a crate use one another in a circle. An entry: `FOLDER: FILE FILE …`."""
    judgement = Judgement()
    listed = {entry: members(entry.text) for entry in entries}
    found = [set(circle) for circle in circles(tree.uses.edges, tree.uses.sources)]
    for circle in found:
        allowed = max(listed.values(), key=lambda each: len(each & circle), default=set())
        if not circle <= allowed:
            judgement.faults.append(circle_fault(tree, circle, allowed))
    for entry, allowed in listed.items():
        # It may have fallen apart into several.
        rest = [circle for circle in found if circle <= allowed]
        if rest != [allowed] and not any(circle & allowed for circle in found if circle not in rest):
            judgement.smaller[entry] = [circle_text(circle) for circle in rest]
    return judgement


def members(text):
    """The paths of a circle's files."""
    folder, _, names = text.partition(": ")
    return {f"{folder}/{name}" for name in names.split()}


def circle_text(circle):
    """The line of the list for a circle."""
    folder = min(circle).partition("/src/")[0] + "/src"
    return f"{folder}: {' '.join(path.removeprefix(f'{folder}/') for path in sorted(circle))}"


def circle_fault(tree, circle, allowed):
    """The fault of a circle that is not listed, or that has grown: it names one use that closes it."""
    joined = sorted(circle - allowed)
    user = joined[0]
    used = min(path for path in tree.uses.edges[user] if path in circle)
    name, line = min(tree.uses.edges[user][used].items(), key=lambda each: each[1])
    others = sorted(path for path in circle if user in tree.uses.edges[path])
    names = sorted(tree.uses.edges[others[0]][user])
    message = f"a circle of {len(circle)} files: {user} uses `{name}` of {used}, and {others[0]} uses `{names[0]}` of {user}"
    if circle & allowed:
        message += f" ({len(joined)} new: {', '.join(joined)})"
    remedy = f"move what both need below both, or hand it over as an argument; the whole circle: {circle_text(circle)}"
    return Fault(user, line, message, remedy)


# The order of folders.


def judge_order(tree, entries, order):
    """Folders of `supervisor/src` use only what stands below them in `[order]`. A file that stands there has a place of its own.
    An entry: `FILE -> FILE: NAME, NAME`."""
    judgement, rank = Judgement(), {}
    for entry in order:
        for name in entry.text.split():
            rank[name] = len(rank)
    folders = {}
    for path in tree.uses.sources:
        if path.startswith(SUPERVISOR):
            folders.setdefault(place_of(path, rank), path)
    for folder in sorted(folders.keys() - rank.keys()):
        message = f"`{folder}` has no place in [order]"
        judgement.faults.append(Fault(folders[folder], 1, message, f"write it in {LIST}, above all that it may use"))
    for entry in order:
        gone = [name for name in entry.text.split() if name not in folders]
        if gone:
            rest = " ".join(name for name in entry.text.split() if name in folders)
            judgement.smaller[entry] = [rest] if rest else []
    upward = dict(upward_uses(tree, rank))
    listed = set()
    for entry in entries:
        files, _, names = entry.text.partition(": ")
        keys = [(*files.split(" -> "), name) for name in names.split(", ")]
        listed |= set(keys)
        rest = [name for *_, name in (key for key in keys if key in upward)]
        if len(rest) < len(keys):
            judgement.smaller[entry] = [f"{files}: {', '.join(rest)}"] if rest else []
    for (user, used, name), line in upward.items():
        if (user, used, name) not in listed:
            message = f"`{name}` of {used} is above: in [order], `{place_of(SUPERVISOR + used, rank)}` may use `{place_of(SUPERVISOR + user, rank)}`, not the other way round"
            remedy = f"move what it needs down, or let the caller hand it over ({LIST}: `{user} -> {used}: {name}`)"
            judgement.faults.append(Fault(SUPERVISOR + user, line, message, remedy))
    return judgement


def place_of(path, rank):
    """The file or the folder that has a place in the order, or else the folder, or the single file, right below `supervisor/src`."""
    name = path.removeprefix(SUPERVISOR).removesuffix(".rs")
    while name not in rank and "/" in name:
        name = name.rpartition("/")[0]
    return name


def upward_uses(tree, rank):
    """((user, used, name), line) of each use against the order."""
    for user, edges in sorted(tree.uses.edges.items()):
        for used, names in sorted(edges.items()):
            if not (user.startswith(SUPERVISOR) and used.startswith(SUPERVISOR)):
                continue
            above, below = rank.get(place_of(used, rank)), rank.get(place_of(user, rank))
            if above is not None and below is not None and above < below:
                for name, line in sorted(names.items()):
                    yield (user.removeprefix(SUPERVISOR), used.removeprefix(SUPERVISOR), name), line


# Session.


def judge_session(tree, entries):
    """Only the rooms of `Session` add to it. An entry: `FILE`, the whole path."""
    found = {}
    rooms = tuple(SUPERVISOR + room for room in ROOMS)
    for path, source in tree.product.items():
        if not path.startswith(SUPERVISOR) or path.startswith(rooms):
            continue
        for name, start, _ in source.impls:
            if name == "Session":
                remedy = f"make it a function of the part of the session that it needs, or move it to {' or '.join(rooms)}"
                found.setdefault(path, Found(path, source.line(start), "`impl Session` outside its rooms", remedy))
    return compare(entries, found)
