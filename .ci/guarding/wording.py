"""Guard of the first words of doc comments."""

import re

from .listed import Found, compare

# A clause where a noun or a verb should stand: it hides the subject from whoever reads only the first words.
HABITS = re.compile(r"(What|Whether|Of|Why|The same|As above)\b")


def judge_doc_comments(tree, entries):
    """A doc comment begins with a noun or a verb. An entry: `FILE COUNT`."""
    found = {}
    for path, source in tree.rust.items():
        places = [(line, HABITS.match(text)) for line, text in source.docs()]
        places = [(line, match[1]) for line, match in places if match]
        if places:
            # The last one: what was added is more often found near it than near the first.
            line, words = places[-1]
            message = f"{len(places)} doc comment(s) begin with a habit, this one with “{words}”"
            remedy = "begin with a noun or a verb (a boolean: “True if …”)"
            found[path] = Found(path, line, message, remedy, len(places))
    return compare(entries, found)
