//! `shell`: what a command line says, by bash's grammar (C-23). No tool of a model's: it is in no registry, and the
//! supervisor calls it to learn what a `bash` call would start.
//!
//! tree-sitter's parser is C and reads what a model wrote, which is why it runs here: in a worker that can read nothing,
//! write nothing and reach nobody, once. It never gives up on a line but marks what it does not understand, and it has
//! been seen to take a line for another one; so nothing is taken from its tree that the text does not bear out. Every node
//! must be of a kind that is known here, there must be nothing but blanks between one and the next, and each word is read
//! again by bash's rules (`lex.rs`). What does not fit is unknown, and whoever decides by the line says no to that.

mod arithmetic;
#[cfg(test)]
mod evaluated;
#[cfg(test)]
mod inner;
mod lex;
#[cfg(test)]
mod lists;
#[cfg(test)]
mod restricted;
#[cfg(test)]
mod tests;

use callgate_policy::rules::commands::{read_otherwise, unread};
use callgate_policy::shell::{Assignment, LINE_MAX, Line, Nest, Piece, Redirect, Simple, Unknown, Word};
use serde_json::Value;
use tree_sitter::Node;

use self::lex::{FoundSubstitution, Until, ends_word, unknown};
use super::arguments::required_text;
use super::{ToolError, ToolResult};

/// The name by which the supervisor calls it.
pub const NAME: &str = "shell";

/// How deep commands may lie in each other. bash's own nesting has no limit; this stack has.
const DEPTH_MAX: usize = 100;
/// Most commands of one line: as many as any result has room for.
const COMMANDS_MAX: usize = 4096;

/// Most lines within a line, at all depths, and how deep they may lie in each other. What is not read is for the quick cut, which
/// takes it for anything.
const INNER_MAX: usize = 64;
const INNER_DEPTH_MAX: usize = 8;

/// Says what `args["command"]` is.
///
/// # Errors
/// An argument that is not text. A line that is not understood is a result.
pub fn run(args: &Value) -> Result<ToolResult, ToolError> {
    let line = understand(required_text(args, "command")?);
    let data = serde_json::to_value(line).unwrap_or(Value::Null);
    Ok(ToolResult::of(data, false))
}

/// Commands of a command line, and of the lines that they hand to shells. Total: it ends for every text, and never panics.
#[must_use]
pub fn understand(src: &str) -> Line {
    let mut line = understand_alone(src, LinePlace::Outer);
    if line.unknown.is_none() {
        read_inner(&mut line);
        line.unknown = otherwise(&line, src);
    }
    line
}

/// Reads the lines within a line, and those within these.
fn read_inner(line: &mut Line) {
    // Texts may overlap, but no text is longer than the line; their commands and bytes count together.
    let (mut commands, mut bytes) = (line.commands.len(), 0);
    for _ in 0..INNER_DEPTH_MAX {
        let texts = unread(line);
        if texts.is_empty() {
            return;
        }
        for text in texts {
            bytes += text.len();
            if line.inner.len() >= INNER_MAX || bytes > LINE_MAX || commands > COMMANDS_MAX {
                return;
            }
            let mut inner = understand_alone(&text, LinePlace::Inner);
            if inner.unknown.is_none() {
                inner.unknown = otherwise(&inner, &text);
            }
            commands += inner.commands.len();
            line.inner.insert(text, inner);
        }
    }
}

/// Reason why bash may read a line in another way than the grammar does.
fn otherwise(line: &Line, src: &str) -> Option<Unknown> {
    let set = read_otherwise(line)?;
    let at = set.split('=').next().and_then(|name| src.find(name)).unwrap_or(0);
    Some(unknown(format!("bash may read what is behind {set} in another way"), at))
}

/// Where a line stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LinePlace {
    /// It is what the call runs: nothing has set its variables.
    Outer,
    /// It is within another, which may have set its variables.
    Inner,
}

/// Commands of a line itself.
fn understand_alone(src: &str, kind: LinePlace) -> Line {
    if src.len() > LINE_MAX {
        return Line::unknown(format!("more than {LINE_MAX} bytes"), LINE_MAX);
    }
    // A carriage return is a part of a word for bash and a blank for the grammar (C19); so are the others, or they end the line.
    let odd = |c: &char| !matches!(c, ' ' | '\t' | '\n') && (c.is_whitespace() || c.is_control() || *c == '\u{feff}');
    if let Some((at, c)) = src.char_indices().find(|(_, c)| odd(c)) {
        return Line::unknown(format!("the character {}", c.escape_unicode()), at);
    }
    if let Some(at) = odd_continuation(src.as_bytes()) {
        return Line::unknown("a line that goes on within a word or an operator", at);
    }
    let mut parser = tree_sitter::Parser::new();
    if parser.set_language(&tree_sitter_bash::LANGUAGE.into()).is_err() {
        return Line::unknown("the grammar does not fit its parser", 0);
    }
    let Some(tree) = parser.parse(src, None) else { return Line::unknown("the parser gave up", 0) };
    let root = tree.root_node();
    if root.has_error() {
        return Line::unknown("it is not bash, or not as this grammar knows it", first_error(root).unwrap_or(0));
    }
    let mut walk = ShellWalk {
        src,
        line: Line::default(),
        within: Vec::new(),
        depth: 0,
        pipelines: 0,
        limit: src.len(),
        counted: Vec::new(),
    };
    walk.line.unknown = walk.program(root).err();
    if walk.line.unknown.is_none() {
        let name = match kind {
            LinePlace::Outer => arithmetic::not_a_number(&walk.line, &walk.counted),
            LinePlace::Inner => walk.counted.first().map(String::as_str),
        };
        walk.line.unknown = name.map(|name| {
            let at = src.find(name).unwrap_or(0);
            unknown(format!("arithmetic, which evaluates what is in {name}: that may be more than a number"), at)
        });
    }
    walk.line
}

/// A backslash at the end of a line that does not stand alone: bash joins what is before and behind it.
fn odd_continuation(src: &[u8]) -> Option<usize> {
    let newlines = src.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at);
    newlines.filter(|at| *at > 0 && src[at - 1] == b'\\').find(|at| {
        match (at.checked_sub(2).map(|before| src[before]), at.checked_sub(3).map(|before| src[before])) {
            (None, _) => false,
            (Some(b' ' | b'\t' | b'\n'), before) => before == Some(b'\\'),
            (Some(_), _) => true,
        }
    })
}

fn first_error(root: Node<'_>) -> Option<usize> {
    let mut cursor = root.walk();
    loop {
        let node = cursor.node();
        if node.is_error() || node.is_missing() {
            return Some(node.start_byte());
        }
        if node.has_error() && cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return None;
            }
        }
    }
}

/// True if a word is a number, whatever the line does.
fn is_number(word: &Word) -> bool {
    match word {
        Word::Static(text) => !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()),
        Word::Dynamic(pieces) => match pieces.as_slice() {
            [Piece::Number] => true,
            [Piece::Variable { name, changed: false, .. }] => matches!(name.as_str(), "?" | "#" | "$"),
            _ => false,
        },
    }
}

/// Words that bash reads as its own grammar's where a command's name stands.
const RESERVED: &[&str] = &[
    "if", "then", "else", "elif", "fi", "do", "done", "case", "esac", "while", "until", "for", "in", "select",
    "function", "{", "}", "!", "[[", "]]", "coproc",
];

struct ShellWalk<'a> {
    src: &'a str,
    line: Line,
    within: Vec<Nest>,
    depth: usize,
    pipelines: u32,
    /// Where the backquotes end that this lies in: they end a word too.
    limit: usize,
    /// Variables whose values bash evaluates as numbers.
    counted: Vec<String>,
}

type ShellStep<T = ()> = Result<T, Unknown>;

impl<'a> ShellWalk<'a> {
    fn text(&self, node: Node<'_>) -> &'a str {
        self.src.get(node.byte_range()).unwrap_or_default()
    }

    /// As far as words may go.
    fn lexed(&self) -> &'a str {
        self.src.get(..self.limit).unwrap_or_default()
    }

    fn at(&self, byte: usize) -> Option<u8> {
        self.src.as_bytes().get(byte).copied()
    }

    /// A node's children, if there is nothing else in it.
    fn children<'t>(&self, node: Node<'t>) -> ShellStep<Vec<Node<'t>>> {
        let mut cursor = node.walk();
        let children: Vec<Node<'t>> = node.children(&mut cursor).collect();
        let mut end = node.start_byte();
        for child in &children {
            self.blank(end, child.start_byte())?;
            if child.is_missing() || child.is_error() {
                return Err(unknown("something is missing", child.start_byte()));
            }
            end = child.end_byte();
        }
        if !children.is_empty() {
            self.blank(end, node.end_byte())?;
        }
        Ok(children)
    }

    /// Children, where a line's end would be the end of the command for bash.
    fn inline<'t>(&self, node: Node<'t>) -> ShellStep<Vec<Node<'t>>> {
        let children = self.children(node)?;
        for pair in children.windows(2) {
            self.same_line(pair[0].end_byte(), pair[1].start_byte())?;
        }
        Ok(children)
    }

    fn same_line(&self, from: usize, to: usize) -> ShellStep {
        let gap = self.src.get(from..to).unwrap_or("\n");
        if gap.replace("\\\n", "").contains('\n') {
            Err(unknown("a command that goes on behind a line's end", from))
        } else {
            Ok(())
        }
    }

    /// There is nothing but blanks and line ends from one place to another.
    fn blank(&self, from: usize, to: usize) -> ShellStep {
        let gap = self.src.get(from..to).unwrap_or("?");
        // Continuations have been judged for the whole line.
        if gap.bytes().all(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\\'))
            && !gap.replace("\\\n", "").contains('\\')
        {
            return Ok(());
        }
        Err(unknown("text that the grammar passes over", from))
    }

    fn push(&mut self) -> ShellStep<usize> {
        if self.line.commands.len() >= COMMANDS_MAX {
            return Err(unknown(format!("more than {COMMANDS_MAX} commands"), 0));
        }
        self.line.commands.push(Simple { within: self.within.clone(), ..Simple::default() });
        Ok(self.line.commands.len() - 1)
    }

    fn inside(&mut self, nest: Nest, work: impl FnOnce(&mut Self) -> ShellStep) -> ShellStep {
        self.within.push(nest);
        let done = work(self);
        self.within.pop();
        done
    }

    fn program(&mut self, root: Node<'_>) -> ShellStep {
        self.blank(0, root.start_byte())?;
        self.blank(root.end_byte(), self.src.len())?;
        self.statements(self.children(root)?)
    }

    /// Statements with what separates them.
    fn statements(&mut self, nodes: Vec<Node<'_>>) -> ShellStep {
        nodes.into_iter().try_for_each(|node| match node.kind() {
            ";" | "&" | "\n" => Ok(()),
            _ => self.statement(node),
        })
    }

    fn statement(&mut self, node: Node<'_>) -> ShellStep {
        self.depth += 1;
        let done = if self.depth > DEPTH_MAX {
            Err(unknown(format!("more than {DEPTH_MAX} levels"), node.start_byte()))
        } else {
            self.statement_of_a_kind(node)
        };
        self.depth -= 1;
        done
    }

    fn statement_of_a_kind(&mut self, node: Node<'_>) -> ShellStep {
        match node.kind() {
            "comment" => self.comment(node),
            "command" | "declaration_command" | "unset_command" => self.command(node),
            "variable_assignment" | "variable_assignments" => self.assignments(node),
            "test_command" => self.test(node),
            "list" => self.list(node),
            "pipeline" => self.pipeline(node, None),
            "negated_command" => self.framed(node, &["!"], &[]),
            "subshell" => self.inside(Nest::Subshell, |walk| walk.framed(node, &["("], &[")"])),
            "compound_statement" if self.text(node).starts_with("((") => self.calculation(node),
            "compound_statement" => self.inside(Nest::Group, |walk| walk.framed(node, &["{"], &["}"])),
            "do_group" => self.framed(node, &["do"], &["done"]),
            "while_statement" => self.inside(Nest::Loop, |walk| walk.framed(node, &["while", "until"], &[])),
            "for_statement" => self.for_each(node),
            "c_style_for_statement" => self.for_numbers(node),
            "if_statement" => self.inside(Nest::Branch, |walk| walk.branches(node)),
            "elif_clause" | "else_clause" => self.branches(node),
            "case_statement" => self.case(node),
            "function_definition" => self.function(node),
            "redirected_statement" => self.redirected(node),
            kind => Err(unknown(format!("a construct that is not understood here ({kind})"), node.start_byte())),
        }
    }

    /// A comment is one for bash only where a word could begin.
    fn comment(&self, node: Node<'_>) -> ShellStep {
        let before = node.start_byte().checked_sub(1).and_then(|at| self.at(at));
        let escaped = node.start_byte().checked_sub(2).and_then(|at| self.at(at)) == Some(b'\\');
        let begins = before.is_none_or(|byte| ends_word(byte) && (byte == b'\n' || !escaped));
        if begins && self.text(node).starts_with('#') {
            Ok(())
        } else {
            Err(unknown("a comment within a word", node.start_byte()))
        }
    }

    /// Statements between words of the grammar.
    fn framed(&mut self, node: Node<'_>, open: &[&str], close: &[&str]) -> ShellStep {
        let mut children = self.children(node)?;
        let odd = || unknown("a construct that is not understood here", node.start_byte());
        if !close.is_empty() && !children.pop().is_some_and(|last| close.contains(&last.kind())) {
            return Err(odd());
        }
        let end = children.last().map_or(0, Node::end_byte);
        if children.is_empty() || !open.contains(&children.remove(0).kind()) {
            return Err(odd());
        }
        if !children.iter().any(|child| child.is_named() && child.kind() != "comment") {
            return Err(unknown("a construct with nothing in it", node.start_byte()));
        }
        if open == ["{"] {
            // Braces are words for bash: `{a` is another one, and so is a `}` that stands where an argument could.
            let apart = self.at(node.start_byte() + 1).is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\n'));
            let separated = children.last().is_some_and(|last| matches!(last.kind(), ";" | "&" | "\n"))
                || self.src.get(end..node.end_byte()).is_some_and(|gap| gap.contains('\n'));
            if !apart || !separated {
                return Err(odd());
            }
        }
        self.statements(children)
    }

    /// `a && b || c` leans to the left, as deep as it is long: its spine is gone down without recursion.
    fn list(&mut self, node: Node<'_>) -> ShellStep {
        let mut right = Vec::new();
        let mut next = node;
        loop {
            let children = self.children(next)?;
            let [first, operator, last] = children.as_slice() else {
                return Err(unknown("a list of another form", next.start_byte()));
            };
            if !matches!(operator.kind(), "&&" | "||") {
                return Err(unknown("a list of another form", next.start_byte()));
            }
            self.same_line(first.end_byte(), operator.start_byte())?;
            right.push(*last);
            next = *first;
            if next.kind() != "list" {
                break;
            }
        }
        self.statement(next)?;
        right.into_iter().rev().try_for_each(|statement| self.statement(statement))
    }

    /// The stages of a pipeline; of one that goes on behind a here-document's name, with the commands that are its first.
    fn pipeline(&mut self, node: Node<'_>, first: Option<(u32, u32)>) -> ShellStep {
        let (id, mut stage) = first.unwrap_or_else(|| {
            self.pipelines += 1;
            (self.pipelines, 0)
        });
        let mut end = node.start_byte();
        let children = self.children(node)?;
        if let Some(pair) =
            children.windows(2).find(|pair| pair[0].kind() == "|&" && pair[1].kind() == "negated_command")
        {
            return Err(unknown("`!` behind `|&`", pair[1].start_byte()));
        }
        for child in children {
            match child.kind() {
                "|" | "|&" => {
                    self.same_line(end, child.start_byte())?;
                    stage += 1;
                }
                _ => self.inside(Nest::Pipeline { id, stage }, |walk| walk.statement(child))?,
            }
            end = child.end_byte();
        }
        Ok(())
    }

    fn branches(&mut self, node: Node<'_>) -> ShellStep {
        self.children(node)?.into_iter().try_for_each(|child| match child.kind() {
            "if" | "then" | "elif" | "else" | "fi" | ";" | "&" | "\n" => Ok(()),
            _ => self.statement(child),
        })
    }

    /// `for x in …` gives a variable values; so does `select`.
    fn for_each(&mut self, node: Node<'_>) -> ShellStep {
        let children = self.children(node)?;
        let mut name = None;
        let mut values = Vec::new();
        let mut body = Vec::new();
        for child in children {
            match child.kind() {
                "for" | "select" | "in" | ";" | "\n" => {}
                "variable_name" => name = Some(self.text(child).to_owned()),
                "do_group" | "compound_statement" => body.push(child),
                _ => values.push(child),
            }
        }
        let name =
            name.filter(|name| is_name(name)).ok_or_else(|| unknown("a loop of another form", node.start_byte()))?;
        let of = self.push()?;
        let values = self.words(&values, of)?;
        self.line.commands[of].assignments.push(Assignment { name, values });
        self.inside(Nest::Loop, |walk| walk.statements(body))
    }

    /// `for ((i = 0; i < 3; i++))`
    fn for_numbers(&mut self, node: Node<'_>) -> ShellStep {
        let children = self.children(node)?;
        let place = |kind: &str| children.iter().position(|child| child.kind() == kind);
        let (Some(open), Some(close)) = (place("(("), place("))")) else {
            return Err(unknown("a loop of another form", node.start_byte()));
        };
        let is_headed = open == 1 && children[0].kind() == "for";
        let text = self.src.get(children[open].end_byte()..children[close].start_byte()).unwrap_or_default();
        let parts: Vec<&str> = text.split(';').collect();
        if !is_headed || parts.len() != 3 {
            return Err(unknown("a loop of another form", node.start_byte()));
        }
        for part in parts {
            self.counts(part, children[open].end_byte())?;
        }
        let body: Vec<Node<'_>> = children[close + 1..].to_vec();
        if body.iter().any(|child| !matches!(child.kind(), ";" | "\n" | "do_group" | "compound_statement")) {
            return Err(unknown("a loop of another form", node.start_byte()));
        }
        self.inside(Nest::Loop, |walk| walk.statements(body))
    }

    /// `((i++))`
    fn calculation(&mut self, node: Node<'_>) -> ShellStep {
        self.push()?;
        let expression = self.text(node).strip_prefix("((").and_then(|text| text.strip_suffix("))"));
        self.counts(expression.unwrap_or("["), node.start_byte())
    }

    /// Notes the variables of an expression: what they hold is looked at when the line is known as a whole.
    fn counts(&mut self, expression: &str, at: usize) -> ShellStep {
        let names = arithmetic::read(expression)
            .ok_or_else(|| unknown("arithmetic, which evaluates what is in its variables", at))?;
        self.counted_names(names)
    }

    fn counted_names(&mut self, names: arithmetic::ExpressionNames) -> ShellStep {
        self.counted.extend(names.used);
        if !names.set.is_empty() {
            let of = self.push()?;
            let number = |name| Assignment { name, values: vec![Word::Dynamic(vec![Piece::Number])] };
            self.line.commands[of].assignments.extend(names.set.into_iter().map(number));
        }
        Ok(())
    }

    fn case(&mut self, node: Node<'_>) -> ShellStep {
        let mut values = Vec::new();
        let mut items = Vec::new();
        for child in self.children(node)? {
            match child.kind() {
                "case" | "in" | "esac" | ";" | "\n" => {}
                "case_item" => items.push(child),
                "comment" => self.comment(child)?,
                _ => values.push(child),
            }
        }
        // Of the value itself nothing starts but its substitutions.
        let of = self.push()?;
        self.words(&values, of)?;
        self.inside(Nest::Branch, |walk| {
            items.into_iter().try_for_each(|item| {
                let children = walk.children(item)?;
                let patterns = children.iter().take_while(|child| child.kind() != ")").count();
                for pattern in &children[..patterns] {
                    if walk.text(*pattern).contains(['$', '`', '\\', '\'', '"']) {
                        return Err(unknown("a pattern that is not plain", pattern.start_byte()));
                    }
                }
                let ends = |child: &Node<'_>| matches!(child.kind(), ";;" | ";&" | ";;&");
                walk.statements(children.into_iter().skip(patterns + 1).filter(|child| !ends(child)).collect())
            })
        })
    }

    fn function(&mut self, node: Node<'_>) -> ShellStep {
        let mut name = None;
        let mut body = Vec::new();
        for child in self.children(node)? {
            match child.kind() {
                "function" | "(" | ")" => {}
                "word" if name.is_none() => name = Some(self.text(child).to_owned()),
                "compound_statement" | "subshell" => body.push(child),
                _ => return Err(unknown("a function of another form", child.start_byte())),
            }
        }
        let name = name.ok_or_else(|| unknown("a function of another form", node.start_byte()))?;
        self.inside(Nest::Function { name }, |walk| walk.statements(body))
    }

    /// `[ … ]` and `[[ … ]]`: words like those of other commands, where nothing in them is an operator to bash.
    fn test(&mut self, node: Node<'_>) -> ShellStep {
        let text = self.text(node);
        let (open, close) = if text.starts_with("[[") { ("[[", "]]") } else { ("[", "]") };
        if !text.starts_with('[') || !text.ends_with(close) {
            return Err(unknown("arithmetic, which evaluates what is in its variables", node.start_byte()));
        }
        let of = self.push()?;
        let found = self.substitutions(node, of)?;
        let (mut at, end) = (node.start_byte() + open.len(), node.end_byte() - close.len());
        let mut words = vec![Word::Static(open.to_owned())];
        loop {
            let gap =
                self.src.as_bytes()[at..end].iter().take_while(|byte| matches!(**byte, b' ' | b'\t' | b'\n')).count();
            at += gap;
            if at >= end {
                break;
            }
            let operator =
                ["&&", "||"].into_iter().find(|operator| open == "[[" && self.src[at..].starts_with(operator));
            if let Some(operator) = operator {
                words.push(Word::Static(operator.to_owned()));
                at += operator.len();
                continue;
            }
            let (word, next) = lex::word(self.lexed(), at, Until::WordEnd, &found)?;
            if next == at || next > end {
                return Err(unknown("a test that is not plain", at));
            }
            // `[[ x -eq y ]]` evaluates both, and whatever commands they hold as an array's index; so does -v.
            let compares = |word: &Word| {
                let compares = |text| matches!(text, "-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge");
                open == "[[" && word.text().is_some_and(compares)
            };
            let mut is_counted = |word: &Word| match word {
                Word::Dynamic(pieces) => match pieces.as_slice() {
                    [Piece::Variable { name, changed: false, .. }] if is_name(name) => {
                        self.counted.push(name.clone());
                        true
                    }
                    _ => is_number(word),
                },
                Word::Static(_) => is_number(word),
            };
            let evaluates = (compares(&word) && !words.last().is_some_and(&mut is_counted))
                || (words.last().is_some_and(compares) && !is_counted(&word));
            if evaluates || word.text().is_some_and(|text| matches!(text, "-v" | "-R")) {
                return Err(unknown("a test that evaluates what is in its variables", at));
            }
            words.push(word);
            at = next;
        }
        words.push(Word::Static(close.to_owned()));
        self.line.commands[of].words = words;
        Ok(())
    }

    fn assignments(&mut self, node: Node<'_>) -> ShellStep {
        let of = self.push()?;
        let nodes = if node.kind() == "variable_assignments" { self.inline(node)? } else { vec![node] };
        self.parts(&nodes, of)
    }

    fn command(&mut self, node: Node<'_>) -> ShellStep {
        let of = self.push()?;
        let children = self.inline(node)?;
        self.parts(&children, of)?;
        if self.line.commands[of].words == [Word::Static("time".to_owned())] {
            return Err(unknown("`time` of nothing", node.start_byte()));
        }
        Ok(())
    }

    /// Parts of a simple command, in the order of the text.
    fn parts(&mut self, children: &[Node<'_>], of: usize) -> ShellStep {
        let mut rest = children;
        while let Some((node, behind)) = rest.split_first() {
            rest = match node.kind() {
                "variable_assignment" if self.line.commands[of].words.is_empty() => self.assignment(rest, of)?,
                "file_redirect" => {
                    self.file_redirect(*node, of)?;
                    behind
                }
                "herestring_redirect" => {
                    self.here_string(*node, of)?;
                    behind
                }
                kind if is_word(kind) => {
                    let (word, behind) = self.word(rest, of)?;
                    // `time` is a word of the grammar too, and stands before a whole pipeline.
                    let timed = |word: &Word| matches!(word.text(), Some("time" | "-p" | "--"));
                    let words = &self.line.commands[of].words;
                    if words.is_empty() || (words[0].text() == Some("time") && words.iter().all(timed)) {
                        self.check_name(*node)?;
                    }
                    self.line.commands[of].words.push(word);
                    behind
                }
                kind => {
                    return Err(unknown(
                        format!("a construct that is not understood here ({kind})"),
                        node.start_byte(),
                    ));
                }
            };
        }
        Ok(())
    }

    /// The name of a command is not what bash would take for something else.
    fn check_name(&self, node: Node<'_>) -> ShellStep {
        let raw = self.text(node);
        if RESERVED.contains(&raw) {
            return Err(unknown(format!("`{raw}` where a command's name is expected"), node.start_byte()));
        }
        let assigns = raw.split_once('=').is_some_and(|(name, _)| {
            let name = name.strip_suffix('+').unwrap_or(name);
            is_name(name.split('[').next().unwrap_or_default())
        });
        if assigns { Err(unknown("an assignment that is not plain", node.start_byte())) } else { Ok(()) }
    }

    /// The word that the first of these nodes begins, and the nodes behind it.
    fn word<'n, 't>(&mut self, nodes: &'n [Node<'t>], of: usize) -> ShellStep<(Word, &'n [Node<'t>])> {
        let Some(first) = nodes.first() else { return Err(unknown("a word is missing", self.src.len())) };
        self.word_from(first.start_byte(), nodes, of)
    }

    fn word_from<'n, 't>(
        &mut self,
        start: usize,
        nodes: &'n [Node<'t>],
        of: usize,
    ) -> ShellStep<(Word, &'n [Node<'t>])> {
        // The grammar may cut a word in two; what touches belongs together.
        let mut touching = 0;
        let mut end = start;
        for node in nodes {
            if touching > 0 && node.start_byte() != end {
                break;
            }
            if touching > 0 && !is_word(node.kind()) {
                break;
            }
            touching += 1;
            end = node.end_byte();
        }
        let mut found = Vec::new();
        for node in &nodes[..touching] {
            if node.end_byte() > start {
                found.extend(self.substitutions(*node, of)?);
            }
        }
        let (word, lexed) = lex::word(self.lexed(), start, Until::WordEnd, &found)?;
        if lexed != end {
            return Err(unknown("a word that the grammar ends elsewhere", start));
        }
        Ok((word, &nodes[touching..]))
    }

    /// Words one after the other.
    fn words(&mut self, mut nodes: &[Node<'_>], of: usize) -> ShellStep<Vec<Word>> {
        let mut words = Vec::new();
        while let Some(first) = nodes.first() {
            if !is_word(first.kind()) {
                return Err(unknown(
                    format!("a construct that is not understood here ({})", first.kind()),
                    first.start_byte(),
                ));
            }
            let (word, rest) = self.word(nodes, of)?;
            words.push(word);
            nodes = rest;
        }
        Ok(words)
    }

    fn assignment<'n, 't>(&mut self, nodes: &'n [Node<'t>], of: usize) -> ShellStep<&'n [Node<'t>]> {
        let Some((node, behind)) = nodes.split_first() else { return Ok(nodes) };
        let raw = self.text(*node);
        let odd = || unknown("an assignment that is not plain", node.start_byte());
        let (name, _) = raw.split_once('=').ok_or_else(odd)?;
        let start = node.start_byte() + name.len() + 1;
        let appends = name.ends_with('+');
        let name = name.strip_suffix('+').unwrap_or(name);
        // `a[i]=x` evaluates the index.
        let name = match name.split_once('[') {
            Some((array, index)) => {
                self.counts(index.strip_suffix(']').ok_or_else(odd)?, node.start_byte())?;
                array
            }
            None => name,
        };
        if !is_name(name) {
            return Err(odd());
        }
        let array = node.child_by_field_name("value").filter(|value| value.kind() == "array");
        let (values, behind) = match array {
            Some(array) if array.start_byte() == start && array.end_byte() == node.end_byte() => {
                if self.lexed().as_bytes().get(array.end_byte()).is_some_and(|byte| !ends_word(*byte)) {
                    return Err(odd());
                }
                let elements = self.children(array)?;
                let inner = elements.len().checked_sub(1).and_then(|last| elements.get(1..last)).ok_or_else(odd)?;
                // `[index]=value` evaluates the index.
                if inner.iter().any(|element| self.text(*element).starts_with('[')) {
                    return Err(odd());
                }
                (self.words(inner, of)?, behind)
            }
            Some(_) => return Err(odd()),
            None => {
                let (word, behind) = self.word_from(start, nodes, of)?;
                (vec![if appends { appended(name, word) } else { word }], behind)
            }
        };
        self.line.commands[of].assignments.push(Assignment { name: name.to_owned(), values });
        Ok(behind)
    }

    /// `2>file`, and the arguments that the grammar takes for more files.
    fn file_redirect(&mut self, node: Node<'_>, of: usize) -> ShellStep {
        let children = self.inline(node)?;
        let mut rest = children.as_slice();
        let mut fd = None;
        if let Some((first, behind)) = rest.split_first()
            && first.kind() == "file_descriptor"
        {
            let number =
                self.text(*first).parse().map_err(|_not_a_number| unknown("a descriptor", first.start_byte()))?;
            let alone = first.start_byte() == 0 || self.at(first.start_byte() - 1).is_some_and(ends_word);
            if !alone {
                return Err(unknown("a digit before a redirection", first.start_byte()));
            }
            (fd, rest) = (Some(number), behind);
        }
        let Some((operator, behind)) = rest.split_first() else {
            return Err(unknown("a redirection", node.start_byte()));
        };
        let text = self.text(*operator);
        let before = operator.start_byte().checked_sub(1).and_then(|at| self.at(at));
        // `{name}>file` makes a variable of the descriptor; `a>` is a word and a redirection, and `2 >` is no descriptor.
        let apart =
            before.is_none_or(|byte| ends_word(byte) || byte.is_ascii_digit() == fd.is_some()) && before != Some(b'}');
        if !matches!(text, "<" | ">" | ">>" | ">|" | "&>" | "&>>" | ">&" | "<&" | ">&-" | "<&-") || !apart {
            return Err(unknown("a redirection that is not understood", operator.start_byte()));
        }
        if fd.is_some() && !before.is_some_and(|byte| byte.is_ascii_digit()) {
            return Err(unknown("a digit before a redirection", operator.start_byte()));
        }
        let mut redirect = Redirect { operator: text.to_owned(), fd, target: None };
        let mut rest = behind;
        if !text.ends_with('-') {
            let (target, behind) = self.word(rest, of)?;
            (redirect.target, rest) = (Some(target), behind);
        }
        self.line.commands[of].redirects.push(redirect);
        if let (Some(name), true) = (rest.first(), self.line.commands[of].words.is_empty()) {
            self.check_name(*name)?;
        }
        let more = self.words(rest, of)?;
        self.line.commands[of].words.extend(more);
        Ok(())
    }

    fn here_string(&mut self, node: Node<'_>, of: usize) -> ShellStep {
        let children = self.inline(node)?;
        let Some((operator, behind)) = children.split_first().filter(|(first, _)| first.kind() == "<<<") else {
            return Err(unknown("a redirection that is not understood", node.start_byte()));
        };
        if operator.start_byte().checked_sub(1).and_then(|at| self.at(at)).is_some_and(|byte| !ends_word(byte)) {
            return Err(unknown("a redirection that is not understood", node.start_byte()));
        }
        let (word, behind) = self.word(behind, of)?;
        if !behind.is_empty() {
            return Err(unknown("a redirection that is not understood", node.start_byte()));
        }
        self.line.commands[of].redirects.push(Redirect { operator: "<<<".to_owned(), fd: None, target: Some(word) });
        Ok(())
    }

    /// A statement and what is redirected of it. What belongs to the last command of a list is said of that.
    fn redirected(&mut self, node: Node<'_>) -> ShellStep {
        let dash = self.dash_before_document(node);
        let children = if dash { self.around_dash(node)? } else { self.inline(node)? };
        let here = children.iter().find(|child| child.kind() == "heredoc_redirect").copied();
        let piped = here.is_some_and(|here| {
            let mut cursor = here.walk();
            here.children(&mut cursor).any(|child| child.kind() == "pipeline")
        });
        let pipeline = piped.then(|| {
            self.pipelines += 1;
            self.pipelines
        });
        let mut rest = children.as_slice();
        let mut of = None;
        if let Some((body, behind)) = rest.split_first()
            && !body.kind().ends_with("_redirect")
        {
            rest = behind;
            let simple = matches!(
                body.kind(),
                "command"
                    | "declaration_command"
                    | "unset_command"
                    | "list"
                    | "pipeline"
                    | "negated_command"
                    | "test_command"
            );
            let first = self.line.commands.len();
            let depth = self.within.len();
            match pipeline {
                Some(id) => self.inside(Nest::Pipeline { id, stage: 0 }, |walk| walk.statement(*body))?,
                None => self.statement(*body)?,
            }
            if simple {
                // The last that stands in the line itself, not in a substitution of it.
                of = (first..self.line.commands.len()).rev().find(|at| {
                    let inner = &self.line.commands[*at].within[depth..];
                    inner.iter().all(|nest| matches!(nest, Nest::Pipeline { .. }))
                });
            }
        }
        let of = match of {
            Some(of) => of,
            None => self.push()?,
        };
        if dash {
            self.line.commands[of].words.push(Word::Static("-".to_owned()));
        }
        for child in rest {
            match child.kind() {
                "file_redirect" => self.file_redirect(*child, of)?,
                "herestring_redirect" => self.here_string(*child, of)?,
                "heredoc_redirect" => self.here_document(*child, of, pipeline)?,
                kind => {
                    return Err(unknown(
                        format!("a construct that is not understood here ({kind})"),
                        child.start_byte(),
                    ));
                }
            }
        }
        Ok(())
    }

    /// True if a here-document stands behind a `-` that is the last word of its command (`python3 - <<E`): the grammar passes over it.
    fn dash_before_document(&self, node: Node<'_>) -> bool {
        let (Some(body), Some(here)) = (node.child(0), node.child(1)) else { return false };
        let mut last = body;
        while matches!(last.kind(), "list" | "pipeline" | "negated_command") {
            let Some(next) = last.child_count().checked_sub(1).and_then(|at| last.child(at)) else {
                return false;
            };
            last = next;
        }
        let gap = self.src.get(body.end_byte()..here.start_byte()).unwrap_or_default();
        let is_apart = gap.starts_with([' ', '\t']) && gap.trim_matches([' ', '\t']) == "-";
        last.kind() == "command" && last.end_byte() == body.end_byte() && here.kind() == "heredoc_redirect" && is_apart
    }

    /// The children of a node, with a `-` behind the first.
    fn around_dash<'t>(&self, node: Node<'t>) -> ShellStep<Vec<Node<'t>>> {
        let mut cursor = node.walk();
        let children: Vec<Node<'t>> = node.children(&mut cursor).collect();
        for pair in children[1..].windows(2) {
            self.blank(pair[0].end_byte(), pair[1].start_byte())?;
            self.same_line(pair[0].end_byte(), pair[1].start_byte())?;
        }
        match children.last().is_some_and(|last| last.end_byte() == node.end_byte())
            && !children.iter().any(|child| child.is_missing() || child.is_error())
        {
            true => Ok(children),
            false => Err(unknown("something is missing", node.start_byte())),
        }
    }

    fn here_document(&mut self, node: Node<'_>, of: usize, pipeline: Option<u32>) -> ShellStep {
        let mut cursor = node.walk();
        let children: Vec<Node<'_>> = node.children(&mut cursor).collect();
        let odd = |why: &str| unknown(format!("a here-document {why}"), node.start_byte());
        let (Some(operator), Some(start), Some(end)) = (
            children.first().filter(|child| matches!(child.kind(), "<<" | "<<-")),
            children.iter().find(|child| child.kind() == "heredoc_start"),
            children.iter().find(|child| child.kind() == "heredoc_end"),
        ) else {
            return Err(odd("of another form"));
        };
        if operator.start_byte().checked_sub(1).and_then(|at| self.at(at)).is_some_and(|byte| !ends_word(byte)) {
            return Err(odd("of another descriptor"));
        }
        let (name, quoted) = delimiter(self.text(*start)).ok_or_else(|| odd("whose end is not plain"))?;
        // Where bash has its text begin and end.
        let rest_of_line = &self.src[start.end_byte()..];
        let body_start = start.end_byte() + rest_of_line.find('\n').ok_or_else(|| odd("without an end"))? + 1;
        let tabs = operator.kind() == "<<-";
        let mut at = body_start;
        let body_end = loop {
            let line_end = self.src[at..].find('\n').map_or(self.src.len(), |length| at + length);
            let line = &self.src[at..line_end];
            if (if tabs { line.trim_start_matches('\t') } else { line }) == name {
                if end.end_byte() != line_end || end.start_byte() != line_end - name.len() {
                    return Err(odd("that the grammar ends elsewhere"));
                }
                break at;
            }
            if line_end == self.src.len() {
                return Err(odd("without an end"));
            }
            at = line_end + 1;
        };
        let target = if quoted {
            Word::Static(self.src[body_start..body_end].to_owned())
        } else {
            if self.src[body_start..body_end].contains("\\\n") {
                return Err(odd("whose lines go on"));
            }
            let mut found = Vec::new();
            for body in children.iter().filter(|child| child.kind() == "heredoc_body") {
                found.extend(self.substitutions(*body, of)?);
            }
            lex::word(self.lexed(), body_start, Until::Here(body_end), &found)?.0
        };
        let redirect = Redirect { operator: operator.kind().to_owned(), fd: None, target: Some(target) };
        self.line.commands[of].redirects.push(redirect);
        // What stands behind its name on the same line.
        let mut gap = start.end_byte();
        for child in &children {
            if child.start_byte() < start.end_byte() || child.start_byte() >= body_start {
                continue;
            }
            self.blank(gap, child.start_byte())?;
            gap = child.end_byte();
            if gap > body_start {
                return Err(odd("with a line that goes on"));
            }
            match child.kind() {
                "&&" | "||" => {}
                "file_redirect" => self.file_redirect(*child, of)?,
                "pipeline" => self.pipeline(*child, Some((pipeline.unwrap_or_default(), 0)))?,
                _ => self.statement(*child)?,
            }
        }
        self.blank(gap, body_start)
    }

    /// The substitutions of a word or a text, in their order. Their commands are walked, as part of the command `of`.
    fn substitutions(&mut self, node: Node<'_>, of: usize) -> ShellStep<Vec<FoundSubstitution>> {
        let mut found = Vec::new();
        self.collect(node, of, 0, &mut found)?;
        Ok(found)
    }

    fn collect(&mut self, node: Node<'_>, of: usize, depth: usize, found: &mut Vec<FoundSubstitution>) -> ShellStep {
        if depth > DEPTH_MAX {
            return Err(unknown(format!("more than {DEPTH_MAX} levels"), node.start_byte()));
        }
        let piece: fn(bool, &str) -> Result<Piece, String> = match node.kind() {
            "command_substitution" => {
                self.commands_of(node, of, false)?;
                |quoted, _| Ok(Piece::Output { quoted })
            }
            "process_substitution" => {
                self.commands_of(node, of, self.text(node).starts_with('>'))?;
                |quoted, _| if quoted { Err("a process substitution in quotes".to_owned()) } else { Ok(Piece::Pipe) }
            }
            "expansion" => {
                if let Ok((_, names)) = expansion(self.text(node), false) {
                    self.counted_names(names)?;
                }
                |quoted, text| expansion(text, quoted).map(|(piece, _)| piece)
            }
            "arithmetic_expansion" => {
                let inner = self.text(node).strip_prefix("$((").and_then(|text| text.strip_suffix("))"));
                self.counts(inner.unwrap_or("["), node.start_byte())?;
                |_, _| Ok(Piece::Number)
            }
            _ => {
                let mut cursor = node.walk();
                let children: Vec<Node<'_>> = node.children(&mut cursor).collect();
                return children.into_iter().try_for_each(|child| self.collect(child, of, depth + 1, found));
            }
        };
        found.push(FoundSubstitution { start: node.start_byte(), end: node.end_byte(), piece });
        Ok(())
    }

    fn commands_of(&mut self, node: Node<'_>, of: usize, fed: bool) -> ShellStep {
        let text = self.text(node);
        if text.starts_with('`') && text.contains(['\\', '"', '\'']) {
            // Inside, bash takes off backslashes before it reads the commands.
            return Err(unknown("backquotes with quotes in them; write $(…)", node.start_byte()));
        }
        let mut children = self.children(node)?;
        let open = if children.is_empty() { None } else { Some(children.remove(0)) };
        let close = children.pop();
        let limit = match (open.map(|node| node.kind()), close) {
            (Some("$(" | "<(" | ">("), Some(close)) if close.kind() == ")" => self.limit,
            (Some("`"), Some(close)) if close.kind() == "`" => close.start_byte(),
            _ => return Err(unknown("a substitution of another form", node.start_byte())),
        };
        let outer = std::mem::replace(&mut self.limit, limit);
        let done = self.inside(Nest::Substitution { of, fed }, |walk| {
            // `$(<file)` reads the file.
            if let [redirect] = children.as_slice()
                && redirect.kind() == "file_redirect"
            {
                let of = walk.push()?;
                return walk.file_redirect(*redirect, of);
            }
            walk.depth += 1;
            let done = if walk.depth > DEPTH_MAX {
                Err(unknown(format!("more than {DEPTH_MAX} levels"), node.start_byte()))
            } else {
                walk.statements(children)
            };
            walk.depth -= 1;
            done
        });
        self.limit = outer;
        done
    }
}

/// The value of a variable behind `+=`: what it has, and this.
fn appended(name: &str, word: Word) -> Word {
    let has = Piece::Variable { name: name.to_owned(), quoted: true, changed: false };
    let more = match word {
        Word::Static(text) => vec![Piece::Text(text)],
        Word::Dynamic(pieces) => pieces,
    };
    Word::Dynamic(std::iter::once(has).chain(more).collect())
}

fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The kinds of node that words are made of. What the word is, `lex` says.
fn is_word(kind: &str) -> bool {
    matches!(
        kind,
        "word" | "number" | "string" | "raw_string" | "ansi_c_string" | "translated_string" | "concatenation" | "simple_expansion"
            | "expansion" | "command_substitution" | "process_substitution" | "arithmetic_expansion" | "brace_expansion"
            | "command_name" | "variable_name" | "extglob_pattern" | "regex" | "test_operator" | "variable_assignment"
            // Of declarations, and where the grammar cuts words.
            | "$" | "==" | "=~" | "=" | "export" | "declare" | "typeset" | "readonly" | "local" | "unset" | "unsetenv"
    )
}

/// The word that ends a here-document, and whether its text is taken as it is.
fn delimiter(text: &str) -> Option<(&str, bool)> {
    let plain = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
    };
    let unquoted = |quote| text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
    match unquoted('\'').or_else(|| unquoted('"')) {
        Some(name) => plain(name).then_some((name, true)),
        None => plain(text).then_some((text, false)),
    }
}

/// `${name}` and the forms that neither assign nor evaluate but numbers, with the variables that are evaluated. `${x@P}`, `${!x}` and
/// `${x:=…}` do.
fn expansion(text: &str, quoted: bool) -> Result<(Piece, arithmetic::ExpressionNames), String> {
    let odd = || format!("{text}, which may assign or evaluate");
    let inner = text.strip_prefix("${").and_then(|text| text.strip_suffix('}')).ok_or_else(odd)?;
    let (length, keys, inner) = match (inner.strip_prefix('#'), inner.strip_prefix('!')) {
        (Some(name), _) if !name.is_empty() => (true, false, name),
        // `${!a[@]}` are the indices.
        (_, Some(name)) if name.ends_with("[@]") || name.ends_with("[*]") => (false, true, name),
        _ => (false, false, inner),
    };
    let end = inner.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
    let end = if end == 0 { usize::from(inner.starts_with(['@', '*', '#', '?', '$', '!', '-'])) } else { end };
    let (name, rest) = inner.split_at(end);
    let number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    if !(is_name(name) || number || matches!(name, "@" | "*" | "#" | "?" | "$" | "-")) {
        return Err(odd());
    }
    let mut names = arithmetic::ExpressionNames::default();
    let (index, rest) = match rest.strip_prefix('[').filter(|_| is_name(name)) {
        Some(rest) => rest.split_once(']').map(|(index, rest)| (Some(index), rest)).ok_or_else(odd)?,
        None => (None, rest),
    };
    let has_all = matches!(index, Some("@" | "*"));
    if let Some(index) = index.filter(|_| !has_all) {
        names.extend(arithmetic::read(index).ok_or_else(odd)?);
    }
    if length || keys {
        let piece = if length { Piece::Number } else { several(name) };
        return if rest.is_empty() { Ok((piece, names)) } else { Err(odd()) };
    }
    let operand = [":-", ":+", ":?", "-", "+", "?", "##", "#", "%%", "%", "//", "/", "^^", "^", ",,", ","]
        .iter()
        .find_map(|operator| rest.strip_prefix(operator));
    let is_plain = |operand: &str| !operand.contains(['$', '`', '\'', '"', '\\', '<', '>', '(', ')', '{', '}']);
    let substring = rest.strip_prefix(':').filter(|rest| operand.is_none() && !rest.starts_with('='));
    match (operand, substring) {
        (_, Some(places)) if places.split(':').count() <= 2 && !places.contains('?') => {
            for place in places.split(':') {
                names.extend(arithmetic::read(place).ok_or_else(odd)?);
            }
        }
        (Some(operand), _) if is_plain(&without_names(operand)) => {}
        (None, None) if rest.is_empty() => {}
        _ => return Err(odd()),
    }
    let changed = !rest.is_empty() || index.is_some();
    let piece = if has_all { several(name) } else { Piece::Variable { name: name.to_owned(), quoted, changed } };
    Ok((piece, names))
}

/// All elements of an array: in quotes too they are as many words.
fn several(name: &str) -> Piece {
    Piece::Variable { name: name.to_owned(), quoted: false, changed: true }
}

/// A text without its plain variables (`$x`), whose values are data.
fn without_names(text: &str) -> String {
    let mut parts = text.split('$');
    let mut without = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        if !part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            without.push('$');
        }
        without.push_str(part);
    }
    without
}
