//! Any JSON as the arguments of any tool: an answer always (S0-68); and what reaches a worker lies within what was granted
//! (S0-4, X0-1), with the arguments as they were written.

use std::sync::LazyLock;
use std::sync::Mutex;

use callgate::Outcome;
use callgate_policy::plan::FsAccess;
use callgate_worker::protocol::{FromWorker, ProgramEnd, Received, ToWorker, ToolEnd};
use serde_json::Value;

use super::{PlayedHost, Processes};

static HOST: LazyLock<Mutex<PlayedHost>> = LazyLock::new(|| Mutex::new(PlayedHost::new()));

/// The target.
pub fn target(data: &[u8]) {
    let Some((tool, json)) = data.split_first() else { return };
    let Ok(args) = serde_json::from_slice::<Value>(json) else { return };
    let host = HOST.lock().expect("nothing panics with it");
    let say = |processes: &mut Processes| {
        processes.ready();
        processes.prepared();
        processes.confined();
        for worker in &processes.workers {
            let ended =
                FromWorker::ToolEnded(ToolEnd::Output { truncated: false, lost: false, data: Some(Value::Null) });
            worker.send(&ended, &[]).expect("there is room");
            let mut end = ProgramEnd::default();
            end.code = Some(0);
            worker.send(&FromWorker::Ended(end), &[]).expect("there is room");
        }
    };
    host.session(say, async |session, processes| {
        let names: Vec<String> = session.registry().names().into_iter().map(str::to_owned).collect();
        let name = &names[usize::from(*tool) % names.len()];
        let envelope = session.call(name, args.clone()).await;
        assert_eq!(envelope.kind == Outcome::Error, envelope.error_text.is_some(), "{envelope:?}");
        let rights = session.effective().rights();
        for worker in &processes.workers {
            // What was sent to a worker that was not used is nothing, and its channel is closed.
            while let Ok(Received::Message(frame, _)) = worker.receive::<ToWorker>() {
                match frame {
                    ToWorker::Call { plan, .. } => {
                        for rule in plan.rules.own() {
                            let granted = match rule.access {
                                FsAccess::Write => rights.allows_write(&rule.path),
                                FsAccess::List
                                | FsAccess::Read
                                | FsAccess::ReadExecute
                                | FsAccess::Kept
                                | FsAccess::Device => rights.allows_read(&rule.path),
                            };
                            assert!(granted, "{name} {args}: {rule:?} was not granted");
                        }
                    }
                    ToWorker::Arguments(sent) => assert_eq!(sent, args),
                    ToWorker::Signal(_) | ToWorker::Abort => {}
                }
            }
        }
    });
}
