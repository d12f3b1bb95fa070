//! A skill's `SKILL.md`: the front matter of the Agent Skills format, and the text behind it (X0-37).
//!
//! A stranger may have written it. What is read is bounded, in length, depth and aliases, and every field is checked.

use serde::{Deserialize, Serialize};

use crate::document::error::{Fault, ManifestError};
use crate::document::table::{Table, list, text, wrong};
use crate::document::tree::{DocumentValue, Node, Whole};
use crate::document::yaml;

/// Most bytes of a front matter.
pub const FRONT_MAX: usize = 16 * 1024;
/// Most bytes of a whole file.
pub const FILE_MAX: usize = 128 * 1024;
/// Most characters of a name.
const NAME_MAX: usize = 64;
/// Most characters of a description.
const DESCRIPTION_MAX: usize = 1024;
/// Most tools that one lists.
const TOOLS_MAX: usize = 64;

/// Description that a skill gives of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct FrontMatter {
    /// Its name, in kebab case: that of its directory.
    pub name: String,
    /// When to use it, in one line.
    pub description: String,
    /// Under which licence it is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub license: Option<String>,
    /// Other things that it needs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub compatibility: Option<String>,
    /// The tools that it means to use, as it spells them. They are a wish: none is granted by it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub allowed_tools: Vec<String>,
}

impl FrontMatter {
    /// Reads one. Keys that it does not know are for others.
    ///
    /// # Errors
    /// [`ManifestError`] with the line shown. `file` is for messages.
    pub fn parse(text: &str, file: &str) -> Result<Self, ManifestError> {
        front_matter(text).map_err(|fault| fault.into_error(text, file))
    }

    /// True if the fields are what [`FrontMatter::parse`] returns: for what comes from a process that read a stranger's
    /// text.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let line =
            |text: &String, most| one_line(text).is_some_and(|line| line == *text) && text.chars().count() <= most;
        let optional = |text: &Option<String>| text.as_ref().is_none_or(|text| line(text, DESCRIPTION_MAX));
        is_name(&self.name)
            && line(&self.description, DESCRIPTION_MAX)
            && optional(&self.license)
            && optional(&self.compatibility)
            && self.allowed_tools.len() <= TOOLS_MAX
            && self.allowed_tools.iter().all(|tool| line(tool, DESCRIPTION_MAX))
    }
}

/// The front matter of a file and the text behind it; `None` if it has none. Both are parts of the file.
#[must_use]
pub fn split(file: &str) -> Option<(&str, &str)> {
    let file = file.strip_prefix('\u{feff}').unwrap_or(file);
    let mut lines = file.split_inclusive('\n');
    let first = lines.next().filter(|line| is_fence(line))?;
    let mut at = first.len();
    for line in lines {
        if is_fence(line) {
            return Some((&file[first.len()..at], &file[at + line.len()..]));
        }
        at += line.len();
    }
    None
}

fn is_fence(line: &str) -> bool {
    line.trim_end() == "---"
}

/// True if a skill may be called so: 1 to 64 of `a-z`, `0-9` and `-`, with no `-` at an end or beside another.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let words = || name.split('-').all(|word| !word.is_empty() && word.chars().all(plain));
    name.len() <= NAME_MAX && words()
}

fn front_matter(text: &str) -> Result<FrontMatter, Fault> {
    let whole = Whole { what: "front matter", most: FRONT_MAX, empty: "it needs `name` and `description`" };
    let mut table = Table::open(whole.parse(text, yaml::parse)?, "the front matter")?;
    Ok(FrontMatter {
        name: table.required("name", name)?,
        description: table.required("description", line)?,
        license: table.optional("license", line)?,
        compatibility: table.optional("compatibility", line)?,
        allowed_tools: table.optional("allowed-tools", tools)?.unwrap_or_default(),
    })
}

fn name(node: Node) -> Result<String, Fault> {
    let span = node.span.clone();
    let name = text(node)?;
    let why = "a name has 1 to 64 of a-z, 0-9 and `-`, with no `-` at an end or beside another";
    if is_name(&name) { Ok(name) } else { Err(Fault::new(span, why)) }
}

/// A text in one line.
fn line(node: Node) -> Result<String, Fault> {
    let span = node.span.clone();
    let line =
        one_line(&text(node)?).ok_or_else(|| Fault::new(span.clone(), "it is empty, or holds a control character"))?;
    if line.chars().count() > DESCRIPTION_MAX {
        return Err(Fault::new(span, format!("it is longer than {DESCRIPTION_MAX} characters")));
    }
    Ok(line)
}

fn one_line(text: &str) -> Option<String> {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    (!line.is_empty() && !line.chars().any(char::is_control)).then_some(line)
}

/// A list, or its items in one text with blanks or commas between them: `Read, Bash(git add:*)`.
fn tools(node: Node) -> Result<Vec<String>, Fault> {
    let span = node.span.clone();
    let tools = match node.value {
        DocumentValue::Text(text) => apart(&text),
        DocumentValue::Array(_) => list(node, line)?,
        DocumentValue::Table(_) | DocumentValue::Integer(_) | DocumentValue::Bool(_) | DocumentValue::Other(_) => {
            return Err(wrong(&node, "a string"));
        }
    };
    let sound = tools.len() <= TOOLS_MAX && tools.iter().all(|tool| one_line(tool).is_some_and(|line| line == *tool));
    let why = || Fault::new(span, format!("it lists more than {TOOLS_MAX} tools, or holds a control character"));
    if sound { Ok(tools) } else { Err(why()) }
}

fn apart(text: &str) -> Vec<String> {
    let mut depth = 0_u32;
    let between = |c: char| {
        match c {
            '(' => depth = depth.saturating_add(1),
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && (c == ',' || c.is_whitespace())
    };
    text.split(between).filter(|tool| !tool.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
    use super::*;

    /// X0-37: what the format has is read, in one line each; what others add is left to them.
    #[test]
    fn x0_37_front_matter_is_read() {
        let file = "\u{feff}---\r\nname: fill-forms\ndescription: |\n  Fills forms.\n  Use it for PDFs.\nlicense: MIT\nversion: 1.0\n\
                    allowed-tools: Read, Bash(git add:*) Grep\nmetadata: {a: [1, {b: c}]}\n---\n# Body\n---\nmore\n";
        let (front, body) = split(file).unwrap();
        assert_eq!(body, "# Body\n---\nmore\n");
        let read = FrontMatter::parse(front, "SKILL.md").unwrap();
        assert_eq!((read.name.as_str(), read.description.as_str()), ("fill-forms", "Fills forms. Use it for PDFs."));
        assert_eq!((read.license.as_deref(), read.compatibility.as_deref()), (Some("MIT"), None));
        assert_eq!(read.allowed_tools, ["Read", "Bash(git add:*)", "Grep"]);
        assert!(read.is_sound());
        let list = FrontMatter::parse("name: a\ndescription: b\nallowed-tools: [Read, Grep]", "f").unwrap();
        assert_eq!(list.allowed_tools, ["Read", "Grep"]);
    }

    /// X0-37: what a stranger may have written to be taken for something else is refused.
    #[test]
    fn x0_37_front_matter_that_is_none_is_refused() {
        let long = "x".repeat(DESCRIPTION_MAX + 1);
        let bomb = "a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: [*c,*c,*c,*c,*c,*c,*c,*c]\n\
                    e: [*c,*c,*c,*c,*c,*c,*c,*c]\nname: a\ndescription: b\n";
        let deep = format!("name: a\ndescription: b\nx: {}{}", "[".repeat(100), "]".repeat(100));
        let big = format!("name: a\ndescription: b\nx: {}", "y".repeat(FRONT_MAX));
        for text in [
            "",
            "name: a",
            "description: b",
            "- name",
            "name: A\ndescription: b",
            "name: a--b\ndescription: b",
            "name: -a\ndescription: b",
            "name: ../a\ndescription: b",
            "name: [a]\ndescription: b",
            "name: a\ndescription: ''",
            "name: a\ndescription: \"\\e[2J\"",
            &format!("name: a\ndescription: {long}"),
            "name: a\nname: b\ndescription: c",
            "name: a\ndescription: b\nallowed-tools: {Read: yes}",
            "name: a\ndescription: b\n---\nname: c\ndescription: d",
            bomb,
            &deep,
            &big,
        ] {
            assert!(FrontMatter::parse(text, "SKILL.md").is_err(), "{text}");
        }
        for file in ["", "name: a", "--- x\nname: a\n---\n", "---\nname: a\n", "\n---\nname: a\n---\n"] {
            assert_eq!(split(file), None, "{file}");
        }
        assert!(!is_name("") && !is_name(&"a".repeat(65)) && is_name(&"a".repeat(64)));
    }
}
