//! A name that somebody may have meant.

/// The known name that differs least, if it differs little: by a letter in three, and by no more than three.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = (name.chars().count() / 3).clamp(1, 3);
    let near = known.into_iter().map(|known| (distance(name, known), known)).filter(|(distance, _)| *distance <= most);
    near.min().map(|(_, known)| known)
}

/// How many letters have to be added, taken out, replaced or exchanged with the next one (Damerau and Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (row, letter) in one.iter().enumerate() {
        let mut next = vec![row + 1];
        for (column, theirs) in other.iter().enumerate() {
            let replaced = last[column] + usize::from(letter != theirs);
            let mut least = replaced.min(last[column + 1] + 1).min(next[column] + 1);
            let is_exchanged = row > 0 && column > 0 && *letter == other[column - 1] && one[row - 1] == *theirs;
            if is_exchanged {
                least = least.min(before[column - 1] + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut last, next);
    }
    last.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_little_is_meant() {
        let known = ["read", "write", "edit", "web_fetch", "postgres"];
        for (name, meant) in [
            ("reed", Some("read")),
            ("raed", Some("read")),
            ("wirte", Some("write")),
            ("web-fetch", Some("web_fetch")),
            ("postgress", Some("postgres")),
            ("rm", None),
            ("delete", None),
        ] {
            assert_eq!(nearest(name, known), meant, "{name}");
        }
    }
}
