//! Skills of a session, read by a worker, and the tool that returns one.

use std::os::fd::AsFd as _;
use std::sync::PoisonError;

use callgate_policy::failure::ErrorCode;
use callgate_policy::skill::{FrontMatter, split};
use callgate_tools::skill::NAME;
use serde_json::{Value, json};

use crate::error::CallError;
use crate::origin::Origin;
use crate::registry::hosted::skill::{Candidate, FILE, digest_of, front_of, text_of};
use crate::registry::{Skill, SkillLeftOut, Skills};
use crate::session::Session;

pub(super) async fn answer(session: &Session, args: &Value) -> Result<Value, CallError> {
    let name = args["name"].as_str().unwrap_or_default();
    let index = session.skills().await?;
    let Some(skill) = index.skills.iter().find(|skill| skill.front.name == name) else {
        let names: Vec<&str> = index.skills.iter().map(|skill| skill.front.name.as_str()).collect();
        let there =
            if names.is_empty() { "there are none".to_owned() } else { format!("there are: {}", names.join(", ")) };
        return Err(CallError::Told {
            text: format!("there is no skill {name:?}; {there}"),
            code: ErrorCode::NotFound,
        });
    };
    Ok(json!({ "content": session.body_of(skill).map_err(|why| CallError::Tool(format!("the skill {name}: {why}")))? }))
}

impl Session {
    /// The skills that there are: what a host tells the model, a line each (S0-31). They are looked at once.
    ///
    /// # Errors
    /// [`CallError`] if there is no worker to read them: in a session for one call there is none but that call's.
    pub async fn skills(&self) -> Result<&Skills, CallError> {
        self.notebook.skills.index.get_or_try_init(|| self.look_at_skills()).await
    }

    async fn look_at_skills(&self) -> Result<Skills, CallError> {
        let found = &self.notebook.skills.found;
        let mut all = Skills { skills: Vec::new(), left_out: found.left_out.clone() };
        for candidate in &found.skills {
            let read = match self.text_of_skill(candidate) {
                Ok(text) => self.described(candidate, &text).await?,
                Err(why) => Err(why),
            };
            let directory = candidate.directory.clone();
            let why = match read {
                Ok(front) if all.skills.iter().any(|skill| skill.front.name == front.name) => {
                    "there is another of that name, which counts".to_owned()
                }
                Ok(front) => {
                    all.skills.push(Skill { front, origin: candidate.origin.clone(), directory });
                    continue;
                }
                Err(why) => why,
            };
            all.left_out.push(SkillLeftOut { path: directory, why });
        }
        all.skills.sort_by(|a, b| a.front.name.cmp(&b.front.name));
        Ok(all)
    }

    /// The text of a skill's file, if it is what it must be.
    fn text_of_skill(&self, candidate: &Candidate) -> Result<String, String> {
        let gone = || "its place has gone".to_owned();
        let base = match candidate.origin {
            Origin::Project => self.first_root().ok_or_else(gone)?,
            Origin::Bundled | Origin::User | Origin::Mcp(_) => {
                self.notebook.skills.found.home.as_ref().ok_or_else(gone)?
            }
        };
        let text = text_of(base.as_fd(), &candidate.file, &candidate.origin)?;
        if candidate.digest != digest_of(&text) {
            return Err("SKILL.md has changed since the session was opened".to_owned());
        }
        Ok(text)
    }

    /// Description that it gives of itself, read by a worker.
    async fn described(&self, candidate: &Candidate, text: &str) -> Result<Result<FrontMatter, String>, CallError> {
        let front = match front_of(text) {
            Ok(front) => front,
            Err(why) => return Ok(Err(why)),
        };
        let args = json!({ "text": front, "file": FILE });
        let said = match self.said_by_reader("read a skill", NAME, args).await? {
            Ok(said) => said,
            Err(why) => return Ok(Err(format!("its front matter {why}"))),
        };
        if let Some(why) = said["why"].as_str() {
            return Ok(Err(why.chars().take(1000).collect()));
        }
        let front: Option<FrontMatter> = serde_json::from_value(said["front"].clone()).ok();
        Ok(match front.filter(FrontMatter::is_sound) {
            Some(front) if front.name == candidate.name => Ok(front),
            Some(front) => {
                Err(format!("it is called {:?} in its front matter, which its directory is not", front.name))
            }
            None => Err("its front matter could not be read".to_owned()),
        })
    }

    /// The instructions, between marks that tell which skill they are of. The same again when it is asked again.
    fn body_of(&self, skill: &Skill) -> Result<String, String> {
        let name = &skill.front.name;
        let mut loaded = self.notebook.skills.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(body) = loaded.get(name) {
            return Ok(body.clone());
        }
        let mine = |candidate: &&Candidate| candidate.directory == skill.directory;
        let candidate = self.notebook.skills.found.skills.iter().find(mine).ok_or("it is not there")?;
        let text = self.text_of_skill(candidate)?;
        let (_, body) = split(&text).ok_or("SKILL.md does not begin with a front matter any more")?;
        // No text ends its own mark.
        let body = body.replace("</skill_content", "<\\/skill_content");
        let attribute = |text: &str| text.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;");
        let directory = attribute(&skill.directory.to_string());
        let content = format!(
            "<skill_content name=\"{name}\" directory=\"{directory}\">\n{}\n</skill_content>",
            body.trim_matches('\n')
        );
        loaded.insert(name.clone(), content.clone());
        Ok(content)
    }
}
