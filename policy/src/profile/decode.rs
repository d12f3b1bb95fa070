//! From a YAML file to a profile: S4's keys (X4-2), and what holds where one is left out.

use std::time::Duration;

use crate::document::error::{Fault, position};
use crate::document::table::{Table, boolean, choice, count, list, name, text, wrong};
use crate::document::tree::{DocumentValue, NOTHING, Node, Whole};
use crate::document::yaml;
use crate::mode::Mode;
use crate::rules::{Action, Permission, Rule};

use super::{Clause, DANGEROUS_PATTERNS, DANGEROUS_TOOLS, Database, FileWrite, MAX_BYTES, Placed, Profile, Shell};

/// The longest that a shell may be given by default: a day.
const LONGEST: u64 = 24 * 60 * 60;
/// S4's own, if nothing is said.
const TIMEOUT: Duration = Duration::from_secs(120);

const KEYS: [&str; 10] = [
    "profile",
    "name",
    "description",
    "shell",
    "file_write",
    "database",
    "approval",
    "shell_timeout",
    "shell_working_dir",
    "bash_only",
];

pub(super) fn profile(text: &str, file: &str) -> Result<Profile, Fault> {
    let whole = Whole { what: "profile", most: MAX_BYTES, empty: "write at least `profile:` and a name" };
    let places = LineNumbers { text, file };
    let mut top = Table::of(whole.parse(text, yaml::parse)?, "a profile", &KEYS)?;
    let named = top.optional("profile", name)?;
    let also = top.optional("name", name)?;
    let approval = top.optional("approval", |node| approval(node, &places))?;
    Ok(Profile {
        name: named.or(also).unwrap_or_else(|| "custom".to_owned()),
        file: None,
        description: top.optional("description", self::text)?,
        shell: top.optional("shell", |node| mode(node, "shell", shell))?.unwrap_or(Shell::Restricted),
        file_write: top.optional("file_write", |node| mode(node, "file_write", file_write))?.unwrap_or(FileWrite::Off),
        database: top.optional("database", |node| mode(node, "database", database))?.unwrap_or(Database::Readonly),
        bash_only: top.optional("bash_only", boolean)?.unwrap_or_default(),
        mode: Mode::Ask,
        approval: approval.unwrap_or_else(|| ApprovalSection::default().clauses(&places)),
        shell_timeout: Some(top.optional("shell_timeout", seconds)?.unwrap_or(TIMEOUT)),
        shell_working_dir: top.optional("shell_working_dir", |node| directory(node, &places))?.flatten(),
    })
}

/// Turns places in the text into lines.
struct LineNumbers<'a> {
    text: &'a str,
    file: &'a str,
}

impl LineNumbers<'_> {
    fn put<T>(&self, at: usize, value: T) -> Placed<T> {
        Placed { value, place: format!("{}:{}", self.file, position(self.text, at).0) }
    }
}

/// `{mode: x}`, or `x` alone, as S4 reads it too.
fn mode<T>(node: Node, what: &'static str, read: impl FnOnce(Node) -> Result<T, Fault>) -> Result<T, Fault> {
    if let DocumentValue::Table(_) = node.value {
        let span = node.span.clone();
        let value = Table::of(node, what, &["mode"])?.optional("mode", read)?;
        return value.ok_or_else(|| Fault::new(span, format!("{what} has no `mode`")));
    }
    read(node)
}

fn shell(node: Node) -> Result<Shell, Fault> {
    let parse = |name: &str| match name {
        "restricted" => Some(Shell::Restricted),
        "unrestricted" => Some(Shell::Unrestricted),
        _ => None,
    };
    choice(node, parse, &["restricted", "unrestricted"])
}

fn file_write(node: Node) -> Result<FileWrite, Fault> {
    // `off` without quotes is a boolean.
    if let DocumentValue::Bool(false) = node.value {
        return Ok(FileWrite::Off);
    }
    let parse = |name: &str| match name {
        "off" => Some(FileWrite::Off),
        "create-only" => Some(FileWrite::CreateOnly),
        "full" => Some(FileWrite::Full),
        _ => None,
    };
    choice(node, parse, &["off", "create-only", "full"])
}

fn database(node: Node) -> Result<Database, Fault> {
    let parse = |name: &str| match name {
        "readonly" => Some(Database::Readonly),
        "mutations" => Some(Database::Mutations),
        _ => None,
    };
    choice(node, parse, &["readonly", "mutations"])
}

fn seconds(node: Node) -> Result<Duration, Fault> {
    let span = node.span.clone();
    match count(node)? {
        seconds if seconds <= LONGEST => Ok(Duration::from_secs(seconds)),
        _ => Err(Fault::new(span, format!("a shell has at most {LONGEST} seconds"))),
    }
}

/// `null` is as good as nothing, for that is what S4 writes where there is none.
fn directory(node: Node, places: &LineNumbers<'_>) -> Result<Option<Placed<String>>, Fault> {
    if let DocumentValue::Other(NOTHING) = node.value {
        return Ok(None);
    }
    let at = node.span.start;
    Ok(Some(places.put(at, name(node)?)))
}

/// `approval`.
#[derive(Default)]
struct ApprovalSection {
    mode: ApprovalMode,
    /// Where that stands.
    at: usize,
    tools: Option<Vec<(usize, String)>>,
    patterns: Option<Vec<(usize, String)>>,
}

#[derive(Default, Clone, Copy)]
enum ApprovalMode {
    All,
    #[default]
    Dangerous,
    Granular,
    None,
}

fn approval(node: Node, places: &LineNumbers<'_>) -> Result<Vec<Placed<Clause>>, Fault> {
    let mut read = ApprovalSection { at: node.span.start, ..ApprovalSection::default() };
    if let DocumentValue::Table(_) = node.value {
        let mut table = Table::of(node, "approval", &["mode", "required_tools", "dangerous_patterns"])?;
        let at = &mut read.at;
        let mode = table.optional("mode", |node| {
            *at = node.span.start;
            approval_mode(node)
        })?;
        read.mode = mode.unwrap_or_default();
        read.tools = table.optional("required_tools", |node| placed(node, tool))?;
        read.patterns = table.optional("dangerous_patterns", |node| placed(node, name))?;
    } else {
        read.mode = approval_mode(node)?;
    }
    Ok(read.clauses(places))
}

fn approval_mode(node: Node) -> Result<ApprovalMode, Fault> {
    let parse = |name: &str| match name {
        "all" => Some(ApprovalMode::All),
        "dangerous" => Some(ApprovalMode::Dangerous),
        "granular" => Some(ApprovalMode::Granular),
        "none" => Some(ApprovalMode::None),
        _ => None,
    };
    choice(node, parse, &["all", "dangerous", "granular", "none"])
}

fn placed(node: Node, read: impl Fn(Node) -> Result<String, Fault>) -> Result<Vec<(usize, String)>, Fault> {
    match &node.value {
        DocumentValue::Array(_) => list(node, |item| Ok((item.span.start, read(item)?))),
        DocumentValue::Table(_)
        | DocumentValue::Text(_)
        | DocumentValue::Integer(_)
        | DocumentValue::Bool(_)
        | DocumentValue::Other(_) => Err(wrong(&node, "a list")),
    }
}

/// Not a capability, nor everything: S4 lists tools.
fn tool(node: Node) -> Result<String, Fault> {
    let span = node.span.clone();
    let name = name(node)?;
    match Permission::parse(&name) {
        Ok(Permission::Tool(_) | Permission::Effect { .. }) => Ok(name),
        Ok(_) | Err(_) => Err(Fault::new(span, format!("{name:?} is not the name of a tool"))),
    }
}

impl ApprovalSection {
    /// As rules (C-7). What is not said is S4's own: its dangerous tools, and where those are asked about, its dangerous
    /// patterns. Patterns that are said are asked about also where single tools are.
    fn clauses(self, places: &LineNumbers<'_>) -> Vec<Placed<Clause>> {
        let own = |list: &[&str]| list.iter().map(|item| (self.at, (*item).to_owned())).collect::<Vec<_>>();
        let ask = |tool: &str| Rule::new(tool, Action::Ask);
        let (tools, patterns) = match self.mode {
            ApprovalMode::All => return vec![places.put(self.at, Clause::Rule(ask("*")))],
            ApprovalMode::None => return vec![places.put(self.at, Clause::Rest)],
            ApprovalMode::Dangerous => {
                let mut tools = self.tools.unwrap_or_default();
                let is_said = |tool: &str| tools.iter().any(|(_, said)| said == tool);
                let unsaid: Vec<&str> = DANGEROUS_TOOLS.into_iter().filter(|tool| !is_said(tool)).collect();
                tools.extend(own(&unsaid));
                (tools, self.patterns.unwrap_or_else(|| own(&DANGEROUS_PATTERNS)))
            }
            ApprovalMode::Granular => {
                (self.tools.unwrap_or_else(|| own(&DANGEROUS_TOOLS)), self.patterns.unwrap_or_default())
            }
        };
        let tools = tools.iter().map(|(at, tool)| places.put(*at, Clause::Rule(ask(tool))));
        let patterns = patterns.into_iter().map(|(at, text)| places.put(at, Clause::Phrase(text)));
        std::iter::once(places.put(self.at, Clause::Rest)).chain(tools).chain(patterns).collect()
    }
}
