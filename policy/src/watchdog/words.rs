//! A command line cut into simple commands and words, for want of bash's grammar.
//!
//! Limits, on purpose: quotes and backslashes are taken off, `;` `&` `|` newlines `(` `)` `{` `}` and backquotes end a
//! command even where bash would not end one, and nothing is expanded. So a command that is built at run time
//! (`$(printf rm) -rf /`, base64, a script file) is not seen here; the exec gate sees what starts, and the sandbox holds
//! either way.

use std::cell::OnceCell;

use crate::shell::{Line, Nest, Simple, Word, starts};

/// A simple command and whether its input is the output of the one before it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PipedCommand {
    pub(crate) words: Vec<String>,
    pub(crate) piped: bool,
    /// A part of it is what other commands print, which stand beside it in the list.
    pub(crate) substitutes: bool,
    /// Which word names the program, and where in it the name begins: worked out once, for every rule asks.
    pub(crate) program: OnceCell<Option<(usize, usize)>>,
}

/// Cuts a command line.
pub(crate) fn commands(line: &str) -> Vec<PipedCommand> {
    let mut cutter = Cutter::default();
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match (cutter.quote, c) {
            (Some(quote), _) if c == quote => cutter.quote = None,
            (Some('\''), _) => cutter.push(c),
            (_, '\\') => match chars.next() {
                Some('\n') | None => {}
                Some(escaped) => cutter.push(escaped),
            },
            // Substitution happens inside double quotes too.
            (Some(_), '`') => cutter.open_backquote(),
            (_, '$') if chars.next_if_eq(&'(').is_some() => cutter.open_substitution(),
            (Some(_), _) => cutter.push(c),
            (None, '\'' | '"') => cutter.open_quote(c),
            (None, '|') => cutter.end_command(chars.next_if_eq(&'|').is_none()),
            (None, '(') => cutter.open_group(),
            (None, ')') => cutter.close(),
            (None, '`') if cutter.outer.last().is_some_and(|outer| outer.backquote) => cutter.close(),
            (None, '`') => cutter.open_backquote(),
            (None, '&') if chars.next_if_eq(&'>').is_some() => cutter.redirect(),
            (None, ';' | '&' | '\n') => cutter.end_command(false),
            (None, '>') => {
                // `>>`, `>&` and `>|` lead somewhere as `>` does.
                chars.next_if(|next| matches!(next, '>' | '&' | '|'));
                cutter.redirect();
            }
            (None, '#') if !cutter.in_word => while chars.next_if(|c| *c != '\n').is_some() {},
            (None, _) if c.is_whitespace() => cutter.end_word(),
            (None, _) => cutter.push(c),
        }
    }
    // What was never closed still counts.
    while !cutter.outer.is_empty() {
        cutter.close();
    }
    cutter.end_command(false);
    cutter.commands
}

#[derive(Default)]
struct Cutter {
    commands: Vec<PipedCommand>,
    current: PipedCommand,
    word: String,
    in_word: bool,
    quote: Option<char>,
    outer: Vec<OuterState>,
}

/// State that a parenthesis or a substitution interrupts.
#[derive(Default)]
struct OuterState {
    quote: Option<char>,
    command: PipedCommand,
    backquote: bool,
}

impl Cutter {
    fn push(&mut self, c: char) {
        self.word.push(c);
        self.in_word = true;
    }

    fn open_quote(&mut self, quote: char) {
        self.quote = Some(quote);
        self.in_word = true;
    }

    /// Inside, quotes and commands start anew; the command around it goes on after it.
    fn open_substitution(&mut self) {
        self.end_word();
        let command = std::mem::take(&mut self.current);
        self.outer.push(OuterState { quote: self.quote.take(), command, backquote: false });
    }

    fn open_backquote(&mut self) {
        self.open_substitution();
        if let Some(outer) = self.outer.last_mut() {
            outer.backquote = true;
        }
    }

    fn open_group(&mut self) {
        self.end_command(false);
        self.outer.push(OuterState::default());
    }

    fn close(&mut self) {
        self.end_command(false);
        let OuterState { quote, command, .. } = self.outer.pop().unwrap_or_default();
        let substituted = !command.words.is_empty();
        (self.quote, self.current) = (quote, command);
        self.current.substitutes |= substituted;
    }

    /// A redirection is kept as a word of its own, so that rules can see where it leads. The descriptor before it is not.
    fn redirect(&mut self) {
        if !self.word.is_empty() && self.word.bytes().all(|byte| byte.is_ascii_digit()) {
            self.in_word = false;
            self.word.clear();
        }
        self.end_word();
        self.push('>');
        self.end_word();
    }

    fn end_word(&mut self) {
        if std::mem::take(&mut self.in_word) {
            let word = std::mem::take(&mut self.word);
            // `{` and the words of compound commands stand before a command without being one.
            let prefix = matches!(word.as_str(), "{" | "}" | "!" | "then" | "do" | "else" | "if" | "while" | "until");
            if !(prefix && self.current.words.is_empty()) {
                self.current.words.push(word);
            }
        }
    }

    fn end_command(&mut self, piped: bool) {
        self.end_word();
        if !self.current.words.is_empty() {
            self.commands.push(std::mem::take(&mut self.current));
        }
        self.current = PipedCommand { piped, ..PipedCommand::default() };
    }
}

/// The commands of a line that bash's grammar was asked for, as the rules see those of a line that was cut here.
pub(crate) fn of_line(line: &Line) -> Vec<PipedCommand> {
    let substitutes = |at: usize| {
        line.commands
            .iter()
            .any(|inner| inner.within.iter().any(|nest| matches!(nest, Nest::Substitution { of, .. } if *of == at)))
    };
    let cut = |(at, simple): (usize, &Simple)| {
        let value = |values: &[Word]| values.iter().map(Word::shown).collect::<Vec<_>>().join(" ");
        let assignments = simple.assignments.iter().map(|a| format!("{}={}", a.name, value(&a.values)));
        let mut words: Vec<String> = assignments.chain(simple.words.iter().map(Word::shown)).collect();
        for redirect in simple.redirects.iter().filter(|redirect| redirect.operator.contains('>')) {
            words.extend([">".to_owned(), redirect.target.as_ref().map(Word::shown).unwrap_or_default()]);
        }
        PipedCommand { words, piped: simple.piped(), substitutes: substitutes(at), ..PipedCommand::default() }
    };
    let commands = line.commands.iter().enumerate().map(cut);
    commands.filter(|command| !command.words.is_empty()).collect()
}

/// Wrappers that start the command after them, and their flags that take a value.
const WRAPPERS: &[(&str, &[&str])] = &[
    ("env", &["-u", "-C", "-S"]),
    ("command", &[]),
    ("builtin", &[]),
    ("exec", &["-a"]),
    ("nohup", &[]),
    ("nice", &["-n"]),
    ("ionice", &["-c", "-n"]),
    ("time", &[]),
    ("timeout", &["-s", "-k"]),
    ("stdbuf", &["-i", "-o", "-e"]),
    ("setsid", &[]),
    ("xargs", &["-I", "-n", "-P", "-d", "-a", "-L"]),
    ("busybox", &[]),
];

impl PipedCommand {
    /// One that starts by itself.
    pub(crate) fn of(words: Vec<String>) -> Self {
        Self { words, ..Self::default() }
    }

    /// The program's name without directories, and its arguments; wrappers and assignments are seen through.
    pub(crate) fn program(&self) -> Option<(&str, &[String])> {
        let (at, base) = (*self.program.get_or_init(|| self.find_program()))?;
        let (first, args) = self.words.get(at..)?.split_first()?;
        Some((first.get(base..)?, args))
    }

    fn find_program(&self) -> Option<(usize, usize)> {
        let mut rest = self.words.as_slice();
        // Each turn takes a word at least, so it ends.
        loop {
            let (first, args) = rest.split_first()?;
            let name = base(first);
            if is_assignment(first) {
                rest = args;
                continue;
            }
            let Some((_, valued)) = WRAPPERS.iter().find(|(wrapper, _)| *wrapper == name) else {
                return Some((self.words.len() - rest.len(), first.len() - name.len()));
            };
            if name == "command" && starts::says_what_it_is(args.iter().map(String::as_str)) {
                return Some((self.words.len() - rest.len(), first.len() - name.len()));
            }
            rest = skip_flags(args, valued);
            // timeout's first argument is its duration.
            if name == "timeout" {
                rest = rest.get(1..)?;
            }
        }
    }
}

/// A path's last name.
pub(crate) fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn is_assignment(word: &str) -> bool {
    let name = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    word.split_once('=').is_some_and(|(left, _)| name(left))
}

fn skip_flags<'a>(mut args: &'a [String], valued: &[&str]) -> &'a [String] {
    while let Some((flag, rest)) = args.split_first().filter(|(word, _)| word.starts_with('-')) {
        let takes = usize::from(valued.contains(&flag.as_str()));
        args = rest.get(takes..).unwrap_or_default();
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_behind_quotes_wrappers_and_lists() {
        for (line, programs) in [
            ("a b; c && d || e | f", vec!["a", "c", "d", "e", "f"]),
            ("'r'm -rf /", vec!["rm"]),
            (r"r\m x", vec!["rm"]),
            ("X=1 env -u Y Z=2 /usr/bin/timeout -k 1 5 sudo ls", vec!["sudo"]),
            ("echo \"$(sudo ls)\" 'sudo rm'", vec!["sudo", "echo"]),
            ("if true; then sudo ls; fi # sudo", vec!["true", "sudo", "fi"]),
            ("echo \"`sudo ls` x\" y; su", vec!["sudo", "echo", "su"]),
            ("echo $(ls) sudo", vec!["ls", "echo"]),
            ("f() { sudo ls; }; (su", vec!["f", "sudo", "su"]),
            ("", vec![]),
            ("env -u", vec![]),
            ("command -v sudo; command -p -V su; env command -pv sudo", vec!["command", "command", "command"]),
            ("command sudo -v; command -p sudo; command -- -v", vec!["sudo", "sudo"]),
        ] {
            let commands = commands(line);
            let found: Vec<&str> = commands.iter().filter_map(|c| c.program()).map(|(name, _)| name).collect();
            assert_eq!(found, programs, "{line}");
        }
    }

    #[test]
    fn what_is_redirected_is_no_argument() {
        for (line, words) in [
            ("make 2>log x", vec!["make", ">", "log", "x"]),
            ("make 2 >log", vec!["make", "2", ">", "log"]),
            ("make x2>&1", vec!["make", "x2", ">", "1"]),
            ("make ''>log", vec!["make", "", ">", "log"]),
        ] {
            let commands = commands(line);
            assert_eq!(commands.iter().flat_map(|command| &command.words).collect::<Vec<_>>(), words, "{line}");
        }
    }
}
