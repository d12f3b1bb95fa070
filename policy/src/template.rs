//! Instructions with a place for each row's values: `{column}` is the value of a column, `{{` and `}}` are braces.

/// A piece of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplatePiece<'a> {
    /// As it is.
    Text(&'a str),
    /// The value of the column of this name, which may have blanks around it.
    Name(&'a str),
}

/// A brace that is neither a column's nor written twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a brace stands alone; for one, write it twice")]
pub struct LoneBrace;

/// Reads an instruction.
///
/// # Errors
/// [`LoneBrace`].
pub fn pieces(instruction: &str) -> Result<Vec<TemplatePiece<'_>>, LoneBrace> {
    let (mut pieces, mut rest) = (Vec::new(), instruction);
    while let Some(at) = rest.find(['{', '}']) {
        pieces.push(TemplatePiece::Text(&rest[..at]));
        let brace = &rest[at..=at];
        let after = &rest[at + 1..];
        if let Some(twice) = after.strip_prefix(brace) {
            pieces.push(TemplatePiece::Text(brace));
            rest = twice;
            continue;
        }
        let (name, after) = after.split_once('}').filter(|_| brace == "{").ok_or(LoneBrace)?;
        pieces.push(TemplatePiece::Name(name));
        rest = after;
    }
    pieces.push(TemplatePiece::Text(rest));
    Ok(pieces)
}
