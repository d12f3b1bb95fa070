//! The frames of a language server: headers, of which one says how long the JSON after them is.
//!
//! All of it is a stranger's. What may come in one message and in all of them is bounded, and nothing is read that was not announced.

use serde_json::Value;

use super::error::LspError;

/// Most bytes of a message's headers.
const HEADERS_MAX: usize = 4096;
/// Most bytes of a message.
const MESSAGE_MAX: usize = 8 << 20;
/// Most bytes of all messages, and of what it writes on standard error.
const ALL_MAX: u64 = 64 << 20;

/// Bytes that have come, and were not taken yet.
#[derive(Default)]
pub(super) struct Frames {
    buffer: Vec<u8>,
    /// The length of the message whose headers were taken.
    body: Option<usize>,
    seen: u64,
}

impl Frames {
    /// Counts what came, wherever.
    pub(super) fn count(&mut self, bytes: usize) -> Result<(), LspError> {
        self.seen += bytes as u64;
        if self.seen > ALL_MAX { Err(LspError::TooMuch) } else { Ok(()) }
    }

    pub(super) fn add(&mut self, bytes: &[u8]) -> Result<(), LspError> {
        self.count(bytes.len())?;
        self.buffer.extend(bytes);
        Ok(())
    }

    /// The next message, if all of it is here.
    pub(super) fn next(&mut self) -> Result<Option<Value>, LspError> {
        let length = match self.body {
            Some(length) => length,
            None => match self.headers()? {
                Some(length) => *self.body.insert(length),
                None => return Ok(None),
            },
        };
        if self.buffer.len() < length {
            return Ok(None);
        }
        self.body = None;
        let message = serde_json::from_slice(&self.buffer[..length]).map_err(|_e| LspError::Broken("it is not JSON"));
        self.buffer.drain(..length);
        message.map(Some)
    }

    /// Takes a message's headers, and says how long it is.
    fn headers(&mut self) -> Result<Option<usize>, LspError> {
        let begins = &self.buffer[..self.buffer.len().min(HEADERS_MAX)];
        let Some(end) = begins.windows(4).position(|four| four == b"\r\n\r\n") else {
            let is_long = begins.len() == HEADERS_MAX;
            return if is_long { Err(LspError::Broken("its headers do not end")) } else { Ok(None) };
        };
        let headers = String::from_utf8_lossy(&begins[..end]);
        let named = headers.lines().filter_map(|line| line.split_once(':'));
        let mut lengths = named.filter(|(name, _)| name.trim().eq_ignore_ascii_case("content-length"));
        let length = lengths.next().and_then(|(_, value)| value.trim().parse::<usize>().ok());
        let length = length.ok_or(LspError::Broken("it does not say how long it is"))?;
        if length > MESSAGE_MAX {
            return Err(LspError::Broken("it is too long"));
        }
        self.buffer.drain(..end + 4);
        Ok(Some(length))
    }
}

/// A message as it is sent.
pub(super) fn framed(message: &Value) -> Vec<u8> {
    let body = message.to_string();
    format!("Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// S0-25: messages come in any pieces.
    #[test]
    fn s0_25_messages_come_in_any_pieces() {
        let (one, two) = (json!({ "id": 1, "text": "ä€𝄞" }), json!([]));
        let whole = [framed(&one), framed(&two)].concat();
        for size in 1..whole.len() {
            let (mut frames, mut got) = (Frames::default(), Vec::new());
            for piece in whole.chunks(size) {
                frames.add(piece).expect("not too much");
                while let Some(message) = frames.next().expect("a message") {
                    got.push(message);
                }
            }
            assert_eq!(got, [one.clone(), two.clone()], "{size}");
        }
        let mut frames = Frames::default();
        frames.add(b"content-length:2\r\nContent-Type: x\r\n\r\n{}").expect("little");
        assert_eq!(frames.next().expect("a message"), Some(json!({})));
    }

    /// S0-25: what is no message, or too long, is refused before it is held.
    #[test]
    fn s0_25_what_is_no_message_is_refused() {
        let refused = |bytes: &[u8]| {
            let mut frames = Frames::default();
            frames.add(bytes).expect("little");
            frames.next().expect_err("no message").to_string()
        };
        assert!(refused(b"Content-Length: 8388609\r\n\r\n").contains("too long"));
        assert!(refused(b"Content-Length: 99999999999999999999999\r\n\r\n").contains("how long"));
        assert!(refused(b"Content-Length: -1\r\n\r\n").contains("how long"));
        assert!(refused(b"X: 1\r\n\r\n{}").contains("how long"));
        assert!(refused(b"Content-Length: 2\r\n\r\n{]").contains("not JSON"));
        assert!(refused(&vec![b'x'; HEADERS_MAX]).contains("do not end"));
        let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
        assert!(refused(format!("Content-Length: {}\r\n\r\n{deep}", deep.len()).as_bytes()).contains("not JSON"));
        let mut frames = Frames::default();
        let all = (0..=(ALL_MAX >> 20)).try_for_each(|_| frames.count(1 << 20));
        assert!(matches!(all, Err(LspError::TooMuch)));
    }
}
