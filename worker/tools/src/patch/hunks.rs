//! Puts hunks into the text of a file.
//!
//! Without fuzz the rules are git-apply's: all context has to be there, to the byte; of several places the one nearest to the
//! line that the hunk names counts; a hunk of the first line begins the file, and one without context behind it ends it; and
//! what a hunk has put there, no other hunk changes.
//!
//! With fuzz, a hunk that fits nowhere may leave out lines of context, from both ends, as patch(1) does. Then it has to fit in
//! exactly one place. patch(1) takes the nearest, and a model that counts lines badly would change the wrong one.

use std::borrow::Cow;

use super::error::Misfit;
use super::parse::{Hunk, HunkLine, LineKind};

/// Most comparisons of lines for one patch: repeated lines can cost any time.
const COMPARISONS: usize = 200_000_000;
/// Most lines of a file: each takes several words of memory.
pub(super) const LINES_MAX: usize = 2_000_000;
/// The longest part of a line that a message shows, characters.
const SHOWN: usize = 80;

/// Result for a file.
#[derive(Debug)]
pub(super) struct Applied {
    pub(super) content: Vec<u8>,
    /// How far hunks were from the lines that they name, where they were.
    pub(super) moved: Vec<(usize, i64)>,
    /// How many lines of context were left out at most.
    pub(super) fuzz: usize,
    pub(super) added: usize,
    pub(super) removed: usize,
}

/// Puts all hunks in. The number of the hunk that does not fit, from 0, and why.
pub(super) fn apply(content: &[u8], hunks: &[Hunk<'_>], fuzz: usize) -> Result<Applied, (usize, Misfit)> {
    let mut image = Image::of(content);
    let mut applied = Applied { content: Vec::new(), moved: Vec::new(), fuzz: 0, added: 0, removed: 0 };
    for (number, hunk) in hunks.iter().enumerate() {
        let line_ends = image.line_ends(hunk).filter(|_| fuzz > 0);
        let placed = match (image.put(hunk, fuzz, LineEnds::Kept), line_ends) {
            (Err(_), Some(line_ends)) => image.put(hunk, fuzz, line_ends),
            (placed, _) => placed,
        };
        let (moved, used) = placed.map_err(|why| (number, why))?;
        if moved != 0 {
            applied.moved.push((number, moved));
        }
        applied.fuzz = applied.fuzz.max(used);
        applied.added += hunk.lines.iter().filter(|line| line.kind == LineKind::Added).count();
        applied.removed += hunk.lines.iter().filter(|line| line.kind == LineKind::Removed).count();
    }
    applied.content = image.lines.into_iter().fold(Vec::with_capacity(content.len()), |mut content, (line, _)| {
        content.extend_from_slice(&line);
        content
    });
    Ok(applied)
}

/// Meaning of a hunk's line ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineEnds {
    Kept,
    /// The hunk has `\n`, and all of the file has `\r\n`.
    ToCrLf,
    /// The other way round.
    ToLf,
}

impl LineEnds {
    fn of<'t>(self, text: &'t [u8]) -> Cow<'t, [u8]> {
        match (self, text.strip_suffix(b"\n")) {
            (Self::ToCrLf, Some(line)) => Cow::Owned([line, b"\r\n"].concat()),
            (Self::ToLf, Some(line)) => Cow::Owned([line.strip_suffix(b"\r").unwrap_or(line), b"\n"].concat()),
            (Self::Kept, _) | (_, None) => Cow::Borrowed(text),
        }
    }
}

/// The lines of a file, and whether a hunk has put them there.
struct Image<'c> {
    lines: Vec<(Cow<'c, [u8]>, bool)>,
    comparisons: usize,
    is_crlf: bool,
    is_lf: bool,
}

/// A hunk's lines in order to be put somewhere.
struct HunkSide<'h> {
    before: Vec<Cow<'h, [u8]>>,
    after: Vec<Cow<'h, [u8]>>,
    /// How many lines of context are at the beginning and at the end.
    leading: usize,
    trailing: usize,
}

impl<'c> Image<'c> {
    fn of(content: &'c [u8]) -> Self {
        let lines: Vec<(Cow<'c, [u8]>, bool)> =
            content.split_inclusive(|byte| *byte == b'\n').map(|line| (Cow::Borrowed(line), false)).collect();
        let crlf = lines.iter().filter(|(line, _)| line.ends_with(b"\r\n")).count();
        let lf = lines.iter().filter(|(line, _)| line.ends_with(b"\n")).count();
        Self { lines, comparisons: COMPARISONS, is_crlf: crlf > 0 && crlf == lf, is_lf: lf > 0 && crlf == 0 }
    }

    /// Meaning of a hunk's line ends, if the file consistently has others.
    fn line_ends(&self, hunk: &Hunk<'_>) -> Option<LineEnds> {
        let mut ended = hunk.lines.iter().filter(|line| line.text.ends_with(b"\n"));
        let is_crlf = |line: &HunkLine<'_>| line.text.ends_with(b"\r\n");
        if self.is_crlf && !ended.any(is_crlf) {
            return Some(LineEnds::ToCrLf);
        }
        (self.is_lf && ended.all(is_crlf)).then_some(LineEnds::ToLf)
    }

    /// Puts one hunk in. How far from its line that was, and how much context was left out.
    fn put<'h>(&mut self, hunk: &Hunk<'h>, fuzz: usize, line_ends: LineEnds) -> Result<(i64, usize), Misfit>
    where
        'h: 'c,
    {
        let side = HunkSide::of(hunk, line_ends);
        let wanted = hunk.new_start.saturating_sub(1);
        let (place, dropped) = self.find(hunk, &side, wanted, fuzz)?;
        let HunkSide { before, after, .. } = &side;
        let (from, to) = (dropped.0, before.len() - dropped.1);
        let lines: Vec<_> = after[dropped.0..after.len() - dropped.1].iter().map(|line| (line.clone(), true)).collect();
        let end = place + (to - from);
        let ends_within = |line: &(Cow<'_, [u8]>, bool)| !line.0.ends_with(b"\n");
        let goes_on = end < self.lines.len();
        let (last, others) = lines.split_last().map_or((None, &lines[..]), |(last, others)| (Some(last), others));
        let joins = others.iter().any(ends_within)
            || (goes_on && last.is_some_and(ends_within))
            || (!lines.is_empty() && place > 0 && ends_within(&self.lines[place - 1]));
        if joins {
            return Err(Misfit::NoNewline);
        }
        self.lines.splice(place..end, lines);
        let signed = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        Ok((signed(place) - signed(wanted + dropped.0), dropped.0.max(dropped.1)))
    }

    /// Where it fits, and how much context was left out at both ends.
    fn find(
        &mut self,
        hunk: &Hunk<'_>,
        side: &HunkSide<'_>,
        wanted: usize,
        fuzz: usize,
    ) -> Result<(usize, (usize, usize)), Misfit> {
        let HunkSide { before, leading, trailing, .. } = side;
        if before.is_empty() && hunk.old_start != self.lines.len() && !(hunk.old_start == 0 && self.lines.is_empty()) {
            return Err(Misfit::NoContext);
        }
        let (begins, ends) = (hunk.old_start <= 1 && !before.is_empty(), *trailing == 0);
        let anchored = match (begins, ends) {
            (true, _) => self.fits(before, 0)?.then_some(0).filter(|_| !ends || before.len() == self.lines.len()),
            (false, true) => match self.lines.len().checked_sub(before.len()) {
                Some(place) => self.fits(before, place)?.then_some(place),
                None => None,
            },
            (false, false) => self.nearest(before, wanted)?,
        };
        if let Some(place) = anchored {
            return Ok((place, (0, 0)));
        }
        for left_out in 0..=fuzz.min(*leading.max(trailing)) {
            if fuzz == 0 {
                break;
            }
            let dropped = (left_out.min(*leading), left_out.min(*trailing));
            let rest = &before[dropped.0..before.len() - dropped.1];
            if rest.iter().all(|line| line.trim_ascii().is_empty()) {
                break;
            }
            match self.places(rest)?.as_slice() {
                [] => {}
                [place] => return Ok((*place, dropped)),
                several => {
                    let lines = several.iter().map(|place| *place as u64 + 1).collect();
                    return Err(Misfit::Several { lines });
                }
            }
        }
        Err(self.difference(before, if begins { 0 } else { wanted }))
    }

    /// True if these lines are there, and no hunk has put them there.
    fn fits(&mut self, lines: &[Cow<'_, [u8]>], place: usize) -> Result<bool, Misfit> {
        let Some(there) = self.lines.get(place..place + lines.len()) else { return Ok(false) };
        let same = there.iter().zip(lines).take_while(|((there, patched), line)| !patched && there == *line).count();
        self.comparisons = self.comparisons.checked_sub(same + 1).ok_or(Misfit::TooLong)?;
        Ok(same == lines.len())
    }

    /// The place nearest to the one wanted; of two equally near, the later.
    fn nearest(&mut self, lines: &[Cow<'_, [u8]>], wanted: usize) -> Result<Option<usize>, Misfit> {
        let Some(last) = self.lines.len().checked_sub(lines.len()) else { return Ok(None) };
        let wanted = wanted.min(self.lines.len());
        for distance in 0..=self.lines.len() {
            let later = Some(wanted + distance).filter(|place| *place <= last);
            let earlier = wanted.checked_sub(distance).filter(|place| *place <= last && distance > 0);
            for place in [later, earlier].into_iter().flatten() {
                if self.fits(lines, place)? {
                    return Ok(Some(place));
                }
            }
        }
        Ok(None)
    }

    /// The first few places where these lines are.
    fn places(&mut self, lines: &[Cow<'_, [u8]>]) -> Result<Vec<usize>, Misfit> {
        const FEW: usize = 5;
        let mut places = Vec::new();
        let Some(last) = self.lines.len().checked_sub(lines.len()) else { return Ok(places) };
        for place in 0..=last {
            if self.fits(lines, place)? {
                places.push(place);
                if places.len() == FEW {
                    break;
                }
            }
        }
        Ok(places)
    }

    /// The first line that differs where the hunk should be.
    fn difference(&self, before: &[Cow<'_, [u8]>], place: usize) -> Misfit {
        for (number, line) in before.iter().enumerate() {
            let there = self.lines.get(place + number);
            if there.is_none_or(|(there, patched)| *patched || there != line) {
                let file = there.map(|(there, _)| shown(there));
                return Misfit::Differs { line: place + number + 1, hunk: shown(line), file };
            }
        }
        Misfit::NotAtTheEdge
    }
}

impl<'h> HunkSide<'h> {
    fn of(hunk: &Hunk<'h>, line_ends: LineEnds) -> Self {
        let side = |other: LineKind| -> Vec<Cow<'h, [u8]>> {
            hunk.lines.iter().filter(|line| line.kind != other).map(|line| line_ends.of(line.text)).collect()
        };
        let is_context = |line: &&HunkLine<'_>| line.kind == LineKind::Context;
        Self {
            before: side(LineKind::Added),
            after: side(LineKind::Removed),
            leading: hunk.lines.iter().take_while(is_context).count(),
            trailing: hunk.lines.iter().rev().take_while(is_context).count(),
        }
    }
}

/// A line as a message has it.
fn shown(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let end = text.char_indices().nth(SHOWN).map_or(text.len(), |(at, _)| at);
    let more = if end < text.len() { "…" } else { "" };
    format!("`{}{more}`", text[..end].escape_debug())
}
