//! Patterns about work that is handed to a subagent.

use serde_json::{Map, Value};

use crate::effect::ServedRequest;
use crate::variable::Variables;

use super::act::{AgentMatter, AgentPart};
use super::request::RequestPattern;
use super::values;
use super::wildcard::{Specificity, Wildcard};

/// `NAME` is an agent by its name, `NAME: PROMPT` a prompt of it, `NAME: SETTING=VALUE` another argument of its call. A rule that
/// denies or asks needs no `NAME: `, and compares a prompt without regard to capitals and to what nobody sees.
#[derive(Debug, Clone)]
pub(super) struct AgentPattern {
    written: Wildcard,
    small: Wildcard,
    settings: RequestPattern,
    /// The pattern behind `NAME: `, with one for the name.
    of_agent: Option<(Wildcard, RequestPattern)>,
}

impl AgentPattern {
    pub(super) fn new(text: &str) -> Self {
        // No argument is taken for a path: nobody says what reads it.
        let settings = |text: &str| RequestPattern::new(text, &Variables::default());
        let of_agent = text.split_once(": ").map(|(agent, rest)| (Wildcard::new(agent), settings(rest)));
        let small = Wildcard::new(&text.to_lowercase());
        Self { written: Wildcard::new(text), small, settings: settings(text), of_agent }
    }

    /// As it is written.
    pub(super) fn text(&self) -> &str {
        self.written.text()
    }

    pub(super) fn specificity(&self) -> Specificity {
        self.written.specificity()
    }

    /// True if a part may be meant.
    pub(super) fn touches(&self, AgentPart { agent, what }: &AgentPart<'_>) -> bool {
        self.written.matches(agent)
            || match what {
                AgentMatter::Prompt(prompt) => values::as_seen(prompt).iter().any(|prompt| {
                    let prompt = prompt.to_lowercase();
                    self.small.touches(&prompt) || self.small.touches(&format!("{}: {prompt}", agent.to_lowercase()))
                }),
                AgentMatter::Setting(name, value) => {
                    let of_agent = self.of_agent.as_ref().filter(|(name, _)| name.matches(agent));
                    let patterns = of_agent.map(|(_, pattern)| pattern).into_iter().chain([&self.settings]);
                    let arguments: Map<String, Value> = [((*name).to_owned(), (*value).clone())].into_iter().collect();
                    let arguments = Value::Object(arguments);
                    let request = ServedRequest { tool: String::new(), arguments, key: None, words: None };
                    patterns.into_iter().any(|pattern| pattern.touches(&request))
                }
            }
    }

    /// True if all that a part may be is meant: what is not known of a prompt, by `*` alone.
    pub(super) fn covers(&self, AgentPart { agent, what }: &AgentPart<'_>) -> bool {
        let part = match what {
            AgentMatter::Prompt(prompt) => format!("{agent}: {prompt}"),
            AgentMatter::Setting(name, Value::String(text)) => format!("{agent}: {name}={text}"),
            AgentMatter::Setting(name, value) => format!("{agent}: {name}={value}"),
        };
        self.written.matches(agent) || self.written.matches(&part)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn prompt<'a>(agent: &'a str, prompt: &'a str) -> AgentPart<'a> {
        AgentPart { agent, what: AgentMatter::Prompt(prompt.into()) }
    }

    /// Each prompt and each setting is compared as itself.
    #[test]
    fn a_pattern_is_about_each_part_of_the_work() {
        let touches = |pattern: &str, part: &AgentPart<'_>| AgentPattern::new(pattern).touches(part);
        let covers = |pattern: &str, part: &AgentPart<'_>| AgentPattern::new(pattern).covers(part);
        let deploy = prompt("reader", "deploy to production");
        for pattern in ["deploy to production", "*production*", "reader: deploy *", "reader", "read*", "DEPLOY *"] {
            assert!(touches(pattern, &deploy), "{pattern}");
        }
        for pattern in ["reader: deploy *", "reader", "reader: *", "*"] {
            assert!(covers(pattern, &deploy), "{pattern}");
        }
        for pattern in ["deploy to production", "writer", "writer: *", "reader: DEPLOY *"] {
            assert!(!covers(pattern, &deploy), "{pattern}");
        }
        assert!(!touches("writer: deploy *", &deploy) && !touches("*staging*", &deploy));
        for text in ["Deploy to Production", "deploy to pro\u{200b}duction", "deploy to \0", "\0", "deploy \0tion"] {
            assert!(touches("deploy to production", &prompt("reader", text)), "{text:?}");
        }
        let unknown = prompt("reader", "look at \0");
        assert!(covers("reader: look at *", &unknown) && !covers("reader: look at x", &unknown));
        assert!(!touches("deploy *", &unknown) && touches("*deploy*", &unknown));
        let (metadata, tools) = (json!({ "team": "production" }), json!(["bash"]));
        let setting = AgentPart { agent: "reader", what: AgentMatter::Setting("metadata", &metadata) };
        for pattern in
            ["*production*", "metadata.team=production", "reader: metadata.team=prod*", "reader", "production"]
        {
            assert!(touches(pattern, &setting), "{pattern}");
        }
        assert!(!touches("writer: metadata.team=*", &setting) && !touches("metadata.team=test", &setting));
        let tools = AgentPart { agent: "reader", what: AgentMatter::Setting("allowed_tools", &tools) };
        assert!(touches("allowed_tools=bash", &tools) && covers("reader: allowed_tools=*", &tools));
        assert!(covers("reader", &tools) && covers("reader: *", &tools) && !covers("reader: look *", &tools));
    }
}
