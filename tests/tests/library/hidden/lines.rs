//! Command lines that start `touch made`, and do not look like it.
//!
//! A line is made from the inside out: how the program is named, what starts it, and what the whole is hidden in. Where a way
//! is a complete line of its own it takes the place of the first two.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callgate_tests::Dice;

/// A hard link to a program that does the same, beside the directories of the lines, made before the session.
pub(super) const HARD_LINK: &str = "hard";

/// A line, and the ways in which it hides.
#[derive(Debug)]
pub(super) struct Hidden {
    pub(super) line: String,
    pub(super) ways: Vec<&'static str>,
}

/// Result of a way inside, once the program is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GrantedResult {
    Starts,
    /// It starts another file than the one that is granted, or starts as nothing that could be granted.
    Stays,
}
use GrantedResult::{Starts, Stays};

/// Ways to name the program, as one word. The name is also taken apart at random.
const NAMES: &[(&str, &str)] = &[
    ("plain", "touch"),
    ("path", "/usr/bin/touch"),
    ("path", "/usr/../usr//bin/./touch"),
    ("substitution", "$(echo touch)"),
    ("substitution", "`printf touch`"),
    ("substitution", "$(tr n-za-m a-z <<< gbhpu)"),
    ("substitution", "$(rev <<< hcuot)"),
    ("substitution", "$(base64 -d <<< dG91Y2g=)"),
    ("substitution", "$(echo TOUCH | tr A-Z a-z)"),
    ("lookup", "$(type -P touch)"),
    ("lookup", "$(command -v touch)"),
    ("lookup", "$(which touch)"),
    ("parameter", "${none:-touch}"),
    ("parameter", "${none-to}uch"),
    ("parameter", "\"${T:=touch}\""),
    ("glob", "/usr/bin/touc?"),
    ("glob", "/usr/b[i]n/[t]ouch"),
    ("brace", "/usr/bin/tou{ch,}"),
];

/// Wrappers that start the words behind them, as programs and as the shell's own. One of the latter may stand outermost.
const WRAPPERS: &[(&str, &str)] = &[
    ("env", "env"),
    ("env", "env -i PATH=\"$PATH\""),
    ("env", "env -u none X=1"),
    ("env -S", "env -S'nice -n 2'"),
    ("nice", "nice"),
    ("nice", "nice -n 3"),
    ("timeout", "timeout 15"),
    ("nohup", "nohup"),
    ("setsid", "setsid -w"),
    ("stdbuf", "stdbuf -oL"),
    ("flock", "flock -s lock"),
    ("xargs", "xargs -a /dev/null"),
    ("bash", "bash -c '\"$@\"' x"),
    ("sh", "sh -c 'exec \"$0\" \"$@\"'"),
    ("perl", "perl -e 'exec @ARGV'"),
    ("python", "/usr/bin/python3 -c 'import os, sys; os.execvp(sys.argv[1], sys.argv[1:])'"),
    ("git alias", "git -c alias.x='!\"$@\" #' x"),
];
const OWN_WRAPPERS: &[(&str, &str)] = &[
    ("command", "command"),
    ("builtin", "builtin command"),
    ("time", "time"),
    ("exec -a", "exec -a true"),
    ("exec", "exec"),
];

/// Complete lines.
const LINES: &[(&str, GrantedResult, &str)] = &[
    ("variable", Starts, "x=to; y=uch; $x$y made"),
    ("variable", Starts, "a=(touch made); \"${a[@]}\""),
    ("variable", Starts, "x=y; y=touch; ${!x} made"),
    ("variable", Starts, "printf -v x '%b' '\\0164ouch'; $x made"),
    ("variable", Starts, "read -r x y <<< 'touch made'; $x $y"),
    ("variable", Starts, "set -- touch made; \"$@\""),
    ("variable", Starts, "typeset -x IFS=_; x=touch_made; $x"),
    ("brace", Starts, "{touch,made}"),
    ("loop", Starts, "echo touch made | while read -r x; do $x; done"),
    ("function", Starts, "f() { \"$@\"; }; f touch made"),
    ("function", Starts, "ls() { command touch made; }; ls"),
    ("alias", Starts, "shopt -s expand_aliases; alias x=touch\neval 'x made'"),
    ("alias", Starts, "shopt -s expand_aliases; alias ls='touch made #'\neval 'ls -l'"),
    ("hash", Starts, "hash -p /usr/bin/touch x; x made"),
    ("PATH", Starts, "mkdir -p b; ln -s /usr/bin/touch b/ls; PATH=$PWD/b:$PATH; ls made"),
    ("PATH", Starts, "PATH=/usr/bin; touch made"),
    ("PATH", Starts, "(w=$PWD; cd /usr/bin; ./touch \"$w/made\")"),
    ("symbolic link", Starts, "ln -s /usr/bin/touch l; ./l made"),
    ("symbolic link", Starts, "ln -s /usr/bin l; l/touch made"),
    ("symbolic link", Starts, "ln -s touch a; ln -s /usr/bin/touch touch; ./a made"),
    ("hard link", Starts, "../hard made"),
    ("hard link", Starts, "ln -s ../hard l; ./l made"),
    ("xargs", Starts, "echo made | xargs touch"),
    ("xargs", Starts, "echo touch made | xargs -n2 env"),
    ("xargs", Starts, "printf 'touch\\0made\\0' | xargs -0 env"),
    ("xargs", Starts, "echo made | xargs -I% touch %"),
    ("find", Starts, "find . -maxdepth 0 -exec touch made ';'"),
    ("find", Starts, "find . -maxdepth 0 -exec sh -c 'touch made' ';'"),
    ("find", Starts, "touch=1; find . -maxdepth 0 -exec env touch made {} +"),
    ("env -S", Starts, "env -S 'touch made'"),
    ("env -S", Starts, "env -S'X=1 t\"ouch\" made'"),
    ("awk", Starts, "awk 'BEGIN { system(\"touch made\") }'"),
    ("awk", Starts, "awk 'BEGIN { \"touch made\" | getline }'"),
    ("awk", Starts, "awk 'BEGIN { print 1 | \"touch made\" }'"),
    ("sed", Starts, "echo x | sed '1e touch made'"),
    ("sed", Starts, "echo touch made | sed e"),
    ("sed", Starts, "echo touch made | sed 's/x*$//e'"),
    ("perl", Starts, "perl -e 'system qw(touch made)'"),
    ("perl", Starts, "perl -e 'exec {\"touch\"} \"true\", \"made\"'"),
    ("perl", Starts, "perl -e 'open F, \"-|\", \"touch made\"; close F'"),
    ("perl", Starts, "perl -e 'print `touch made`'"),
    (
        "execveat",
        Starts,
        "perl -e 'open F, \"<\", \"/usr/bin/touch\"; ($t, $m, $e, $z) = (\"touch\", \"made\", \"\", pack \"J\", 0); syscall(EXECVEAT, fileno(F), $e, pack(\"ppJ\", $t, $m, 0), $z, 0x1000)'",
    ),
    ("python", Starts, "/usr/bin/python3 -c 'import os; os.system(\"touch made\")'"),
    ("python", Starts, "/usr/bin/python3 -c 'import subprocess as s; s.run([\"touch\", \"made\"])'"),
    (
        "python",
        Starts,
        "/usr/bin/python3 -c 'import os; os.waitpid(os.posix_spawn(\"/usr/bin/touch\", [\"ls\", \"made\"], os.environ), 0)'",
    ),
    (
        "python",
        Starts,
        "/usr/bin/python3 -c 'import os; os.fork() == 0 and os.execl(\"/usr/bin/touch\", \"-\", \"made\"); os.wait()'",
    ),
    ("vim", Starts, "vim -es -u NONE -i NONE -c '!touch made' -c q"),
    ("make", Starts, "printf 'x:\\n\\t@touch made\\n' | make -sf -"),
    ("make", Starts, "make -s --eval='x:;@touch made' x"),
    ("git alias", Starts, "git -c alias.x='!touch made' x"),
    ("git", Starts, "git -c core.sshCommand='touch made;:' ls-remote ssh://host/path"),
    ("git", Starts, "git -c protocol.ext.allow=always ls-remote 'ext::touch made'"),
    ("git", Starts, "echo a > a; echo b > b; git -c diff.external='touch made;:' diff --no-index --ext-diff a b"),
    ("git", Starts, "git init -q r; git -C r -c core.fsmonitor='touch ../made;:' status"),
    (
        "git pager",
        Starts,
        "git init -q r; script -qec 'git -C r -c core.pager=\"touch ../made;:\" -p config -l' /dev/null",
    ),
    ("tar", Starts, "echo > f; tar cf t f; tar xf t --to-command='touch made'"),
    ("tar", Starts, "echo > f; tar cf /dev/null f --checkpoint=1 --checkpoint-action=exec='touch made'"),
    ("tar", Starts, "echo > f; tar cf t -I 'touch made;:' f"),
    ("split", Starts, "seq 3 | split --filter='touch made' -"),
    ("BASH_ENV", Starts, "echo touch made > e; BASH_ENV=./e bash -c :"),
    ("ENV", Starts, "echo touch made > e; ENV=./e sh -i -c :"),
    ("here-document", Starts, "bash <<'E1'\ntouch made\nE1"),
    ("here-document", Starts, "x=touch; sh <<E1\n$x made\nE1"),
    ("here-document", Starts, "sh -s <<< 'touch made'"),
    ("into a shell", Starts, "printf 'touch made' | sh"),
    ("into a shell", Starts, "echo edam hcuot | rev | sh"),
    ("into a shell", Starts, "printf '\\164\\157\\165\\143\\150\\40made' | sh"),
    ("into a shell", Starts, "gzip -c <<< 'touch made' | gzip -dc | sh"),
    ("into a shell", Starts, "perl -e 'print pack \"H*\", \"746f756368206d616465\"' | sh"),
    ("into a shell", Starts, "echo 'echo touch made' | sh | sh"),
    ("base64", Starts, "echo dG91Y2ggbWFkZQ== | base64 -d | sh"),
    ("source", Starts, ". /dev/stdin <<< 'touch made'"),
    ("source", Starts, "source <(echo touch made)"),
    ("source", Starts, "bash <(echo touch made)"),
    ("trap", Starts, "(trap 'trap - DEBUG; touch made' DEBUG; true)"),
    ("trap", Starts, "(trap 'touch made' ERR; false)"),
    ("trap", Starts, "(trap 'touch made' USR1; kill -USR1 $BASHPID; true)"),
    ("copy", Stays, "cp /usr/bin/touch c; ./c made"),
    ("copy", Stays, "cat /usr/bin/touch > c; chmod 755 c; ./c made"),
    ("copy", Stays, "tar cf t -C /usr/bin touch; tar xf t; ./touch made"),
    ("copy", Stays, "c=${TMPDIR:-.}/c$$; cp /usr/bin/touch $c; $c made; rm $c"),
    ("renamed", Stays, "mkdir b; cp /usr/bin/touch b/ls; PATH=$PWD/b:$PATH; ls made"),
    ("renamed", Stays, "cp /usr/bin/touch a; mv a ls; ./ls made"),
    ("loader", Stays, "LOADER /usr/bin/touch made"),
    ("loader", Stays, "cat /usr/bin/touch > c; LOADER ./c made"),
    ("loader", Stays, "ln -s LOADER l; ./l --argv0 ls /usr/bin/touch made"),
    (
        "memory",
        Stays,
        "/usr/bin/python3 -c 'import os; f = os.memfd_create(\"x\"); os.write(f, open(\"/usr/bin/touch\", \"rb\").read()); os.execve(f, [\"touch\", \"made\"], os.environ)'",
    ),
    (
        "memory",
        Stays,
        "/usr/bin/python3 -c 'import os; f = os.memfd_create(\"x\", 0); os.write(f, open(\"/usr/bin/touch\", \"rb\").read()); os.execv(f\"/proc/self/fd/{f}\", [\"touch\", \"made\"])'",
    ),
    ("magic link", Stays, "/proc/self/root/usr/bin/touch made"),
    ("magic link", Stays, "/proc/$$/root/usr/bin/touch made"),
    ("descriptor", Starts, "exec 9< /usr/bin/touch; /proc/self/fd/9 made"),
    ("shebang", Stays, "printf '#!/usr/bin/touch made\\n' > s; chmod 755 s; ./s"),
    ("shebang", Stays, "printf '#!/usr/bin/env -S touch made\\n' > s; chmod 755 s; ./s"),
];

/// In single quotes, for a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// A word, letter by letter in one of the shell's ways.
fn spelt(word: &str, dice: &mut Dice) -> String {
    let letter = |letter: char, dice: &mut Dice| match dice.below(9) {
        0 => format!("\\{letter}"),
        1 => format!("'{letter}'"),
        2 => format!("\"{letter}\""),
        3 => format!("$'\\x{:02x}'", u32::from(letter)),
        4 => format!("$'\\{:03o}'", u32::from(letter)),
        5 => format!("${{none-{letter}}}"),
        6 => format!("''{letter}\"\""),
        7 => format!("{letter}\\\n"),
        _ => letter.to_string(),
    };
    word.chars().map(|one| letter(one, dice)).collect()
}

/// Makes lines.
pub(super) struct Generator {
    dice: Dice,
    /// Number for names of files, functions and delimiters.
    names: usize,
    loader: Option<String>,
}

impl Generator {
    pub(super) fn new(seed: u64, loader: Option<&str>) -> Self {
        Self { dice: Dice::new(seed), names: 0, loader: loader.map(str::to_owned) }
    }

    /// The ways that must all have been gone.
    pub(super) fn ways(&self) -> Vec<(&'static str, GrantedResult)> {
        let names = NAMES.iter().chain(WRAPPERS).chain(OWN_WRAPPERS).map(|(way, _)| (*way, Starts));
        let lines = LINES.iter().filter(|(_, _, line)| self.loader.is_some() || !line.contains("LOADER"));
        let mut all: Vec<_> = names.chain(lines.map(|(way, granted, _)| (*way, *granted))).collect();
        all.extend(["spelt", "nothing"].into_iter().map(|way| (way, Starts)));
        all.extend(LAYERS.iter().map(|(way, _)| (*way, Starts)));
        all.sort_by_key(|(way, _)| *way);
        all.dedup();
        all
    }

    pub(super) fn next(&mut self) -> Hidden {
        let (mut line, mut ways) = if self.dice.below(2) == 0 { self.started() } else { self.complete() };
        for _ in 0..self.dice.below(3) {
            let (way, layer) = self.dice.one(LAYERS);
            self.names += 1;
            line = layer(&line, self.names);
            ways.push(way);
        }
        Hidden { line, ways }
    }

    fn complete(&mut self) -> (String, Vec<&'static str>) {
        let (way, _, line) = self.dice.one(LINES);
        let line = line.replace("EXECVEAT", &libc::SYS_execveat.to_string());
        match &self.loader {
            Some(loader) => (line.replace("LOADER", loader), vec![way]),
            None if line.contains("LOADER") => ("touch made".to_owned(), vec!["plain"]),
            None => (line, vec![way]),
        }
    }

    /// A name behind wrappers.
    fn started(&mut self) -> (String, Vec<&'static str>) {
        let dice = &mut self.dice;
        let (way, name) = dice.one(NAMES);
        let (mut ways, mut line) = match way {
            "plain" | "path" if dice.below(3) > 0 => (vec!["spelt"], spelt(name, dice)),
            _ => (vec![way], name.to_owned()),
        };
        line.push_str(" made");
        for _ in 0..dice.below(3) {
            let (way, wrapper) = dice.one(WRAPPERS);
            line = format!("{wrapper} {line}");
            ways.push(way);
        }
        if dice.below(4) == 0 {
            let (way, wrapper) = dice.one(OWN_WRAPPERS);
            // What ends the shell ends one of its own.
            line = format!("({wrapper} {line})");
            ways.push(way);
        }
        (line, ways)
    }
}

/// Layer that a line can be hidden in. The number makes names of their own.
type HidingLayer = fn(&str, usize) -> String;

const LAYERS: &[(&str, HidingLayer)] = &[
    ("list", |line, _| format!("true; {line}")),
    ("list", |line, _| format!("true && {{\n{line}\n}}")),
    ("list", |line, _| format!("false || {{\n{line}\n}}")),
    ("list", |line, _| format!("{}{line}", "true;".repeat(51))),
    ("line", |line, _| format!("echo a # b\n{line}")),
    ("subshell", |line, _| format!("(\n{line}\n)")),
    ("substitution", |line, _| format!(": $(\n{line}\n)")),
    ("substitution", |line, _| format!(": `{}\n`", line.replace('\\', "\\\\").replace('`', "\\`").replace('$', "\\$"))),
    ("process substitution", |line, _| format!("cat <(\n{line}\n)")),
    ("function", |line, n| format!("f{n}() {{\n{line}\n}}\nf{n}")),
    ("loop", |line, _| format!("for i in 1; do\n{line}\ndone")),
    ("loop", |line, _| format!("while :; do\n{line}\nbreak\ndone")),
    ("condition", |line, _| format!("if true; then\n{line}\nfi")),
    ("condition", |line, _| format!("case x in\n(x)\n{line}\n;; esac")),
    ("eval", |line, _| format!("eval {}", quoted(line))),
    ("bash", |line, _| format!("bash -c {}", quoted(line))),
    ("env", |line, _| format!("env X=1 bash -c {}", quoted(line))),
    ("exec -a", |line, _| format!("(exec -a ls bash -c {})", quoted(line))),
    ("file", |line, n| format!("printf %s {} > s{n}; bash s{n}", quoted(line))),
    ("source", |line, n| format!("printf %s {} > s{n}; . ./s{n}", quoted(line))),
    ("source", |line, _| format!("source <(printf %s {})", quoted(line))),
    ("base64", |line, _| format!("echo {} | base64 -d | bash", STANDARD.encode(line))),
    ("into a shell", |line, _| {
        let octal: String = line.bytes().map(|byte| format!("\\{byte:03o}")).collect();
        format!("printf '{octal}' | bash")
    }),
    ("here-document", |line, n| format!("bash <<'END{n}'\n{line}\nEND{n}")),
    ("here-document", |line, _| format!("bash <<< {}", quoted(line))),
    // What it starts must not read it again.
    ("BASH_ENV", |line, n| format!("printf 'unset BASH_ENV\\n%s' {} > e{n}; BASH_ENV=./e{n} bash -c :", quoted(line))),
    ("trap", |line, _| format!("(trap {} EXIT; true)", quoted(line))),
    ("coproc", |line, _| format!("coproc {{\n{line}\n}}\nwait")),
    ("background", |line, _| format!("{{\n{line}\n}} & wait")),
    ("pipe", |line, _| format!("true | {{\n{line}\n}}")),
    ("pipe", |line, _| format!("{{\n{line}\n}} | cat")),
    ("xargs", |line, _| format!("printf '%s\\0' {} | xargs -0 bash -c", quoted(line))),
    ("find", |line, n| format!("printf %s {} > s{n}; find . -maxdepth 0 -exec bash s{n} ';'", quoted(line))),
    ("awk", |line, n| format!("printf %s {} > s{n}; awk 'BEGIN {{ system(\"bash s{n}\") }}'", quoted(line))),
    ("sed", |line, n| format!("printf %s {} > s{n}; echo x | sed '1e bash s{n}'", quoted(line))),
    ("make", |line, n| format!("printf %s {} > s{n}; make -s --eval='x:;@bash s{n}' x", quoted(line))),
    ("tar", |line, n| {
        format!("printf %s {} > s{n}; tar cf t{n} s{n}; tar xf t{n} --to-command='bash s{n}'", quoted(line))
    }),
    ("perl", |line, _| format!("perl -e 'exec @ARGV' bash -c {}", quoted(line))),
    ("git alias", |line, _| format!("git -c alias.x='!bash -c' x {}", quoted(line))),
    ("nothing", |line, _| line.to_owned()),
];
