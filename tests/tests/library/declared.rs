//! The life of a session's declared tools, as a host steers it.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use callgate::policy::mode::Mode;
use callgate::trust::{Decision, Found, TrustList};
use callgate::{Launcher, OpenError, Outcome, ReloadError, Session, SessionSpec, Supervisor, ToolState};
use serde_json::json;

use super::{STRENGTHS, callgate, until};

/// A tool in the project, that says a word when the workspace has the file `go`.
fn tool(project: &Path, word: &str) {
    let tools = project.join(".callgate/tools");
    fs::create_dir_all(&tools).unwrap();
    let definition = "name = \"say\"\ndescription = \"Says it.\"\ncommand = [\"sh\", \"./say.sh\"]\n[requires]\nshell = [{ cmd = \"sleep\" }]\n\
                      fs = { write = [\"{workspace}/**\"] }\n";
    fs::write(tools.join("say.toml"), definition).unwrap();
    let script = format!("echo > began; until [ -e go ]; do sleep 0.05; done; echo '\"{word}\"'\n");
    fs::write(tools.join("say.sh"), script).unwrap();
}

/// A session of a trusted project in each strength.
fn in_projects(test: impl AsyncFn(Arc<Session>, &Path, &TrustList)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for strength in STRENGTHS {
        let place = tempfile::tempdir().unwrap();
        let (project, list) = (place.path().join("project"), TrustList::at(place.path().join("list")));
        fs::create_dir(&project).unwrap();
        fs::write(project.join("callgate.toml"), "id = \"x\"\n").unwrap();
        tool(&project, "first");
        list.trust(&project, Decision::Trusted).unwrap();
        let Found::Trusted(found) = list.find(&project).unwrap() else { panic!("it is trusted") };
        runtime.block_on(async {
            let supervisor = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap()).build().unwrap();
            let spec = SessionSpec::of_project(&project, *found).strength(strength).mode(Mode::Yolo);
            let session = Arc::new(supervisor.open(spec).await.unwrap());
            test(session, &project, &list).await;
        });
    }
}

async fn said(session: &Session) -> String {
    let result = session.call("say", json!({})).await;
    result
        .data
        .map_or_else(|| result.error_text.unwrap_or_default(), |data| data.as_str().unwrap_or_default().to_owned())
}

/// S1-26, S1-20: a reload waits while a call is in flight, which ends as what it was; then the tools are what the project says, if
/// that is trusted, and else what they were.
#[test]
fn s1_26_s1_20_a_reload_waits_while_a_call_is_in_flight() {
    in_projects(async |session, project, list| {
        let call = tokio::spawn({
            let session = Arc::clone(&session);
            async move { said(&session).await }
        });
        until("it runs", || project.join("began").exists()).await;
        tool(project, "second");
        list.trust(project, Decision::Trusted).unwrap();
        let reload = tokio::spawn({
            let session = Arc::clone(&session);
            async move { session.reload_tools().await }
        });
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert!(!reload.is_finished() && !call.is_finished());
        fs::write(project.join("go"), "").unwrap();
        assert_eq!(call.await.unwrap(), "first");
        reload.await.unwrap().unwrap();
        assert_eq!(said(&session).await, "second");
        tool(project, "third");
        assert!(matches!(session.reload_tools().await, Err(ReloadError::Trust(_))));
        assert!(said(&session).await.contains("has changed"), "what is there is not what was trusted");
    });
}

/// X0-55, E1: a directory that has taken a project's name since its manifest was found is not opened with that.
#[test]
fn x0_55_e1_a_directory_that_took_a_project_s_name_is_not_opened() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for strength in STRENGTHS {
        let place = tempfile::tempdir().unwrap();
        let top = place.path().canonicalize().unwrap();
        let (project, aside, list) = (top.join("project"), top.join("aside"), TrustList::at(top.join("list")));
        for directory in [&project, &top.join("other")] {
            fs::create_dir(directory).unwrap();
            fs::write(directory.join("callgate.toml"), "id = \"x\"\n").unwrap();
        }
        list.trust(&project, Decision::Trusted).unwrap();
        let Found::Trusted(found) = list.find(&project).unwrap() else { panic!("it is trusted") };
        runtime.block_on(async {
            let supervisor = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap()).build().unwrap();
            let open =
                async || supervisor.open(SessionSpec::of_project(&project, (*found).clone()).strength(strength)).await;
            open().await.map(drop).expect("the control");
            fs::rename(&project, &aside).unwrap();
            fs::rename(top.join("other"), &project).unwrap();
            let Err(OpenError::OtherProject { path }) = open().await else { panic!("it is another directory") };
            assert_eq!(path.as_path(), project, "{strength:?}");
            fs::rename(&project, top.join("other")).unwrap();
            fs::rename(&aside, &project).unwrap();
            open().await.map(drop).expect("the control: the same directory is there again");
        });
    }
}

/// S1-20: a tool that is deactivated ends what is in flight and takes no more; what was disposed of is gone. Twice is as once.
#[test]
fn s1_20_a_deactivated_tool_drains_and_refuses() {
    in_projects(async |session, project, _| {
        let call = tokio::spawn({
            let session = Arc::clone(&session);
            async move { said(&session).await }
        });
        until("it runs", || project.join("began").exists()).await;
        assert_eq!(session.tool_state("say"), Some(ToolState::Active));
        let end = tokio::spawn({
            let session = Arc::clone(&session);
            async move { session.deactivate_tool("say").await }
        });
        while session.tool_state("say") != Some(ToolState::Deactivating) {
            tokio::task::yield_now().await;
        }
        assert!(said(&session).await.contains("deactivated"), "it takes no more");
        assert!(!end.is_finished() && !call.is_finished());
        let other = session.call("bash", json!({ "command": "true" }));
        fs::write(project.join("go"), "").unwrap();
        assert_eq!(other.await.kind, Outcome::Output, "others go on");
        assert_eq!(call.await.unwrap(), "first");
        end.await.unwrap();
        session.deactivate_tool("say").await;
        assert_eq!(session.tool_state("say"), Some(ToolState::Inactive));
        session.activate_tool("say");
        assert_eq!(said(&session).await, "first");
        assert!(session.dispose_tool("say").await && !session.dispose_tool("say").await);
        assert!(said(&session).await.contains("there is no tool `say`"));
    });
}
