//! Kin: what a tool outside the lock does that a locked one does as well. Rules that deny or ask about the locked one hold for it,
//! as far as they hold for the locked one itself (C-22).

use callgate_policy::need::CallNeeds;
use callgate_policy::rules::{CommandPart, RuledPart};

/// A locked tool that a tool is kin of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kin {
    /// It starts programs.
    Bash,
    /// It tells what files hold.
    Read,
    /// It makes files.
    Write,
    /// It changes files.
    Edit,
    /// It tells which files there are.
    Glob,
    /// It starts subagents, or tells them something.
    Task,
}

impl Kin {
    const ALL: [Self; 6] = [Self::Bash, Self::Read, Self::Write, Self::Edit, Self::Glob, Self::Task];

    /// The locked tool of this name, if any can be kin of it.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kin| kin.name() == name)
    }

    /// The locked tool's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Read => "read",
            Self::Write => "write",
            Self::Edit => "edit",
            Self::Glob => "glob",
            Self::Task => "task",
        }
    }

    /// The parts of a call that the locked tool's rules are asked about: of all that it needs, what is of this kind.
    pub(crate) fn parts<'a>(
        self,
        needs: &'a CallNeeds,
        (commands, unseen): (Option<&'a [CommandPart]>, RuledPart<'a>),
        input: Option<&'a str>,
    ) -> Vec<RuledPart<'a>> {
        let trees = || needs.read_below.iter().map(RuledPart::Tree);
        match self {
            Self::Bash | Self::Task => {
                let mut parts: Vec<_> = match commands {
                    // What is typed to a program that runs; an agent that is no program.
                    _ if needs.shell.is_none() => vec![RuledPart::Nothing],
                    None | Some([]) => vec![unseen],
                    Some(commands) => commands.iter().map(RuledPart::Command).collect(),
                };
                parts.extend(input.map(RuledPart::Input));
                parts
            }
            Self::Read => needs.read.iter().map(RuledPart::File).chain(trees()).collect(),
            Self::Write | Self::Edit => needs.write.iter().map(RuledPart::File).collect(),
            Self::Glob => trees().collect(),
        }
    }
}
