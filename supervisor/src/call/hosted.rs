//! Calls that the session answers itself.

use callgate_policy::failure::ErrorCode;
use serde_json::{Value, json};

use super::skills;
use crate::error::CallError;
use crate::id::new_id;
use crate::inquiry::{Inquiry, Query, Unanswered};
use crate::registry::Hosted;
use crate::registry::hosted::tool_search::{self, UNLIMITED};
use crate::registry::{Registry, Tool};
use crate::session::Session;
use crate::store::{Notes, Plan, Recording, StoreError, Todo, TodoStatus};
use crate::turn::Concurrency;

/// Most names that an error lists.
const NAMES: usize = 100;

impl Session {
    /// Answers a call that all layers let pass.
    pub(super) async fn answer_itself(
        &self,
        hosted: Hosted,
        registry: &Registry,
        args: Value,
        recording: &mut Recording,
    ) -> Result<Value, CallError> {
        match hosted {
            Hosted::Todo => self.keep_todos(args),
            Hosted::Plan => self.keep_plan(args),
            Hosted::Question => self.ask_people(args, recording).await,
            Hosted::Skill => skills::answer(self, &args).await,
            Hosted::ToolSearch => self.search_tools(registry, &args),
        }
    }

    /// Changes the notes of the session's agent. What cannot be recorded is not changed.
    fn change_notes(&self, change: impl FnOnce(&mut Notes)) -> Result<(), StoreError> {
        self.notebook.change(&self.recorder, change)
    }

    /// `todo`.
    fn keep_todos(&self, mut args: Value) -> Result<Value, CallError> {
        if let Some(given) = args.get_mut("todos").map(Value::take) {
            let todos: Vec<Todo> = serde_json::from_value(given).map_err(|e| CallError::Arguments(e.to_string()))?;
            let begun = todos.iter().filter(|todo| todo.status == TodoStatus::InProgress).count();
            if begun > 1 {
                return Err(CallError::Arguments(format!(
                    "argument `todos`: {begun} items are in_progress, and at most one may be; the list is as it was"
                )));
            }
            self.change_notes(|notes| notes.todo = todos)?;
        }
        Ok(json!({ "todos": self.todos() }))
    }

    /// `update_plan`.
    fn keep_plan(&self, args: Value) -> Result<Value, CallError> {
        let plan: Plan = serde_json::from_value(args).map_err(|e| CallError::Arguments(e.to_string()))?;
        let begun = plan.plan.iter().filter(|step| step.status == TodoStatus::InProgress).count();
        if begun > 1 {
            return Err(CallError::Arguments(format!(
                "argument `plan`: {begun} steps are in_progress, and at most one may be; the plan is as it was"
            )));
        }
        let told = json!(plan);
        self.change_notes(|notes| notes.plan = plan)?;
        Ok(told)
    }

    /// The session's other calls wait meanwhile: it is alone when its turn has come (S0-26).
    async fn ask_people(&self, args: Value, recording: &mut Recording) -> Result<Value, CallError> {
        let questions: Vec<Query> =
            serde_json::from_value(args["questions"].clone()).map_err(|e| CallError::Arguments(e.to_string()))?;
        let blank = |query: &Query| {
            query.question.trim().is_empty() || query.options.iter().any(|option| option.label.trim().is_empty())
        };
        if questions.iter().any(blank) {
            return Err(CallError::Arguments("argument `questions`: a question and a label say something".to_owned()));
        }
        if !self.gate.people.is_anybody_there() {
            return Err(Unanswered::Nobody.into());
        }
        // Behind the approvals that people are asked for, and before those that come later.
        let _asking = self.gate.questions.take(Concurrency::Alone).await;
        // A question that nobody has answered is there after a crash.
        recording.wait_for_answer().await?;
        Ok(json!({ "answers": self.inquire_now(questions).await? }))
    }

    /// `tool_search`.
    fn search_tools(&self, registry: &Registry, args: &Value) -> Result<Value, CallError> {
        let query = args["query"].as_str().unwrap_or_default().trim();
        if query.is_empty() {
            return Err(CallError::Arguments(
                "argument `query`: it is empty; give a part of a name or description".to_owned(),
            ));
        }
        let found = ranked(registry, query);
        if found.is_empty() {
            return Err(CallError::Told { text: nothing(registry, query), code: ErrorCode::NotFound });
        }
        let most = if args[UNLIMITED].as_u64() == Some(1) { usize::MAX } else { tool_search::MOST };
        let (told, omitted) = found.split_at(found.len().min(most));
        self.change_notes(|notes| notes.loaded.extend(told.iter().map(|tool| tool.name.clone())))?;
        let whole = |tool: &&Tool| {
            let mut whole = json!({ "id": tool.name, "description": tool.description, "parameters": tool.parameters });
            if let Some(output) = &tool.output_schema {
                whole["output_schema"] = Value::clone(output);
            }
            whole
        };
        Ok(json!({ "matches": told.iter().map(whole).collect::<Vec<_>>(), "omitted": omitted.len() }))
    }

    /// The session's list of what is to be done, as its agent keeps it with `todo`.
    #[must_use]
    pub fn todos(&self) -> Vec<Todo> {
        self.notebook.notes().todo
    }

    /// Asks the session's people something on the host's own account, in the same queue in which the agent's questions and
    /// approvals are (X1-20). It is not recorded.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub async fn inquire(&self, questions: Vec<Query>) -> Result<Vec<Vec<String>>, Unanswered> {
        let _asking = self.gate.questions.take(Concurrency::Alone).await;
        self.inquire_now(questions).await
    }

    async fn inquire_now(&self, questions: Vec<Query>) -> Result<Vec<Vec<String>>, Unanswered> {
        // Without random bytes there is no session either.
        let id = new_id("ask_").unwrap_or_default();
        let inquiry = Inquiry { id, session: self.id.clone(), questions };
        let (by, answers) = self.gate.people.inquire(inquiry).await?;
        tracing::info!(session = self.id, by, "questions were answered");
        Ok(answers)
    }

    /// S3-8: a deferred tool is called once its schema has been returned, by a search of this session.
    pub(crate) fn refuse_what_is_deferred(&self, tool: &Tool) -> Result<(), CallError> {
        if !tool.deferred || self.is_loaded(tool) {
            return Ok(());
        }
        let registry = self.registry();
        let search = registry
            .tools()
            .find(|tool| tool.own_name() == tool_search::NAME)
            .map_or(tool_search::NAME, |tool| tool.name.as_str());
        Err(CallError::Deferred { tool: tool.name.clone(), search: search.to_owned() })
    }

    /// True if a tool can be called as far as that goes: it is not deferred, or `tool_search` has returned it.
    #[must_use]
    pub fn is_loaded(&self, tool: &Tool) -> bool {
        !tool.deferred || self.notebook.has_loaded(&tool.name)
    }
}

/// All deferred tools whose name or description contains the query (S3-9): by how well they fit, then by name (C-11).
fn ranked<'a>(registry: &'a Registry, query: &str) -> Vec<&'a Tool> {
    let query = query.to_lowercase();
    let rank = |tool: &Tool| {
        let name = tool.name.to_lowercase();
        match name.find(&query) {
            Some(_) if name == query => Some(0),
            Some(0) => Some(1),
            Some(_) => Some(2),
            None => tool.description.to_lowercase().contains(&query).then_some(3),
        }
    };
    let mut found: Vec<(u8, &Tool)> = deferred(registry).filter_map(|tool| Some((rank(tool)?, tool))).collect();
    found.sort_by_key(|(rank, tool)| (*rank, tool.name.as_str()));
    found.into_iter().map(|(_, tool)| tool).collect()
}

fn deferred(registry: &Registry) -> impl Iterator<Item = &Tool> {
    registry.tools().filter(|tool| tool.deferred)
}

/// A miss says what there is (C-11).
fn nothing(registry: &Registry, query: &str) -> String {
    let mut names: Vec<&str> = deferred(registry).map(|tool| tool.name.as_str()).collect();
    names.sort_unstable();
    let more = names.len().saturating_sub(NAMES);
    names.truncate(NAMES);
    let there = match (names.is_empty(), more) {
        (true, _) => "no tool is deferred: those that are listed can be called as they are".to_owned(),
        (false, 0) => format!("there are: {}", names.join(", ")),
        (false, more) => format!("there are: {}, and {more} more", names.join(", ")),
    };
    format!("no deferred tool has {query:?} in its name or description; {there}")
}
