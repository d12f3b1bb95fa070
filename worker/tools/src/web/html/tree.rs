//! The tree of a page, in time and memory that the page's size bounds.
//!
//! html5ever does what browsers do, which takes time that grows with the square of the page where its author wants that: for each element
//! it looks through all that are open, for each attribute through the element's others, and each paragraph begins anew with all the bold
//! and italics that were not closed. So elements that lie too deep are left out, and only what is in them is read; and a page ends where
//! it has too many attributes in one element, or too many elements.

use std::cell::Cell;

use html5ever::TokenizerResult;
use html5ever::interface::{Tracer, TreeSink as _};
use html5ever::tendril::StrTendril;
use html5ever::tokenizer::{BufferQueue, Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts};
use html5ever::tree_builder::{TreeBuilder, TreeBuilderOpts};
use markup5ever_rcdom::{Handle, RcDom};

use super::Clock;

/// Most elements that are open at once, with formatting that is to go on: as in browsers.
const OPEN: usize = 512;
/// Most where none can be left out.
const OPEN_MOST: usize = 4 * OPEN;
/// Most tags and texts of a page, and most elements that it has beyond those that its tags say.
const TOKENS: usize = 500_000;
const MADE_MORE: usize = 50_000;
/// Most attributes of one tag.
const ATTRIBUTES: usize = 1000;
/// How much is read between two looks at all that, if no tag begins before.
const PIECE: usize = 4 * 1024;

/// Elements whose content is not for the tree alone to say: it is read in another way, up to their end.
const RAW: &[&str] =
    &["script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes", "noscript", "plaintext"];

/// The page's tree, and whether it was cut.
pub(super) fn parse(html: &str, clock: Clock) -> (Handle, bool) {
    // What stands in for scripts is read as text is, and taken away as a whole.
    let options = TreeBuilderOpts { scripting_enabled: true, ..TreeBuilderOpts::default() };
    let builder = TreeBuilder::new(RcDom::default(), options);
    let bounded = BoundedBuilder { builder, open: Cell::new(0), made_more: Cell::new(0), tokens: Cell::new(0) };
    let tokenizer = Tokenizer::new(bounded, TokenizerOpts::default());
    let mut rest = html;
    let mut tag = Unfinished::default();
    while !rest.is_empty() && !clock.is_over() && !tokenizer.sink.is_full() && !tag.is_full() {
        let (piece, after) = rest.split_at(piece(rest));
        let before = tokenizer.sink.tokens.get();
        let input = BufferQueue::default();
        input.push_back(StrTendril::from(piece));
        // It stops where browsers would run a script, or look at an encoding.
        while !matches!(tokenizer.feed(&input), TokenizerResult::Done) {}
        tag.read(piece, tokenizer.sink.tokens.get() > before);
        rest = after;
    }
    tokenizer.end();
    let is_cut = !rest.is_empty() || tokenizer.sink.is_full();
    (tokenizer.sink.builder.sink.finish().document, is_cut)
}

/// How much is read next: up to where a tag may begin.
fn piece(rest: &str) -> usize {
    let most = rest.floor_char_boundary(PIECE);
    let (_, after_first) = rest.split_at(rest.ceil_char_boundary(1));
    let next = after_first.find('<').map_or(rest.len(), |at| at + rest.len() - after_first.len());
    next.min(most).max(rest.ceil_char_boundary(1))
}

/// Bytes that were read since something was made of them. (Where the two readers differ, the page is hostile, and the
/// clock ends it.)
#[derive(Debug, Default)]
struct Unfinished {
    part: Option<TagPart>,
    attributes: usize,
}

/// The part of a tag that is read (WHATWG HTML, 13.2.5.8 and 13.2.5.32 to 39).
#[derive(Debug, Clone, Copy)]
enum TagPart {
    /// A comment, the tag's own name, or what follows it.
    Other,
    TagName,
    Before,
    Name,
    AfterName,
    BeforeValue,
    Value(Option<u8>),
    AfterQuoted,
}

impl Unfinished {
    fn read(&mut self, piece: &str, made_something: bool) {
        if made_something {
            *self = Self::default();
            return;
        }
        let is_tag = || piece.starts_with('<') && !piece.starts_with("<!");
        let mut part = self.part.unwrap_or_else(|| if is_tag() { TagPart::TagName } else { TagPart::Other });
        for byte in piece.bytes() {
            part = match (part, byte) {
                (TagPart::Value(Some(quote)), byte) if byte == quote => TagPart::AfterQuoted,
                (TagPart::Other | TagPart::Value(Some(_)), _) => part,
                (_, b'>') => TagPart::Other,
                (TagPart::BeforeValue, b'"' | b'\'') => TagPart::Value(Some(byte)),
                (TagPart::Name | TagPart::AfterName, b'=') => TagPart::BeforeValue,
                (TagPart::Name, byte) if byte.is_ascii_whitespace() => TagPart::AfterName,
                (TagPart::AfterName | TagPart::BeforeValue, byte) if byte.is_ascii_whitespace() => part,
                (TagPart::BeforeValue, _) => TagPart::Value(None),
                (TagPart::Value(None), b'/') => part,
                (_, byte) if byte.is_ascii_whitespace() || byte == b'/' => TagPart::Before,
                (TagPart::TagName | TagPart::Name | TagPart::Value(None), _) => part,
                (TagPart::Before | TagPart::AfterName | TagPart::AfterQuoted, _) => {
                    self.attributes += 1;
                    TagPart::Name
                }
            };
        }
        self.part = Some(part);
    }

    fn is_full(&self) -> bool {
        self.attributes > ATTRIBUTES
    }
}

/// Builds the tree, within bounds.
struct BoundedBuilder {
    builder: TreeBuilder<Handle, RcDom>,
    /// How many elements are open, or will be again.
    open: Cell<usize>,
    made_more: Cell<usize>,
    tokens: Cell<usize>,
}

impl BoundedBuilder {
    fn is_full(&self) -> bool {
        self.open.get() > OPEN_MOST || self.made_more.get() > MADE_MORE || self.tokens.get() > TOKENS
    }

    fn leaves_out(&self, token: &Token) -> bool {
        let Token::TagToken(Tag { kind: TagKind::StartTag, name, .. }) = token else { return self.is_full() };
        self.is_full() || (self.open.get() >= OPEN && !RAW.contains(&&**name))
    }
}

impl TokenSink for BoundedBuilder {
    type Handle = Handle;

    fn process_token(&self, token: Token, line: u64) -> TokenSinkResult<Handle> {
        if matches!(token, Token::ParseError(_)) {
            return TokenSinkResult::Continue;
        }
        self.tokens.set(self.tokens.get() + 1);
        if self.leaves_out(&token) && !matches!(token, Token::EOFToken) {
            return TokenSinkResult::Continue;
        }
        let result = self.builder.process_token(token, line);
        let open = Count::default();
        self.builder.trace_handles(&open);
        let made = open.0.get().saturating_sub(self.open.replace(open.0.get()));
        self.made_more.set(self.made_more.get() + made.saturating_sub(1));
        result
    }

    fn end(&self) {
        self.builder.end();
    }

    fn adjusted_current_node_present_but_not_in_html_namespace(&self) -> bool {
        self.builder.adjusted_current_node_present_but_not_in_html_namespace()
    }
}

#[derive(Default)]
struct Count(Cell<usize>);

impl Tracer for Count {
    type Handle = Handle;

    fn trace_handle(&self, _: &Handle) {
        self.0.set(self.0.get() + 1);
    }
}
