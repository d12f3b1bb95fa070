//! Arguments of a command: options and operands, and the ways in which rules judge them.

use crate::shell::Word;

/// How a command's arguments are judged.
#[derive(Clone, Copy)]
pub(super) enum ArgumentRule {
    /// None of them does harm.
    Any,
    /// All but these options. `valued` are short ones with a value.
    Except { flags: &'static str, valued: &'static str, long: &'static [&'static str] },
    /// All but these options, and so many operands: the next one would be written to.
    Few { most: usize, flags: &'static str, valued: &'static str, long: &'static [&'static str] },
    /// These options and no others; those of `long` that end in `=` have a value. And a look at the rest.
    Only {
        flags: &'static str,
        valued: &'static str,
        long: &'static [&'static str],
        check: fn(&Args<'_>) -> Result<(), String>,
    },
    /// By a function.
    Own(fn(&[Word]) -> Result<(), String>),
    /// It starts a command, which is judged in its place.
    Starts(fn(&[Word]) -> Result<Vec<Word>, String>),
}

/// Which options there may be.
pub(super) trait Allows {
    fn short(&self, flag: char) -> Result<Takes, ()>;
    fn long(&self, name: &str) -> Result<Takes, ()>;
}

#[derive(PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    Value,
}

pub(super) struct Except {
    pub(super) flags: &'static str,
    pub(super) valued: &'static str,
    pub(super) long: &'static [&'static str],
}

impl Allows for Except {
    fn short(&self, flag: char) -> Result<Takes, ()> {
        if self.flags.contains(flag) {
            return Err(());
        }
        Ok(if self.valued.contains(flag) { Takes::Value } else { Takes::Nothing })
    }

    /// getopt_long takes the beginning of a name for the name (C1).
    fn long(&self, name: &str) -> Result<Takes, ()> {
        if self.long.iter().any(|denied| denied.starts_with(name)) { Err(()) } else { Ok(Takes::Nothing) }
    }
}

pub(super) struct Only {
    pub(super) flags: &'static str,
    pub(super) valued: &'static str,
    pub(super) long: &'static [&'static str],
}

impl Allows for Only {
    fn short(&self, flag: char) -> Result<Takes, ()> {
        match (self.flags.contains(flag), self.valued.contains(flag)) {
            (true, _) => Ok(Takes::Nothing),
            (_, true) => Ok(Takes::Value),
            _ => Err(()),
        }
    }

    fn long(&self, name: &str) -> Result<Takes, ()> {
        let listed = self.long.iter().find(|listed| listed.strip_suffix('=').unwrap_or(listed) == name);
        listed.map(|listed| if listed.ends_with('=') { Takes::Value } else { Takes::Nothing }).ok_or(())
    }
}

/// Arguments, told apart as getopt does.
pub(super) struct Args<'a> {
    /// Names, without dashes, and values.
    pub(super) options: Vec<(String, Option<Word>)>,
    pub(super) operands: Vec<&'a Word>,
}

impl<'a> Args<'a> {
    pub(super) fn parse(args: &'a [Word], allows: &dyn Allows) -> Result<Self, String> {
        let (mut options, mut operands) = (Vec::new(), Vec::new());
        let mut rest = args.iter();
        let mut only_operands = false;
        while let Some(word) = rest.next() {
            let start = word.known_start();
            if only_operands || (!word.may_be_option()) || start == "-" && word.text().is_some() {
                operands.push(word);
            } else if start == "--" && word.text().is_some() {
                only_operands = true;
            } else if word.may_split() || !start.starts_with('-') {
                return Err(format!("`{}` may turn out to be an option", word.shown()));
            } else if let Some(long) = start.strip_prefix("--") {
                let (name, value) = match long.split_once('=') {
                    Some((name, value)) => (
                        name,
                        Some(word.text().map(|_| Word::Static(value.to_owned())).unwrap_or_else(|| word.clone())),
                    ),
                    None if word.text().is_some() => (long, None),
                    None => return Err(format!("which option `{}` is will only be known when it runs", word.shown())),
                };
                let takes = allows.long(name).map_err(|()| format!("its option --{name} may do more than read"))?;
                let value = if takes == Takes::Value && value.is_none() { rest.next().cloned() } else { value };
                options.push((name.to_owned(), value));
            } else {
                let text = word
                    .text()
                    .ok_or_else(|| format!("which options `{}` are will only be known when it runs", word.shown()))?;
                for (at, flag) in text[1..].char_indices() {
                    let takes = allows.short(flag).map_err(|()| format!("its option -{flag} may do more than read"))?;
                    if takes == Takes::Value {
                        let attached = &text[1 + at + flag.len_utf8()..];
                        let value = if attached.is_empty() {
                            rest.next().cloned()
                        } else {
                            Some(Word::Static(attached.to_owned()))
                        };
                        if value.as_ref().is_some_and(Word::may_split) {
                            return Err(format!(
                                "the value of -{flag} may become several words; put it in double quotes"
                            ));
                        }
                        options.push((flag.to_string(), value));
                        break;
                    }
                    options.push((flag.to_string(), None));
                }
            }
        }
        Ok(Self { options, operands })
    }

    pub(super) fn at_most(&self, most: usize) -> Result<(), String> {
        if self.operands.len() > most || (most > 0 && self.operands.iter().any(|word| word.may_be_several())) {
            return Err(match most {
                0 => "what it is given may change something, or start a command".to_owned(),
                _ => "it writes to the file that is named last".to_owned(),
            });
        }
        Ok(())
    }

    pub(super) fn has(&self, names: &[&str]) -> bool {
        self.options.iter().any(|(option, _)| names.contains(&option.as_str()))
    }
}
