//! A session plan that lacks a mechanism, forged by whoever can talk to a launcher: what would run in it?

use callgate::policy::step::Step;
use std::fs;
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use callgate::LAUNCHER_NAME;
use callgate::policy::limit::{Bounds, Limits};
use callgate::policy::path::HostPath;
use callgate_policy::plan::{Ablation, CallPlan, CallRules, CallWork, PROTOCOL_VERSION, PrivateKind, SessionPlan};
use callgate_worker::protocol::{
    Channel, FromWorker, FromZygote, OpenSession, ProgramFds, Received, SessionReply, Threads, ToWorker, ToZygote,
};
use serde_json::json;

use crate::{callgate, in_sessions};

/// A launcher that this test talks to itself.
struct TestLauncher {
    channel: Option<Channel>,
    process: Child,
}

impl TestLauncher {
    fn start() -> Self {
        let (ours, theirs) = Channel::pair().unwrap();
        let stdin = Stdio::from(OwnedFd::from(theirs));
        let process = Command::new(callgate()).arg0(LAUNCHER_NAME).env_clear().stdin(stdin).spawn().unwrap();
        Self { channel: Some(ours), process }
    }

    /// Opens a session; the supervisor's ends of its channels: its own, the programs' zygote's and the readers'.
    fn open(&self, plan: &SessionPlan) -> (Channel, Channel, Channel) {
        let (session, theirs) = Channel::pair().unwrap();
        self.channel
            .as_ref()
            .unwrap()
            .send(&OpenSession { plan: plan.clone(), credentials: false }, &[theirs.as_fd()])
            .unwrap();
        drop(theirs);
        match session.receive::<SessionReply>().unwrap() {
            Received::Message(SessionReply::Ready { fds: sent, .. }, fds) => {
                let fds = sent.receive(fds).unwrap();
                (session, Channel::from(fds.programs), Channel::from(fds.readers.unwrap()))
            }
            other @ (Received::Message(..) | Received::Data(_) | Received::Closed) => {
                panic!("the session does not stand: {other:?}")
            }
        }
    }
}

impl Drop for TestLauncher {
    fn drop(&mut self) {
        self.channel = None;
        self.process.wait().unwrap();
    }
}

/// Hands a worker of the zygote a call with its streams; what it answers first, and what the program printed.
fn call(zygote: &Channel, work: CallWork) -> (FromWorker, String) {
    zygote.send(&ToZygote::Prepare { worker: 1, threads: Threads::Never }, &[]).unwrap();
    let worker = match zygote.receive::<FromZygote>().unwrap() {
        Received::Message(FromZygote::Prepared { .. }, fds) => Channel::from(fds.into_iter().next().unwrap()),
        Received::Message(..) | Received::Data(_) | Received::Closed => panic!("no worker"),
    };
    let (mut reader, writer) = std::io::pipe().unwrap();
    let null = fs::File::open("/dev/null").unwrap();
    let timeout = Duration::from_secs(20);
    let rules = match &work {
        CallWork::Tool { .. } => CallRules::Own(Vec::new()),
        CallWork::Program { .. } => CallRules::OfSession,
    };
    let bounds = Bounds::of(&Limits::default(), 1 << 30);
    let (limits, within) = (Vec::new(), Vec::new());
    let plan = CallPlan {
        version: PROTOCOL_VERSION,
        rules,
        within,
        without: Vec::new(),
        network: None,
        as_spelt: false,
        serves_session: false,
        work,
        limits,
        bounds,
        timeout,
    };
    let stdio = [null.as_fd(), writer.as_fd(), writer.as_fd()];
    let (fds, streams) = ProgramFds { stdio, terminal: None, endpoint: None, cgroup: None }.send();
    let streams = if matches!(plan.work, CallWork::Program { .. }) { &streams[..] } else { &[] };
    worker.send(&ToWorker::Call { plan: Box::new(plan), fds }, streams).unwrap();
    drop(writer);
    let Received::Message(answer, _) = worker.receive::<FromWorker>().unwrap() else { panic!("no answer") };
    let mut printed = String::new();
    reader.read_to_string(&mut printed).unwrap();
    (answer, printed)
}

/// D9, E5: where a mechanism is missing, neither programs nor tools run: argv is taken for the words of an act.
#[test]
fn d9_a_session_without_a_mechanism_runs_the_probe_alone() {
    in_sessions(async |session, workspace| {
        // Each has a private directory of its own, which its launcher makes.
        let plan = |name: &str| {
            let mut plan = session.plan().clone();
            // The session's own, which is removed with the first of these.
            if let Some(outputs) = plan.outputs.take() {
                plan.grants.retain(|rule| rule.path != outputs);
            }
            if plan.private.kind == PrivateKind::OnHost {
                let (old, new) = (plan.private.inside.clone(), HostPath::from(workspace.join(name)));
                for rule in &mut plan.surroundings {
                    if let Ok(rest) = rule.path.as_path().strip_prefix(&old) {
                        rule.path = HostPath::from(new.as_path().join(rest));
                    }
                }
                plan.private.inside = new;
            }
            plan
        };
        let made =
            workspace.join("made").canonicalize().unwrap_or_else(|_| workspace.canonicalize().unwrap().join("made"));
        let word = |text: &str| HostPath::from(text);
        let touch = || {
            let argv = vec![word("/bin/touch"), HostPath::from(made.clone())];
            CallWork::program(argv, workspace.canonicalize().unwrap().into())
        };
        let launcher = TestLauncher::start();
        // The control: with every mechanism it is a program.
        let (_session, programs, _readers) = launcher.open(&plan("whole"));
        let (answer, printed) = call(&programs, touch());
        assert!(matches!(answer, FromWorker::Confined { ref steps } if !steps.is_empty()), "{answer:?}");
        assert!(made.is_file(), "{printed}");
        fs::remove_file(&made).unwrap();
        drop((_session, programs, _readers));
        let all = [json!([]), json!(["landlock"]), json!(["landlock", "seccomp", "capabilities"])];
        for (index, lacking) in all.into_iter().enumerate() {
            // Read, as from a channel: its constructor is not for tests.
            let ablation: Ablation = serde_json::from_value(lacking).unwrap();
            let plan = SessionPlan { ablation: Some(ablation), ..plan(&format!("without-{index}")) };
            let (_session, programs, readers) = launcher.open(&plan);
            let (answer, printed) = call(&programs, touch());
            assert!(matches!(answer, FromWorker::Confined { ref steps } if steps.is_empty()), "{answer:?}");
            assert!(printed.contains("no act is called"), "{printed}");
            assert!(!made.exists());
            for zygote in [&programs, &readers] {
                let (answer, _) =
                    call(zygote, CallWork::Tool { name: "read".to_owned(), paths: vec![word("/x")], limit: 1 });
                let FromWorker::Failed(failed) = answer else { panic!("{answer:?}") };
                assert_eq!(failed.step, Step::Attempt, "{failed}");
            }
            // And what it is for.
            let own = CallWork::program(vec![word("any"), word("env")], word("/"));
            let (_, printed) = call(&programs, own);
            assert!(printed.contains("\"ok\":true"), "{printed}");
        }
        assert_eq!(session.plan().ablation, None);
    });
}
