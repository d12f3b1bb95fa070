//! Texts with `*`: which commands and texts each matches, and how specific it is (C-3).

use crate::path::HostPath;
use crate::shell::options::{self, OptionPattern};
use crate::shell::programs;
use crate::shell::starts::{HOLE, KnownWord, base, is_assignment, is_name};

use super::act::Act;
use super::commands::{CommandDirectory, CommandPart, ProgramPlace, joined, normal};

/// Longer commands with holes are taken to be touched by every pattern, bytes: comparing takes their length times the pattern's.
const HOLED_MAX: usize = 4096;

/// Which pairs of neighbouring bytes a text has, told apart as far as 64 bits do: a text that lacks one that a pattern has does
/// not match it, which is so for most patterns and found out without a look at either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pairs(u64);

impl Pairs {
    pub(super) const NONE: Self = Self(0);

    /// Pairs of an act: any where it is not text, and where a hole stands.
    pub(super) fn of(act: &Act<'_>) -> Self {
        match act {
            Act::Command(command) if !command.text().contains(HOLE) && !command.is_statement() => {
                // A pattern is also compared with what starts it, with its other form, and with the command whose input it is.
                let words = command.around().map(|(words, _)| words).chain(command.same()).chain(command.read_by());
                let all = words.map(|words| Self::of_bytes(joined(words).as_bytes()));
                all.fold(Self::of_bytes(command.text().as_bytes()), |one, other| Self(one.0 | other.0))
            }
            Act::File(path) => Self::of_bytes(path.as_bytes()),
            Act::Command(_)
            | Act::Nothing
            | Act::FileLike(_)
            | Act::Tree(_)
            | Act::Search(_)
            | Act::UnknownCommand
            | Act::WholeLine
            | Act::Input { .. }
            | Act::Host(..)
            | Act::Agent(..)
            | Act::Request(_)
            | Act::Anything => Self(u64::MAX),
        }
    }

    pub(super) fn of_bytes(text: &[u8]) -> Self {
        let bit = |pair: &[u8]| u64::from(pair[0].wrapping_mul(37).wrapping_add(pair[1].wrapping_mul(11)) % 64);
        Self(text.windows(2).fold(0, |pairs, pair| pairs | 1 << bit(pair)))
    }

    pub(super) fn have(self, those: Self) -> bool {
        those.0 & !self.0 == 0
    }
}

/// How much a pattern says. The greater is the more specific.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Specificity {
    pub(super) is_exact: bool,
    pub(super) prefix: usize,
    pub(super) wildcards: usize,
}

impl Specificity {
    /// A pattern without a wildcard.
    pub(crate) fn exact() -> Self {
        Self { is_exact: true, prefix: 0, wildcards: 0 }
    }

    /// Everything that begins with a text of this length, bytes.
    pub(crate) fn prefix(prefix: usize) -> Self {
        Self { is_exact: false, prefix, wildcards: 1 }
    }

    /// Whatever there is, as without a pattern.
    pub(crate) fn any() -> Self {
        Self { is_exact: false, prefix: 0, wildcards: usize::MAX }
    }

    /// True if a rule of this pattern says less than one of that: of two that say as much, the one that asks decides.
    pub(crate) fn is_below(self, that: Self) -> bool {
        let order = |one: Self| (one.is_exact, one.prefix, std::cmp::Reverse(one.wildcards));
        match (self.is_exact, that.is_exact) {
            // Of two exact ones, neither is below.
            (true, true) => false,
            _ => order(self) < order(that),
        }
    }
}

/// `*` matches any run of characters, `/` included; everything else is literal; anchored at both ends (X1-8). ` *` at the end
/// matches nothing too: `git push *` is about `git push`. One that denies or asks is about a command with any options besides, in any
/// place, and a ` * ` within it matches nothing too.
///
/// A pattern that allows commands is compared word by word: a `*` that is a word of its own stands for any number of words, one
/// within a word for a part of that word.
///
/// `COMMAND <<TEXT` is about a command that its line gives a text (`python3 - <<E`, `echo … | python3`). A program that executes
/// the text is covered by no pattern with a `*` that does not say so: `python3 - <<*` is for any text, `python3 - <<import json*`
/// for those that begin so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wildcard {
    text: String,
    /// Bytes before the first `*`.
    prefix: usize,
    stars: usize,
    /// Those that all that it matches has.
    pairs: Pairs,
    /// The pattern with the program's name alone in place of a path that it begins with.
    by_name: Option<Box<Self>>,
    /// Patterns for the absolute path of the program, if it is named by a path.
    by_path: Vec<Self>,
    /// The program's path from the usual directory, if it is relative.
    below: Option<Box<Self>>,
    /// Parts of `cd DIR && COMMAND`, which is about commands in another directory than the usual one.
    elsewhere: Option<Box<Elsewhere>>,
    /// The pattern for commands in other words.
    other: Option<Box<OtherWords>>,
    /// Parts of `COMMAND <<TEXT`, which is about a command with a text that its line gives it to read.
    given: Option<Box<Given>>,
}

/// Meaning of a pattern for commands that say the same in other words.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OtherWords {
    /// The pattern with the own names of a program and its subcommand, for the forms of a command.
    canonical: Option<Wildcard>,
    /// Its options, and a pattern for what is left without them.
    options: Option<(OptionPattern, Wildcard)>,
}

impl OtherWords {
    /// Meaning of a pattern, and what every name of its program has; `None` if there are no others.
    fn of(pattern: &str) -> Option<(Self, Pairs)> {
        let name = pattern.split(' ').next().unwrap_or_default();
        let names = programs::names_of(name);
        let options = OptionPattern::parse(pattern).map(|options| {
            let operands = Wildcard::simple(options.operands.clone());
            (options, operands)
        });
        if names.is_empty() && options.is_none() {
            return None;
        }
        let canonical = programs::canonical(pattern).map(Wildcard::simple);
        let has_options = options.as_ref().is_some_and(|(options, _)| options.has_options());
        let pairs = match names {
            // Each of its words is there, whatever stands between two.
            [] if !has_options => {
                let parts = pattern.split([' ', '*']).map(|part| Pairs::of_bytes(part.as_bytes()).0);
                Pairs(parts.fold(0, |all, part| all | part))
            }
            [] => Pairs::of_bytes(name.as_bytes()),
            // A command has one of these names, whichever the pattern has.
            names => names.iter().fold(Pairs(u64::MAX), |all, name| Pairs(all.0 & Pairs::of_bytes(name.as_bytes()).0)),
        };
        Some((Self { canonical, options }, pairs))
    }

    /// True if a command may be meant.
    fn is_about(&self, pattern: &Wildcard, command: &CommandPart) -> bool {
        let value = |pattern: &str, value: &str| Wildcard::simple(pattern.to_owned()).touches(value);
        command.meant().any(|(text, words)| {
            let is_named = || pattern.touches(text) || self.canonical.as_ref().is_some_and(|this| this.touches(text));
            let has_options = || {
                self.options.as_ref().is_some_and(|(options, operands)| {
                    options.operands_of(words, &value).is_some_and(|left| {
                        let text = || left.iter().map(|operand| operand.text).collect::<Vec<_>>().join(" ");
                        options::fit(&options.operands, &left, &value) || operands.touches(&text())
                    })
                })
            };
            is_named() || has_options()
        })
    }
}

/// A pattern for a command, and one for what it is given to read: `python3 - <<*`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Given {
    command: Wildcard,
    document: Wildcard,
}

/// A directory, and a pattern for the commands there.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Elsewhere {
    written: String,
    /// Its normal path, from the workspace's root if it is relative.
    normal: String,
    /// Patterns for its absolute path: a relative one is below each root of the workspace.
    directories: Vec<String>,
    command: Wildcard,
}

impl Elsewhere {
    fn new(written: &str, command: &str) -> Self {
        Self {
            written: written.to_owned(),
            normal: normal("", written, '*'),
            directories: Vec::new(),
            command: Wildcard::new(command),
        }
    }

    fn within(self, roots: &[HostPath]) -> Self {
        let below = |root: &HostPath| normal(&root.to_string(), &self.written, '*');
        let directories = match self.is_relative() {
            true => roots.iter().map(below).collect(),
            false => vec![self.normal.clone()],
        };
        Self { directories, command: self.command.within(roots), ..self }
    }

    /// True if no command runs there.
    fn is_nowhere(&self) -> bool {
        let is_plain = !self.written.is_empty() && !self.written.contains([' ', '\t', '"', '\'', '\\', '`', '$', '~']);
        let climbs = self.written.split_once('*').is_some_and(|(_, behind)| behind.split('/').any(|name| name == ".."));
        !is_plain || climbs
    }

    fn is_relative(&self) -> bool {
        !self.written.starts_with('/')
    }

    /// True if it is relative and leads out of where it begins.
    fn leads_out(&self) -> bool {
        let step = |depth: usize, name: &str| match name {
            "" | "." => Some(depth),
            ".." => depth.checked_sub(1),
            _ => Some(depth + 1),
        };
        self.is_relative() && self.written.split('/').try_fold(0, step).is_none()
    }

    /// True if all commands of a directory are meant. A relative path begins at the root of the call's workspace.
    fn covers(&self, directory: &CommandDirectory) -> bool {
        let path = match self.is_relative() {
            true => directory.below_root().filter(|_| !self.leads_out()),
            false => directory.path(),
        };
        path.is_some_and(|path| matches(self.normal.as_bytes(), path.as_bytes()))
    }

    /// True if commands of a directory may be meant.
    fn touches(&self, directory: &CommandDirectory) -> bool {
        let is_one = |path: &str| self.directories.iter().any(|pattern| matches(pattern.as_bytes(), path.as_bytes()));
        directory.path().is_none_or(is_one)
    }
}

impl Wildcard {
    /// Every text is one.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let stars = text.bytes().filter(|byte| *byte == b'*').count();
        // ` *` at the end may match nothing.
        let fixed = if stars == 1 { text.strip_suffix(" *").unwrap_or(text) } else { text };
        let pairs = Pairs(fixed.split('*').fold(0, |pairs, part| pairs | Pairs::of_bytes(part.as_bytes()).0));
        let path = text.split(' ').next().unwrap_or_default();
        let name = base(path);
        let by_name = (name.len() < path.len() && !name.is_empty() && !path.contains('*') && !is_assignment(path))
            .then(|| Box::new(Self::new(&text[path.len() - name.len()..])));
        let other = OtherWords::of(text);
        let elsewhere = text.strip_prefix("cd ").and_then(|rest| rest.split_once(" && "));
        let elsewhere = elsewhere.map(|(directory, command)| Box::new(Elsewhere::new(directory, command)));
        Self {
            text: text.to_owned(),
            prefix: text.find('*').unwrap_or(text.len()),
            stars,
            pairs: match (&elsewhere, &by_name) {
                (Some(elsewhere), _) => elsewhere.command.pairs,
                // Another path may lead to the same place.
                (None, _) if path.contains('/') && !is_assignment(path) => Pairs::NONE,
                (None, _) if names_file(text) => Pairs::NONE,
                // A text that is read is none of the command's words.
                (None, _) if text.contains(" <<") => Pairs::NONE,
                // In other words there are other pairs.
                (None, _) if other.is_some() => other.as_ref().map_or(Pairs::NONE, |(_, pairs)| *pairs),
                // Of a path only the name need be there.
                (None, Some(by_name)) => by_name.pairs,
                (None, None) => pairs,
            },
            by_name,
            by_path: Vec::new(),
            below: None,
            elsewhere,
            other: other.map(|(other, _)| Box::new(other)),
            given: text.split_once(" <<").map(|(command, document)| {
                Box::new(Given { command: Self::new(command), document: Self::new(document) })
            }),
        }
    }

    /// The pattern for a workspace: its relative paths are paths below each of these roots.
    pub(super) fn within(mut self, roots: &[HostPath]) -> Self {
        if let Some(elsewhere) = self.elsewhere.take() {
            return Self { elsewhere: Some(Box::new(elsewhere.within(roots))), ..self };
        }
        let (lead, path, words) = self.around_path();
        if lead.is_empty() && (!path.contains('/') || is_assignment(path)) || path.is_empty() {
            return self;
        }
        let in_full = |path: String| Self::simple(format!("{lead}{path}{words}"));
        (self.by_path, self.below) = match path.as_bytes()[0] {
            b'/' => (vec![in_full(normal("", path, '*'))], None),
            // It may be an absolute path as well.
            b'*' => (vec![in_full(normal("", path, '*').trim_start_matches('/').to_owned())], None),
            _ => {
                let below = |root: &HostPath| in_full(normal(&root.to_string(), path, '*'));
                (roots.iter().map(below).collect(), Some(Box::new(in_full(path.to_owned()))))
            }
        };
        self
    }

    /// A pattern that is compared with texts alone.
    fn simple(text: String) -> Self {
        let (prefix, stars) = (text.find('*').unwrap_or(text.len()), text.matches('*').count());
        Self {
            text,
            prefix,
            stars,
            pairs: Pairs::NONE,
            by_name: None,
            by_path: Vec::new(),
            below: None,
            elsewhere: None,
            other: None,
            given: None,
        }
    }

    /// As it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The pattern for the command, without the directory in which that runs.
    pub(super) fn command(&self) -> &str {
        self.elsewhere.as_ref().map_or(&self.text, |elsewhere| elsewhere.command.text())
    }

    /// True if no command runs in the directory that it names.
    pub(super) fn runs_nowhere(&self) -> bool {
        self.elsewhere.as_ref().is_some_and(|elsewhere| elsewhere.is_nowhere())
    }

    /// Pairs that all that it matches has.
    pub(super) fn pairs(&self) -> Pairs {
        self.pairs
    }

    /// How much it says.
    pub(super) fn specificity(&self) -> Specificity {
        Specificity { is_exact: self.stars == 0, prefix: self.prefix, wildcards: self.stars }
    }

    /// True if it matches a text.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        let (pattern, text) = (self.text.as_bytes(), text.as_bytes());
        // Most do not even begin alike.
        if !text.starts_with(&pattern[..self.prefix]) {
            return self.is_without_arguments(text);
        }
        matches(&pattern[self.prefix..], &text[self.prefix..]) || self.is_without_arguments(text)
    }

    fn is_without_arguments(&self, text: &[u8]) -> bool {
        self.stars == 1 && text.len() + 2 == self.text.len() && self.text.as_bytes().strip_suffix(b" *") == Some(text)
    }

    /// True if it matches a command, whatever its holes stand for: only `*` matches one. What a command starts in turn is
    /// covered by a pattern for the outer one that names it.
    ///
    /// It is about commands that run where the session's commands usually do. In another directory the same words start another
    /// program, or do something else: that must be named.
    pub(crate) fn covers(&self, command: &CommandPart) -> bool {
        match (&self.elsewhere, command.directory()) {
            (None, CommandDirectory::Usual(_)) => self.covers_in_place(command),
            (Some(elsewhere), directory) => elsewhere.covers(directory) && elsewhere.command.covers_in_place(command),
            (None, CommandDirectory::Other { .. } | CommandDirectory::Unknown) => false,
        }
    }

    fn covers_in_place(&self, command: &CommandPart) -> bool {
        // A file that a command reads is that command's affair, too.
        if let Some(words) = command.read_by() {
            let is_named = names_file(&self.text) && self.covers_words(command.text(), command.words());
            return is_named || (!words.is_empty() && self.covers_words(&joined(words), words));
        }
        if let Some(given) = &self.given {
            let text = command.document().filter(|_| !command.evaluates());
            return text.is_some_and(|text| given.document.covers_text(text))
                && given.command.covers_words(command.text(), command.words());
        }
        if (command.evaluates() || command.is_fed()) && (self.stars > 0 || command.text().contains(HOLE)) {
            return false;
        }
        // Of a variable that a command sets, the last of these words may leave the value open.
        let is_named =
            |at: usize, word: &str, known: usize| !word.contains('*') || (at + 1 == known && command.is_set_by(word));
        let names = |known: usize| {
            self.words().take(known).enumerate().filter(|(at, word)| is_named(*at, word, known)).count() == known
        };
        let is_fixed = self.words().next().is_some_and(programs::has_fixed_names);
        let canonical = self.other.as_ref().and_then(|other| other.canonical.as_ref()).filter(|_| is_fixed);
        let covers = |words: &[KnownWord]| {
            let text = joined(words);
            self.covers_words(&text, words) || canonical.is_some_and(|this| this.covers_words(&text, words))
        };
        self.covers_words(command.text(), command.words())
            || canonical.is_some_and(|this| this.covers_words(command.text(), command.words()))
            || command.same().is_some_and(covers)
            || command.around().any(|(words, known)| names(known) && self.covers_words(&joined(words), words))
    }

    /// True if it matches a text, whatever its holes stand for.
    fn covers_text(&self, text: &str) -> bool {
        self.text == "*" || (!text.contains(HOLE) && self.matches(text))
    }

    fn words(&self) -> impl Iterator<Item = &str> {
        self.text.split(' ').filter(|word| !word.is_empty())
    }

    fn covers_words(&self, text: &str, words: &[KnownWord]) -> bool {
        self.matches(text) && covers(&self.words().collect::<Vec<_>>(), words)
    }

    /// True if it is about a command, or may be, however the program is called.
    pub(super) fn is_about(&self, command: &CommandPart) -> bool {
        if let Some(elsewhere) = &self.elsewhere {
            return elsewhere.touches(command.directory()) && elsewhere.command.is_about(command);
        }
        if let Some(given) = &self.given {
            let text = command.document().unwrap_or_default();
            return given.document.touches(text) && given.command.is_about(command);
        }
        if command.sets_anything() {
            let name = self.text.split(['=', '*']).next().unwrap_or_default();
            return name.is_empty() || is_name(name);
        }
        if self.touches(command.text()) {
            return true;
        }
        if command.is_statement() {
            // Servers take `SECRETS` for `secrets`.
            return Self::new(&self.text.to_lowercase()).touches(&command.text().to_lowercase());
        }
        let in_other_words = |this: &Self| this.other.as_ref().is_some_and(|other| other.is_about(this, command));
        if self.is_about_place(command) || in_other_words(self) || self.by_name.as_deref().is_some_and(in_other_words) {
            return true;
        }
        let by_name = command.by_name();
        by_name.is_some_and(|name| self.touches(name))
            || self.by_name.as_ref().is_some_and(|this| this.touches(by_name.unwrap_or(command.text())))
    }

    /// True if it is about programs by their paths, and a command may be one of them.
    fn is_about_place(&self, command: &CommandPart) -> bool {
        if (self.by_path.is_empty() && self.below.is_none()) || command.places().is_empty() {
            return false;
        }
        // A relative pattern may also be meant from where commands usually run.
        let below = self.below.as_ref().zip(command.directory().usual());
        let below = below.map(|(this, usual)| this.from(usual));
        command.places().iter().any(|place| match place {
            ProgramPlace::At(place) => {
                self.by_path.iter().any(|this| this.touches(place))
                    || below.as_ref().is_some_and(|this| this.touches(place))
            }
            ProgramPlace::Anywhere => true,
        })
    }

    /// This relative pattern, for absolute paths below a directory.
    fn from(&self, directory: &str) -> Self {
        let (lead, path, words) = self.around_path();
        Self::simple(format!("{lead}{}{words}", normal(directory, path, '*')))
    }

    /// The path of the program, or of the file that the shell opens, with what stands before it and behind.
    fn around_path(&self) -> (&str, &str, &str) {
        let (lead, rest) = self.text.split_at(if names_file(&self.text) { 2 } else { 0 });
        let (path, words) = rest.split_at(rest.find(' ').unwrap_or(rest.len()));
        (lead, path, words)
    }

    /// True if it matches a command for something that its holes may stand for.
    pub(super) fn touches(&self, command: &str) -> bool {
        let Some(hole) = command.find(HOLE) else { return self.matches(command) };
        let (literal, prefix) = (&command.as_bytes()[..hole], &self.text.as_bytes()[..self.prefix]);
        let common = literal.len().min(prefix.len());
        literal[..common] == prefix[..common]
            && (command.len() > HOLED_MAX || {
                let holed: Vec<u8> = command.bytes().map(|byte| if byte == 0 { b'*' } else { byte }).collect();
                // A star that the command itself has is taken for a hole too: that errs on the side of touching.
                let with_space = [&holed[..], b" "].concat();
                meet(self.text.as_bytes(), &holed) || meet(self.text.as_bytes(), &with_space)
            })
    }
}

/// True if a pattern's words cover a command's, each by each: a `*` alone any number of them.
fn covers(pattern: &[&str], words: &[KnownWord]) -> bool {
    let one = |pattern: &str, word: &KnownWord| {
        !word.several
            && matches(pattern.as_bytes(), word.text.as_bytes())
            && !(is_below_a_directory(pattern) && may_lead_out(&word.text))
    };
    let (mut p, mut w) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    while w < words.len() {
        if pattern.get(p) == Some(&"*") {
            back = Some((p, w));
            p += 1;
        } else if pattern.get(p).is_some_and(|pattern| one(pattern, &words[w])) {
            (p, w) = (p + 1, w + 1);
        } else if let Some((star, from)) = back {
            back = Some((star, from + 1));
            (p, w) = (star + 1, from + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|word| *word == "*")
}

/// True if a pattern is about files that the shell opens: `> FILE`, `< FILE`.
fn names_file(pattern: &str) -> bool {
    pattern.starts_with("> ") || pattern.starts_with("< ")
}

/// True if a pattern's word is for what lies below a directory.
fn is_below_a_directory(pattern: &str) -> bool {
    pattern.split_once('*').is_some_and(|(directory, _)| directory.contains('/'))
}

/// True if a path is not known to lie below the directories that it begins with.
fn may_lead_out(path: &str) -> bool {
    path.contains(HOLE) || path.split('/').any(|component| component == "..")
}

/// The textbook's way, with one place to go back to.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            back = Some((p, t));
            p += 1;
        } else if pattern.get(p) == text.get(t) {
            (p, t) = (p + 1, t + 1);
        } else if let Some((star, from)) = back {
            back = Some((star, from + 1));
            (p, t) = (star + 1, from + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// True if two patterns have a text in common.
pub(super) fn meet(one: &[u8], other: &[u8]) -> bool {
    // row[j]: whether the rest of `one` and `other[j..]` have one.
    let mut row: Vec<bool> = (0..=other.len()).map(|j| other[j..].iter().all(|byte| *byte == b'*')).collect();
    for byte in one.iter().rev() {
        let below = row.clone();
        for j in (0..=other.len()).rev() {
            let next = other.get(j);
            let either = (*byte == b'*' && below[j]) || (next == Some(&b'*') && row[j + 1]);
            let both = match next {
                Some(b'*') => below[j],
                Some(_) if *byte == b'*' => row[j + 1],
                Some(next) => next == byte && below[j + 1],
                None => false,
            };
            row[j] = either || both;
        }
    }
    row[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_are_anchored_and_stars_take_anything() {
        for (pattern, text) in [
            ("git *", "git log"),
            ("git *", "git"),
            ("*", ""),
            ("*.rs", "a/b.rs"),
            ("a*b*c", "aXbYbc"),
            ("npm run *:all", "npm run test:all"),
            ("a", "a"),
        ] {
            assert!(Wildcard::new(pattern).matches(text), "{pattern} {text}");
        }
        for (pattern, text) in
            [("git *", "gitk"), ("git *", "xgit log"), ("a", "ab"), ("a*b", "a"), ("* x", "x"), ("git * *", "git")]
        {
            assert!(!Wildcard::new(pattern).matches(text), "{pattern} {text}");
        }
    }

    /// C3: what is not known is allowed by no literal, and slips past no denial.
    #[test]
    fn holes_are_touched_and_not_covered() {
        let pattern = Wildcard::new("git push *");
        for command in ["git push", "git push \0", "git \0", "\0", "\0 push", "git p\0h origin"] {
            assert!(pattern.touches(command), "{command:?}");
        }
        for command in ["git log \0", "echo \0", "git pull\0"] {
            assert!(!pattern.touches(command), "{command:?}");
        }
        let covers = |pattern: &str, command: &str| Wildcard::new(pattern).covers(&CommandPart::of_text(command));
        assert!(covers("git log *", "git log \0"));
        assert!(!covers("git log *", "git \0"));
        assert!(!covers("git log main", "git log \0"));
    }

    /// A pattern that allows covers a command word by word; what evaluates its words only if it says all of them.
    #[test]
    fn words_are_covered_each_by_each() {
        let covers = |pattern: &str, command: &str| Wildcard::new(pattern).covers(&CommandPart::of_text(command));
        for (pattern, command) in [
            ("export X=*", "export X=1"),
            ("git * main", "git push -u main"),
            ("npm run *:all", "npm run test:all"),
            ("cat src/*", "cat src/a/b"),
            ("printf *", "printf %s x"),
            ("eval ls", "eval ls"),
            ("printf -v x y", "printf -v x y"),
        ] {
            assert!(covers(pattern, command), "{pattern} {command}");
        }
        for (pattern, command) in [
            ("export X=*", "export X=1 PATH=."),
            ("export X=*", "export X=\0"),
            ("cat src/*", "cat src/a /etc/x"),
            ("npm run *:all", "npm run x y:all"),
            ("printf *", "printf -v a[$(x)] y"),
            ("test *", "test -v a[$(x)]"),
            ("read *", "read a[$(x)]"),
            ("let *", "let a[$(x)]"),
            ("eval ls *", "eval ls ; x"),
            ("eval *", "eval ls"),
            ("* --version", "\0 --version"),
            ("sh *", "sh -c x"),
        ] {
            assert!(!covers(pattern, command), "{pattern} {command}");
        }
    }

    /// A pattern that denies is about a program, however it is called and by whatever it is started; one that allows is not.
    #[test]
    fn programs_are_known_by_their_names() {
        let about = |pattern: &str, argv: &[&str]| {
            CommandPart::of_argv(argv).is_some_and(|all| all.iter().any(|part| Wildcard::new(pattern).is_about(part)))
        };
        for argv in [
            &["touch", "x"][..],
            &["/usr/bin/touch", "x"],
            &["./touch", "x"],
            &["time", "touch", "x"],
            &["env", "-i", "nice", "/bin/touch"],
            &["find", ".", "-exec", "touch", "{}", ";"],
            &["xargs", "touch"],
            &["bash", "-c", "cd /; /bin/touch x"],
            &["sudo", "--weird", "touch", "x"],
            &["command", "-p", "--", "touch", "-v"],
            &["command", "touch", "-v"],
        ] {
            assert!(about("touch *", argv), "{argv:?}");
            assert!(about("/usr/bin/touch *", argv), "{argv:?}");
        }
        for argv in [
            &["touchy", "x"][..],
            &["echo", "touch", "x"],
            &["command", "-v", "touch"],
            &["/touch/x"],
            &["command", "-p", "-v", "touch"],
            &["which", "touch"],
            &["type", "touch"],
        ] {
            assert!(!about("touch *", argv), "{argv:?}");
            assert!(!about("/usr/bin/touch *", argv), "{argv:?}");
        }
        let allows = |pattern: &str, argv: &[&str]| {
            let pattern = Wildcard::new(pattern);
            CommandPart::of_argv(argv).is_some_and(|all| all.iter().all(|part| pattern.covers(part)))
        };
        assert!(allows("touch *", &["touch", "x"]) && !allows("touch *", &["/tmp/touch", "x"]));
        assert!(!allows("time *", &["time", "touch", "x"]), "what it starts is not named");
        assert!(
            allows("time touch *", &["time", "touch", "x"])
                && allows("env A=1 time touch *", &["env", "A=1", "time", "touch"])
        );
    }
}
