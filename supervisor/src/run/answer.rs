//! An answer that a program prints: its standard output, with the last that it said on standard error.

use super::{Listener, ProgramStream};

/// Most bytes of an answer: nothing is made of a longer one.
pub(crate) const ANSWER_MAX: usize = 4 * 1024 * 1024;

/// Output of a program whose standard output is its answer.
pub(crate) struct PrintedAnswer<'a> {
    /// At most one byte more than an answer may have.
    pub(crate) answer: Vec<u8>,
    /// The last of what it wrote on standard error.
    words: Vec<u8>,
    /// Most bytes of them.
    most: usize,
    /// Hears what it writes on standard error while it comes.
    on_words: &'a mut (dyn FnMut(&[u8]) + Send),
}

impl<'a> PrintedAnswer<'a> {
    /// Nothing yet; of its words the last `most` bytes will be kept.
    pub(crate) fn new(most: usize, on_words: &'a mut (dyn FnMut(&[u8]) + Send)) -> Self {
        Self { answer: Vec::new(), words: Vec::new(), most, on_words }
    }

    /// True if it is longer than an answer may be.
    pub(crate) fn is_too_long(&self) -> bool {
        self.answer.len() > ANSWER_MAX
    }

    /// The end of what it wrote on standard error, as text.
    pub(crate) fn last_words(&self) -> String {
        String::from_utf8_lossy(&self.words).trim_end().to_owned()
    }
}

impl Listener for PrintedAnswer<'_> {
    fn hear(&mut self, stream: ProgramStream, piece: &[u8]) {
        match stream {
            ProgramStream::Out => {
                let room = (ANSWER_MAX + 1).saturating_sub(self.answer.len());
                self.answer.extend(&piece[..piece.len().min(room)]);
            }
            ProgramStream::Err => {
                (self.on_words)(piece);
                self.words.extend(piece);
                self.words.drain(..self.words.len().saturating_sub(self.most));
            }
        }
    }

    fn has_enough(&self) -> bool {
        self.is_too_long()
    }
}
