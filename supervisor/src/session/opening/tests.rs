//! Refusals of the stages where somebody changes the world between two of them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed unwrap fails the test")]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use callgate_policy::manifest::{Format, Manifest};
use callgate_worker::protocol::Channel;

use super::*;
use crate::confine::Launcher;
use crate::error::CallError;
use crate::store::StoreError;

const STRENGTHS: [Strength; 2] = [Strength::Namespaces, Strength::Landlock];

/// A workspace, and a directory beside it in which no call may write.
struct World {
    _held: tempfile::TempDir,
    top: PathBuf,
    workspace: PathBuf,
    data: PathBuf,
}

impl World {
    /// Makes it, with these directories beside the workspace.
    fn with(directories: &[&str]) -> Self {
        let held = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(held.path()).unwrap();
        let (workspace, data) = (top.join("ws"), top.join("data"));
        fs::create_dir(&workspace).unwrap();
        directories.iter().for_each(|name| fs::create_dir_all(top.join(name)).unwrap());
        Self { _held: held, top, workspace, data }
    }

    /// Has the link `link` in `data` lead to another directory there.
    fn turn(&self, to: &str) {
        symlink(to, self.data.join("next")).unwrap();
        fs::rename(self.data.join("next"), self.data.join("link")).unwrap();
    }

    /// Settings of a user's, by the name that they have with everybody.
    fn settings(&self) -> PathBuf {
        self.top.join("u/.config/callgate")
    }

    /// Declares a tool of the user's that reads in this directory of `data`.
    fn declare(&self, name: &str, reads: &str) {
        let (file, reads) = (self.settings().join(format!("tools/{name}.toml")), self.data.join(reads));
        let text = format!(
            "name = \"{name}\"\ndescription = \"x\"\ncommand = [\"/bin/echo\", \"1\"]\n[requires.fs]\nread = [\"{}/**\"]\n",
            reads.display()
        );
        fs::write(file, text).unwrap();
    }

    /// Specification with this manifest, in which `DATA` is the directory `data`.
    fn spec(&self, manifest: &str) -> SessionSpec {
        let text = manifest.replace("DATA", self.data.to_str().unwrap());
        SessionSpec::with_manifest(&self.workspace, Manifest::parse(&text, Format::Toml, "m.toml").unwrap())
    }
}

/// Supervisor whose launcher nobody asks: nothing is confined.
fn supervisor() -> Supervisor {
    Supervisor::builder().launcher(Launcher::over(Channel::pair().unwrap().0)).build().unwrap()
}

/// First three stages.
fn judged(supervisor: &Supervisor, spec: &mut SessionSpec) -> Result<JudgedRights, OpenError> {
    let held = HeldRoots::find(spec, None)?;
    let tools = BelievedTools::of(&held, spec, None)?;
    JudgedRights::of(supervisor, (held, tools), spec, None)
}

/// Stages after the third.
fn bound(
    supervisor: &Supervisor,
    strength: Strength,
    judged: JudgedRights,
    spec: &SessionSpec,
) -> Result<BoundPlan, OpenError> {
    let recorded = RecordedRights::of(supervisor, judged, spec, None)?;
    BoundPlan::of(supervisor, strength, &recorded, spec, (false, None))
}

/// Supervisor with a launcher.
fn confining_supervisor() -> Supervisor {
    let exe = std::env::current_exe().unwrap();
    let binary = exe.ancestors().nth(2).unwrap().join("callgate");
    assert!(binary.is_file(), "{} is not built: cargo build -p callgate-cli", binary.display());
    Supervisor::builder().launcher(Launcher::spawn(&binary).unwrap()).build().unwrap()
}

/// Runs `test` in the runtime that a launcher's answers come in.
fn in_runtime(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

/// C-1, A10: what counts is where a link leads when its session is bound to it, and of a file that is not there yet where it would be.
#[test]
fn c_1_a10_a_link_leads_out_of_no_bound_when_its_session_is_bound() {
    let supervisor = supervisor();
    for strength in STRENGTHS {
        let world = World::with(&["data/in", "out"]);
        for asked in ["DATA/link/**", "DATA/link/new"] {
            let mut spec = world.spec(&format!(
                "id = \"x\"\n[requires.fs]\nread = [\"{asked}\"]\n[ceiling.fs]\nread = [\"{{workspace}}/**\", \"DATA/**\"]\n"
            ));
            let mut turned = |then, now| {
                world.turn(then);
                let judged = judged(&supervisor, &mut spec)?;
                world.turn(now);
                bound(&supervisor, strength, judged, &spec)
            };
            turned("in", "in").map(drop).expect("the control");
            turned("../out", "in").map(drop).expect("the control: it is bound to what is within");
            for then in ["in", "../out"] {
                let Err(OpenError::LeadsOut { to, .. }) = turned(then, "../out") else {
                    panic!("{asked}: it leads out")
                };
                assert!(to.starts_with(world.top.join("out")), "{strength:?}: {asked} leads to {}", to.display());
            }
        }
    }
}

/// E4, A10: what no session reaches is reached neither by the name that is granted, wherever that leads, nor by what a link leads to
/// when its session is bound to it.
#[test]
fn e4_a10_what_is_barred_is_so_by_name_and_by_where_it_leads() {
    let supervisor = supervisor();
    for strength in STRENGTHS {
        let world = World::with(&["data/plain", "data/keys/.ssh", "data/.local/state", "data/u/.local/state/callgate"]);
        let mut spec = world.spec("id = \"x\"\n[requires.fs]\nread = [\"DATA/link/**\"]\n");
        let mut turned = |then, now| {
            world.turn(then);
            let judged = judged(&supervisor, &mut spec).expect("nothing is barred yet");
            world.turn(now);
            bound(&supervisor, strength, judged, &spec)
        };
        turned("plain", "plain").map(drop).expect("the control");
        let Err(OpenError::Home { why, .. }) = turned("plain", "keys") else { panic!("it holds keys") };
        assert!(why.contains(".ssh"), "{why}");
        // Somebody's store, which by the name that is granted nobody takes for one.
        let Err(OpenError::Store(StoreError::Reached { .. })) = turned("plain", "u/.local/state/callgate") else {
            panic!("it is a store")
        };
        // And somebody's that lies elsewhere: where it leads nobody takes it for one.
        symlink(world.data.join("plain"), world.data.join(".local/state/callgate")).unwrap();
        let mut named = world.spec("id = \"x\"\n[requires.fs]\nread = [\"DATA/.local/state/callgate/**\"]\n");
        let named = judged(&supervisor, &mut named).and_then(|judged| bound(&supervisor, strength, judged, &named));
        let Err(OpenError::Store(StoreError::Reached { .. })) = named else { panic!("it is a store") };
    }
}

/// X0-18, A10: a credential's file is read by no call by way of a link, whenever that was turned.
#[test]
fn x0_18_a10_a_link_leads_no_call_to_a_credential() {
    let supervisor = supervisor();
    for strength in STRENGTHS {
        let world = World::with(&["data/plain", "data/keys"]);
        let key = world.data.join("keys/key");
        fs::write(&key, "a-secret-of-a-person\n").unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let spec = |read: &str| {
            world.spec(&format!(
                "id = \"x\"\n[requires.fs]\nread = [\"DATA/{read}/**\"]\n[requires.net]\nhosts = [\"a.example\"]\n\
                 [[net.credentials]]\nhost = \"a.example\"\nheader = \"X-Key\"\nfile = \"DATA/keys/key\"\n"
            ))
        };
        let turned = |read, then, now| {
            let mut spec = spec(read);
            world.turn(then);
            let judged = judged(&supervisor, &mut spec).expect("its value is read");
            world.turn(now);
            bound(&supervisor, strength, judged, &spec)
        };
        turned("link", "plain", "plain").map(drop).expect("the control");
        // By the link, and by its own name.
        for (read, then) in [("link", "plain"), ("link", "keys"), ("keys", "plain")] {
            let Err(OpenError::Credential(error)) = turned(read, then, "keys") else { panic!("calls could read it") };
            assert!(error.why.contains("calls may read that file"), "{error}");
        }
    }
}

/// A10: what was put at a granted path after it was looked at is not what the session is confined to.
#[test]
fn a10_what_was_replaced_since_it_was_looked_at_is_not_granted() {
    in_runtime(async {
        let supervisor = confining_supervisor();
        for strength in STRENGTHS {
            let world = World::with(&["data/granted", "data/other"]);
            let mut spec = world.spec("id = \"x\"\n[requires.fs]\nread = [\"DATA/granted/**\"]\n");
            let mut bound = || bound(&supervisor, strength, judged(&supervisor, &mut spec)?, &spec);
            let granted = world.data.join("granted");
            bound().unwrap().confine(&supervisor).await.map(drop).expect("the control");
            let plan = bound().unwrap();
            fs::rename(&granted, world.data.join("aside")).unwrap();
            fs::rename(world.data.join("other"), &granted).unwrap();
            let Err(OpenError::Replaced { what }) = plan.confine(&supervisor).await else { panic!("it was replaced") };
            let expected = format!("{} was replaced while the session was opened; try again", granted.display());
            assert_eq!(what, expected, "{strength:?}");
            bound()
                .unwrap()
                .confine(&supervisor)
                .await
                .map(drop)
                .expect("the control: again, it was looked at as it is");
        }
    });
}

/// Manifest of a session with an agent, and a ceiling that holds what `link` leads to in the beginning.
const PARENT: &str = "id = \"x\"\nmode = \"yolo\"\n[requires.fs]\nread = [\"{workspace}/**\", \"DATA/link/**\"]\n\
                      [ceiling.fs]\nread = [\"{workspace}/**\", \"DATA/**\"]\n";

/// Opens a child for the agent `any`, after `meanwhile`.
async fn child(parent: &Session, meanwhile: impl FnOnce()) -> Result<Arc<Session>, OpenError> {
    let most = parent.part_of_agent("any").unwrap().unwrap();
    let opening = parent.opening("any", &most, ("call", None)).unwrap();
    meanwhile();
    opening.open(&parent.family.children.reared_by()).await
}

/// F11, A10, X0-55: a child's workspace is its parent's, and no directory that has taken its name since the call that starts it began.
#[test]
fn f11_a10_x0_55_a_child_has_no_workspace_that_took_the_name_of_its_parents() {
    in_runtime(async {
        let supervisor = confining_supervisor();
        for strength in STRENGTHS {
            let world = World::with(&["data/in", "other"]);
            world.turn("in");
            let spec = world.spec(&format!("{PARENT}[agents.any]\ndescription = \"x\"\n"));
            let parent = supervisor.open(spec.strength(strength.into())).await.unwrap();
            child(&parent, || ()).await.map(drop).expect("the control");
            let replaced = child(&parent, || {
                fs::rename(&world.workspace, world.top.join("aside")).unwrap();
                fs::rename(world.top.join("other"), &world.workspace).unwrap();
            });
            let Err(OpenError::Replaced { what }) = replaced.await else { panic!("it was replaced") };
            let expected =
                format!("the workspace of {} was replaced since it was opened; open a new session", parent.id());
            assert_eq!(what, expected, "{strength:?}");
            fs::rename(&world.workspace, world.top.join("other")).unwrap();
            fs::rename(world.top.join("aside"), &world.workspace).unwrap();
            child(&parent, || ()).await.map(drop).expect("the control: the same directory is there again");
        }
    });
}

/// X0-25, C-1, A10: a child is bound by what its parent was bound to, and not by where the parent's paths lead by now; nor by those that
/// led nowhere then.
#[test]
fn x0_25_c_1_a10_a_link_leads_a_child_to_nothing_that_its_parent_lacks() {
    in_runtime(async {
        let supervisor = confining_supervisor();
        for (strength, (parents, childs)) in STRENGTHS.into_iter().flat_map(|strength| {
            let all = [("link/**", "link/**"), ("link/**", "link/sub/**"), ("link/new", "link/new"), ("**", "link/**")];
            all.map(|rights| (strength, rights))
        }) {
            let world = World::with(&["data/in/sub/sub", "out/sub"]);
            world.turn("in");
            let text = PARENT.replace("DATA/link/**", &format!("DATA/{parents}"));
            let agent =
                format!("[agents.any]\ndescription = \"x\"\n[agents.any.requires.fs]\nread = [\"DATA/{childs}\"]\n");
            let parent =
                supervisor.open(world.spec(&format!("{text}{agent}")).strength(strength.into())).await.unwrap();
            child(&parent, || ()).await.map(drop).expect("the control");
            fs::write(world.top.join("out/new"), "of outside").unwrap();
            let led = child(&parent, || world.turn("../out")).await.map(drop);
            let Err(OpenError::LeadsOut { to, .. }) = led else { panic!("{parents}, {childs}: {led:?}") };
            assert!(to.starts_with(world.top.join("out")), "{strength:?}: {}", to.display());
            world.turn("in/sub");
            if parents != "link/new" {
                child(&parent, || ()).await.map(drop).expect("the control: within what its parent has");
            }
        }
    });
}

/// S1-29, C-1, A10: a declared tool whose part leads out of what bounds a child is left out of it, and the child has the others.
#[test]
fn s1_29_c_1_a10_a_link_leads_no_tool_out_of_the_bounds_of_a_child() {
    in_runtime(async {
        let supervisor = confining_supervisor();
        for strength in STRENGTHS {
            let world = World::with(&["data/in", "out", "u/.config/callgate/tools"]);
            world.turn("in");
            world.declare("led", "link");
            world.declare("apart", "in");
            let agent = "[agents.any]\ndescription = \"x\"\ntools = [\"led\", \"apart\"]\n";
            let text = PARENT.replace(", \"DATA/link/**\"", "");
            let mut spec = world.spec(&format!("{text}{agent}")).strength(strength.into());
            spec.user_tools = Some(world.settings());
            let parent = supervisor.open(spec).await.unwrap();
            let has = |child: &Session| ["led", "apart"].map(|name| child.registry().find(name).is_some());
            assert_eq!(has(&child(&parent, || ()).await.unwrap()), [true, true], "the control");
            let led = child(&parent, || world.turn("../out")).await.unwrap();
            assert_eq!(has(&led), [false, true], "{strength:?}");
            let registry = led.registry();
            let left_out = registry.left_out().iter().find(|left_out| left_out.name.as_deref() == Some("led")).unwrap();
            let expected = format!("it leads to {}", world.top.join("out").display());
            assert!(left_out.why.contains(&expected), "{}", left_out.why);
            assert!(!led.effective().allows_read(&world.data.join("link/file").into()), "nor is its part in force");
        }
    });
}

/// S1-15, A10: a declared tool reaches what its session was bound to, and not where its paths lead by now. There is no ceiling.
#[test]
fn s1_15_a10_a_link_leads_no_tool_to_what_its_session_lacks() {
    in_runtime(async {
        let supervisor = confining_supervisor();
        for (strength, reads) in STRENGTHS.into_iter().flat_map(|strength| [(strength, "link"), (strength, "link/sub")])
        {
            let world = World::with(&["data/in/sub/sub", "out/sub", "u/.config/callgate/tools"]);
            world.turn("in");
            world.declare("led", reads);
            let mut spec = world.spec("id = \"x\"\n").strength(strength.into());
            spec.user_tools = Some(world.settings());
            let session = supervisor.open(spec).await.unwrap();
            let registry = session.registry();
            let part = || session.part_for(registry.find("led").unwrap());
            let env = Env::default();
            let open = |own| {
                let (session, env) = (&session, &env);
                async move { session.open_part(&own, (env, None), &session.sandbox.bounds).await.map(drop) }
            };
            open(part().unwrap()).await.expect("the control");
            world.turn("in/sub");
            open(part().unwrap()).await.expect("the control: within what its session has");
            let looked_at = part().unwrap();
            world.turn("../out");
            let led = [part().map(drop), open(looked_at).await];
            for led in led {
                let Err(CallError::Denied(denial)) = led else { panic!("{strength:?}, {reads}: {led:?}") };
                let expected = format!("leads to {}", world.top.join("out").display());
                assert!(denial.reason.contains(&expected), "{denial:?}");
            }
        }
    });
}
