//! Arithmetic of bash's, as far as its parts are numbers.
//!
//! bash evaluates what is in a variable that stands in an expression, and the commands in an array's index there:
//! `x='a[$(cmd)]'; echo $((x))` runs `cmd`. So an expression is read if it has but numbers, operators and names of variables, and the
//! line gives none of these a value that is not a number.

use std::collections::BTreeSet;

use callgate_policy::shell::starts::{base, is_assignment};
use callgate_policy::shell::{Line, Piece, Simple, Word};

/// Variables of an expression.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ExpressionNames {
    /// Those whose values count.
    pub(super) used: Vec<String>,
    /// Those that are given a number; `i++` and `i += 1` give one only to what has one.
    pub(super) set: Vec<String>,
}

impl ExpressionNames {
    pub(super) fn extend(&mut self, more: Self) {
        self.used.extend(more.used);
        self.set.extend(more.set);
    }
}

/// Reads an expression. `None` if there is something else in it: an index, a quote, a substitution, a bracket that bash would end it
/// at.
pub(super) fn read(text: &str) -> Option<ExpressionNames> {
    let mut names = ExpressionNames::default();
    let mut depth = 0_usize;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1)?,
            '0'..='9' => {
                let number = |c: char| c.is_ascii_alphanumeric() || matches!(c, '#' | '@' | '_');
                rest = rest.trim_start_matches(number);
                continue;
            }
            '$' => {
                let (name, behind) = expanded(rest)?;
                names.used.extend(name.map(str::to_owned));
                rest = behind;
                // `$x` with a name behind it makes another name.
                (!rest.starts_with(|c: char| is_of_name(c) || matches!(c, '$' | '#' | '['))).then_some(())?;
                continue;
            }
            c if is_of_name(c) => {
                let behind = rest.trim_start_matches(is_of_name);
                let name = &rest[..rest.len() - behind.len()];
                rest = behind;
                (!rest.starts_with(['$', '#', '['])).then_some(())?;
                let operator = rest.trim_start_matches(' ');
                let assigns = operator.starts_with('=') && !operator.starts_with("==");
                let noted = if assigns { &mut names.set } else { &mut names.used };
                noted.push(name.to_owned());
                continue;
            }
            c if " +-*/%<>!&|^~?:=,".contains(c) => {}
            _ => return None,
        }
        rest = &rest[c.len_utf8()..];
    }
    (depth == 0).then_some(names)
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// `$x`, `${x}`, and what is a number whatever the line does: `$#`, `$?`, `${#x}`, `${#a[@]}`.
fn expanded(text: &str) -> Option<(Option<&str>, &str)> {
    let behind = text.strip_prefix('$')?;
    if let Some(rest) = behind.strip_prefix(['#', '?', '$']) {
        return Some((None, rest));
    }
    if let Some(inner) = behind.strip_prefix('{') {
        let (inner, rest) = inner.split_once('}')?;
        if let Some(counted) = inner.strip_prefix('#') {
            let name = counted.strip_suffix("[@]").or_else(|| counted.strip_suffix("[*]")).unwrap_or(counted);
            return (name.is_empty() || super::is_name(name)).then_some((None, rest));
        }
        return super::is_name(inner).then_some((Some(inner), rest));
    }
    let rest = behind.trim_start_matches(is_of_name);
    let name = &behind[..behind.len() - rest.len()];
    super::is_name(name).then_some((Some(name), rest))
}

/// The first of these names that may hold something else than a number where the line uses it.
pub(super) fn not_a_number<'a>(line: &Line, names: &'a [String]) -> Option<&'a str> {
    if names.is_empty() {
        return None;
    }
    let Some(given) = GivenValues::by(line) else { return names.first().map(String::as_str) };
    let numbers = given.numbers();
    names.iter().map(String::as_str).find(|name| !numbers.is_number(name))
}

/// Values that a line gives to variables.
#[derive(Default)]
struct GivenValues<'a> {
    values: Vec<(&'a str, GivenValue<'a>)>,
}

enum GivenValue<'a> {
    Word(&'a Word),
    /// As it stands behind `NAME=`, without quotes.
    Text(&'a str),
    Anything,
}

/// Variables that hold numbers.
struct NumberNames<'a> {
    given: BTreeSet<&'a str>,
    others: BTreeSet<&'a str>,
}

impl NumberNames<'_> {
    fn is_number(&self, name: &str) -> bool {
        // bash gives these their values.
        let is_counted = matches!(
            name,
            "RANDOM"
                | "SRANDOM"
                | "SECONDS"
                | "LINENO"
                | "UID"
                | "EUID"
                | "PPID"
                | "BASHPID"
                | "EPOCHSECONDS"
                | "OPTIND"
        );
        let is_texts = name == "_"
            || name.starts_with("BASH")
            || name.starts_with("COMP_")
            || name.starts_with("READLINE_")
            || name.starts_with("COPROC")
            || matches!(name, "PWD" | "OLDPWD" | "REPLY" | "OPTARG" | "MAPFILE" | "DIRSTACK" | "FUNCNAME");
        // Of what the line does not set nobody knows what it is.
        !is_texts && !self.others.contains(name) && (is_counted || self.given.contains(name))
    }
}

impl<'a> GivenValues<'a> {
    /// `None` if it may give any value to any variable.
    fn by(line: &'a Line) -> Option<Self> {
        let mut given = Self::default();
        for command in &line.commands {
            for assignment in &command.assignments {
                let name = assignment.name.as_str();
                // A loop without words takes the arguments.
                if assignment.values.is_empty() {
                    given.values.push((name, GivenValue::Anything));
                }
                given.values.extend(assignment.values.iter().map(|value| (name, GivenValue::Word(value))));
            }
            given.command(command)?;
        }
        Some(given)
    }

    /// Notes what a builtin sets by its words.
    fn command(&mut self, command: &'a Simple) -> Option<()> {
        let Some((first, args)) = command.words.split_first() else { return Some(()) };
        let is_option = |letter: char| {
            args.iter().any(|arg| {
                arg.text().is_none_or(|arg| arg.starts_with('-')) && arg.text().is_none_or(|arg| arg.contains(letter))
            })
        };
        match base(first.text()?) {
            "eval" | "source" | "." | "trap" | "let" | "enable" | "bind" | "fc" | "compgen" | "complete" | "alias"
            | "coproc" | "builtin" | "shopt" | "time" => None,
            "command" => args.first().and_then(Word::text).filter(|arg| matches!(*arg, "-v" | "-V")).map(drop),
            "wait" => (!is_option('p')).then_some(()),
            "printf" => args.first().and_then(Word::text).filter(|arg| !arg.starts_with("-v")).map(drop),
            "declare" | "typeset" | "local" | "export" | "readonly" if is_option('n') || is_option('i') => None,
            "read" | "mapfile" | "readarray" | "getopts" | "declare" | "typeset" | "local" | "export" | "readonly"
            | "unset" => args.iter().try_for_each(|arg| self.argument(arg)),
            _ => Some(()),
        }
    }

    fn argument(&mut self, arg: &'a Word) -> Option<()> {
        let start = arg.known_start();
        let name = start.split(['=', '+', '[']).next().unwrap_or_default();
        match arg.text() {
            Some(text) if is_assignment(text) => {
                self.values.push((name, GivenValue::Text(&text[name.len() + 1..])));
            }
            // A name that is not known.
            None if !start.contains('=') => return None,
            Some(_) | None => self.values.push((name, GivenValue::Anything)),
        }
        Some(())
    }

    /// Those that hold numbers, if all that they are given are numbers or others that do.
    fn numbers(&self) -> NumberNames<'a> {
        let mut numbers =
            NumberNames { given: self.values.iter().map(|(name, _)| *name).collect(), others: BTreeSet::new() };
        loop {
            let found = self.values.iter().find(|(name, value)| {
                !numbers.others.contains(name)
                    && match value {
                        GivenValue::Word(word) => !is_numeric(word, &numbers),
                        GivenValue::Text(text) => !is_numeral(text),
                        GivenValue::Anything => true,
                    }
            });
            match found {
                Some((name, _)) => numbers.others.insert(*name),
                None => return numbers,
            };
        }
    }
}

/// Text that is an expression of numbers.
fn is_numeral(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit() || b"+-*/% ".contains(&byte))
}

fn is_numeric(word: &Word, numbers: &NumberNames<'_>) -> bool {
    let is_number = |piece: &Piece| match piece {
        Piece::Text(text) => is_numeral(text),
        Piece::Number => true,
        Piece::Variable { name, changed: false, .. } => {
            matches!(name.as_str(), "?" | "#" | "$" | "!") || numbers.is_number(name)
        }
        Piece::Variable { .. }
        | Piece::Output { .. }
        | Piece::Pipe
        | Piece::Home
        | Piece::Tilde
        | Piece::Glob(_)
        | Piece::Braces => false,
    };
    match word {
        Word::Static(text) => is_numeral(text),
        Word::Dynamic(pieces) => pieces.iter().all(is_number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_names_and_operators_are_read() {
        for (text, used, set) in [
            ("1 + 2", &[][..], &[][..]),
            ("i+1", &["i"], &[]),
            ("i++", &["i"], &[]),
            ("i = 3, j += $k", &["j", "k"], &["i"]),
            ("(a == b) ? ${c} : 0x1f", &["a", "b", "c"], &[]),
            ("16#ff + $# + ${#x} + ${#a[@]}", &[], &[]),
            ("", &[], &[]),
        ] {
            let strings = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
            assert_eq!(read(text), Some(ExpressionNames { used: strings(used), set: strings(set) }), "{text}");
        }
        for text in [
            "a[0]", "$(x)", "`x`", "'x'", "$1", "${x:-y}", "${!x}", "a)+(b", "(a", "${x}y", "$x$y", "a\n", "x{",
            "${a[0]}",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
