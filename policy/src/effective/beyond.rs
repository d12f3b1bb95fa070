//! Requirements of tools that nobody else named.

use super::origin::{Kind, Source};
use super::region::{Region, Scope};
use super::{Declared, EffectiveSet};

/// Rights of one kind that are in force because tools require them, beyond what others named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beyond {
    /// The kind.
    pub kind: Kind,
    /// The tools' names, in order.
    pub tools: Vec<String>,
    /// Requirements, as the tools publish them.
    pub required: Vec<String>,
}

/// The rights in force that a tool requires and that do not lie within what is `named`.
#[must_use]
pub fn beyond(effective: &EffectiveSet, named: &Declared) -> Vec<Beyond> {
    let (rights, named) = (effective.rights(), named.rights());
    let all = [
        of_kind(Kind::Read, &rights.read, &named.read),
        of_kind(Kind::Write, &rights.write, &named.write),
        of_kind(Kind::Hosts, &rights.hosts, &named.hosts),
        of_kind(Kind::Shell, &rights.shell, &named.shell),
        of_kind(Kind::Capabilities, &rights.capabilities, &named.capabilities),
    ];
    all.into_iter().flatten().collect()
}

fn of_kind<T: Region>(kind: Kind, rights: &Scope<T>, named: &Scope<T>) -> Option<Beyond> {
    let mut found = Beyond { kind, tools: Vec::new(), required: Vec::new() };
    for (region, origins) in rights.iter() {
        if named.iter().any(|(named, _)| region.within(named)) {
            continue;
        }
        // What may be written may be read, and is told of as written.
        for origin in origins.iter().filter(|origin| origin.kind == kind) {
            let Source::Tool(tool) = &origin.source else { continue };
            for (list, item) in [(&mut found.tools, tool), (&mut found.required, &origin.text)] {
                if !list.contains(item) {
                    list.push(item.clone());
                }
            }
        }
    }
    (!found.tools.is_empty()).then_some(found)
}
