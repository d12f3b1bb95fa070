"""Guard of names: a type's name says what it is, so that no other type of the workspace needs the same one."""

from collections import defaultdict

from .listed import Found, compare

SHARE = "types that share their name, in percent"
# How many of the names that most types share a fault lists.
WORST = 8


def judge_types(tree, entries):
    """Few types share their name with another one of the workspace; tests count. An entry: `SHARE PERCENT`, rounded up."""
    found = defaultdict(list)
    for path, source in tree.rust.items():
        for name, line in source.types():
            found[name].append((path, line))
    shared = {name: places for name, places in found.items() if len(places) > 1}
    if not shared:
        return compare(entries, {})
    count, total = sum(map(len, shared.values())), sum(map(len, found.values()))
    worst = sorted(shared, key=lambda name: (-len(shared[name]), name))
    names = ", ".join(f"`{name}` {len(shared[name])}" for name in worst[:WORST])
    # Rounded up in whole numbers.
    percent = -(-100 * count // total)
    message = f"{count} of {total} types ({percent} %) share their name with another, most: {names}"
    remedy = "name what you add by what it is, with a noun of its field: not `Kind` but `EntryKind`, not `Found` but `SearchHit`"
    return compare(entries, {SHARE: Found(*shared[worst[0]][0], message, remedy, percent)})
