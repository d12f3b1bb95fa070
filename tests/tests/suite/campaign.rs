//! A campaign: random acts inside, a random stranger outside, and canaries that none of it may reach (A3, A6, A8, A12, A21, B5,
//! B7).
//!
//! Inside, two processes and their children make, move, link and remove files, change modes, bind, listen, shut down and connect,
//! and end in every way (`tests/src/probe/campaign.rs`). Outside, a stranger of the same user listens where a server was,
//! binds names of sockets, puts links into their place, makes files and removes them. Around them stand files, names and
//! servers that must stay as they are: contents, modes, owners, times, and connections that never come. Each round is a session of its
//! own, in a place of its own; what varies between rounds is in [`Round::new`].
//!
//! A few seconds for each strength and user are part of the suite. For an hour in all:
//!
//! ```sh
//! cargo build --workspace --bins
//! CALLGATE_CAMPAIGN_SECONDS=900 cargo nextest run -p callgate-tests -E 'test(campaign)'
//! ```
//!
//! A failure prints the round's seed, what has changed, and the last acts. With `CALLGATE_CAMPAIGN_SEED` set to that seed, the
//! first round for that strength and user makes the same choices; how the processes take turns is up to the machine, so it may take
//! several tries.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown, symlink};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use callgate_tests::{Dice, Host, ProgramOutcome, ProgramRunner, Target, TestEnv, User, matrix, repetitions};

use crate::clean_up::{files_as, on_one_processor, swap_ipc};

/// How long one session's actors act at most, in milliseconds.
const ROUND: &str = "600";
/// Lines of the actors that a failure shows.
const SHOWN: usize = 400;
/// Text that the harness writes. No actor says this.
const PRECIOUS: &str = "precious\n";

#[allow(clippy::disallowed_methods, reason = "how long to try, and from where, is for the person who runs the tests")]
fn variable(name: &str) -> Option<u64> {
    let set = std::env::var(name).ok()?;
    Some(set.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

fn first_seed() -> u64 {
    // In a full run one that was not tried before.
    let now = || u64::try_from(SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros()).unwrap() & 0xffff_ffff;
    variable("CALLGATE_CAMPAIGN_SEED").unwrap_or_else(|| repetitions(1104, now()))
}

/// Things that may not change, each by a word for the test and a description.
type UnchangedState = BTreeMap<String, String>;

/// One session: its place, its canaries, and what is special about it.
struct Round {
    env: TestEnv,
    seed: u64,
    /// The user to whom the files belong; root's callgate becomes that user.
    owner: User,
    /// Who runs callgate.
    caller: User,
    /// The directory for temporary files, where without namespaces the session's own lies.
    temporary: PathBuf,
    /// The stranger swaps parts of the session's directory while callgate makes it.
    swaps: bool,
    /// A kept directory is mounted at another name as well.
    alias: bool,
    hidden: String,
    ports: Vec<u16>,
    /// Servers that nobody was told of but the actors.
    tcp: TcpListener,
    unix: UnixListener,
}

impl Round {
    fn new(target: Target, seed: u64) -> Self {
        let mut dice = scattered(seed);
        let caller = target.user;
        // Root's callgate in a directory of somebody else acts for that user, and begins as root.
        let owner = if caller == User::Root && dice.below(2) == 0 { User::Ordinary } else { caller };
        let env = TestEnv::new(Target { user: owner, ..target });
        let swaps = caller != owner && dice.below(2) == 0;
        let alias = caller == User::Root && !swaps && dice.below(4) == 0;
        let temporary = if dice.below(3) == 0 { env.workspace() } else { env.outside() }.join("t");
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        tcp.set_nonblocking(true).unwrap();
        let ports = free_ports(&mut dice, 3).into_iter().chain([tcp.local_addr().unwrap().port()]).collect();
        let (listener, hidden) =
            (env.outside().join("listener"), format!("callgate-campaign-{}-{seed}", std::process::id()));
        let round = Self {
            unix: UnixListener::bind(&listener).unwrap(),
            env,
            seed,
            owner,
            caller,
            temporary,
            swaps,
            alias,
            hidden,
            ports,
            tcp,
        };
        round.unix.set_nonblocking(true).unwrap();
        round.env.give(&listener);
        round.furnish();
        round
    }

    /// The canaries, and what leads to them.
    fn furnish(&self) {
        let (workspace, outside) = (self.env.workspace(), self.env.outside());
        for directory in ["victim/deep/er", "victim/.git/hooks", "grants/sub", "stranger"] {
            fs::create_dir_all(outside.join(directory)).unwrap();
        }
        for directory in [".git/hooks", ".vscode", "alias"] {
            fs::create_dir_all(workspace.join(directory)).unwrap();
        }
        fs::create_dir(&self.temporary).unwrap();
        for file in ["victim/precious", "victim/deep/er/file", "victim/.git/hooks/pre-push", "grants/rep.html"] {
            fs::write(outside.join(file), PRECIOUS).unwrap();
        }
        for file in ["grants/theirs", "grants/sub/file", "roots"] {
            fs::write(outside.join(file), PRECIOUS).unwrap();
        }
        for file in [".env", ".git/hooks/pre-push", ".vscode/settings.json"] {
            fs::write(workspace.join(file), PRECIOUS).unwrap();
        }
        fs::hard_link(workspace.join(".env"), workspace.join("older")).unwrap();
        fs::hard_link(workspace.join(".git/hooks/pre-push"), workspace.join("hook")).unwrap();
        [&workspace, &outside].into_iter().flat_map(|top| below(top)).for_each(|path| self.env.give(&path));
        let closed = |path: PathBuf| fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
        closed(outside.join("victim/precious"));
        closed(workspace.join(".env"));
        if self.caller == User::Root {
            chown(outside.join("roots"), Some(0), Some(0)).unwrap();
            closed(outside.join("roots"));
        }
    }

    /// Words for the actors: places, and the names in them. Those called `s0` and `s1` are sockets' by turns.
    fn places(&self) -> Vec<String> {
        let (workspace, outside) = (self.env.workspace(), self.env.outside());
        let (workspace, outside) = (workspace.display(), outside.display());
        let own = "s0,s1,n0,n1,n2";
        vec![
            format!("$TMPDIR:{own}"),
            format!("$TMPDIR:{own}"),
            "$TMPDIR:d0,d1,d2".to_owned(),
            "$TMPDIR/..:ipc,tmp,home,n0".to_owned(),
            "$HOME:n0,n1".to_owned(),
            format!("{workspace}:{own}"),
            format!("{workspace}:{own}"),
            format!("{workspace}:older,hook,.env,.git,.vscode,.mcp.json,alias"),
            format!("{workspace}/.git/hooks:pre-push,new"),
            format!("{workspace}/alias:settings.json,new"),
            format!("{outside}:victim,listener,roots,new"),
            format!("{outside}/victim:precious,deep/er,.git,new"),
            format!("{outside}/grants:rep.html,theirs,sub/file,new"),
            format!("{outside}/stranger:s0,s1,file"),
        ]
    }

    /// The words that start the actors.
    fn act(&self) -> Vec<String> {
        let ports: Vec<String> = self.ports.iter().map(u16::to_string).collect();
        let mut words: Vec<String> =
            ["campaign", &self.seed.to_string(), ROUND, &ports.join(","), &self.hidden].map(str::to_owned).to_vec();
        words.extend(self.places());
        words
    }

    /// Under callgate: the workspace, and one file of a directory, may be written.
    fn confined(&self) -> ProgramRunner {
        let run = self.env.sandbox_as(self.caller).write(self.env.outside().join("grants/rep.html"));
        let run = run.variable("TMPDIR", &self.temporary.display().to_string());
        if !self.alias {
            return run;
        }
        run.mounted(&self.env.workspace().join(".vscode"), &self.env.workspace().join("alias"))
    }

    /// These acts without callgate: the control. All that they name lies in the round's own place.
    fn bare(&self) -> ProgramRunner {
        let home = self.temporary.join("home");
        fs::create_dir(&home).unwrap();
        self.env.give(&home);
        let run = self.env.bare().variable("HOME", &home.display().to_string());
        run.variable("TMPDIR", &self.temporary.display().to_string())
    }

    /// Everything that may not change. The stranger is no part of it.
    fn look(&self) -> UnchangedState {
        let (workspace, outside) = (self.env.workspace(), self.env.outside());
        let mut look = UnchangedState::new();
        let victims = ["victim", "roots", "listener"].into_iter().flat_map(|name| below(&outside.join(name)));
        look.extend(
            victims.chain([outside.clone()]).map(|path| (format!("outside {}", path.display()), all_about(&path))),
        );
        // Its directory changes as the granted file is replaced.
        let beside = below(&outside.join("grants")).into_iter().filter(|path| !path.ends_with("rep.html"));
        look.extend(beside.map(|path| {
            let about = if path.ends_with("grants") { mode_and_owner(&path) } else { all_about(&path) };
            (format!("beside {}", path.display()), about)
        }));
        // Another name of a kept file may go. What else is in `.git` is for git to change, and so for the call.
        let kept =
            [".env", ".git/hooks", ".vscode", ".mcp.json"].into_iter().flat_map(|name| below(&workspace.join(name)));
        look.extend(
            kept.map(|path| (format!("kept {}", path.display()), format!("{} {}", mode_and_owner(&path), text(&path)))),
        );
        let tcp = said_to(self.tcp.accept(), TcpStream::set_nonblocking);
        let unix = said_to(self.unix.accept(), UnixStream::set_nonblocking);
        look.insert("reached tcp".to_owned(), tcp.unwrap_or_default());
        look.insert("reached unix".to_owned(), unix.unwrap_or_default());
        look
    }

    /// A run of the actors beside the stranger: how it ended, and the visits that the stranger had.
    fn play(&self, run: &ProgramRunner) -> (ProgramOutcome, Vec<String>) {
        let act = self.act();
        let act: Vec<&str> = act.iter().map(String::as_str).collect();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            if self.swaps {
                scope.spawn(|| {
                    swap_ipc(self.owner.uid(), &self.temporary, &self.env.outside().join("roots"), &over);
                });
            }
            let listens = scope.spawn(|| self.listen_where_servers_were(&over));
            let makes = scope.spawn(|| self.make_and_remove(&over));
            let ended = scope.spawn(|| {
                if self.swaps {
                    on_one_processor();
                }
                run.act(&act)
            });
            let ended = ended.join();
            over.store(true, Ordering::Relaxed);
            let visits = [listens.join().unwrap(), makes.join().unwrap()].concat();
            (ended.unwrap(), visits)
        })
    }

    /// The stranger who listens on whatever port is free.
    fn listen_where_servers_were(&self, over: &AtomicBool) -> Vec<String> {
        files_as(self.owner.uid());
        let (mut dice, mut visits) = (scattered(self.seed ^ 0xff00), Vec::new());
        while !over.load(Ordering::Relaxed) {
            let port = dice.one(&self.ports);
            let pause = Duration::from_micros(dice.below(1500) as u64);
            // The standard library says SO_REUSEADDR, as servers do.
            let Ok(server) = TcpListener::bind(("127.0.0.1", port)) else {
                std::thread::sleep(Duration::from_micros(100));
                continue;
            };
            server.set_nonblocking(true).unwrap();
            std::thread::sleep(pause);
            visits
                .extend(said_to(server.accept(), TcpStream::set_nonblocking).map(|said| format!("tcp {port}: {said}")));
        }
        visits
    }

    /// The stranger with files: sockets in the place of those that were removed, links in the place of those that are bound, a
    /// file that is there for a moment. Most of it in the workspace, where names meet.
    fn make_and_remove(&self, over: &AtomicBool) -> Vec<String> {
        files_as(self.owner.uid());
        let (workspace, own) = (self.env.workspace(), self.env.outside().join("stranger"));
        let targets =
            [self.env.outside().join("victim/precious"), workspace.join(".env"), self.env.outside().join("victim")];
        let (mut dice, mut visits, mut servers) = (scattered(self.seed ^ 0xf0_0000), Vec::new(), Vec::new());
        while !over.load(Ordering::Relaxed) {
            let place = if dice.below(3) == 0 { &own } else { &workspace };
            let name = place.join(dice.one(&["s0", "s1"]));
            match dice.below(6) {
                0..3 => {
                    // A file that is made as another goes gets its number, as a rule.
                    drop(fs::remove_file(&name));
                    servers.extend(UnixListener::bind(&name).map(|server| (name.display().to_string(), server)));
                }
                3 => push_links(&targets[dice.below(targets.len())], place, &name),
                4 => visits.extend(file_for_a_moment(&own.join("file"))),
                _ => {
                    let hidden = format!("{}-{}", self.hidden, dice.below(2));
                    let address = SocketAddr::from_abstract_name(&hidden).unwrap();
                    servers.extend(UnixListener::bind_addr(&address).map(|server| (hidden, server)));
                }
            }
            // Two processors are shared by all sides.
            std::thread::sleep(Duration::from_micros(dice.below(3000) as u64));
            if servers.len() > 6 {
                servers.remove(dice.below(servers.len()));
            }
            for (name, server) in &servers {
                server.set_nonblocking(true).unwrap();
                visits.extend(
                    said_to(server.accept(), UnixStream::set_nonblocking).map(|said| format!("unix {name}: {said}")),
                );
            }
        }
        visits
    }
}

/// Neighbouring seeds have little in common after this.
fn scattered(seed: u64) -> Dice {
    Dice::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Ports that are free, and are not given out by the kernel meanwhile (ip_local_port_range).
fn free_ports(dice: &mut Dice, count: usize) -> Vec<u16> {
    let candidates = std::iter::repeat_with(|| 10_000 + u16::try_from(dice.below(20_000)).unwrap());
    candidates.filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).take(count).collect()
}

/// Puts a link in the place of a name, over and over.
fn push_links(target: &Path, place: &Path, name: &Path) {
    let aside = place.join("aside");
    for _ in 0..200 {
        // Either may be refused: what stands there is the call's as well.
        let _made = symlink(target, &aside);
        let _moved = fs::rename(&aside, name);
    }
}

/// The stranger's own file, which the call can name and not change.
fn file_for_a_moment(path: &Path) -> Option<String> {
    // Made new: a FIFO that has the name would not be opened before somebody reads it.
    File::create_new(path).and_then(|mut file| file.write_all(PRECIOUS.as_bytes())).ok()?;
    let before = all_about(path);
    std::thread::sleep(Duration::from_micros(300));
    let after = all_about(path);
    drop(fs::remove_file(path));
    (before != after).then(|| format!("{}: {before} became {after}", path.display()))
}

/// Words of somebody who came, if anything soon.
fn said_to<S: Read, A>(came: io::Result<(S, A)>, set_nonblocking: fn(&S, bool) -> io::Result<()>) -> Option<String> {
    let (mut from, _address) = came.ok()?;
    set_nonblocking(&from, true).unwrap();
    std::thread::sleep(Duration::from_millis(2));
    let mut said = [0_u8; 64];
    let count = from.read(&mut said).unwrap_or(0);
    Some(format!("somebody came, and said {:?}", String::from_utf8_lossy(&said[..count])))
}

/// A path and all below it, links not followed; nothing if it is not there.
fn below(top: &Path) -> Vec<PathBuf> {
    let Ok(about) = fs::symlink_metadata(top) else { return Vec::new() };
    let entries = about.is_dir().then(|| fs::read_dir(top).into_iter().flatten());
    let deeper = entries.into_iter().flatten().flat_map(|entry| below(&entry.unwrap().path()));
    std::iter::once(top.to_owned()).chain(deeper).collect()
}

fn mode_and_owner(path: &Path) -> String {
    let about = fs::symlink_metadata(path);
    about.map_or("gone".to_owned(), |about| format!("{:o} {}:{}", about.mode(), about.uid(), about.gid()))
}

/// A file's contents, or where a link leads.
fn text(path: &Path) -> String {
    let link = fs::read_link(path).map(|to| to.display().to_string());
    let is_file = fs::symlink_metadata(path).is_ok_and(|about| about.is_file());
    let read = || {
        let mut held = String::new();
        // What has the name by now may be a FIFO.
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
        file.and_then(|mut file| file.read_to_string(&mut held)).map(|_length| held)
    };
    let held = link.or_else(|_no_link| if is_file { read() } else { Ok(String::new()) });
    format!("{:?}", held.unwrap_or_default())
}

/// A change of anything shows in the time of change; the rest says of what.
fn all_about(path: &Path) -> String {
    let Ok(about) = fs::symlink_metadata(path) else { return "gone".to_owned() };
    let (links, written) = (about.nlink(), (about.mtime(), about.mtime_nsec()));
    let changed = (about.ctime(), about.ctime_nsec());
    format!("{} {links} links, {written:?} {changed:?} {}", mode_and_owner(path), text(path))
}

/// Differences from what was there.
fn differences(before: &UnchangedState, after: &UnchangedState) -> Vec<String> {
    let names = before.keys().chain(after.keys().filter(|name| !before.contains_key(*name)));
    let value =
        |look: &UnchangedState, name: &String| look.get(name).cloned().unwrap_or_else(|| "not there".to_owned());
    let line = |name: &String| format!("{name}: {} became {}", value(before, name), value(after, name));
    names.filter(|name| before.get(*name) != after.get(*name)).map(line).collect()
}

/// How often each kind of act was taken, and how often it succeeded.
type ActTally = BTreeMap<String, (usize, usize)>;

fn count(lines: &str, tally: &mut ActTally) {
    for line in lines.lines().filter_map(|line| line.strip_prefix("campaign: ")) {
        let mut words = line.split(' ').skip(1);
        if let (Some(kind), Some(came)) = (words.next(), words.last()) {
            let (taken, succeeded) = tally.entry(kind.to_owned()).or_default();
            *taken += 1;
            *succeeded += usize::from(came == "ok");
        }
    }
}

/// Faults after a round under callgate.
fn wrong(round: &Round, tally: &mut ActTally) -> Option<String> {
    let before = round.look();
    let (ended, visits) = round.play(&round.confined());
    let mut found = differences(&before, &round.look());
    found.extend(visits);
    let mut own = ActTally::new();
    count(&ended.stderr, &mut own);
    found.extend(own.get("device").filter(|(_, succeeded)| *succeeded > 0).map(|_| "bound to a device".to_owned()));
    // The first actor ends by itself or is killed; but whoever ran it tells the truth. A session may be refused where its
    // directory is swapped, or a kept one is mounted elsewhere.
    let code = ended.status.code();
    let refused = own.is_empty() && (round.swaps || round.alias);
    if !refused && !matches!(code, Some(0 | 137)) {
        found.push(format!("callgate ended with {code:?}"));
    }
    for (kind, (taken, succeeded)) in own {
        let all = tally.entry(kind).or_default();
        *all = (all.0 + taken, all.1 + succeeded);
    }
    if found.is_empty() {
        return None;
    }
    let mut report = format!("seed {} found, after these acts:\n", round.seed);
    let lines: Vec<&str> = ended.stderr.lines().collect();
    for line in &lines[lines.len().saturating_sub(SHOWN)..] {
        writeln!(report, "    {line}").unwrap();
    }
    let special = (round.caller, round.owner, &round.temporary, round.swaps, round.alias);
    writeln!(report, "caller, owner, temporary files, swaps, alias: {special:?}\n{}", found.join("\n")).unwrap();
    Some(report)
}

#[test]
fn campaign_of_random_acts_beside_a_stranger_reaches_no_canary() {
    let budget = Duration::from_secs(variable("CALLGATE_CAMPAIGN_SECONDS").unwrap_or(repetitions(4, 8)));
    let (first, all) = (first_seed(), RefCell::new(ActTally::new()));
    matrix(Host::STRENGTHS, |target| {
        let (start, mut rounds) = (Instant::now(), 0);
        while start.elapsed() < budget {
            let round = Round::new(target, first + rounds);
            if let Some(report) = wrong(&round, &mut all.borrow_mut()) {
                panic!("{target:?}, round {rounds}, after {:?}: {report}", start.elapsed());
            }
            rounds += 1;
        }
        eprintln!("{target:?}: {rounds} rounds from seed {first}");
    });
    // The control: whatever can be done is done at times.
    let never: Vec<_> = all.take().into_iter().filter(|(_, (taken, came))| *taken > 2000 && *came == 0).collect();
    assert!(never.iter().all(|(kind, _)| kind == "device"), "{never:?}");
}

/// These acts without callgate reach every kind of canary.
#[test]
fn campaign_control_every_kind_of_canary_is_reached_without_callgate() {
    let kinds = ["outside", "beside", "kept", "reached tcp", "reached unix", "tcp", "unix"];
    matrix(&[Host::NoNamespaces], |target| {
        // Seeds of its own: a seed has ports, and what runs bare here would come to a round of the other test that listens there.
        let first = first_seed().wrapping_add(1 << 40);
        let (start, mut missing) = (Instant::now(), kinds.to_vec());
        for number in 0.. {
            let round = Round::new(target, first + number);
            let before = round.look();
            let (_, mut found) = round.play(&round.bare());
            found.extend(differences(&before, &round.look()));
            missing.retain(|kind| !found.iter().any(|line| line.starts_with(kind)));
            if missing.is_empty() {
                break;
            }
            assert!(
                start.elapsed() < Duration::from_secs(300),
                "not reached in {number} rounds from {first}: {missing:?}"
            );
        }
    });
}
