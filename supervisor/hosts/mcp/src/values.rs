//! How many values a message has, before anything is made of them: each takes far more memory than its text, and a message of
//! 8 MiB has room for millions.

/// Most values of a message.
pub(crate) const VALUES_MAX: usize = 100_000;

/// Counts what begins a value, as it comes: what opens a list or an object, and each comma.
#[derive(Debug, Default)]
pub(crate) struct Values {
    count: usize,
    in_text: bool,
    is_escaped: bool,
}

impl Values {
    pub(crate) fn add(&mut self, byte: u8) {
        if self.in_text {
            let ends = byte == b'"' && !self.is_escaped;
            self.is_escaped = byte == b'\\' && !self.is_escaped;
            self.in_text = !ends;
        } else if byte == b'"' {
            self.in_text = true;
        } else if matches!(byte, b',' | b'[' | b'{') {
            self.count += 1;
        }
    }

    pub(crate) fn are_too_many(&self) -> bool {
        self.count > VALUES_MAX
    }
}

/// True if a message has too many.
pub(crate) fn too_many(message: &[u8]) -> bool {
    let mut values = Values::default();
    message.iter().any(|byte| {
        values.add(*byte);
        values.are_too_many()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_outside_of_texts() {
        let list = |values: usize| format!("[{}0]", "0,".repeat(values));
        assert!(!too_many(list(VALUES_MAX - 1).as_bytes()));
        assert!(too_many(list(VALUES_MAX).as_bytes()));
        for open in ["[", "{", "[],"] {
            assert!(too_many(open.repeat(VALUES_MAX + 1).as_bytes()), "{open}");
        }
        for text in [",".repeat(VALUES_MAX * 2), "\\\",".repeat(VALUES_MAX), "[{\\\\\\\"".repeat(VALUES_MAX)] {
            assert!(!too_many(format!("[\"{text}\"]").as_bytes()));
        }
        // A text that ends with a backslash is over.
        assert!(too_many(format!("[\"x\\\\\"{}", ",0".repeat(VALUES_MAX)).as_bytes()));
    }
}
