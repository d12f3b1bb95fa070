//! Lines that every shell of Bourne's family reads alike, and as the quick cut does.
//!
//! bash's grammar reads the line of a call, but not a line within one (`bash -c LINE`, `eval LINE`). Of such a line the commands are
//! known if it has nothing but what is listed here: words, quotes, plain variables, `;` `&` `|` and what writes to a file. All else
//! in it, and all that is not known here, may hide a command.

/// Words that are syntax where a command begins.
const RESERVED: &[&str] = &[
    "!", "[[", "]]", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in",
    "select", "then", "time", "until", "while",
];

/// True if a line has nothing in it but simple commands whose words are all there to be seen.
#[must_use]
pub fn is_plain(line: &str) -> bool {
    let mut reader = PlainReader { rest: line, begins: true };
    while !reader.rest.is_empty() {
        if reader.step().is_none() {
            return false;
        }
    }
    true
}

/// True if a line that bash's grammar understands has nothing that other shells of Bourne's family (dash) read in another way: `$'…'`,
/// `&>`, `<<<`, `[[`, `((`, `<(`, `|&`, arrays, braces that expand, words of bash's own.
#[must_use]
pub fn is_portable(line: &str) -> bool {
    const OWN: &[&str] = &[
        "$'", "$\"", "&>", "<<<", "[[", "((", "<(", ">(", "|&", ";&", ";;&", "+=", "=(", "$[", "~+", "~-", ">|", "\\\n",
    ];
    const WORDS: &[&str] = &["function", "coproc", "select", "time", "declare", "typeset", "local", "shopt", "source"];
    let is_copy = |behind: &str| behind.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    let copies = [">&", "<&"].iter().all(|copy| line.split(copy).skip(1).all(is_copy));
    let braces = line.split('{').skip(1).any(|behind| {
        let inner = behind.split(['}', ' ', '\n']).next().unwrap_or_default();
        inner.contains(',') || inner.contains("..")
    });
    let patterns = ["?(", "*(", "@(", "!(", "+("].iter().any(|open| line.contains(open));
    let word = |word: &str| WORDS.contains(&word);
    let has_word = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-').any(word);
    let expansions = line
        .split("${")
        .skip(1)
        .any(|behind| behind.split('}').next().unwrap_or_default().contains(['/', '^', ',', '!', '@', '[', ':']));
    copies && !braces && !patterns && !has_word && !expansions && !OWN.iter().any(|own| line.contains(own))
}

struct PlainReader<'a> {
    rest: &'a str,
    /// A command may begin here.
    begins: bool,
}

impl<'a> PlainReader<'a> {
    /// Reads what stands between words, or a word. `None` for what is not listed.
    fn step(&mut self) -> Option<()> {
        match self.rest.chars().next()? {
            ' ' | '\t' => self.skip(1),
            '\n' | ';' | '|' => {
                self.begins = true;
                self.skip(1)
            }
            '&' if self.rest.starts_with("&>") => None,
            '&' => {
                self.begins = true;
                self.skip(1)
            }
            '>' => self.target(),
            // A comment.
            '#' => None,
            _ => self.word_or_descriptor(),
        }
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.rest = self.rest.get(bytes..)?;
        Some(())
    }

    /// `> word`, `>> word` and a copy of a descriptor: `>&2`. Another word behind `>&` is expanded twice.
    fn target(&mut self) -> Option<()> {
        let rest = self.rest.trim_start_matches('>');
        if self.rest.len() - rest.len() > 2 {
            return None;
        }
        self.rest = rest;
        if let Some(copied) = rest.strip_prefix('&') {
            let ends = |c: char| matches!(c, ' ' | '\t' | '\n' | ';' | '|' | '&');
            let is_copy = copied.starts_with(|c: char| c.is_ascii_digit() || c == '-')
                && copied[1..].chars().next().is_none_or(ends);
            return if is_copy { self.skip(2) } else { None };
        }
        self.rest = rest.trim_start_matches([' ', '\t']);
        if self.rest.starts_with('#') {
            return None;
        }
        (!self.word()?.is_empty()).then_some(())
    }

    fn word_or_descriptor(&mut self) -> Option<()> {
        let word = self.word()?;
        if self.rest.starts_with('>') {
            if word.len() == 1 && word.bytes().all(|byte| byte.is_ascii_digit()) {
                return Some(());
            }
            // Which of these are a descriptor's number differs.
            if word.contains(['\'', '"', '\\']) || word.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
        }
        if self.begins {
            self.begins = match word.split_once('=') {
                Some((name, _)) if super::starts::is_name(name) => true,
                Some(_) => return None,
                None => false,
            };
            if RESERVED.contains(&word) {
                return None;
            }
        }
        Some(())
    }

    /// Reads a word, which may be empty, with its quotes. Braces are one only in `{}`.
    fn word(&mut self) -> Option<&'a str> {
        let whole = self.rest;
        while let Some(c) = self.rest.chars().next() {
            match c {
                ' ' | '\t' | '\n' | ';' | '&' | '|' | '>' => break,
                '\'' => {
                    let (text, rest) = self.rest[1..].split_once('\'')?;
                    is_text(text).then_some(())?;
                    self.rest = rest;
                }
                '"' => self.double_quoted()?,
                '\\' => self.escaped(|c| c.is_ascii_graphic() || c == ' ')?,
                '$' => self.variable()?,
                '{' => {
                    self.rest = self.rest.strip_prefix("{}")?;
                }
                _ if c.is_alphanumeric() || "_-./:,+%@^~=!*?[]#".contains(c) => self.skip(c.len_utf8())?,
                _ => return None,
            }
        }
        let word = &whole[..whole.len() - self.rest.len()];
        // The quick cut takes a quoted `>` for a redirection.
        let is_redirection = word.chars().filter(|c| !matches!(c, '\'' | '"' | '\\')).eq(['>']);
        (!is_redirection).then_some(word)
    }

    fn double_quoted(&mut self) -> Option<()> {
        self.skip(1)?;
        loop {
            match self.rest.chars().next()? {
                '"' => return self.skip(1),
                '$' => self.variable()?,
                '`' => return None,
                '\\' => self.escaped(|c| matches!(c, '$' | '`' | '"' | '\\'))?,
                c => {
                    is_text(c.encode_utf8(&mut [0; 4])).then_some(())?;
                    self.skip(c.len_utf8())?;
                }
            }
        }
    }

    /// A backslash that stands for the character behind it.
    fn escaped(&mut self, is_one: impl Fn(char) -> bool) -> Option<()> {
        self.rest.chars().nth(1).filter(|c| is_one(*c))?;
        self.skip(2)
    }

    /// `$name`, `$1`, `$@`, `$*`, `$?` and `$#`: their values are data.
    fn variable(&mut self) -> Option<()> {
        let behind = &self.rest[1..];
        let name = behind.len() - behind.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_').len();
        let length = match behind.chars().next()? {
            '@' | '*' | '?' | '#' => 1,
            c if c.is_ascii_digit() => 1,
            _ if name > 0 => name,
            _ => return None,
        };
        self.skip(1 + length)
    }
}

/// True if there is no character in it that a shell keeps for its own ends.
fn is_text(text: &str) -> bool {
    !text.chars().any(|c| c.is_control() && !matches!(c, '\t' | '\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines that dash reads as bash does.
    #[test]
    fn what_only_bash_knows_is_not_portable() {
        for line in [
            "if true; then git push; fi",
            "for f in *; do x \"$f\" 2>&1; done",
            "f() { a; }; f",
            "cat <<E\nx\nE",
            "x=${y%.*}",
            "$(a)",
        ] {
            assert!(is_portable(line), "{line}");
        }
        for line in [
            "a &>b",
            "echo $'\\'; touch x #'",
            "[[ -f x ]]",
            "a <<< b",
            "a |& b",
            "function f { a; }",
            "x=(a)",
            "x+=a",
            "a {b,c}",
            "a >&b",
            "a <(b)",
            "time a",
            "((a))",
            "${x//a/b}",
            "!(a)",
        ] {
            assert!(!is_portable(line), "{line}");
        }
    }

    /// The plain lines are listed; all else may hide a command.
    #[test]
    fn only_what_is_listed_is_plain() {
        for line in [
            "",
            "ls",
            "A=1 B= touch x > y; $z",
            "a 'b; c' \"d $e f\" && g || h | i & j\nk",
            "make >>log 2>&1; echo x >&2 && ls",
            ">/dev/null ls",
            "[ -f \"$1\" ] && rm -f \"$x.bak\"",
            "find . -name \\*.rs -exec grep -l 'a(b)' {} +",
            "echo done a#b \"it's \\\"so\\\"\" é",
            "echo $? $# $@ \"$*\"",
        ] {
            assert!(is_plain(line), "{line}");
        }
        for line in [
            "<<<x touch PWNED",
            "</dev/null>/dev/null touch PWNED",
            "cat <<E\nE\ntouch PWNED",
            "function f { touch PWNED; }; f",
            "f() { touch PWNED; }; f",
            "{ touch PWNED; }",
            "{x}>/dev/null touch PWNED",
            "(touch PWNED)",
            "if false; then :; elif touch PWNED; then :; fi",
            "elif touch PWNED",
            "A=1 if touch PWNED",
            ">x elif touch PWNED",
            "time -p if touch PWNED; then :; fi",
            "! touch PWNED",
            "coproc X { touch PWNED; }; wait",
            "B+=2 touch PWNED",
            "B[0]=2 touch PWNED",
            "'B'=2 touch PWNED",
            "$x=2 touch PWNED",
            "echo $'\\''; touch PWNED #'",
            "echo $\"hi\"",
            "echo \"$(touch PWNED)\"",
            "echo `touch PWNED`",
            "echo \"`touch PWNED`\"",
            "x=\"a[\\$(touch PWNED)]\"; echo $((x))",
            "echo ${x@P}",
            "echo \"$\"",
            "((a[x]))",
            "[[ -v x ]]",
            "# x",
            "ls; # x",
            "ls &>x",
            "ls >&$x",
            "ls >&22x",
            "ls >| x",
            "ls >>>x",
            "ls > ",
            "env -u '>' touch PWNED",
            "find . -name \">\" -exec touch PWNED +",
            "env -u ''\\> touch PWNED",
            "ls 10>x",
            "ls ''2>x",
            "to\\\nuch PWNED",
            "ls\u{a0}x",
            "ls\rx",
            "echo '\u{1}'",
            "echo 'x",
            "echo \"x",
            "echo x\\",
            "echo \"\\x\"",
        ] {
            assert!(!is_plain(line), "{line}");
        }
    }
}
