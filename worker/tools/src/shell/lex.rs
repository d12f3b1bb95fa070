//! bash's words, read a second time.
//!
//! The grammar says where a word's substitutions are; this says what the word is, by bash's own rules of quoting. Each
//! checks the other: a substitution that only one of them sees, or a word that they end in different places, is not
//! understood. The grammar alone cuts `'a'$HOME` in two, and does not see backquotes in a here-document.

use callgate_policy::shell::{Piece, Unknown, Word};

/// A substitution that the grammar found: `${…}`, `$(…)`, `$((…))`, backquotes, `<(…)`.
pub(super) struct FoundSubstitution {
    pub(super) start: usize,
    pub(super) end: usize,
    /// In double quotes or not, as is to be seen here.
    pub(super) piece: fn(quoted: bool, text: &str) -> Result<Piece, String>,
}

/// Where to stop.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// At the first unquoted blank or operator.
    WordEnd,
    /// At this place: the text of a here-document, in which quotes are text.
    Here(usize),
}

pub(super) fn unknown(why: impl Into<String>, at: usize) -> Unknown {
    Unknown { why: why.into(), at }
}

/// True if an unquoted byte ends a word.
pub(super) fn ends_word(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'|' | b'&' | b';' | b'(' | b')' | b'<' | b'>')
}

/// Reads the word that begins at `at`; the word, and where it ends. `found` is in the order of the text.
pub(super) fn word(src: &str, at: usize, until: Until, found: &[FoundSubstitution]) -> Result<(Word, usize), Unknown> {
    let mut lexer =
        Lexer { src, bytes: src.as_bytes(), at, found, pieces: Vec::new(), text: Vec::new(), brace: Brace::None };
    let body = matches!(until, Until::Here(_));
    lexer.skip_before(at);
    if !body && lexer.peek(0) == Some(b'#') {
        return Err(unknown("a word that begins with #", at));
    }
    if !body && lexer.peek(0) == Some(b'~') {
        lexer.tilde();
    }
    lexer.run(until)?;
    let end = lexer.at;
    // What the grammar found before the end must have been met.
    if lexer.found.first().is_some_and(|next| next.start < end) {
        return Err(unknown("a substitution within quotes", at));
    }
    lexer.close_braces();
    lexer.flush()?;
    Ok((lexer.finish(), end))
}

#[derive(PartialEq, Eq)]
enum Brace {
    None,
    /// There is an unquoted `{`.
    Open,
    /// And something after it that makes it an expansion.
    Expands,
}

struct Lexer<'a> {
    src: &'a str,
    bytes: &'a [u8],
    at: usize,
    found: &'a [FoundSubstitution],
    pieces: Vec<Piece>,
    text: Vec<u8>,
    brace: Brace,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at + ahead).copied()
    }

    fn skip_before(&mut self, at: usize) {
        while let Some((first, rest)) = self.found.split_first()
            && first.start < at
        {
            self.found = rest;
        }
    }

    fn flush(&mut self) -> Result<(), Unknown> {
        if !self.text.is_empty() {
            let text = std::mem::take(&mut self.text);
            let text = String::from_utf8(text).map_err(|_not_text| unknown("bytes that are not text", self.at))?;
            self.pieces.push(Piece::Text(text));
        }
        Ok(())
    }

    /// Two texts beside each other are one.
    fn merged(self) -> Vec<Piece> {
        let mut merged: Vec<Piece> = Vec::new();
        for piece in self.pieces {
            match (merged.last_mut(), piece) {
                (Some(Piece::Text(before)), Piece::Text(text)) => before.push_str(&text),
                (_, piece) => merged.push(piece),
            }
        }
        merged
    }

    fn piece(&mut self, piece: Piece) -> Result<(), Unknown> {
        self.flush()?;
        self.pieces.push(piece);
        Ok(())
    }

    fn finish(self) -> Word {
        let mut pieces = self.merged();
        if pieces.is_empty() {
            return Word::Static(String::new());
        }
        if let [Piece::Text(text)] = pieces.as_mut_slice() {
            return Word::Static(std::mem::take(text));
        }
        Word::Dynamic(pieces)
    }

    fn close_braces(&mut self) {
        if self.brace == Brace::Expands {
            // Whatever stood before it is in each word, but it is known only up to there.
            let known = self.text.iter().position(|byte| *byte == b'{');
            if self.pieces.is_empty()
                && let Some(known) = known
            {
                self.text.truncate(known);
                let head = String::from_utf8_lossy(&std::mem::take(&mut self.text)).into_owned();
                if !head.is_empty() {
                    self.pieces.push(Piece::Text(head));
                }
                self.pieces.push(Piece::Braces);
            } else {
                // Which of them a text belongs to is not told apart.
                self.text.clear();
                self.pieces.retain(|piece| !matches!(piece, Piece::Text(_)));
                self.pieces.insert(0, Piece::Braces);
            }
        }
    }

    fn tilde(&mut self) {
        let rest = &self.bytes[self.at + 1..];
        let name = rest.iter().take_while(|byte| !ends_word(**byte) && **byte != b'/').count();
        // Quotes keep it as it is; rare enough to be left open.
        self.pieces.push(if name == 0 { Piece::Home } else { Piece::Tilde });
        self.at += 1;
    }

    fn run(&mut self, until: Until) -> Result<(), Unknown> {
        loop {
            if until == Until::Here(self.at) {
                return Ok(());
            }
            let body = matches!(until, Until::Here(_));
            let Some(byte) = self.peek(0) else {
                return if body { Err(unknown("an open here-document", self.at)) } else { Ok(()) };
            };
            if self.substitution(body)? {
                continue;
            }
            match byte {
                b'\\' if body => self.escape_in_double()?,
                _ if body => self.push(byte),
                b'\\' => match self.peek(1) {
                    // A word goes on behind it in bash, and does not for the grammar.
                    Some(b'\n') => return Err(unknown("a line that goes on within a word", self.at)),
                    Some(escaped) => {
                        self.text.push(escaped);
                        self.at += 2;
                    }
                    None => return Err(unknown("a backslash at the end", self.at)),
                },
                b'\'' => self.single()?,
                b'"' => {
                    self.at += 1;
                    self.double()?;
                }
                b'$' if self.peek(1) == Some(b'\'') => {
                    self.at += 2;
                    self.ansi_c()?;
                }
                // bash evaluates the translation, which is in a file that TEXTDOMAINDIR names.
                b'$' if self.peek(1) == Some(b'"') => return Err(unknown("a text that is translated", self.at)),
                // bash expands it there too, where the word looks like an assignment.
                b'~' if matches!(self.at.checked_sub(1).map(|before| self.bytes[before]), Some(b'=' | b':')) => {
                    self.at += 1;
                    self.piece(Piece::Tilde)?;
                }
                b'*' | b'?' | b'[' => {
                    self.at += 1;
                    self.piece(Piece::Glob(char::from(byte)))?;
                }
                b'{' | b',' | b'.' | b'}' => {
                    match (byte, &self.brace) {
                        (b'{', Brace::None) => self.brace = Brace::Open,
                        (b',', Brace::Open) => self.brace = Brace::Expands,
                        (b'.', Brace::Open) if self.peek(1) == Some(b'.') => self.brace = Brace::Expands,
                        _ => {}
                    }
                    self.push(byte);
                }
                _ if ends_word(byte) => return Ok(()),
                _ => self.push(byte),
            }
        }
    }

    fn push(&mut self, byte: u8) {
        self.text.push(byte);
        self.at += 1;
    }

    /// A substitution that begins here, if one does.
    fn substitution(&mut self, quoted: bool) -> Result<bool, Unknown> {
        if let Some((first, rest)) = self.found.split_first()
            && first.start == self.at
        {
            let text = self.src.get(first.start..first.end).unwrap_or_default();
            let piece = (first.piece)(quoted, text).map_err(|why| unknown(why, first.start))?;
            self.piece(piece)?;
            (self.at, self.found) = (first.end, rest);
            return Ok(true);
        }
        match (self.peek(0), self.peek(1)) {
            (Some(b'`'), _) | (Some(b'$'), Some(b'(' | b'{' | b'[')) => {
                Err(unknown("a substitution that the grammar does not see", self.at))
            }
            (Some(b'<' | b'>'), Some(b'(')) if !quoted => {
                Err(unknown("a process substitution that the grammar does not see", self.at))
            }
            (Some(b'$'), Some(next)) => {
                let rest = &self.bytes[self.at + 1..];
                let length = match next {
                    b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                        rest.iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count()
                    }
                    b'0'..=b'9' | b'@' | b'*' | b'#' | b'?' | b'$' | b'!' | b'-' => 1,
                    _ => return Ok(false),
                };
                let name = String::from_utf8_lossy(&rest[..length]).into_owned();
                self.at += 1 + length;
                self.piece(Piece::Variable { name, quoted, changed: false })?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn single(&mut self) -> Result<(), Unknown> {
        let rest = &self.bytes[self.at + 1..];
        let Some(length) = rest.iter().position(|byte| *byte == b'\'') else {
            return Err(unknown("an open quote", self.at));
        };
        let end = self.at + 1 + length;
        if self.found.first().is_some_and(|next| next.start <= end) {
            return Err(unknown("a substitution within quotes", self.at));
        }
        self.text.extend_from_slice(&rest[..length]);
        self.empty_text()?;
        self.at = end + 1;
        Ok(())
    }

    /// Quotes make a word of nothing.
    fn empty_text(&mut self) -> Result<(), Unknown> {
        if self.text.is_empty() { self.piece(Piece::Text(String::new())) } else { Ok(()) }
    }

    fn double(&mut self) -> Result<(), Unknown> {
        let start = self.at;
        loop {
            let Some(byte) = self.peek(0) else { return Err(unknown("an open quote", start)) };
            if self.substitution(true)? {
                continue;
            }
            match byte {
                b'"' => {
                    self.at += 1;
                    return Ok(());
                }
                b'\\' => self.escape_in_double()?,
                _ => self.push(byte),
            }
        }
    }

    fn escape_in_double(&mut self) -> Result<(), Unknown> {
        match self.peek(1) {
            Some(escaped @ (b'$' | b'`' | b'"' | b'\\')) => self.text.push(escaped),
            // The line goes on: in a here-document its end is then looked for elsewhere.
            Some(b'\n') => {}
            Some(other) => self.text.extend([b'\\', other]),
            None => return Err(unknown("a backslash at the end", self.at)),
        }
        self.at += 2;
        Ok(())
    }

    fn ansi_c(&mut self) -> Result<(), Unknown> {
        let start = self.at;
        loop {
            let Some(byte) = self.peek(0) else { return Err(unknown("an open quote", start)) };
            if byte == b'\'' {
                self.at += 1;
                if self.found.first().is_some_and(|next| next.start < self.at) {
                    return Err(unknown("a substitution within quotes", start));
                }
                return Ok(());
            }
            if byte != b'\\' {
                self.push(byte);
                continue;
            }
            let Some(escaped) = self.peek(1) else { return Err(unknown("an open quote", start)) };
            self.at += 2;
            match escaped {
                b'n' => self.text.push(b'\n'),
                b't' => self.text.push(b'\t'),
                b'r' => self.text.push(b'\r'),
                b'a' => self.text.push(7),
                b'b' => self.text.push(8),
                b'e' | b'E' => self.text.push(27),
                b'f' => self.text.push(12),
                b'v' => self.text.push(11),
                b'\\' | b'\'' | b'"' | b'?' => self.text.push(escaped),
                b'x' => self.number(16, 2, 0)?,
                b'u' => self.number(16, 4, 0)?,
                b'U' => self.number(16, 8, 0)?,
                b'0'..=b'7' => self.number(8, 2, u32::from(escaped - b'0'))?,
                // `\cX`, and what bash keeps as it is.
                _ => return Err(unknown("an escape that is not understood", self.at - 2)),
            }
        }
    }

    /// Up to `most` digits. A byte of 0 would end the word in bash, and one of more than 127 is half a character.
    fn number(&mut self, radix: u32, most: usize, first: u32) -> Result<(), Unknown> {
        let mut value = first;
        let mut digits = 0;
        while digits < most
            && let Some(digit) = self.peek(0).and_then(|byte| char::from(byte).to_digit(radix))
        {
            value = value.wrapping_mul(radix).wrapping_add(digit);
            digits += 1;
            self.at += 1;
        }
        match u8::try_from(value) {
            Ok(byte @ 1..=127) if digits > 0 || radix == 8 => {
                self.text.push(byte);
                Ok(())
            }
            _ => Err(unknown("an escape that is not understood", self.at)),
        }
    }
}
