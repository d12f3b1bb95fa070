#!/bin/sh
# A whole session, from the shell, with nothing but callgate.
#
#     docs/whole-session.sh [NEW-DIRECTORY]
#
# Run it in a terminal, with callgate on your PATH: it asks you twice. It plays the agent: each call is one that a model would
# make. Everything happens in a new directory, with a home of its own in it, so nothing of yours is read or changed. Each step
# looks at what came of it, and the script ends with an error if something is not as it says. `docs/tools.md` has declared tools
# and skills, `docs/manifest.md` has the rest.
set -eu

scratch=${1:-$(mktemp -d)}
mkdir -p "$scratch/home" "$scratch/project"
scratch=$(cd "$scratch" && pwd -P)
export HOME="$scratch/home"
# A session's record is kept for you alone, where no session may reach.
export XDG_STATE_HOME="$HOME/state"
unset XDG_CONFIG_HOME
cd "$scratch/project"

step() { printf '\n== %s\n' "$*" >&2; }
fail() { printf 'whole-session: %s\n' "$*" >&2; exit 1; }
# has FILE TEXT: the text is in the file.
has() { grep -qF -- "$2" "$1" || { cat "$1" >&2; fail "$1 does not have: $2"; }; }
# string FILE KEY: the first string of that key in an envelope.
string() { sed -n 's/^ *"'"$2"'": "\(.*\)",*$/\1/p' "$1" | head -n 1; }

# ---- What belongs to you: a declared tool, a skill ----

# A tool is a definition, and the program beside it: arguments as JSON on standard input, the result as JSON on standard output.
mkdir -p "$HOME/.config/callgate/tools"
cat >"$HOME/.config/callgate/tools/wordcount.toml" <<'END'
name = "wordcount"
description = "Counts the words of a file."
command = ["python3", "./wordcount.py"]
[parameters]
type = "object"
required = ["path"]
properties.path.type = "string"
additionalProperties = false
[requires.fs]
read = ["{workspace}/**"]
END
cat >"$HOME/.config/callgate/tools/wordcount.py" <<'END'
import json, sys
path = json.load(sys.stdin)["path"]
print(json.dumps({"words": len(open(path).read().split())}))
END

# A skill is a text that a model reads when it needs it.
mkdir -p "$HOME/.agents/skills/release-notes"
cat >"$HOME/.agents/skills/release-notes/SKILL.md" <<'END'
---
name: release-notes
description: Writes release notes. Use it when a version is about to be tagged.
---
One line for each change, in the words of a user.
END
# Others must not be able to write what counts as yours.
chmod -R go-w "$HOME"

# ---- What belongs to the project ----

mkdir notes
printf 'Version 1\nIt is slow.\n' >notes/next.txt
printf 'left over\n' >old.txt

# The manifest grants the project and any program in it, has a person asked before a file is removed, and declares a subagent:
# any program that takes a prompt on standard input and prints its answer, such as ["claude", "-p"]. This one is sed, whose
# prompts are its scripts. It may write in notes, and nothing else of what its parent may.
cat >callgate.toml <<END
id = "whole-session"
[requires.fs]
read = ["$HOME/.config/callgate/tools/**"]
write = ["{workspace}/**"]
[[requires.shell]]
cmd = "*"
[[rules]]
permission = "bash"
pattern = "rm *"
action = "ask"
[agents.editor]
description = "Edits notes/next.txt by the sed script that it is given."
runner = ["sed", "-i", "-f", "-", "$PWD/notes/next.txt"]
tools = []
inspectable = true
[agents.editor.requires.fs]
write = ["{workspace}/notes/**"]
[[agents.editor.requires.shell]]
cmd = "sed"
END

# ---- The session ----

step 'The manifest of a project counts once you trust it, until it changes'
callgate trust .

step 'A session: the grants are taken once, and hold for every call'
id=$(callgate session new --title 'whole session')
echo "$id"
# call FILE TOOL ARGUMENTS: one call of the session, whose result goes to a file.
call() {
    result=$1
    shift
    callgate call --session "$id" "$@" >"$result" || { status=$?; string "$result" error_text >&2; return "$status"; }
}

step 'Read a file, and edit it'
call read.json read '{"path": "notes/next.txt"}'
has read.json 'It is slow.'
call edit.json edit '{"path": "notes/next.txt", "old_string": "slow", "new_string": "fast"}'
has notes/next.txt 'It is fast.'

step 'A command with more output than a result shows; the rest is in a file that the session may read'
call long.json bash '{"command": "seq 40000"}'
rest=$(string long.json output_path)
echo "$rest"
call rest.json read "{\"path\": \"$rest\"}"
has rest.json '\n40000\n'

step 'What was not granted is denied, with status 77 and a remedy'
status=0
call denied.json read '{"path": "/etc/shadow"}' || status=$?
[ "$status" -eq 77 ] || fail "reading /etc/shadow ended with $status"
has denied.json '"layer": "capability"'

step 'A rule asks you before a file is removed: answer `once`'
call approved.json bash '{"command": "rm old.txt"}'
has approved.json '"approved_by": "terminal"'
[ ! -e old.txt ] || fail 'old.txt is still there'

step 'A todo list is the session'"'"'s: the next process finds it'
call todo.json todo '{"todos": [{"content": "edit the notes", "status": "in_progress"},
                                {"content": "tag", "status": "pending"}]}'
call todo-again.json todo '{}'
has todo-again.json 'edit the notes'

step 'The agent asks you something: answer with a number, or in your own words'
call question.json question '{"questions": [{"question": "Which version comes next?",
                                             "options": [{"label": "1.1"}, {"label": "2.0"}]}]}'
has question.json '"answers"'

step 'A skill: one line until it is asked for, then its text'
callgate skills
call skill.json skill '{"name": "release-notes"}'
has skill.json 'in the words of a user'

step 'A declared tool, in Python, in a sandbox of its own'
call words.json wordcount '{"path": "notes/next.txt"}'
has words.json '"words": 5'

step 'A subagent: a program of its own, which edits a file and answers'
call edited.json task '{"subagent_type": "editor", "prompt": "s/Version 1/Version 2/w /dev/stdout"}'
has edited.json '"output": "Version 2\n"'
has notes/next.txt 'Version 2'

# ---- The record ----

step 'What was called, and what came of it'
callgate session show "$id"
callgate session show --json "$id" >shown.json

step 'A replay prints the events again, always the same, and executes nothing'
callgate session replay "$id" >events.jsonl
callgate session replay "$id" >events-again.jsonl
cmp events.jsonl events-again.jsonl
callgate session replay --results "$id" >results.json
has results.json '"output": "Version 2\n"'

step 'A fork goes on where the session is, with a life of its own'
fork=$(callgate session fork "$id")
callgate call --session "$fork" todo '{}' >fork.json
has fork.json 'edit the notes'

step 'Closed: its output files are gone, no call is made any more, and the record stays'
callgate session close "$fork"
callgate session close "$id"
[ ! -e "$rest" ] || fail "$rest is still there"
status=0
call closed.json read '{"path": "notes/next.txt"}' || status=$?
[ "$status" -eq 64 ] || fail "a call of a closed session ended with $status"
callgate session list

step "Done. All of it is in $scratch"
