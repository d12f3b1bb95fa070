//! Options of commands, in whatever order and spelling (C1).
//!
//! Who denies `rm -rf *` means `rm -r -f x`, `rm --recursive x --force` and `rm x -fr` as well, and `curl * -d *` means
//! `curl --data=x URL`. So the options of a pattern that denies or asks may stand anywhere, split or joined, by their letters or by
//! their names. Which letter is which name is a table; an option that is not in it is met only as it is written.

use super::known::{HOLE, KnownWord, base};
use super::programs::{canonical, names_of};

/// Longest command that is looked into, words: a longer one is taken to have every option.
const WORDS_MAX: usize = 2048;

/// An option of a program.
struct Opt {
    letters: &'static str,
    /// Its name, and others for the same.
    long: &'static [&'static str],
    /// True if it takes a value.
    valued: bool,
    /// Beginning of an operand that does the same (`git push origin +main`).
    operand: &'static str,
}

const fn flag(letters: &'static str, long: &'static [&'static str]) -> Opt {
    Opt { letters, long, valued: false, operand: "" }
}

const fn valued(letters: &'static str, long: &'static [&'static str]) -> Opt {
    Opt { letters, long, valued: true, operand: "" }
}

const fn or_operand(letters: &'static str, long: &'static [&'static str], operand: &'static str) -> Opt {
    Opt { letters, long, valued: false, operand }
}

/// Options of a program, or of one of its subcommands.
struct Options {
    /// Programs, each with its subcommand.
    of: &'static [&'static str],
    options: &'static [Opt],
    /// Other letters that take a value.
    valued: &'static str,
    /// Other letters whose value is the rest of their word, if there is any.
    attached: &'static str,
    /// Letters with a value behind which no options follow.
    last: &'static str,
    /// True if no options follow its first operand.
    is_ordered: bool,
    /// Options by which others may be read from a file.
    opens: &'static [&'static str],
}

const NONE: Options =
    Options { of: &[], options: &[], valued: "", attached: "", last: "", is_ordered: false, opens: &[] };

const RECURSIVE: &[Opt] = &[flag("rR", &["recursive"]), flag("f", &["force"])];

const CURL: &[Opt] = &[
    valued("d", &["data", "data-ascii", "data-binary", "data-raw", "data-urlencode", "json"]),
    valued("F", &["form", "form-string"]),
    valued("T", &["upload-file"]),
    valued("X", &["request"]),
    valued("o", &["output"]),
    flag("O", &["remote-name", "remote-name-all"]),
    flag("k", &["insecure"]),
    valued("H", &["header"]),
    valued("u", &["user"]),
    valued("x", &["proxy", "preproxy"]),
    valued("b", &["cookie"]),
    valued("c", &["cookie-jar"]),
    valued("e", &["referer"]),
    valued("A", &["user-agent"]),
    valued("Q", &["quote"]),
    flag("L", &["location", "location-trusted"]),
    flag("s", &["silent"]),
    flag("I", &["head"]),
];

#[rustfmt::skip]
const TABLE: &[Options] = &[
    Options { of: &["rm", "unlink", "rmdir"], options: RECURSIVE, ..NONE },
    Options {
        of: &["chmod", "chown", "chgrp", "setfacl"],
        options: &[flag("R", &["recursive"]), flag("f", &["silent", "quiet"])],
         ..NONE
    },
    Options {
        of: &["cp", "mv", "ln", "install"],
        options: &[
            flag("rRa", &["recursive", "archive"]), flag("f", &["force"]), flag("s", &["symbolic", "symbolic-link"]),
            valued("t", &["target-directory"]),
        ],
        valued: "St", ..NONE
    },
    Options { of: &["curl"], options: CURL, valued: "AbcCdDeEFhHKmoPQrtTuUwxXyYz", opens: &["-K", "--config"], ..NONE },
    Options {
        of: &["wget"],
        options: &[
            valued("", &["post-data"]), valued("", &["post-file"]), valued("", &["body-data"]),
            valued("", &["body-file"]), valued("O", &["output-document"]), valued("", &["method"]),
            flag("r", &["recursive"]),
        ],
        valued: "aeioOtTwQPUlADIXB", opens: &["--config", "-e", "--execute"], ..NONE
    },
    Options {
        of: &["git push"],
        options: &[
            or_operand("f", &["force"], "+"), flag("", &["force-with-lease"]), or_operand("d", &["delete"], ":"),
            flag("", &["mirror"]), flag("", &["all", "branches"]), flag("", &["tags"]), flag("u", &["set-upstream"]),
            flag("n", &["dry-run"]), flag("", &["no-verify"]),
        ],
        valued: "o", ..NONE
    },
    Options {
        of: &["git commit", "git merge"],
        options: &[flag("n", &["no-verify"]), flag("a", &["all"]), flag("", &["amend"]), valued("m", &["message"])],
        valued: "mFCcte", ..NONE
    },
    Options {
        of: &["git clean"],
        options: &[flag("f", &["force"]), flag("d", &[]), flag("x", &[]), flag("X", &[])],
        valued: "e", ..NONE
    },
    Options {
        of: &["git branch", "git tag"],
        options: &[flag("dD", &["delete"]), flag("fDMC", &["force"]), flag("mM", &["move"])],
        valued: "um", ..NONE
    },
    Options {
        of: &["git checkout", "git switch", "git worktree", "git rm"],
        options: &[flag("f", &["force", "discard-changes"]), flag("r", &[])],
        valued: "bBcC", ..NONE
    },
    Options {
        of: &["docker run", "docker create", "podman run", "docker exec"],
        options: &[
            flag("", &["privileged"]), valued("v", &["volume"]), valued("", &["mount"]), valued("e", &["env"]),
            valued("p", &["publish"]), valued("", &["network", "net"]), valued("u", &["user"]),
            valued("", &["cap-add"]), valued("", &["pid"]), flag("d", &["detach"]),
        ],
        valued: "acehlmpuvw", ..NONE
    },
    Options {
        of: &["docker rm", "docker rmi", "docker system", "docker volume"],
        options: &[flag("f", &["force"]), flag("v", &["volumes"]), flag("a", &["all"])],
         ..NONE
    },
    Options {
        of: &["npm install", "npm uninstall", "npm update", "npm link"],
        options: &[flag("g", &["global"]), flag("f", &["force"]), flag("D", &["save-dev"])],
        valued: "Cw", ..NONE
    },
    Options {
        of: &["kubectl delete", "kubectl apply", "kubectl create"],
        options: &[
            valued("f", &["filename"]), valued("n", &["namespace"]), flag("", &["all"]), valued("l", &["selector"]),
            flag("A", &["all-namespaces"]),
        ],
        valued: "fnlko", ..NONE
    },
    Options {
        of: &["sed"],
        options: &[flag("i", &["in-place"]), flag("rE", &["regexp-extended"])],
        valued: "efl", ..NONE
    },
    Options {
        of: &["tar"],
        options: &[
            flag("x", &["extract", "get"]), flag("c", &["create"]), valued("C", &["directory"]),
            valued("f", &["file"]),
        ],
        valued: "fCbTXKgNVLFI", ..NONE
    },
    Options {
        of: &["systemctl stop", "systemctl disable", "systemctl enable"],
        options: &[flag("f", &["force"])],
        valued: "HMtpnos", ..NONE
    },
    Options {
        of: &["python", "python2", "python3", "pypy", "pypy3"],
        options: &[valued("c", &[]), valued("m", &[])],
        valued: "WX", last: "cm", is_ordered: true,
        ..NONE
    },
    Options {
        of: &["perl"],
        options: &[valued("eE", &[])],
        valued: "I", attached: "iFCDxMmdV", is_ordered: true,
        ..NONE
    },
    Options {
        of: &["ruby"],
        options: &[valued("e", &[])],
        valued: "rIC", attached: "iFKTxE", is_ordered: true,
        ..NONE
    },
    Options { of: &["node", "nodejs"], options: &[valued("ep", &["eval", "print"])], is_ordered: true, ..NONE },
    Options { of: &["php"], options: &[valued("r", &["run"])], valued: "cdzBRFEft", is_ordered: true, ..NONE },
    Options {
        of: &["sh", "bash", "dash", "zsh", "ksh", "ash"],
        options: &[flag("c", &["command"]), flag("i", &[]), flag("l", &["login"]), flag("s", &[])],
        valued: "oO", is_ordered: true,
        ..NONE
    },
];

/// Options of a pattern, and the pattern for what is left of a command without options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OptionPattern {
    /// The program's own name, and how many words name the command.
    name: String,
    /// Which row of the table tells of its options.
    row: Option<usize>,
    required: Vec<Required>,
    /// Words of the pattern that are no options.
    pub(crate) operands: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Required {
    /// As it is written, without a value.
    text: String,
    /// Its options in the row, by their index; any of them will do.
    known: Vec<usize>,
    /// True if its text ends with a `*`.
    open: bool,
    /// A pattern for its value.
    value: Option<String>,
}

fn row_of(words: &[&str]) -> Option<usize> {
    let pair = words.get(1).map(|second| format!("{} {second}", words[0]));
    let is_of = |row: &Options| row.of.iter().any(|of| words.first() == Some(of) || pair.as_deref() == Some(*of));
    TABLE.iter().position(is_of)
}

/// An option of a command, as it is used.
struct UsedOption<'a> {
    text: &'a str,
    known: Vec<usize>,
    /// True if it may stand for a longer name that it begins.
    is_short: bool,
    value: Option<&'a str>,
}

/// Options and operands of a command.
#[derive(Default)]
struct ReadWords<'a> {
    used: Vec<UsedOption<'a>>,
    operands: Vec<OperandWord<'a>>,
    /// There may be any others.
    open: bool,
}

/// A word of a command that is no option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OperandWord<'a> {
    /// Its text; a [`HOLE`] for what is not known.
    pub(crate) text: &'a str,
    /// True if it may be the value of an option that is not known, and so no operand.
    is_value: bool,
    /// True if it may be none, or several.
    several: bool,
}

impl<'a> OperandWord<'a> {
    fn of(text: &'a str) -> Self {
        Self { text, is_value: false, several: false }
    }
}

/// True if a pattern's words fit a command's, for some of those that may be an option's value left out: a `*` fits any number of
/// words, none too. `fits` compares a word with a word.
pub(crate) fn fit(pattern: &str, operands: &[OperandWord<'_>], fits: &dyn Fn(&str, &str) -> bool) -> bool {
    let pattern: Vec<&str> = pattern.split(' ').filter(|word| !word.is_empty()).collect();
    // reached[p]: whether the first `p` words of the pattern fit the words so far.
    let mut reached = vec![false; pattern.len() + 1];
    reached[0] = true;
    let skip_stars = |reached: &mut Vec<bool>| {
        for (p, word) in pattern.iter().enumerate() {
            reached[p + 1] |= *word == "*" && reached[p];
        }
    };
    skip_stars(&mut reached);
    for operand in operands {
        let mut next = vec![false; pattern.len() + 1];
        for (p, _) in reached.iter().enumerate().filter(|(_, is)| **is) {
            if operand.several {
                next[p..].fill(true);
                break;
            }
            next[p] |= operand.is_value || pattern.get(p) == Some(&"*");
            if pattern.get(p).is_some_and(|word| fits(word, operand.text)) {
                next[p + 1] = true;
            }
        }
        skip_stars(&mut next);
        reached = next;
    }
    reached[pattern.len()]
}

impl OptionPattern {
    /// Reads a pattern. `None` if it has neither options nor operands, or begins with what is no program's name.
    pub(crate) fn parse(pattern: &str) -> Option<Self> {
        let own = canonical(pattern);
        let words: Vec<&str> = own.as_deref().unwrap_or(pattern).split(' ').filter(|word| !word.is_empty()).collect();
        let (name, rest) = words.split_first()?;
        if name.contains(['*', '/', '=', '<', '>']) || rest.iter().all(|word| *word == "*") {
            return None;
        }
        let row = row_of(&words);
        let (mut required, mut operands) = (Vec::new(), vec![*name]);
        let mut rest = rest.iter();
        while let Some(word) = rest.next() {
            if !is_option(word) {
                // Any number of words is any number.
                if !(*word == "*" && operands.last() == Some(&"*")) {
                    operands.push(*word);
                }
                continue;
            }
            let read = Required::read(word, row);
            let takes = row.is_some_and(|row| read.iter().any(|one| one.takes_next(row)));
            let next = if takes { rest.next().map(|value| (*value).to_owned()) } else { None };
            // At the end it stands for the value and for all that follows.
            if next.as_deref() == Some("*") && rest.len() == 0 && operands.last() != Some(&"*") {
                operands.push("*");
            }
            required.extend(read.into_iter().map(|one| Required { value: one.value.or_else(|| next.clone()), ..one }));
        }
        // An option that ends in any text, as the last word, stands for all that follows too.
        if words.last().is_some_and(|last| is_option(last) && last.ends_with('*')) && operands.last() != Some(&"*") {
            operands.push("*");
        }
        Some(Self { name: (*name).to_owned(), row, required, operands: operands.join(" ") })
    }

    /// True if the pattern has options.
    pub(crate) fn has_options(&self) -> bool {
        !self.required.is_empty()
    }

    /// The name and the operands of a command that has all the options. `value` compares a pattern with a value.
    pub(crate) fn operands_of<'a>(
        &'a self,
        words: &'a [KnownWord],
        value: &dyn Fn(&str, &str) -> bool,
    ) -> Option<Vec<OperandWord<'a>>> {
        let (first, args) = words.split_first()?;
        let name = first.fixed().map(base)?;
        if names_of(name).first().copied().unwrap_or(name) != self.name {
            return None;
        }
        if args.len() > WORDS_MAX {
            let anything = OperandWord { several: true, ..OperandWord::of("\0") };
            return Some(vec![OperandWord::of(&self.name), anything]);
        }
        let read = read(args, self.row);
        let has = |required: &Required| {
            read.open
                || read.used.iter().any(|used| required.is_met_by(used, value))
                || required.is_an_operand(&read, self.row)
        };
        let name = OperandWord::of(self.name.as_str());
        self.required.iter().all(has).then(|| std::iter::once(name).chain(read.operands.iter().copied()).collect())
    }
}

fn is_option(word: &str) -> bool {
    word.len() > 1 && word.starts_with('-') && word != "--" && !word.starts_with("-*")
}

impl Required {
    /// Options of a word of a pattern: one for each letter, if all of them are known.
    fn read(word: &str, row: Option<usize>) -> Vec<Self> {
        let (text, value) = match word.split_once('=') {
            Some((text, value)) => (text, Some(value.to_owned())),
            None => (word, None),
        };
        let (text, open) = text.strip_suffix('*').map_or((text, false), |text| (text, true));
        let options = row.map_or(&[][..], |row| TABLE[row].options);
        if let Some(long) = text.strip_prefix("--") {
            let is_one =
                |option: &Opt| option.long.iter().any(|name| *name == long || (open && name.starts_with(long)));
            return vec![Self { text: text.to_owned(), known: indices(options, is_one), open, value }];
        }
        let letters = &text[1..];
        let of = |letter: char| indices(options, |option| option.letters.contains(letter));
        if letters.is_empty() || letters.chars().any(|letter| of(letter).is_empty()) {
            return vec![Self { text: text.to_owned(), known: Vec::new(), open, value }];
        }
        // A letter behind one with a value is the value: `-d*`, `-XPOST`.
        let mut all = Vec::new();
        for (at, letter) in letters.char_indices() {
            let takes = options[of(letter)[0]].valued;
            let rest = &letters[at + letter.len_utf8()..];
            let attached =
                (takes && (open || !rest.is_empty())).then(|| format!("{rest}{}", if open { "*" } else { "" }));
            all.push(Self {
                text: format!("-{letter}"),
                known: of(letter),
                open: false,
                value: value.clone().or(attached),
            });
            if takes {
                break;
            }
        }
        all
    }

    /// True if the next word of a pattern is its value.
    fn takes_next(&self, row: usize) -> bool {
        self.value.is_none() && !self.open && self.known.iter().any(|at| TABLE[row].options[*at].valued)
    }

    fn is_met_by(&self, used: &UsedOption<'_>, value: &dyn Fn(&str, &str) -> bool) -> bool {
        let is_known = self.known.iter().any(|at| used.known.contains(at));
        let by_text = self.known.is_empty() || self.text.starts_with("--");
        // Most programs take a beginning of a long option for it.
        let is_short = used.is_short && self.text.starts_with(used.text);
        let is_longer = self.open && used.text.starts_with(&self.text);
        let is_written = by_text && (used.text == self.text || is_longer || is_short);
        // A value that is not seen may be any.
        let has_value = match (&self.value, used.value) {
            (Some(pattern), Some(given)) => pattern == "*" || value(pattern, given),
            (Some(_) | None, _) => true,
        };
        (is_known || is_written) && has_value
    }

    /// True if an operand does what the option does.
    fn is_an_operand(&self, read: &ReadWords<'_>, row: Option<usize>) -> bool {
        let Some(row) = row else { return false };
        let begins = |at: &usize| {
            let operand = TABLE[row].options[*at].operand;
            !operand.is_empty() && read.operands.iter().skip(1).any(|given| given.text.starts_with(operand))
        };
        self.known.iter().any(begins)
    }
}

fn indices(options: &[Opt], is: impl Fn(&Opt) -> bool) -> Vec<usize> {
    options.iter().enumerate().filter(|(_, option)| is(option)).map(|(at, _)| at).collect()
}

/// Takes a command's words apart.
fn read<'a>(args: &'a [KnownWord], row: Option<usize>) -> ReadWords<'a> {
    let row = row.map(|row| &TABLE[row]);
    let options = row.map_or(&[][..], |row| row.options);
    let mut read = ReadWords::default();
    let mut ended = false;
    // The word before is an option of which it is not known whether it takes a value.
    let mut may_take = false;
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let text = arg.text.as_str();
        let is_value = std::mem::take(&mut may_take);
        if arg.several || text.starts_with(HOLE) {
            read.open |= !ended;
            read.operands.push(OperandWord { text, is_value, several: arg.several });
            continue;
        }
        if ended || !is_option(text) {
            ended |= text == "--";
            if text != "--" {
                read.operands.push(OperandWord { text, is_value, several: false });
                ended |= row.is_some_and(|row| row.is_ordered);
            }
            continue;
        }
        ended = row.is_some_and(|row| row.last.chars().any(|last| has_letter(text, last, row)));
        let name = text.split('=').next().unwrap_or(text);
        let is_short = |opens: &str| opens.starts_with("--") && name.len() > 2 && opens.starts_with(name);
        let opens = |opens: &str| name == opens || is_short(opens) || (opens.len() == 2 && text.starts_with(opens));
        if row.is_some_and(|row| row.opens.iter().any(|option| opens(option))) {
            read.open = true;
            read.operands.push(OperandWord { several: true, ..OperandWord::of("\0") });
        }
        let before = read.used.len();
        let takes_next = match text.strip_prefix("--") {
            Some(long) => long_option(&mut read, text, long, options),
            None => letters(&mut read, text, row),
        };
        // Of its letters, or its name, none is in the row.
        may_take = !takes_next && !text.contains('=') && read.used[before..].iter().all(|used| used.known.is_empty());
        if takes_next && let Some(next) = rest.next() {
            // A value of this option, or of one of its letters.
            if let Some(used) = read.used.last_mut() {
                used.value = Some(&next.text);
            }
        }
    }
    read
}

/// Notes an option by its name, or by a beginning of it; true if the next word is its value.
fn long_option<'a>(read: &mut ReadWords<'a>, text: &'a str, long: &'a str, options: &[Opt]) -> bool {
    let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
    let exact = indices(options, |option| option.long.contains(&name));
    let known = match exact.is_empty() {
        true if name.contains(HOLE) => (0..options.len()).collect(),
        true => indices(options, |option| option.long.iter().any(|long| long.starts_with(name))),
        false => exact.clone(),
    };
    let takes = value.is_none() && !known.is_empty() && known.iter().all(|at| options[*at].valued);
    let is_short = exact.is_empty() && !name.is_empty();
    read.used.push(UsedOption { text: text.split('=').next().unwrap_or(text), known, is_short, value });
    takes
}

/// Notes the options of a word of letters; true if the next word is the last one's value.
fn letters<'a>(read: &mut ReadWords<'a>, text: &'a str, row: Option<&Options>) -> bool {
    // Also as it is written: `-delete` is one for some programs.
    read.used.push(UsedOption {
        text: text.split('=').next().unwrap_or(text),
        known: Vec::new(),
        is_short: false,
        value: None,
    });
    let Some(row) = row else { return false };
    for (at, letter) in text.char_indices().skip(1) {
        let known = match letter {
            HOLE => (0..row.options.len()).collect(),
            letter => indices(row.options, |option| option.letters.contains(letter)),
        };
        let takes = row.valued.contains(letter) || known.iter().any(|at| row.options[*at].valued);
        let rest = &text[at + letter.len_utf8()..];
        let value = (takes && !rest.is_empty() && letter != HOLE).then_some(rest);
        read.used.push(UsedOption { text: &text[at..at + letter.len_utf8()], known, is_short: false, value });
        if row.attached.contains(letter) {
            return false;
        }
        if takes && letter != HOLE {
            return rest.is_empty();
        }
    }
    false
}

/// True if a word of letters has this one, and not as a part of another's value.
fn has_letter(text: &str, letter: char, row: &Options) -> bool {
    let letters = text.strip_prefix('-').filter(|letters| !letters.starts_with('-')).unwrap_or_default();
    let takes = |given: char| {
        let is_valued = row.options.iter().any(|option| option.valued && option.letters.contains(given));
        is_valued || row.valued.contains(given) || row.attached.contains(given)
    };
    letters.chars().find(|given| takes(*given)) == Some(letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<KnownWord> {
        line.split(' ').map(|word| KnownWord { text: word.replace('$', "\0"), several: word.contains("$$") }).collect()
    }

    fn operands(pattern: &str, line: &str) -> Option<String> {
        let value = |pattern: &str, value: &str| {
            pattern.strip_suffix('*').map_or(pattern == value, |start| value.starts_with(start))
        };
        let (pattern, words) = (OptionPattern::parse(pattern)?, words(line));
        let left = pattern.operands_of(&words, &value)?;
        Some(left.iter().map(|operand| operand.text).collect::<Vec<_>>().join(" "))
    }

    /// A word behind an option that is not known is its value or an operand, and a star may stand for no word.
    #[test]
    fn operands_fit_with_and_without_values() {
        for (pattern, line, wanted) in [
            ("git push origin main", "git push -u origin main", true),
            ("git push origin main", "git push --x y origin main", true),
            ("git push origin main", "git push origin --x y main --z w", true),
            ("git push origin main", "git push -u origin other", false),
            ("git push origin main", "git push origin main other", false),
            ("git push x main", "git push --x x main", true),
            ("docker * run *", "docker run x", true),
            ("docker * run *", "docker a b run", true),
            ("docker * run *", "docker runx", false),
            ("foo * a * b", "foo a b", true),
            ("foo * a * b", "foo b a", false),
            ("foo a b", "foo $$ b", true),
            ("foo a b", "foo $$", true),
            ("foo a b", "foo $$ c", false),
        ] {
            let fits = |pattern: &str, text: &str| pattern == text || text.contains(HOLE);
            let words = words(line);
            let is_fit = |read: OptionPattern| Some(fit(&read.operands, &read.operands_of(&words, &fits)?, &fits));
            assert_eq!(OptionPattern::parse(pattern).and_then(is_fit), Some(wanted), "{pattern}: {line}");
        }
    }

    /// C1: options in another order, joined, split, by name, shortened, with their value behind `=`.
    #[test]
    fn c1_options_are_known_by_whatever_spelling() {
        for (pattern, line, left) in [
            ("rm -rf *", "rm -rf x", "rm x"),
            ("rm -rf *", "rm -r -f x", "rm x"),
            ("rm -rf *", "rm x -fr", "rm x"),
            ("rm -rf *", "rm --recursive --force x", "rm x"),
            ("rm -rf *", "rm --rec --fo x", "rm x"),
            ("rm -rf *", "rm -vRfi x", "rm x"),
            ("rm -rf *", "/bin/rm -rf x", "rm x"),
            ("rm -rf *", "rm -r$ x", "rm x"),
            ("rm -rf *", "rm $$ x", "rm \0\0 x"),
            ("rm -r -f *", "rm -rf x", "rm x"),
            ("rm --recursive *", "rm -r x", "rm x"),
            ("curl * -d *", "curl -d x u", "curl u"),
            ("curl * -d *", "curl u --data=x", "curl u"),
            ("curl * -d *", "curl -sd@x u", "curl u"),
            ("curl * -d *", "curl --data-binary @x u", "curl u"),
            ("curl * -d *", "curl --json x u", "curl u"),
            ("curl * -d *", "curl -K x", "curl \0"),
            ("curl * -d @*", "curl -d @secret u", "curl u"),
            ("curl * --data*", "curl -d x u", "curl u"),
            ("curl * -T *", "curl --upload-file x u", "curl u"),
            ("git push --force *", "git push -f", "git push"),
            ("git push --force *", "git push origin +main", "git push origin +main"),
            ("git push -f *", "git push origin main --force", "git push origin main"),
            ("git branch -D *", "git branch --delete --force x", "git branch x"),
            ("find * -delete *", "find . -name x -delete", "find . x"),
            ("sed -i *", "sed -i.bak s/a/b/ x", "sed s/a/b/ x"),
            ("pip3 install --user *", "pip install x --user", "pip install x"),
            ("git reset --hard *", "git reset --har x", "git reset x"),
            ("git reset --hard*", "git reset --har", "git reset"),
            ("foo --recursive *", "foo x --rec=1", "foo x"),
            ("git commit -m *", "git commit x -m y", "git commit x"),
            ("python3 -c *", "python3 -Bc x y", "python3 y"),
            ("perl -e *", "perl -i.bak -lane x y", "perl y"),
            ("node -e *", "node -pe x", "node x"),
            ("bash -c *", "bash -xec y", "bash y"),
        ] {
            assert_eq!(operands(pattern, line).as_deref(), Some(left), "{pattern}: {line}");
        }
        for (pattern, line) in [
            ("rm -rf *", "rm -r x"),
            ("rm -rf *", "rm -f x"),
            ("rm -rf *", "rm -- -rf"),
            ("rm -rf *", "rmx -rf x"),
            ("curl * -d *", "curl -o d u"),
            ("curl * -d *", "curl -XPOSTd u"),
            ("curl * -d *", "curl -sSL u"),
            ("curl * -d @*", "curl -d x u"),
            ("git push --force *", "git push origin main"),
            ("git push --force *", "git push --force-with-lease"),
            ("git push --force *", "git pull --force"),
            ("find * -delete *", "find . -name x"),
            ("git push --force-with-lease *", "git push --force"),
            ("foo --recursive *", "foo --recursively"),
            ("foo --recursive *", "foo -- --rec"),
            ("python3 -c *", "python3 x.py -c y"),
            ("python3 -c *", "python3 -m x -c y"),
            ("perl -e *", "perl -Mfile::e x"),
            ("ls *", "ls -l"),
        ] {
            let met = operands(pattern, line).is_some_and(|left| !left.starts_with("git pull"));
            assert!(!met, "{pattern}: {line}");
        }
    }
}
