"""Guards of the size of functions and structures."""

from .listed import Found, compare

LONGEST_FUNCTION = 80
LARGEST_STRUCTURE = 20


def judge_functions(tree, entries):
    """No function has more than 80 lines of code. An entry: `FILE: NAME LINES`."""
    remedy = "split it where it turns to another step, or list it with the reason why it is read best as one"
    return compare(entries, dict(larger(tree, lambda source: source.functions(), LONGEST_FUNCTION, "lines of code", remedy)))


def judge_structs(tree, entries):
    """No structure has more than 20 fields. An entry: `FILE: NAME FIELDS`."""
    remedy = "find the parts that belong together and give each a type, or list it with the reason why it has none"
    return compare(entries, dict(larger(tree, lambda source: source.structs(), LARGEST_STRUCTURE, "fields", remedy)))


def larger(tree, items, limit, unit, remedy):
    """(key, violation) for each item that is larger than the limit. The harness of the tests is not counted."""
    for path, source in tree.product.items():
        for item in items(source):
            if item.size > limit:
                message = f"`{item.name}` has {item.size} {unit}, more than {limit}"
                yield f"{path}: {item.name}", Found(path, item.line, message, remedy, item.size)
