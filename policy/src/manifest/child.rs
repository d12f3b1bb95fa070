//! Manifests of a manifest's own children: the sessions in which its agents work, and those in which its servers run.

use std::collections::BTreeMap;

use super::{Manifest, Net};
use crate::approval::ApprovalScope;

impl Manifest {
    /// Manifest in force for a session of one of its agents, within its parent: the agent's own requirements, ceiling,
    /// tools and rules, with the limits, environment and modes of this manifest, and of its credentials those that the
    /// agent names. Its rules come to those that the session inherits.
    #[must_use]
    pub fn of_agent(&self, name: &str) -> Option<Self> {
        let agent = self.agents.get(name)?;
        // This manifest's may be an agent's themselves: one that this has not got is not passed on either.
        let mut credentials = self.net.credentials.clone();
        credentials.retain(|credential| agent.credentials.contains(&credential.host));
        Some(Self {
            id: Some(name.to_owned()),
            // What a person has said of the project's own calls was not said of its agents'.
            approvals: ApprovalScope::default(),
            tools: agent.tools.clone(),
            // They are roots of its parent by now.
            roots: Vec::new(),
            requires: agent.asks_for(),
            ceiling: agent.ceiling.clone(),
            net: Net { credentials, ..self.net.clone() },
            rules: agent.rules.clone(),
            lines: agent.lines.clone(),
            rule_lines: agent.rule_lines.clone(),
            ceiling_lines: agent.ceiling_lines.clone(),
            ..self.clone()
        })
    }

    /// Manifest in force for the session in which one of its servers runs: the server's own requirements, environment
    /// and credentials, with the ceiling, limits and rules of this manifest. It has no tools.
    #[must_use]
    pub fn of_server(&self, name: &str) -> Option<Self> {
        let server = self.mcp.get(name)?;
        let mut credentials = self.net.credentials.clone();
        credentials.retain(|credential| server.credentials.contains(&credential.host));
        Some(Self {
            id: Some(name.to_owned()),
            approvals: ApprovalScope::default(),
            tools: Some(Vec::new()),
            requires: server.asks_for(),
            env: server.env.clone(),
            net: Net { credentials, search: None, rlm: None },
            agents: BTreeMap::new(),
            mcp: BTreeMap::new(),
            lsp: BTreeMap::new(),
            lines: server.lines.clone(),
            ..self.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use super::*;
    use crate::manifest::Format;

    /// X0-27: an agent has the credentials that it names, and one of its own agents no more than that.
    #[test]
    fn x0_27_credentials_are_passed_on_by_name_alone() {
        let text = r#"
            [[net.credentials]]
            host = "a.example"
            header = "X-Key"
            env = "A"
            [[net.credentials]]
            host = "b.example"
            header = "X-Key"
            env = "B"
            [agents.a]
            description = "x"
            credentials = ["A.example"]
            [agents.both]
            description = "x"
            credentials = ["a.example", "b.example"]
            [agents.none]
            description = "x"
        "#;
        let manifest = Manifest::parse(text, Format::Toml, "m.toml").unwrap();
        let of = |manifest: &Manifest, agent: &str| manifest.of_agent(agent).unwrap();
        let hosts = |manifest: &Manifest| -> Vec<String> {
            manifest.net.credentials.iter().map(|credential| credential.host.to_string()).collect()
        };
        assert_eq!(hosts(&of(&manifest, "a")), ["a.example"]);
        assert_eq!(hosts(&of(&manifest, "both")), ["a.example", "b.example"]);
        assert_eq!(hosts(&of(&manifest, "none")), [""; 0]);
        assert_eq!(hosts(&of(&of(&manifest, "a"), "both")), ["a.example"]);
        assert_eq!(hosts(&of(&of(&manifest, "none"), "both")), [""; 0]);
    }
}
