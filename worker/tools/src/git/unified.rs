//! The lines in which two texts differ, as git prints them.

use std::ops::Range;

use gix::diff::blob::{Algorithm, Diff, InternedInput, Token, diff_with_slider_heuristics};

/// The most bytes that are shown of the line above a hunk that says where it is.
const FUNCTION_MAX: usize = 80;

/// Texts that are compared.
pub(super) struct ComparedTexts<'a> {
    input: InternedInput<&'a [u8]>,
    diff: Diff,
}

impl<'a> ComparedTexts<'a> {
    /// Compares line by line, by git's default algorithm.
    pub(super) fn new(old: &'a [u8], new: &'a [u8]) -> Self {
        let input = InternedInput::new(old, new);
        let diff = diff_with_slider_heuristics(Algorithm::Myers, &input);
        Self { input, diff }
    }

    /// How many lines were added.
    pub(super) fn added(&self) -> u32 {
        self.diff.count_additions()
    }

    /// How many lines were removed.
    pub(super) fn removed(&self) -> u32 {
        self.diff.count_removals()
    }

    /// How much of the longer text is in both, percent.
    pub(super) fn similarity(&self) -> usize {
        let size = |tokens: &[Token]| tokens.iter().map(|token| self.line(*token).len()).sum::<usize>();
        let longer = size(&self.input.before).max(size(&self.input.after)).max(1);
        let kept = (0_u32..).zip(&self.input.before).filter(|(at, _)| !self.diff.is_removed(*at));
        kept.map(|(_, token)| self.line(*token).len()).sum::<usize>() * 100 / longer
    }

    fn line(&self, token: Token) -> &'a [u8] {
        self.input.interner[token]
    }

    /// The hunks, with so many lines around each, one after the other.
    pub(super) fn hunks(&self, context: u32, mut add: impl FnMut(&[u8])) {
        let mut hunks = self.diff.hunks().peekable();
        let mut function = Function { looked: 0, line: None };
        while let Some(first) = hunks.next() {
            let mut group = vec![(first.before, first.after)];
            // Those that nothing stands between are one.
            while let Some(next) = hunks.next_if(|next| {
                let end = group.last().map_or(0, |(before, _)| before.end);
                next.before.start.saturating_sub(end) <= 2 * context
            }) {
                group.push((next.before, next.after));
            }
            add(&self.hunk(&group, context, &mut function));
        }
    }

    fn hunk(&self, group: &[(Range<u32>, Range<u32>)], context: u32, function: &mut Function<'a>) -> Vec<u8> {
        let (Some((first, first_new)), Some((last, _))) = (group.first(), group.last()) else { return Vec::new() };
        let before = &self.input.before;
        let lines = u32::try_from(before.len()).unwrap_or(u32::MAX);
        let above = context.min(first.start);
        let start = first.start - above;
        let end = last.end.saturating_add(context).min(lines);
        let mut body = Vec::new();
        let (mut at, mut old, mut new) = (start, 0, 0);
        let both = |body: &mut Vec<u8>, range: Range<u32>| {
            range.for_each(|line| self.put(body, b' ', before[index(line)]));
        };
        for (removed, added) in group {
            both(&mut body, at..removed.start);
            removed.clone().for_each(|line| self.put(&mut body, b'-', before[index(line)]));
            added.clone().for_each(|line| self.put(&mut body, b'+', self.input.after[index(line)]));
            old += removed.end - at;
            new += removed.start - at + (added.end - added.start);
            at = removed.end;
        }
        both(&mut body, at..end);
        old += end - at;
        new += end - at;
        let mut hunk = format!("@@ -{} +{} @@", span(start, old), span(first_new.start - above, new)).into_bytes();
        if let Some(line) = function.above(self, start) {
            hunk.push(b' ');
            hunk.extend_from_slice(line);
        }
        hunk.push(b'\n');
        hunk.extend(body);
        hunk
    }

    fn put(&self, body: &mut Vec<u8>, sign: u8, token: Token) {
        let line = self.line(token);
        body.push(sign);
        body.extend_from_slice(line);
        if !line.ends_with(b"\n") {
            body.extend_from_slice(b"\n\\ No newline at end of file\n");
        }
    }
}

fn index(line: u32) -> usize {
    usize::try_from(line).unwrap_or(usize::MAX)
}

/// Where a hunk is: its first line, counted from 1, and how many there are. Where there are none, the line before them.
fn span(start: u32, count: u32) -> String {
    match count {
        0 => format!("{start},0"),
        1 => format!("{}", start + 1),
        _ => format!("{},{count}", start + 1),
    }
}

/// The last line above a hunk that begins with a letter: mostly the function that it is in.
struct Function<'a> {
    /// Up to here, lines were looked at.
    looked: u32,
    line: Option<&'a [u8]>,
}

impl<'a> Function<'a> {
    fn above(&mut self, compared: &ComparedTexts<'a>, start: u32) -> Option<&'a [u8]> {
        let begins = |line: &[u8]| line.first().is_some_and(|c| c.is_ascii_alphabetic() || matches!(c, b'_' | b'$'));
        let lines = (self.looked..start).rev().map(|line| compared.line(compared.input.before[index(line)]));
        if let Some(line) = lines.into_iter().find(|line| begins(line)) {
            self.line = Some(line[..line.len().min(FUNCTION_MAX)].trim_ascii_end());
        }
        self.looked = start;
        self.line
    }
}
