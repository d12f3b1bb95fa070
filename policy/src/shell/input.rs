//! Input that a line gives to its commands, and programs that execute what they read.
//!
//! `bash <<< 'git push'`, `echo git push | sh` and `sh <<E` start what is in the text, as `bash -c` does. So the text is a line
//! that the shell starts. A program with a language of its own (`python3 - <<E`) executes the text too, but nothing here reads it.

use super::known::{HOLE, KnownWord, base, is_shell};
use super::{Line, Nest, Piece, Simple, Word};

/// Most commands through which a text is followed (`echo x | cat | tee log | sh`).
const PASSES_MAX: usize = 8;
/// Most commands of a line in which what feeds a command is looked for; in a longer one it may be anything.
const SEARCHED_MAX: usize = 256;
/// Longest text that is followed, bytes.
const TEXT_MAX: usize = super::LINE_MAX;

/// Texts that a command is given, as far as they are known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Input {
    /// Its standard input: each text that this may be.
    pub read: Vec<KnownWord>,
    /// Files that are the output of commands in the line: `<(echo x)`.
    pub files: Vec<KnownWord>,
}

/// Use that a program makes of its standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputUse {
    /// A line of a shell.
    Line,
    /// Text in another language, which is executed.
    Code,
    /// Data, or nothing.
    Data,
}

/// A program that executes what it reads, unless its words say where else its code is.
struct Interpreter {
    names: &'static [&'static str],
    /// Options with which its code is elsewhere.
    elsewhere: &'static [&'static str],
    /// Letters of options without a value, which may stand in one word. Behind any other option may stand its value.
    flags: &'static str,
    /// Letters of options whose value is the rest of their word.
    attached: &'static str,
    /// True if its first operand is a script.
    takes_script: bool,
}

const INTERPRETERS: &[Interpreter] = &[
    Interpreter {
        names: &["python", "pypy", "ipython"],
        elsewhere: &["-c", "-m"],
        flags: "bBdEiIOPqsSuvx",
        attached: "",
        takes_script: true,
    },
    Interpreter {
        names: &["node", "nodejs", "deno", "bun"],
        elsewhere: &["-e", "--eval", "-p", "--print"],
        flags: "i",
        attached: "",
        takes_script: true,
    },
    Interpreter {
        names: &["ruby", "irb"],
        elsewhere: &["-e"],
        flags: "wWvlnpas0123456789",
        attached: "iFKTxE",
        takes_script: true,
    },
    Interpreter {
        names: &["perl"],
        elsewhere: &["-e", "-E"],
        flags: "wWtTnpslacSuXU0123456789",
        attached: "iFCDxMmdV",
        takes_script: true,
    },
    Interpreter {
        names: &["php"],
        elsewhere: &["-r", "-f", "-B", "-R"],
        flags: "naqs",
        attached: "",
        takes_script: true,
    },
    Interpreter {
        names: &["lua", "luajit", "texlua"],
        elsewhere: &["-e"],
        flags: "ivE",
        attached: "",
        takes_script: true,
    },
    Interpreter {
        names: &["R", "Rscript", "julia"],
        elsewhere: &["-e", "-f"],
        flags: "q",
        attached: "",
        takes_script: true,
    },
    Interpreter {
        names: &[
            "tclsh",
            "wish",
            "guile",
            "osascript",
            "m4",
            "gnuplot",
            "octave",
            "groovy",
            "swift",
            "elixir",
            "racket",
        ],
        elsewhere: &["-e"],
        flags: "q",
        attached: "",
        takes_script: true,
    },
    Interpreter { names: &["expect"], elsewhere: &["-c", "-f"], flags: "di", attached: "", takes_script: true },
    Interpreter {
        names: &["psql", "mysql", "mariadb", "sqlite3", "mongosh", "mongo", "redis-cli", "clickhouse-client", "duckdb"],
        elsewhere: &["-c", "--command", "-e", "--execute", "--eval"],
        flags: "AaqtXxNBsr",
        attached: "",
        takes_script: false,
    },
    Interpreter {
        names: &["ssh", "sftp", "ftp", "lftp", "telnet", "gdb", "lldb", "ed", "ex", "crontab", "bconsole", "nsupdate"],
        elsewhere: &[],
        flags: "",
        attached: "",
        takes_script: false,
    },
];

/// Use that a command makes of its standard input. Where its words are not known, it may be a line.
#[must_use]
pub fn executes(words: &[KnownWord]) -> InputUse {
    let Some((first, args)) = words.split_first() else { return InputUse::Data };
    let Some(name) = first.fixed().map(base) else { return InputUse::Line };
    let executed = |does: bool, used: InputUse| if does { used } else { InputUse::Data };
    match name {
        name if is_shell(name) => executed(shell_reads(args), InputUse::Line),
        // They start a shell, unless they are told what else.
        "newgrp" | "fakeroot" | "script" | "su" | "sg" => {
            let is_told = match name {
                "newgrp" => false,
                "fakeroot" => !args.is_empty(),
                "sg" => args.len() > 1,
                _ => args.iter().any(|arg| arg.text.starts_with("-c") || arg.text.starts_with("--command")),
            };
            executed(!is_told, InputUse::Line)
        }
        "." | "source" => executed(args.iter().any(is_stdin), InputUse::Line),
        "at" | "batch" => executed(!args.iter().any(|arg| arg.text.starts_with("-f")), InputUse::Line),
        // A file of their language that is the input.
        "awk" | "gawk" | "mawk" | "sed" | "make" | "gmake" => {
            let named = |arg: &KnownWord| matches!(arg.text.as_str(), "-f-" | "--file=-" | "--makefile=-");
            let pairs = args.windows(2).any(|pair| pair[0].text.ends_with('f') && is_stdin(&pair[1]));
            executed(pairs || args.iter().any(named), InputUse::Code)
        }
        // A shell that is started in a container reads what they read.
        "docker" | "podman" | "kubectl" | "oc" | "nerdctl" | "lxc" => {
            let runs = |arg: &KnownWord| {
                arg.fixed().is_some_and(|arg| is_shell(base(arg)) || interpreter(base(arg)).is_some())
            };
            executed(
                args.iter().any(runs) && args.iter().any(|arg| matches!(arg.fixed(), Some("exec" | "run"))),
                InputUse::Code,
            )
        }
        name => executed(interpreter(name).is_some_and(|known| reads_code(known, args)), InputUse::Code),
    }
}

/// Characters by which a terminal ends, interrupts or stops a program. What stands around them may be one line all the same.
pub const SIGNALS: [char; 4] = ['\u{3}', '\u{4}', '\u{1a}', '\u{1c}'];

/// Programs that take their input for data, whatever their words are. Of others it is not known.
#[rustfmt::skip]
const READERS: &[&str] = &[
    "cat", "tac", "tee", "head", "tail", "wc", "grep", "egrep", "fgrep", "uniq", "cut", "tr", "nl", "rev", "paste", "column", "fold",
    "fmt", "expand", "unexpand", "jq", "base64", "xxd", "od", "md5sum", "sha1sum", "sha256sum", "sha512sum", "cksum", "cmp", "comm",
    ">", "true", "echo",
];

/// True if a command is known not to execute what it reads.
#[must_use]
pub fn takes_data(words: &[KnownWord]) -> bool {
    let name = words.first().and_then(KnownWord::fixed);
    let program =
        |name: &str| ["/bin/", "/usr/bin/"].iter().find_map(|path| name.strip_prefix(path)).map(str::to_owned);
    name.is_some_and(|name| READERS.contains(&program(name).as_deref().unwrap_or(name)))
}

fn interpreter(name: &str) -> Option<&'static Interpreter> {
    // `python3.12`, `lua5.4`
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.iter().find(|known| known.names.contains(&name) || known.names.contains(&plain))
}

/// True if an interpreter finds its code in its input.
fn reads_code(known: &Interpreter, args: &[KnownWord]) -> bool {
    let mut may_be_value = false;
    for arg in args {
        let Some(text) = arg.fixed() else { return true };
        if is_stdin(arg) {
            return true;
        }
        let gives_code =
            |option: &&str| text.strip_prefix(*option).is_some_and(|rest| rest.is_empty() || rest.starts_with('='));
        if known.elsewhere.iter().any(gives_code) {
            return false;
        }
        let letters = text.strip_prefix('-').filter(|letters| !letters.starts_with('-'));
        let is_code = |letter: char| known.elsewhere.iter().any(|option| option.len() == 2 && option.ends_with(letter));
        // The first that ends the cluster.
        let last = letters.and_then(|letters| letters.chars().find(|letter| !known.flags.contains(*letter)));
        if last.is_some_and(is_code) {
            return false;
        }
        if text.starts_with('-') {
            may_be_value = last.map_or(letters.is_none(), |letter| !known.attached.contains(letter));
        } else if known.takes_script && !may_be_value {
            return false;
        } else {
            may_be_value = false;
        }
    }
    true
}

/// A name of the standard input.
fn is_stdin(arg: &KnownWord) -> bool {
    matches!(arg.text.as_str(), "-" | "/dev/stdin" | "/dev/fd/0" | "/proc/self/fd/0" | "/proc/thread-self/fd/0")
}

/// True if a shell with these arguments may take its commands from its standard input.
fn shell_reads(args: &[KnownWord]) -> bool {
    let mut values = 0;
    let mut all = args.iter();
    while let Some(arg) = all.next() {
        if arg.several || arg.text.starts_with(HOLE) || (arg.text.contains(HOLE) && arg.text.starts_with(['-', '+'])) {
            return true;
        }
        match arg.text.as_str() {
            "-" | "--" => return all.next().is_none_or(is_stdin),
            "--rcfile" | "--init-file" => values += 1,
            "--command" => return false,
            text if text.starts_with("--") => {}
            text if text.starts_with(['-', '+']) && text.len() > 1 => {
                if text.contains('s') && !text.ends_with("file") && !text.contains("posix") {
                    return true;
                }
                if text.contains('c') {
                    return false;
                }
                values += text.matches(['o', 'O']).count();
            }
            _ if values > 0 => values -= 1,
            _ => return is_stdin(arg),
        }
    }
    true
}

impl Input {
    /// Input of a command of a line.
    #[must_use]
    pub fn of(line: &Line, at: usize) -> Self {
        Self { read: read_by(line, at, PASSES_MAX), files: files_of(line, at) }
    }

    /// True if the line has no text for it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.read.is_empty() && self.files.is_empty()
    }

    /// Texts that a command with these words executes as lines.
    pub(crate) fn lines(&self, words: &[KnownWord]) -> Vec<KnownWord> {
        let name = words.first().map(|first| first.fixed().map(base));
        let takes_files =
            name.is_some_and(|name| name.is_none_or(|name| is_shell(name) || matches!(name, "." | "source")));
        let files = self.files.iter().filter(|_| takes_files);
        let read = if executes(words) == InputUse::Line { self.read.as_slice() } else { &[] };
        read.iter().chain(files).cloned().collect()
    }
}

/// Texts that the standard input of a command may be.
fn read_by(line: &Line, at: usize, passes: usize) -> Vec<KnownWord> {
    let Some(command) = line.commands.get(at) else { return Vec::new() };
    let documents: Vec<KnownWord> = documents(command).collect();
    if !documents.is_empty() {
        return documents;
    }
    if command.redirects.iter().any(reads_a_file) {
        return Vec::new();
    }
    let nested = command.within.iter().any(|nest| !matches!(nest, Nest::Pipeline { .. }));
    // A function may be called anywhere, and of so many commands nobody has looked which feeds which.
    let is_called = command.within.iter().any(|nest| matches!(nest, Nest::Function { .. }));
    if is_called || line.commands.len() > SEARCHED_MAX {
        return vec![KnownWord::anything()];
    }
    let mut read = Vec::new();
    if command.piped() {
        read.push(fed(line, at, passes));
    }
    // What is behind a loop or a group is said of a command without words, which this one may lie in.
    if nested || line.commands.iter().any(|other| other.name() == Some("exec")) {
        let loose = |other: &&Simple| other.words.is_empty() || other.name() == Some("exec");
        read.extend(line.commands.iter().filter(loose).flat_map(documents_of_any));
    }
    read
}

fn documents(command: &Simple) -> impl Iterator<Item = KnownWord> {
    let is_text = |operator: &str| matches!(operator, "<<" | "<<-" | "<<<");
    let texts = command
        .redirects
        .iter()
        .filter(move |redirect| is_text(&redirect.operator) && redirect.fd.is_none_or(|descriptor| descriptor == 0));
    texts.filter_map(|redirect| redirect.target.as_ref().map(text_of))
}

fn documents_of_any(command: &Simple) -> Vec<KnownWord> {
    let is_text = |operator: &str| matches!(operator, "<<" | "<<-" | "<<<");
    let texts = command.redirects.iter().filter(|redirect| is_text(&redirect.operator));
    texts.filter_map(|redirect| redirect.target.as_ref().map(text_of)).collect()
}

/// A document as one text, whatever it holds.
fn text_of(word: &Word) -> KnownWord {
    KnownWord { several: false, ..KnownWord::from(word) }
}

fn reads_a_file(redirect: &super::Redirect) -> bool {
    redirect.operator == "<" && redirect.fd.is_none_or(|descriptor| descriptor == 0)
}

/// Output of the commands that feed a command, as one text.
fn fed(line: &Line, at: usize, passes: usize) -> KnownWord {
    let Some(command) = line.commands.get(at) else { return KnownWord::anything() };
    // The nearest pipe is the one that is read.
    let pipe = command.within.iter().rev().find_map(|nest| match nest {
        Nest::Pipeline { id, stage: stage @ 1.. } => Some(Nest::Pipeline { id: *id, stage: *stage - 1 }),
        Nest::Pipeline { .. }
        | Nest::Subshell
        | Nest::Group
        | Nest::Function { .. }
        | Nest::Loop
        | Nest::Branch
        | Nest::Substitution { .. } => None,
    });
    let Some(pipe) = pipe else { return fed_by_substitution(line, command, passes) };
    let of_stage = |other: &&(usize, &Simple)| other.1.within.contains(&pipe);
    let stage: Vec<(usize, &Simple)> = line.commands.iter().enumerate().filter(|other| of_stage(&other)).collect();
    output(line, &stage, passes, |command| {
        let at = command.within.iter().position(|nest| *nest == pipe).map_or(0, |at| at + 1);
        &command.within[at..]
    })
}

/// `tee >(sh)`: the text of the command whose word it is.
fn fed_by_substitution(line: &Line, command: &Simple, passes: usize) -> KnownWord {
    let of = command.within.iter().rev().find_map(|nest| match nest {
        Nest::Substitution { of, fed: true } => Some(*of),
        Nest::Substitution { .. }
        | Nest::Pipeline { .. }
        | Nest::Subshell
        | Nest::Group
        | Nest::Function { .. }
        | Nest::Loop
        | Nest::Branch => None,
    });
    let printed = of.and_then(|of| Some(printed(line, of, line.commands.get(of)?, passes)));
    printed.unwrap_or_else(KnownWord::anything)
}

/// Files that are outputs of commands, among a command's words.
fn files_of(line: &Line, at: usize) -> Vec<KnownWord> {
    let is_pipe = |word: &Word| matches!(word, Word::Dynamic(pieces) if pieces.contains(&Piece::Pipe));
    let Some(command) = line.commands.get(at) else { return Vec::new() };
    let redirected = command.redirects.iter().filter_map(|redirect| redirect.target.as_ref());
    if !command.words.iter().chain(redirected).any(is_pipe) {
        return Vec::new();
    }
    if line.commands.len() > SEARCHED_MAX {
        return vec![KnownWord::anything()];
    }
    let of = Nest::Substitution { of: at, fed: false };
    let inner: Vec<(usize, &Simple)> =
        line.commands.iter().enumerate().filter(|(_, other)| other.within.contains(&of)).collect();
    vec![output(line, &inner, PASSES_MAX, |command| {
        let at = command.within.iter().position(|nest| *nest == of).map_or(0, |at| at + 1);
        &command.within[at..]
    })]
}

/// Output of commands one after the other. `below` says what each of them lies in, within these.
fn output<'a>(
    line: &Line,
    commands: &[(usize, &'a Simple)],
    passes: usize,
    below: impl Fn(&'a Simple) -> &'a [Nest],
) -> KnownWord {
    let mut text = KnownWord::known("");
    for (at, command) in commands {
        let below = below(command);
        // What a substitution prints is in its command's words, and what is not the last of a pipeline is read by the next.
        if below.iter().any(|nest| matches!(nest, Nest::Substitution { .. })) {
            continue;
        }
        let piped_on = below.iter().any(|nest| match nest {
            Nest::Pipeline { id, stage } => commands.iter().any(|(_, other)| {
                other
                    .within
                    .iter()
                    .any(|nest| matches!(nest, Nest::Pipeline { id: of, stage: behind } if of == id && behind > stage))
            }),
            Nest::Subshell
            | Nest::Group
            | Nest::Function { .. }
            | Nest::Loop
            | Nest::Branch
            | Nest::Substitution { .. } => false,
        });
        if piped_on {
            continue;
        }
        // It is printed so and so many times, or not.
        let is_open = below.iter().any(|nest| matches!(nest, Nest::Loop | Nest::Branch | Nest::Function { .. }));
        let printed = printed(line, *at, command, passes);
        text.text.push_str(&printed.text);
        if is_open || printed.several {
            text.text.push(HOLE);
        }
        if text.text.len() > TEXT_MAX {
            return KnownWord::anything();
        }
    }
    text
}

/// Text that a command prints, if it is one that is known to print it.
fn printed(line: &Line, at: usize, command: &Simple, passes: usize) -> KnownWord {
    let words: Vec<KnownWord> = command.words.iter().map(KnownWord::from).collect();
    let Some((first, args)) = words.split_first() else { return KnownWord::known("") };
    let through = |operands: bool| match operands {
        true => KnownWord::anything(),
        false if passes == 0 => KnownWord::anything(),
        false => match read_by(line, at, passes - 1).as_slice() {
            [one] => one.clone(),
            _ => KnownWord::anything(),
        },
    };
    match first.fixed().map(base) {
        Some("echo") => echoed(args),
        Some("printf") => formatted(args),
        Some("cat") => through(args.iter().any(|arg| arg.fixed() != Some("-"))),
        // Its operands are written.
        Some("tee") => through(args.iter().any(|arg| arg.fixed().is_none_or(|arg| arg.starts_with("--")))),
        Some("true" | ":" | "cd" | "sleep" | "export" | "set") => KnownWord::known(""),
        Some(_) | None => KnownWord::anything(),
    }
}

fn echoed(args: &[KnownWord]) -> KnownWord {
    let is_flag = |arg: &&KnownWord| {
        arg.fixed()
            .and_then(|arg| arg.strip_prefix('-'))
            .is_some_and(|flags| !flags.is_empty() && flags.bytes().all(|flag| matches!(flag, b'n' | b'e' | b'E')))
    };
    let (flags, args) = args.split_at(args.iter().take_while(is_flag).count());
    let text = args.iter().map(|arg| arg.text.as_str()).collect::<Vec<_>>().join(" ");
    // Which backslashes are taken off differs from shell to shell.
    if text.contains('\\') || args.iter().any(|arg| arg.several) {
        return KnownWord { text: format!("{text}\n{HOLE}"), several: true };
    }
    let end = if flags.iter().any(|flag| flag.text.contains('n')) { "" } else { "\n" };
    KnownWord { text: text + end, several: false }
}

/// `printf` with a format that is text, or takes texts.
fn formatted(args: &[KnownWord]) -> KnownWord {
    let args = if args.first().and_then(KnownWord::fixed) == Some("--") { &args[1..] } else { args };
    let Some((format, values)) = args.split_first() else { return KnownWord::anything() };
    let Some(format) = format.fixed().and_then(unescaped).filter(|format| !format.starts_with('-')) else {
        return KnownWord::anything();
    };
    if values.iter().any(|value| value.several) {
        return KnownWord::anything();
    }
    let slots = format.matches("%s").count();
    if format.replace("%s", "").contains('%') {
        return KnownWord::anything();
    }
    let mut text = String::new();
    let mut rest = values.iter();
    loop {
        let mut parts = format.split("%s");
        text.push_str(parts.next().unwrap_or_default());
        for part in parts {
            text.push_str(rest.next().map_or("", |value| value.text.as_str()));
            text.push_str(part);
        }
        if slots == 0 || rest.len() == 0 || text.len() > TEXT_MAX {
            break;
        }
    }
    KnownWord { text, several: false }
}

/// A format with its escapes in place, if it has but the plainest.
fn unescaped(format: &str) -> Option<String> {
    let plain = format.replace("\\n", "\n").replace("\\t", "\t");
    (!plain.contains('\\')).then_some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<KnownWord> {
        line.split(' ').map(|word| KnownWord { text: word.replace('$', "\0"), several: word.contains('$') }).collect()
    }

    /// G7: programs that execute their input, and those that do not.
    #[test]
    fn g7_what_executes_its_input_is_known() {
        for line in
            ["bash", "sh -e", "bash -s x", "bash -o pipefail", "bash /dev/stdin", "bash -", ". /dev/stdin", "at now"]
        {
            assert_eq!(executes(&words(line)), InputUse::Line, "{line}");
        }
        for line in [
            "python3",
            "python3 -",
            "python3.12 -u -",
            "python3 -X dev",
            "node",
            "node -",
            "ruby",
            "perl -w",
            "psql db",
            "mysql -u me db",
            "ssh host",
            "docker exec -i c bash",
            "awk -f -",
            "make -f -",
            "R -q",
            "crontab -",
            "python3 $",
        ] {
            assert_eq!(executes(&words(line)), InputUse::Code, "{line}");
        }
        for line in [
            "bash x.sh",
            "bash -c x",
            "sh -ec x",
            "python3 x.py",
            "python3 -c x",
            "python3 -Bc x",
            "python3 -Im json.tool",
            "perl -ne x",
            "perl -lane x",
            "perl -i.bak -pe x",
            "perl -Mstrict x.pl",
            "perl -F: -e x",
            "node -pe x",
            "ruby -rx -ne y",
            "psql -Atc x",
            "python3 -m json.tool",
            "python3 -u x.py",
            "node -e x",
            "git commit -F -",
            "cat",
            "tee x",
            "jq .",
            "psql -c x",
            "docker run x",
            "awk {print}",
            "sed s/a/b/",
            "kubectl apply -f -",
        ] {
            assert_eq!(executes(&words(line)), InputUse::Data, "{line}");
        }
        assert_eq!(executes(&words("$")), InputUse::Line);
    }

    /// A program that is not known may make anything of its input, and so may one by another path.
    #[test]
    fn what_takes_data_is_known() {
        for line in ["cat", "/usr/bin/tee x", "jq .", "> x"] {
            assert!(takes_data(&words(line)), "{line}");
        }
        for line in ["bash", "python3", "./cat", "x", "$", "xargs", "sort --compress-program=x", "A=1", "while"] {
            assert!(!takes_data(&words(line)), "{line}");
        }
    }

    #[test]
    fn what_printers_print_is_known() {
        for (line, text) in [("a b", "a b\n"), ("-n a", "a"), ("-en a", "a"), ("-x a", "-x a\n")] {
            assert_eq!(echoed(&words(line)).text, text, "{line}");
        }
        assert!(echoed(&words("a\\nb")).text.contains(HOLE));
        for (line, text) in [("%s\\n a b", "a\nb\n"), ("a\\n", "a\n"), ("-- %s a", "a"), ("%s_%s a b c", "a_bc_")] {
            assert_eq!(formatted(&words(line)).text, text, "{line}");
        }
        for line in ["%b a", "\\x41", "-v x y", "%s $"] {
            assert!(formatted(&words(line)).text.contains(HOLE), "{line}");
        }
    }
}
