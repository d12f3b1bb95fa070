//! From a page to what a person would read of it.
//!
//! html5ever reads it as browsers do, and htmd writes Markdown. In between, this takes away what is not read (scripts, navigation, what
//! is hidden), finds the part that the page is about, and makes links absolute.
//!
//! A stranger wrote the page, and may have made it for whoever reads it. [`tree`] bounds what is built of it. Everything here goes
//! through the tree without recursion, and nothing deeper than [`DEPTH`] is left of it for htmd, which recurses. Where all that is not
//! enough, a deadline ends it: what is made of the page until then is told.

use std::rc::Rc;
use std::time::Instant;

use htmd::element_handler::Handlers;
use htmd::options::{BrStyle, BulletListMarker, HrStyle, Options};
use htmd::{Element, HtmlToMarkdown};
use html5ever::tendril::StrTendril;
use html5ever::{Attribute, LocalName, QualName, local_name, ns};
use markup5ever_rcdom::{Handle, Node, NodeData};
use url::Url;

mod tree;

/// Elements that lie deeper are told as their text.
const DEPTH: usize = 64;
/// So are lists and quotations within as many others: each of them sets all its lines in.
const INDENTED: usize = 12;
const INDENTING: &[&str] = &["ul", "ol", "blockquote"];

/// Most columns or rows that a cell reaches over.
const SPAN: usize = 64;

/// Elements that are never read.
const UNREAD: &[&str] = &[
    "script", "style", "noscript", "template", "iframe", "object", "embed", "canvas", "audio", "video", "map", "svg",
    "link", "meta", "base", "input", "select", "textarea", "button", "datalist", "progress", "meter", "dialog",
];

/// Elements that surround what a page is about.
const AROUND: &[&str] = &["nav", "footer", "aside", "menu", "search"];
const ROLES_AROUND: &[&str] =
    &["navigation", "banner", "contentinfo", "search", "complementary", "dialog", "alertdialog"];

/// Elements at which a line ends, in plain text.
const BLOCKS: &[&str] = &[
    "address",
    "article",
    "aside",
    "blockquote",
    "body",
    "caption",
    "center",
    "dd",
    "details",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "header",
    "hr",
    "html",
    "legend",
    "li",
    "main",
    "ol",
    "p",
    "pre",
    "section",
    "summary",
    "table",
    "tbody",
    "tfoot",
    "thead",
    "tr",
    "ul",
];
/// Those with an empty line around them.
const PARAGRAPHS: &[&str] =
    &["blockquote", "dl", "figure", "h1", "h2", "h3", "h4", "h5", "h6", "ol", "p", "pre", "section", "table", "ul"];

/// Where the words of a page stand, if it was written.
const FORMED: &[&str] = &["p", "h1", "h2", "h3", "li", "td", "pre"];

/// A page, as it is read.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) title: Option<String>,
    pub(super) text: String,
    /// It has scripts, and hardly any text without them.
    pub(super) needs_scripts: bool,
    /// It was not read to its end.
    pub(super) cut: bool,
}

/// When to stop.
#[derive(Debug, Clone, Copy)]
struct Clock(Option<Instant>);

impl Clock {
    fn is_over(self) -> bool {
        self.0.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

/// Form that is made of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Into {
    Markdown,
    Text,
}

/// Reads a page that came from `from`.
pub(super) fn convert(html: &str, from: &Url, into: Into, deadline: Option<Instant>) -> Page {
    let clock = Clock(deadline);
    let (document, mut cut) = tree::parse(html, clock);
    let base = find(&document, "base").and_then(|base| from.join(&attribute(&base, "href")?).ok());
    let base = base.unwrap_or_else(|| from.clone());
    let title = find(&document, "title").map(|title| one_line(&text_of(&title))).filter(|title| !title.is_empty());
    let has_scripts = find(&document, "script").is_some();
    // A document that ends takes the children of all its nodes along, so it stays.
    let body = find(&document, "body").unwrap_or_else(|| Rc::clone(&document));

    prune(&body, |node, _| is_unread(node));
    let content = content(&body);
    cut |= !rewrite(&content, &base, clock);
    let has_form = below(&content).any(|node| is_tag(&node, FORMED) && length(&node) > 0);
    // It takes the content along.
    let text = match into {
        Into::Markdown => markdown(&content),
        Into::Text => plain(&content),
    };
    let is_shorter = |words| text.split_whitespace().nth(words).is_none();
    let needs_scripts = has_scripts && (is_shorter(5) || (is_shorter(20) && !has_form));
    Page { title, text, needs_scripts, cut }
}

/// A page to look something up in.
pub(super) struct PageTree(Handle);

/// A part of one, while the page is there.
pub(super) struct PagePart(Handle);

/// Most parts that are looked for.
const PARTS_MAX: usize = 64;

impl PageTree {
    pub(super) fn parse(html: &str, deadline: Option<Instant>) -> Self {
        Self(tree::parse(html, Clock(deadline)).0)
    }

    pub(super) fn with_class(&self, class: &str) -> Vec<PagePart> {
        with_class(&self.0, class)
    }

    /// Its words.
    pub(super) fn text(&self) -> String {
        one_line(&text_of(&self.0))
    }
}

impl PagePart {
    pub(super) fn with_class(&self, class: &str) -> Vec<Self> {
        with_class(&self.0, class)
    }

    pub(super) fn has_class(&self, class: &str) -> bool {
        has_class(&self.0, class)
    }

    pub(super) fn attribute(&self, name: &str) -> Option<String> {
        attribute(&self.0, name)
    }

    /// Its words.
    pub(super) fn text(&self) -> String {
        one_line(&text_of(&self.0))
    }
}

fn has_class(node: &Handle, class: &str) -> bool {
    attribute(node, "class").is_some_and(|classes| classes.split_ascii_whitespace().any(|one| one == class))
}

fn with_class(root: &Handle, class: &str) -> Vec<PagePart> {
    below(root).filter(|node| has_class(node, class)).take(PARTS_MAX).map(PagePart).collect()
}

fn tag(node: &Node) -> Option<&str> {
    match &node.data {
        NodeData::Element { name, .. } => Some(&name.local),
        NodeData::Document
        | NodeData::Doctype { .. }
        | NodeData::Text { .. }
        | NodeData::Comment { .. }
        | NodeData::ProcessingInstruction { .. } => None,
    }
}

fn is_tag(node: &Node, tags: &[&str]) -> bool {
    tag(node).is_some_and(|tag| tags.contains(&tag))
}

fn attribute(node: &Node, wanted: &str) -> Option<String> {
    let NodeData::Element { attrs, .. } = &node.data else { return None };
    attrs.borrow().iter().find(|attr| &*attr.name.local == wanted).map(|attr| attr.value.to_string())
}

/// All nodes below one, in the order of the page.
fn below(root: &Handle) -> impl Iterator<Item = Handle> + use<> {
    let mut stack = vec![Rc::clone(root)];
    std::iter::from_fn(move || {
        let node = stack.pop()?;
        stack.extend(node.children.borrow().iter().rev().cloned());
        Some(node)
    })
}

fn find(root: &Handle, wanted: &str) -> Option<Handle> {
    below(root).find(|node| tag(node) == Some(wanted))
}

fn text_of(root: &Handle) -> String {
    let mut text = String::new();
    for node in below(root) {
        match &node.data {
            NodeData::Text { contents } => text.push_str(&contents.borrow()),
            NodeData::Element { .. } if is_tag(&node, BLOCKS) || is_tag(&node, &["br", "td", "th"]) => text.push(' '),
            NodeData::Element { .. }
            | NodeData::Document
            | NodeData::Doctype { .. }
            | NodeData::Comment { .. }
            | NodeData::ProcessingInstruction { .. } => {}
        }
    }
    text
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// How much there is to read, not counting blanks.
fn length(root: &Handle) -> usize {
    text_of(root).split_whitespace().map(str::len).sum()
}

/// Takes nodes away, with all that is below them.
fn prune(root: &Handle, unwanted: impl Fn(&Handle, &Handle) -> bool) {
    for node in below(root) {
        node.children.borrow_mut().retain(|child| !unwanted(child, &node));
    }
}

fn is_unread(node: &Handle) -> bool {
    match &node.data {
        NodeData::Comment { .. } | NodeData::ProcessingInstruction { .. } => true,
        NodeData::Element { .. } => {
            let style = attribute(node, "style").unwrap_or_default().to_ascii_lowercase().replace(' ', "");
            (is_tag(node, UNREAD) && !is_mark(node))
                || attribute(node, "hidden").is_some()
                || attribute(node, "aria-hidden").is_some_and(|value| value == "true")
                || style.contains("display:none")
                || style.contains("visibility:hidden")
        }
        NodeData::Document | NodeData::Doctype { .. } | NodeData::Text { .. } => false,
    }
}

/// True for the mark of a list item, done or not.
fn is_mark(node: &Handle) -> bool {
    tag(node) == Some("input") && attribute(node, "type").is_some_and(|kind| kind.eq_ignore_ascii_case("checkbox"))
}

/// The part that the page is about: its one main part or article, if that has most of what there is to read; else all of it, without
/// what stands around.
fn content(body: &Handle) -> Handle {
    let is_main =
        |node: &Handle| tag(node) == Some("main") || attribute(node, "role").is_some_and(|role| role == "main");
    let mut articles = below(body).filter(|node| tag(node) == Some("article"));
    let article = articles.next().filter(|_| articles.next().is_none());
    let around = |node: &Handle, parent: &Handle| {
        let role = attribute(node, "role").unwrap_or_default();
        // What stands beside the words of a paragraph is part of them, and the head of an article is its title.
        is_tag(node, AROUND) && tag(parent) != Some("p") || ROLES_AROUND.contains(&role.as_str())
    };
    let readable = length(body);
    let candidates = [article, below(body).find(is_main)].into_iter().flatten();
    // A page's main part may hold navigation too, and one that is hardly more than that is no main part.
    let found = candidates.into_iter().find(|node| length(node) * 3 >= readable && length(node) > 0);
    let content = found.unwrap_or_else(|| Rc::clone(body));
    let is_body = Rc::ptr_eq(&content, body);
    prune(&content, |node, parent| if is_body { around(node, parent) } else { is_tag(node, &["nav"]) });
    content
}

fn element(name: LocalName, attrs: Vec<Attribute>) -> Handle {
    Node::new(NodeData::Element {
        name: QualName::new(None, ns!(html), name),
        attrs: attrs.into(),
        template_contents: None.into(),
        mathml_annotation_xml_integration_point: false,
    })
}

fn adopt(parent: &Handle, children: Vec<Handle>) {
    for child in &children {
        child.parent.set(Some(Rc::downgrade(parent)));
    }
    *parent.children.borrow_mut() = children;
}

fn replace_by_text(node: &Handle, text: &str) {
    adopt(node, vec![words(text)]);
}

/// Makes links absolute, and of the tree one that can be written. False if the time was over before: what was not looked at is gone.
fn rewrite(root: &Handle, base: &Url, clock: Clock) -> bool {
    let mut stack = vec![(Rc::clone(root), 0, 0)];
    let mut is_whole = true;
    while let Some((node, depth, indented)) = stack.pop() {
        is_whole = is_whole && !clock.is_over();
        if !is_whole {
            adopt(&node, Vec::new());
            continue;
        }
        let indented = indented + usize::from(is_tag(&node, INDENTING));
        if depth >= DEPTH || indented > INDENTED {
            let text = text_of(&node);
            replace_by_text(&node, &text);
            continue;
        }
        match tag(&node) {
            Some("a") => link(&node, base, "href"),
            Some("img") => link(&node, base, "src"),
            Some("pre") => code(&node),
            Some("math") => formula(&node),
            Some("h1" | "h2" | "h3" | "h4" | "h5" | "h6") => heading(&node),
            Some(_) | None => {}
        }
        let children = std::mem::take(&mut *node.children.borrow_mut());
        adopt(&node, children.into_iter().filter(|child| !says_nothing(child)).flat_map(rebuilt).collect());
        stack.extend(node.children.borrow().iter().rev().map(|child| (Rc::clone(child), depth + 1, indented)));
    }
    is_whole
}

/// Replacement in a form that Markdown has, for what it has none for.
fn rebuilt(node: Handle) -> Vec<Handle> {
    match tag(&node) {
        Some("table") => table(node),
        // A power is no digit more.
        Some("sup") if find(&node, "a").is_none() => {
            let raised = one_line(&text_of(&node));
            let text = if raised.starts_with(char::is_alphanumeric) { format!("^{raised}") } else { raised };
            replace_by_text(&node, &text);
            vec![node]
        }
        Some("input") => {
            let mark = if attribute(&node, "checked").is_some() { "☑ " } else { "☐ " };
            vec![words(mark)]
        }
        // The term of a definition, apart from what it means.
        Some("dt") if !below(&node).skip(1).any(|node| is_tag(&node, BLOCKS)) && length(&node) > 0 => {
            let term = element(local_name!("strong"), Vec::new());
            adopt(&term, std::mem::take(&mut *node.children.borrow_mut()));
            adopt(&node, vec![term]);
            vec![node]
        }
        Some("q") => vec![words("“"), node, words("”")],
        Some(_) | None => vec![node],
    }
}

fn children_with(node: &Handle, tags: &[&str]) -> Vec<Handle> {
    node.children.borrow().iter().filter(|child| is_tag(child, tags)).cloned().collect()
}

/// A table of data, with a head and its caption before it; one that only places things is what it places.
fn table(table: Handle) -> Vec<Handle> {
    let parts = children_with(&table, &["thead", "tbody", "tfoot"]);
    let rows: Vec<Handle> = parts.iter().chain([&table]).flat_map(|part| children_with(part, &["tr"])).collect();
    let cells: Vec<Vec<Handle>> = rows.iter().map(|row| children_with(row, &["td", "th"])).collect();
    let all = || cells.iter().flatten();
    let has_head = all().any(|cell| tag(cell) == Some("th")) || parts.iter().any(|part| tag(part) == Some("thead"));
    let is_placing = |cell: &Handle| {
        below(cell).any(|node| {
            is_tag(&node, &["table", "ul", "ol", "pre", "h1", "h2", "h3", "h4", "form", "article", "section"])
        })
    };
    let width = cells.first().map_or(0, Vec::len);
    let is_even = cells.len() > 1 && width > 1 && cells.iter().all(|row| row.len() == width);
    let is_table = has_head || (is_even && !all().any(is_placing));
    if !is_table || !grid(&rows) || !is_moderate(&rows) {
        let placed = all().map(|cell| {
            let part = element(local_name!("div"), Vec::new());
            adopt(&part, std::mem::take(&mut *cell.children.borrow_mut()));
            part
        });
        return placed.collect();
    }
    // Markdown has one row of heads, the first.
    for (at, row) in rows.iter().enumerate() {
        in_lines_of_one(row);
        let (from, to) = if at == 0 { ("td", local_name!("th")) } else { ("th", local_name!("td")) };
        renamed(row, from, &to);
    }
    let captions = children_with(&table, &["caption"]).into_iter().map(|caption| {
        let paragraph = element(local_name!("p"), Vec::new());
        adopt(&paragraph, std::mem::take(&mut *caption.children.borrow_mut()));
        paragraph
    });
    let mut rebuilt: Vec<Handle> = captions.collect();
    // What is dropped takes its children along.
    parts.iter().for_each(|part| part.children.borrow_mut().clear());
    adopt(&table, rows);
    rebuilt.push(table);
    rebuilt
}

/// Most columns of a table that is shown as one, and most characters: each cell is as wide as the widest of its column.
const COLUMNS_MAX: usize = 1000;
const TABLE_MAX: usize = 4 * 1024 * 1024;

/// True if a table in Markdown is not much longer than what is in it.
fn is_moderate(rows: &[Handle]) -> bool {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        for (column, cell) in row.children.borrow().iter().enumerate() {
            let wide = length(cell) + " | ".len();
            match widths.get_mut(column) {
                Some(widest) => *widest = wide.max(*widest),
                None => widths.push(wide),
            }
        }
    }
    widths.iter().sum::<usize>().saturating_mul(rows.len()) <= TABLE_MAX
}

/// Empty cells where others reach over several columns or rows: a table in Markdown has one in each place. False if it has too many
/// columns.
fn grid(rows: &[Handle]) -> bool {
    let span = |cell: &Handle, name: &str| {
        let number = attribute(cell, name).and_then(|number| number.trim().parse().ok()).unwrap_or(1);
        number.clamp(1, SPAN)
    };
    let own: usize = rows.iter().map(|row| row.children.borrow().len()).sum();
    // A page cannot have much more of them than it has cells.
    let mut room = own + SPAN;
    // For how many rows each column is taken.
    let mut taken: Vec<usize> = Vec::new();
    for row in rows {
        let mut cells = Vec::new();
        let mut before = taken.clone();
        taken.iter_mut().for_each(|rows| *rows = rows.saturating_sub(1));
        for cell in children_with(row, &["td", "th"]) {
            while before.get(cells.len()).is_some_and(|rows| *rows > 0) && room > 0 {
                cells.push(element(local_name!("td"), Vec::new()));
                room -= 1;
            }
            let (at, width) = (cells.len(), span(&cell, "colspan").min(room + 1));
            let height = span(&cell, "rowspan");
            cells.push(cell);
            cells.extend((1..width).map(|_| element(local_name!("td"), Vec::new())));
            room -= width - 1;
            if cells.len() > COLUMNS_MAX {
                return false;
            }
            taken.resize(taken.len().max(cells.len()), 0);
            before.resize(taken.len(), 0);
            taken[at..at + width].fill(height - 1);
        }
        adopt(row, cells);
    }
    true
}

/// A row's cells of one kind, as cells of another.
fn renamed(row: &Handle, from: &str, to: &LocalName) {
    let as_other = |cell: &Handle| {
        if tag(cell) != Some(from) {
            return Rc::clone(cell);
        }
        let other = element(to.clone(), Vec::new());
        adopt(&other, std::mem::take(&mut *cell.children.borrow_mut()));
        other
    };
    let cells = row.children.borrow().iter().map(as_other).collect();
    adopt(row, cells);
}

/// Without line breaks: a row of a table is one line.
fn in_lines_of_one(row: &Handle) {
    for node in below(row) {
        for child in node.children.borrow_mut().iter_mut().filter(|child| tag(child) == Some("br")) {
            *child = words(" ");
        }
    }
}

fn words(text: &str) -> Handle {
    Node::new(NodeData::Text { contents: StrTendril::from(text).into() })
}

/// A formula as its author wrote it, if the page has that, or with what its form says.
fn formula(math: &Handle) {
    let is_tex = |node: &Handle| attribute(node, "encoding").is_some_and(|encoding| encoding == "application/x-tex");
    let written = below(math).find(is_tex).map(|annotation| one_line(&text_of(&annotation)));
    if let Some(text) = written.or_else(|| attribute(math, "alttext")) {
        return replace_by_text(math, &text);
    }
    prune(math, |node, _| is_tag(node, &["annotation", "annotation-xml"]));
    for node in below(math) {
        let between = match tag(&node) {
            Some("msup") => "^",
            Some("msub") => "_",
            Some("mfrac") => "/",
            Some(_) | None => continue,
        };
        let mut children = node.children.borrow_mut();
        if let Some(second) = (0..children.len()).filter(|at| tag(&children[*at]).is_some()).nth(1) {
            children.insert(second, words(between));
        }
    }
    let text = one_line(&text_of(math));
    replace_by_text(math, &text);
}

/// A heading that is a link to itself is its words.
fn heading(node: &Handle) {
    let is_own =
        |child: &Handle| tag(child) == Some("a") && attribute(child, "href").is_some_and(|to| to.starts_with('#'));
    let children = std::mem::take(&mut *node.children.borrow_mut());
    let unwrapped = |child: Handle| match is_own(&child) && !says_nothing(&child) {
        true => std::mem::take(&mut *child.children.borrow_mut()),
        false => vec![child],
    };
    adopt(node, children.into_iter().flat_map(unwrapped).collect());
}

fn link(node: &Handle, base: &Url, name: &str) {
    let NodeData::Element { attrs, .. } = &node.data else { return };
    let leads_to = |value: &str| {
        let url = base.join(value.trim()).ok()?;
        let is_web = matches!(url.scheme(), "http" | "https" | "mailto");
        is_web.then(|| url.to_string())
    };
    attrs.borrow_mut().retain_mut(|attr| {
        if &*attr.name.local != name {
            return &*attr.name.local != "title";
        }
        match leads_to(&attr.value) {
            Some(url) => {
                attr.value = StrTendril::from(url.as_str());
                true
            }
            None => false,
        }
    });
}

/// A mark beside a heading that links to it, a link without words, or a picture that says nothing.
fn says_nothing(node: &Handle) -> bool {
    match tag(node) {
        Some("a") => {
            let words = text_of(node);
            let words = words.trim();
            let has_picture = below(node).any(|node| tag(&node) == Some("img"));
            !has_picture && (words.is_empty() || matches!(words, "¶" | "#" | "§" | "🔗" | "\u{f0c1}"))
        }
        Some("span") => attribute(node, "class").is_some_and(|class| class == "mw-editsection"),
        Some("img") => attribute(node, "alt").is_none_or(|alt| alt.trim().is_empty()),
        Some(_) | None => false,
    }
}

/// Code as one text: what colours it, and numbers of lines, are no part of it.
fn code(pre: &Handle) {
    let is_number = |node: &Handle| {
        let class = attribute(node, "class").unwrap_or_default();
        class
            .split_whitespace()
            .any(|class| matches!(class, "lineno" | "linenos" | "line-number" | "line-numbers" | "gutter"))
    };
    prune(pre, |node, _| is_number(node));
    let language = below(pre).find_map(|node| {
        let class = attribute(&node, "class")?;
        let of =
            |class: &str| class.strip_prefix("language-").or_else(|| class.strip_prefix("lang-")).map(str::to_owned);
        class.split_whitespace().find_map(of)
    });
    let mut text = String::new();
    for node in below(pre) {
        match &node.data {
            NodeData::Text { contents } => text.push_str(&contents.borrow()),
            NodeData::Element { .. } if tag(&node) == Some("br") => text.push('\n'),
            NodeData::Element { .. }
            | NodeData::Document
            | NodeData::Doctype { .. }
            | NodeData::Comment { .. }
            | NodeData::ProcessingInstruction { .. } => {}
        }
    }
    let attrs = language.map(|language| Attribute {
        name: QualName::new(None, ns!(), local_name!("class")),
        value: StrTendril::from(format!("language-{language}").as_str()),
    });
    let code = element(local_name!("code"), attrs.into_iter().collect());
    replace_by_text(&code, text.trim_end());
    adopt(pre, vec![code]);
}

fn markdown(content: &Handle) -> String {
    let options = Options {
        hr_style: HrStyle::Dashes,
        br_style: BrStyle::Backslash,
        bullet_list_marker: BulletListMarker::Dash,
        ul_bullet_spacing: 1,
        ol_number_spacing: 1,
        ..Options::default()
    };
    let struck = |handlers: &dyn Handlers, element: Element<'_>| {
        let words = handlers.walk_children(element.node).content;
        Some(if words.trim().is_empty() { words } else { format!("~~{}~~", words.trim()) }.into())
    };
    let converter = HtmlToMarkdown::builder().options(options).add_handler(vec!["del", "s", "strike"], struck).build();
    let document = Node::new(NodeData::Document);
    document.children.borrow_mut().push(Rc::clone(content));
    tidy(&converter.tree_to_markdown(&document))
}

/// Words, lines and paragraphs, and nothing else.
fn plain(content: &Handle) -> String {
    enum NodeVisit {
        /// An element begins: whether it is code, and which item of a list or cell of a row it is.
        Enter(Handle, bool, Option<usize>),
        Leave(Handle),
    }
    let mut text = String::new();
    let mut stack = vec![NodeVisit::Enter(Rc::clone(content), false, None)];
    // Where the mark of an item ends: what it begins with stays on its line.
    let mut marked = None;
    while let Some(step) = stack.pop() {
        match step {
            NodeVisit::Leave(node) if marked != Some(text.len()) => line(&mut text, is_tag(&node, PARAGRAPHS)),
            NodeVisit::Leave(_) => {}
            NodeVisit::Enter(node, is_code, number) => match &node.data {
                NodeData::Text { contents } if is_code => text.push_str(&contents.borrow()),
                NodeData::Text { contents } => {
                    let contents = contents.borrow();
                    let starts_apart = contents.starts_with(char::is_whitespace);
                    if starts_apart && !text.is_empty() && !text.ends_with(char::is_whitespace) {
                        text.push(' ');
                    }
                    text.push_str(&one_line(&contents));
                    if contents.trim_start().ends_with(char::is_whitespace) {
                        text.push(' ');
                    }
                }
                NodeData::Element { .. } => {
                    if is_tag(&node, BLOCKS) {
                        if marked != Some(text.len()) {
                            line(&mut text, is_tag(&node, PARAGRAPHS));
                        }
                        stack.push(NodeVisit::Leave(Rc::clone(&node)));
                    }
                    match tag(&node) {
                        Some("li") => {
                            text.push_str(&number.map_or("- ".to_owned(), |number| format!("{number}. ")));
                            marked = Some(text.len());
                        }
                        Some("br") if marked != Some(text.len()) => line(&mut text, false),
                        Some("td" | "th") if number.is_some_and(|number| number > 1) => text.push('\t'),
                        Some(_) | None => {}
                    }
                    let is_code = is_code || tag(&node) == Some("pre");
                    let mut number = attribute(&node, "start").and_then(|start| start.parse().ok()).unwrap_or(1_usize);
                    let numbered: &[&str] = match tag(&node) {
                        Some("ol") => &["li"],
                        Some("tr") => &["td", "th"],
                        Some(_) | None => &[],
                    };
                    let child = |child: &Handle| {
                        let own = is_tag(child, numbered).then_some(number);
                        number = number.saturating_add(own.map_or(0, |_| 1));
                        NodeVisit::Enter(Rc::clone(child), is_code, own)
                    };
                    let at = stack.len();
                    stack.extend(node.children.borrow().iter().map(child));
                    stack[at..].reverse();
                }
                NodeData::Document
                | NodeData::Doctype { .. }
                | NodeData::Comment { .. }
                | NodeData::ProcessingInstruction { .. } => {}
            },
        }
    }
    tidy(&text)
}

/// Ends a line, and leaves an empty one.
fn line(text: &mut String, empty: bool) {
    let kept = text.trim_end_matches([' ', '\t']).len();
    text.truncate(kept);
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    if empty && !text.is_empty() && !text.ends_with("\n\n") {
        text.push('\n');
    }
}

/// At most one empty line at a time, no blanks at the ends of lines, and none around it all. Code is left as it is.
fn tidy(text: &str) -> String {
    // Where a word may be parted is nothing to read.
    let text = text.replace('\u{ad}', "");
    let mut tidy = String::with_capacity(text.len());
    let mut is_code = false;
    let mut empty = true;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        let line = if is_code { line } else { line.trim_end() };
        if line.is_empty() && empty && !is_code {
            continue;
        }
        empty = line.is_empty();
        tidy.push_str(line);
        tidy.push('\n');
    }
    tidy.trim_end().to_owned()
}
