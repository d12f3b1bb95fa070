//! Reads a patch: a unified diff over many files, plain or with git's extended headers.
//!
//! The rules are those of git-apply(1). Three are stricter, because a model wrote the text and nobody reads it: a hunk that
//! has more lines than its header counts is an error (git drops them), a file that is named twice is an error, and a path that
//! leads out of the workspace is never made to fit.
//!
//! The parser holds slices of the text, does one pass over it, and never recurses.

use std::borrow::Cow;

use super::error::PatchError;

/// Most files of one patch. Each changed file has a temporary file beside it until all are in place, and the broker holds that.
pub(super) const FILES_MAX: usize = 64;

/// One file of a patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FilePatch<'p> {
    pub(super) change: Change,
    /// The name before; for a file that is made, the name after.
    pub(super) old: Vec<u8>,
    /// The name after; for a file that is removed, the name before.
    pub(super) new: Vec<u8>,
    /// The mode after, if the patch says it.
    pub(super) executable: Option<bool>,
    pub(super) hunks: Vec<Hunk<'p>>,
}

/// Change of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Modify,
    Create,
    Delete,
    Rename,
    Copy,
}

impl Change {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Modify => "modified",
            Self::Create => "created",
            Self::Delete => "deleted",
            Self::Rename => "renamed",
            Self::Copy => "copied",
        }
    }
}

/// One piece of a file that changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hunk<'p> {
    /// The line of the patch that has its header, from 1.
    pub(super) at: usize,
    pub(super) old_start: usize,
    pub(super) old_count: usize,
    pub(super) new_start: usize,
    pub(super) new_count: usize,
    pub(super) lines: Vec<HunkLine<'p>>,
}

/// One line of a hunk, with its line end, unless the file has none there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HunkLine<'p> {
    pub(super) kind: LineKind,
    pub(super) text: &'p [u8],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineKind {
    Context,
    Removed,
    Added,
}

/// Reads a patch, which ends with a newline.
///
/// # Errors
/// [`PatchError`], with the line of the patch.
pub(super) fn parse(text: &[u8]) -> Result<Vec<FilePatch<'_>>, PatchError> {
    let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    let mut reader = PatchReader { lines, at: 0 };
    let mut files = Vec::new();
    while let Some(file) = reader.next_file()? {
        if files.len() == FILES_MAX {
            return Err(PatchError::TooMany { most: FILES_MAX });
        }
        files.push(file);
    }
    if files.is_empty() {
        let envelope = reader.lines.iter().any(|line| line.starts_with(b"*** Begin Patch"));
        let why = if envelope { "it has the form `*** Begin Patch`" } else { "no line starts the patch of a file" };
        return Err(PatchError::Syntax { line: 1, why });
    }
    refuse_twice(&files)?;
    Ok(files)
}

/// Each file is changed once. What is read may be read more often, as for copies.
fn refuse_twice(files: &[FilePatch<'_>]) -> Result<(), PatchError> {
    let mut written: Vec<&[u8]> = Vec::new();
    for file in files {
        let mut own: Vec<&[u8]> = vec![&file.new];
        // Two files may exchange their names, so the old one of a renaming may be the new one of another.
        if matches!(file.change, Change::Rename) && files.iter().all(|other| other.new != file.old) {
            own.push(&file.old);
        }
        for name in own {
            if written.contains(&name) {
                return Err(PatchError::Twice { name: lossy(name) });
            }
            written.push(name);
        }
    }
    Ok(())
}

/// A name as a message has it.
pub(super) fn lossy(name: &[u8]) -> String {
    String::from_utf8_lossy(name).escape_debug().to_string()
}

/// The name before and the name after; `None` for `/dev/null`, or for one that is not said.
type OldAndNew = (Option<Vec<u8>>, Option<Vec<u8>>);

struct PatchReader<'p> {
    lines: Vec<&'p [u8]>,
    at: usize,
}

/// Extended headers of git's.
#[derive(Default)]
struct Headers {
    /// From the line `diff --git`, where both names are the same.
    both: Option<Vec<u8>>,
    old_executable: Option<bool>,
    executable: Option<bool>,
    created: bool,
    deleted: bool,
    rename: OldAndNew,
    copy: OldAndNew,
}

impl<'p> PatchReader<'p> {
    fn peek(&self) -> Option<&'p [u8]> {
        self.lines.get(self.at).copied()
    }

    fn peek_after(&self, lines: usize) -> &'p [u8] {
        self.lines.get(self.at + lines).copied().unwrap_or_default()
    }

    /// The line that is read now, from 1.
    fn number(&self) -> usize {
        self.at + 1
    }

    fn wrong<T>(&self, why: &'static str) -> Result<T, PatchError> {
        Err(PatchError::Syntax { line: self.number(), why })
    }

    /// Text before, between and behind the patches of files says nothing, as in a mail.
    fn next_file(&mut self) -> Result<Option<FilePatch<'p>>, PatchError> {
        while let Some(line) = self.peek() {
            if let Some(names) = line.strip_prefix(b"diff --git ") {
                return self.git_file(names).map(Some);
            }
            if line.starts_with(b"--- ") && self.peek_after(1).starts_with(b"+++ ") {
                return self.plain_file().map(Some);
            }
            if line.starts_with(b"Binary files ") && trimmed(line).ends_with(b" differ") {
                return Err(PatchError::Unsupported { line: self.number(), what: "a binary file" });
            }
            if line.starts_with(b"@@ -") {
                return self.wrong("a hunk without the name of a file before it");
            }
            self.at += 1;
        }
        Ok(None)
    }

    fn plain_file(&mut self) -> Result<FilePatch<'p>, PatchError> {
        let (old, new) = self.names()?;
        let (change, old, new) = match (old, new) {
            (Some(old), Some(new)) => {
                let (old, new) = stripped(&old, &new);
                if old != new {
                    return self.wrong("`---` and `+++` name different files, and no header says that one is renamed");
                }
                (Change::Modify, old, new)
            }
            (None, Some(new)) => {
                let new = without(&new, b"b/");
                (Change::Create, new.clone(), new)
            }
            (Some(old), None) => {
                let old = without(&old, b"a/");
                (Change::Delete, old.clone(), old)
            }
            (None, None) => return self.wrong("both names are /dev/null"),
        };
        let (old, new) = (self.inside(old)?, self.inside(new)?);
        let hunks = self.hunks()?;
        if hunks.is_empty() {
            return self.wrong("a file without hunks");
        }
        self.whole(FilePatch { change, old, new, executable: None, hunks })
    }

    fn git_file(&mut self, names: &[u8]) -> Result<FilePatch<'p>, PatchError> {
        let mut headers = Headers { both: same_name(trimmed(names)), ..Headers::default() };
        self.at += 1;
        while let Some(line) = self.peek()
            && self.header(trimmed(line), &mut headers)?
        {
            self.at += 1;
        }
        let named = match self.peek() {
            Some(line) if line.starts_with(b"--- ") && self.peek_after(1).starts_with(b"+++ ") => Some(self.names()?),
            Some(line) if line.starts_with(b"GIT binary patch") || line.starts_with(b"Binary files ") => {
                return Err(PatchError::Unsupported { line: self.number(), what: "a binary file" });
            }
            Some(_) | None => None,
        };
        let (change, old, new) = self.git_names(&headers, named)?;
        let (old, new) = (self.inside(old)?, self.inside(new)?);
        let hunks = self.hunks()?;
        let changes_mode = headers.executable.is_some() && headers.executable != headers.old_executable;
        if hunks.is_empty() && change == Change::Modify && !changes_mode {
            return self.wrong("the patch of a file that changes nothing of it");
        }
        self.whole(FilePatch { change, old, new, executable: headers.executable, hunks })
    }

    /// Reads one of git's extended headers; false if it is none.
    fn header(&self, line: &[u8], headers: &mut Headers) -> Result<bool, PatchError> {
        let name = |text: &[u8]| match unquoted(text) {
            Some(name) => Ok(Some(name.into_owned())),
            None => Err(PatchError::Syntax {
                line: self.number(),
                why: "a quoted name that does not end or has a wrong escape",
            }),
        };
        let known: [(&[u8], u8); 13] = [
            (b"old mode ", b'o'),
            (b"new mode ", b'n'),
            (b"deleted file mode ", b'd'),
            (b"new file mode ", b'c'),
            (b"rename from ", b'r'),
            (b"rename old ", b'r'),
            (b"rename to ", b'R'),
            (b"rename new ", b'R'),
            (b"copy from ", b'y'),
            (b"copy to ", b'Y'),
            (b"similarity index ", b'-'),
            (b"dissimilarity index ", b'-'),
            (b"index ", b'-'),
        ];
        let found = known.iter().find_map(|(start, kind)| Some((*kind, line.strip_prefix(*start)?)));
        match found {
            Some((b'o', mode)) => headers.old_executable = Some(self.mode(mode)?),
            Some((b'n', mode)) => headers.executable = Some(self.mode(mode)?),
            Some((b'd', mode)) => {
                self.mode(mode)?;
                headers.deleted = true;
            }
            Some((b'c', mode)) => {
                headers.executable = Some(self.mode(mode)?);
                headers.created = true;
            }
            Some((b'r', text)) => headers.rename.0 = name(text)?,
            Some((b'R', text)) => headers.rename.1 = name(text)?,
            Some((b'y', text)) => headers.copy.0 = name(text)?,
            Some((b'Y', text)) => headers.copy.1 = name(text)?,
            Some((b'-', _)) => {}
            Some(_) | None => return Ok(false),
        }
        Ok(true)
    }

    /// True if a mode is an executable file's. Regular files have no other modes in git; links and submodules are not made.
    fn mode(&self, mode: &[u8]) -> Result<bool, PatchError> {
        let unsupported = |what| Err(PatchError::Unsupported { line: self.number(), what });
        match mode {
            b"100644" | b"100664" => Ok(false),
            b"100755" => Ok(true),
            b"120000" => unsupported("a symbolic link"),
            b"160000" => unsupported("a submodule"),
            _ => unsupported("a mode that is neither 100644 nor 100755"),
        }
    }

    fn git_names(&self, headers: &Headers, named: Option<OldAndNew>) -> Result<(Change, Vec<u8>, Vec<u8>), PatchError> {
        let kinds = [headers.created, headers.deleted, headers.rename.1.is_some(), headers.copy.1.is_some()];
        if kinds.iter().filter(|is| **is).count() > 1 {
            return self.wrong("headers that do not go together");
        }
        for (pair, change) in [(&headers.rename, Change::Rename), (&headers.copy, Change::Copy)] {
            match pair {
                (Some(from), Some(to)) => {
                    let is_consistent = match &named {
                        None => true,
                        Some((Some(old), Some(new))) => {
                            (without(old, b"a/") == *from || old == from) && (without(new, b"b/") == *to || new == to)
                        }
                        Some(_) => false,
                    };
                    if from == to || !is_consistent {
                        return self.wrong("headers that name different files");
                    }
                    return Ok((change, from.clone(), to.clone()));
                }
                (None, None) => {}
                _ => return self.wrong("a renaming or copy without both names"),
            }
        }
        let name = match (&headers.both, &named) {
            (Some(both), None) => both.clone(),
            (None, None) => return self.wrong("the line `diff --git` does not name one file, and nothing else does"),
            (both, Some(named)) => {
                let name = match named {
                    (Some(old), Some(new)) if !headers.created && !headers.deleted => {
                        let (old, new) = stripped(old, new);
                        if old != new {
                            return self.wrong("headers that name different files");
                        }
                        new
                    }
                    (None, Some(new)) if headers.created => without(new, b"b/"),
                    (Some(old), None) if headers.deleted => without(old, b"a/"),
                    _ => return self.wrong("headers that do not go together with /dev/null"),
                };
                // A person who reads one of the lines knows what is changed.
                if both.as_ref().is_none_or(|both| *both != name) {
                    return self.wrong("headers that name different files");
                }
                name
            }
        };
        let change = match (headers.created, headers.deleted) {
            (true, _) => Change::Create,
            (_, true) => Change::Delete,
            (false, false) => Change::Modify,
        };
        Ok((change, name.clone(), name))
    }

    /// The names in the lines `---` and `+++`, which come now; `None` for `/dev/null`.
    fn names(&mut self) -> Result<OldAndNew, PatchError> {
        let old = self.name_in(b"--- ")?;
        let new = self.name_in(b"+++ ")?;
        Ok((old, new))
    }

    fn name_in(&mut self, start: &[u8]) -> Result<Option<Vec<u8>>, PatchError> {
        let line = trimmed(self.peek().unwrap_or_default()).strip_prefix(start).unwrap_or_default();
        let name = if line.starts_with(b"\"") {
            let Some((name, _)) = quoted(line) else {
                return self.wrong("a quoted name that does not end or has a wrong escape");
            };
            name
        } else {
            // diff(1) writes the time behind a tab, and git a tab behind a name with blanks.
            line.split(|byte| *byte == b'\t').next().unwrap_or_default().to_vec()
        };
        self.at += 1;
        Ok((name != b"/dev/null").then_some(name))
    }

    /// A name below the workspace, as it is spelt: nothing is made of one that is not.
    fn inside(&self, name: Vec<u8>) -> Result<Vec<u8>, PatchError> {
        let bad = |why| Err(PatchError::Name { line: self.number(), name: lossy(&name), why });
        if name.is_empty() {
            return bad("it is empty");
        }
        if name.starts_with(b"/") {
            return bad("it is absolute, and names in a patch are relative to the workspace");
        }
        if name.contains(&0) {
            return bad("it contains a NUL");
        }
        match name.split(|byte| *byte == b'/').find(|part| matches!(*part, b"" | b"." | b"..")) {
            Some(b"..") => bad("`..` may lead out of the workspace"),
            Some(_) => bad("a part of it is empty or `.`"),
            None => Ok(name),
        }
    }

    fn hunks(&mut self) -> Result<Vec<Hunk<'p>>, PatchError> {
        let mut hunks = Vec::new();
        while let Some(line) = self.peek().filter(|line| line.starts_with(b"@@ -")) {
            hunks.push(self.hunk(line)?);
        }
        // git ignores what comes here, and with it the end of a hunk that was counted wrongly.
        if let Some(line) = self.peek()
            && !hunks.is_empty()
            && matches!(line.first(), Some(b'+' | b'-' | b' '))
            && trimmed(line) != b"--"
            && trimmed(line) != b"-- "
            && !(line.starts_with(b"--- ") && self.peek_after(1).starts_with(b"+++ "))
        {
            return self.wrong("the hunk before has more lines than its header counts");
        }
        Ok(hunks)
    }

    fn hunk(&mut self, header: &'p [u8]) -> Result<Hunk<'p>, PatchError> {
        let at = self.number();
        let Some([(old_start, old_count), (new_start, new_count)]) = ranges(header) else {
            return self.wrong("a hunk's header that is not `@@ -LINE,COUNT +LINE,COUNT @@`");
        };
        self.at += 1;
        let (mut old, mut new) = (old_count, new_count);
        let mut lines: Vec<HunkLine<'p>> = Vec::new();
        let mut changes = false;
        while old > 0 || new > 0 {
            let Some(line) = self.peek() else {
                return self.wrong("the patch ends in the middle of a hunk, or its header counts too many lines");
            };
            let (kind, text) =
                match line.first() {
                    Some(b' ') => (LineKind::Context, &line[1..]),
                    // A blank at the end of a line is easily lost.
                    Some(b'\n') => (LineKind::Context, line),
                    Some(b'\r') if line == b"\r\n" => (LineKind::Context, line),
                    Some(b'-') => (LineKind::Removed, &line[1..]),
                    Some(b'+') => (LineKind::Added, &line[1..]),
                    Some(b'\\') => {
                        self.no_newline(&mut lines);
                        continue;
                    }
                    _ => return self.wrong(
                        "a line of a hunk that starts with none of ` `, `+`, `-`; or its header counts too many lines",
                    ),
                };
            let (in_old, in_new) = (kind != LineKind::Added, kind != LineKind::Removed);
            if (in_old && old == 0) || (in_new && new == 0) {
                return self.wrong("the hunk has other lines than its header counts");
            }
            (old, new) = (old - usize::from(in_old), new - usize::from(in_new));
            changes |= kind != LineKind::Context;
            lines.push(HunkLine { kind, text });
            self.at += 1;
        }
        if self.peek().is_some_and(|line| line.starts_with(b"\\")) {
            self.no_newline(&mut lines);
        }
        if !changes {
            return Err(PatchError::Syntax { line: at, why: "a hunk that changes nothing" });
        }
        Ok(Hunk { at, old_start, old_count, new_start, new_count, lines })
    }

    /// `\ No newline at end of file`: the line before has none.
    fn no_newline(&mut self, lines: &mut [HunkLine<'p>]) {
        if let Some(last) = lines.last_mut() {
            last.text = last.text.strip_suffix(b"\n").unwrap_or(last.text);
        }
        self.at += 1;
    }

    /// Refuses what does not go together with its hunks.
    fn whole(&self, file: FilePatch<'p>) -> Result<FilePatch<'p>, PatchError> {
        match file.change {
            Change::Create if file.hunks.len() > 1 || file.hunks.iter().any(|hunk| hunk.old_count > 0) => {
                self.wrong("a new file that depends on what it held before")
            }
            Change::Delete if file.hunks.len() > 1 || file.hunks.iter().any(|hunk| hunk.new_count > 0) => {
                self.wrong("a file that is removed and still holds something")
            }
            Change::Modify | Change::Create | Change::Delete | Change::Rename | Change::Copy => Ok(file),
        }
    }
}

/// Without the end of the line.
fn trimmed(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn without(name: &[u8], prefix: &[u8]) -> Vec<u8> {
    name.strip_prefix(prefix).unwrap_or(name).to_vec()
}

/// Without git's `a/` and `b/`, if they are there.
fn stripped(old: &[u8], new: &[u8]) -> (Vec<u8>, Vec<u8>) {
    match (old.strip_prefix(b"a/"), new.strip_prefix(b"b/")) {
        (Some(old), Some(new)) => (old.to_vec(), new.to_vec()),
        _ => (old.to_vec(), new.to_vec()),
    }
}

/// The two names of a line `diff --git`, if they are the same one.
fn same_name(names: &[u8]) -> Option<Vec<u8>> {
    let one = |old: &[u8], new: &[u8]| {
        let (old, new) = stripped(old, new);
        (old == new).then_some(new)
    };
    if names.starts_with(b"\"") {
        let (old, rest) = quoted(names)?;
        let new = unquoted(rest.strip_prefix(b" ")?)?;
        return one(&old, &new);
    }
    if names.ends_with(b"\"") {
        let at = names.windows(2).position(|pair| pair == b" \"")?;
        return one(&names[..at], &unquoted(&names[at + 1..])?);
    }
    // Blanks are not quoted. Both have the same length, so that the middle is known.
    let middle = names.len() / 2;
    (names.get(middle) == Some(&b' ')).then(|| one(&names[..middle], &names[middle + 1..])).flatten()
}

/// A name that may be in quotes.
fn unquoted(text: &[u8]) -> Option<Cow<'_, [u8]>> {
    if !text.starts_with(b"\"") {
        return Some(Cow::Borrowed(text));
    }
    let (name, rest) = quoted(text)?;
    rest.is_empty().then_some(Cow::Owned(name))
}

/// A name in quotes as C writes them, and what follows.
fn quoted(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut name = Vec::new();
    let mut rest = text.strip_prefix(b"\"")?;
    loop {
        let (byte, after) = rest.split_first()?;
        rest = after;
        match byte {
            b'"' => return Some((name, rest)),
            b'\\' => {
                let (escape, after) = rest.split_first()?;
                rest = after;
                name.push(match escape {
                    b'a' => 7,
                    b'b' => 8,
                    b't' => b'\t',
                    b'n' => b'\n',
                    b'v' => 11,
                    b'f' => 12,
                    b'r' => b'\r',
                    b'"' | b'\\' => *escape,
                    b'0'..=b'3' => {
                        let [second @ b'0'..=b'7', third @ b'0'..=b'7', ..] = rest else { return None };
                        let value = (escape - b'0') * 64 + (second - b'0') * 8 + (third - b'0');
                        rest = &rest[2..];
                        value
                    }
                    _ => return None,
                });
            }
            other => name.push(*other),
        }
    }
}

/// The lines and counts of `@@ -1,2 +3,4 @@`.
fn ranges(header: &[u8]) -> Option<[(usize, usize); 2]> {
    let (old, rest) = range(header.strip_prefix(b"@@ -")?)?;
    let (new, rest) = range(rest.strip_prefix(b" +")?)?;
    rest.starts_with(b" @@").then_some([old, new])
}

fn range(text: &[u8]) -> Option<((usize, usize), &[u8])> {
    let (start, rest) = number(text)?;
    match rest.strip_prefix(b",") {
        Some(rest) => number(rest).map(|(count, rest)| ((start, count), rest)),
        None => Some(((start, 1), rest)),
    }
}

/// At most nine digits: no file has more lines than that.
fn number(text: &[u8]) -> Option<(usize, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = text.split_at(digits);
    let number = std::str::from_utf8(number).ok().filter(|number| number.len() <= 9)?;
    Some((number.parse().ok()?, rest))
}
