#![allow(clippy::unwrap_used, reason = "a failing test may stop")]

use std::collections::BTreeMap;

use super::*;
use crate::effect::{Effect, Effects, ProgramRun};
use crate::effective::{Contribution, Declared, Source, narrow};
use crate::manifest::{Format, Manifest};
use crate::plan::env::{EnvSources, Fate};
use crate::plan::{FileId, Identity, PrivateDir, PrivateKind, Seen, Writer};
use crate::requirement::RequirementSet;
use crate::rules::testing::runs;
use crate::rules::{Act, RuleScope, RuleSet, RuleSource};
use crate::variable::Variables;

const ID: FileId = FileId { device: 1, inode: 2 };

fn facts() -> HostFacts {
    HostFacts {
        strength: Strength::Landlock,
        calls: Calls::Many,
        landlock_abi: 7,
        identity: Identity { uid: 1000, gid: 1000 },
        private: PrivateDir { inside: "/run/s1".into(), kind: PrivateKind::OnHost },
        workspace: vec!["/w".into()],
        left_of: BTreeMap::new(),
        asked_without_links: Vec::new(),
        asked: Vec::new(),
        closed: Vec::new(),
        homes: Vec::new(),
        toolchains: vec!["/home/u/.rustup".into()],
        etc: vec![Readable { path: "/etc/java-17-openjdk".into(), reading: EtcReading::Tree, id: ID }],
        shared: vec![
            Readable { path: "/usr".into(), reading: EtcReading::Tree, id: ID },
            Readable { path: "/opt/tool".into(), reading: EtcReading::Tree, id: ID },
        ],
        path: vec!["/usr/bin".into(), "/odd:dir".into(), "bin".into(), "/bin".into()],
        path_left_out: Vec::new(),
        env: [("LANG", "C.UTF-8"), ("LC_TIME", "C"), ("LD_PRELOAD", "/x.so"), ("API_TOKEN", "s"), ("RUST_LOG", "info")]
            .map(|(name, value)| (name.to_owned(), HostPath::from(value)))
            .into(),
        gitconfig: String::new(),
    }
}

fn variables() -> Variables {
    Variables::new(facts().workspace, vec![], vec![]).unwrap()
}

fn effective(manifest: &Manifest) -> EffectiveSet {
    narrow(&Declared::union(&[Contribution::manifest(manifest)], &variables(), &[]).unwrap(), &[])
}

fn manifest(text: &str) -> Manifest {
    Manifest::parse(text, Format::Toml, "callgate.toml").unwrap()
}

fn bounds(manifest: &Manifest) -> Bounds {
    Bounds::of(&manifest.limits, 16 << 30)
}

const MANIFEST: &str = r#"
[requires.fs]
read = ["{workspace}/**", "/srv/data/*.csv"]
write = ["{workspace}/src/**", "notes.txt"]
[[requires.shell]]
cmd = "*"
[limits]
wall = "5s"
memory = "1GiB"
[env]
pass = ["RUST_LOG"]
set = { CI = "1" }
"#;

/// Design "Filesystem patterns": each rule with its source and exactness, as `policy explain` prints it.
#[test]
fn a_session_is_explained() {
    let manifest = manifest(MANIFEST);
    let effective = effective(&manifest);
    insta::assert_snapshot!("effective", effective.to_string());
    insta::assert_snapshot!(
        "session",
        session(&effective, &facts(), &manifest.env, &bounds(&manifest)).unwrap().to_string()
    );
}

#[test]
fn the_default_of_run_is_explained() {
    let (set, source) = (RequirementSet::for_run().unwrap(), Source::Default);
    let declared = Declared::union(&[Contribution::from_source(&source, &set)], &variables(), &[]).unwrap();
    insta::assert_snapshot!("run_default", narrow(&declared, &[]).to_string());
}

/// `exact = true` refuses what the kernel can only be told in a wider form, and nothing else.
#[test]
fn exact_refuses_a_widened_pattern() {
    let exact = |patterns: &str| {
        let manifest = manifest(&format!("[requires.fs]\nexact = true\n{patterns}\n"));
        session(&effective(&manifest), &facts(), &manifest.env, &bounds(&manifest))
    };
    let error = exact("read = [\"src/**/*.py\"]").unwrap_err();
    assert_eq!(
        error.to_string(),
        "/w/src/**/*.py would be widened to all of /w/src, and `exact = true` refuses that \
         (callgate.toml:3: fs.read \"src/**/*.py\")"
    );
    let plan = exact("read = [\"src/**\"]\nwrite = [\"a\"]").unwrap();
    assert!(plan.rules().all(|rule| rule.exactness == Exactness::Exact));
}

/// A tool's call is its file; a program's is all that is in force and what programs need.
#[test]
fn a_call_gets_what_it_needs() {
    let manifest = manifest(MANIFEST);
    let effective = effective(&manifest);
    let plan = |needs: &Effects, work| {
        let spec = CallSpec { work, bounds: bounds(&manifest), timeout: Duration::from_secs(60) };
        call(&effective.check(needs).unwrap(), &facts(), spec).unwrap()
    };
    let needs = Effects::default().writing("/w/src/a");
    let write = plan(&needs, CallWork::Tool { name: "write".into(), paths: vec!["/w/src/a".into()], limit: 10 });
    let rules: Vec<_> = write.rules.own().iter().map(|rule| (rule.access, rule.extent)).collect();
    assert_eq!(rules, [(FsAccess::Kept, Extent::Entry)]);
    assert_eq!(write.timeout, Duration::from_secs(5), "the manifest shortens it");
    assert_eq!(
        write.limits,
        [
            (Resource::OpenFiles, 65_536),
            (Resource::FileSize, 64 << 30),
            (Resource::CpuSeconds, 24 * 3600 + 2),
            (Resource::AddressSpace, 1 << 30),
        ]
        .map(|(resource, max)| Limit { resource, max })
    );

    let needs = Effects::of(Effect::Runs(ProgramRun::shell("true", "/w".into())));
    let argv = vec!["ls".into()];
    let program = plan(&needs, CallWork::program(argv, "/w".into()));
    assert_eq!(program.rules, CallRules::OfSession);
    assert_eq!((program.bounds.memory, program.bounds.processes), (1 << 30, 4096));
    let spaces = program.limits.iter().filter(|limit| limit.resource == Resource::AddressSpace).count();
    assert_eq!(spaces, 0, "programs reserve more address space than they use");
}

/// S0-46, C-26: sidecars can be read by the kernel's rules too, by tools and by programs, and not be executed.
#[test]
fn the_session_directory_is_in_the_plans() {
    let manifest = manifest(MANIFEST);
    let effective = effective(&manifest).with_session_dir("/run/s1/out".into());
    let out = |plan: &SessionPlan| {
        let own: Vec<_> = plan.rules().filter(|rule| rule.path == "/run/s1/out".into()).cloned().collect();
        assert_eq!(own.len(), 1);
        assert_eq!((own[0].access, own[0].extent), (FsAccess::Read, Extent::Subtree));
    };
    out(&session(&effective, &facts(), &manifest.env, &bounds(&manifest)).unwrap());
    let needs = Effects::of(Effect::Runs(ProgramRun::shell("true", "/w".into())));
    let work = CallWork::program(vec!["ls".into()], "/w".into());
    let spec = CallSpec { work, bounds: bounds(&manifest), timeout: Duration::from_secs(60) };
    assert_eq!(call(&effective.check(&needs).unwrap(), &facts(), spec).unwrap().rules, CallRules::OfSession);
}

/// S4-9: a restricted shell's call may write nothing, whatever its session may; and in such a session every exec is judged.
#[test]
fn s4_9_a_reading_call_has_nothing_to_write() {
    let manifest = manifest("[requires.fs]\nwrite = [\"**\"]\n[[requires.shell]]\ncmd = \"*\"");
    let effective = effective(&manifest);
    let needs = Effects::of(Effect::Runs(ProgramRun::shell("true", "/w".into())));
    let grant = effective.check(&needs).unwrap();
    assert!(!grant.write().is_empty() && !grant.only_reads(), "the control");
    let grant = grant.for_reading();
    assert!(grant.write().is_empty() && !grant.read().is_empty());
    let work = CallWork::program(vec!["ls".into()], "/w".into());
    let spec = CallSpec { work, bounds: bounds(&manifest), timeout: Duration::from_secs(60) };
    assert_eq!(call(&grant, &facts(), spec).unwrap().rules, CallRules::Reading);
    let changes = |set: &EffectiveSet| set.reach().iter().any(|reach| reach.starts_with("change"));
    assert!(changes(&effective) && !changes(&effective.for_reading()));
    assert!(effective.for_reading().reach().contains(&"read /w/**".to_owned()));
    let plan = session(&effective, &facts(), &manifest.env, &bounds(&manifest)).unwrap();
    assert!(!plan.exec.is_judged());
    let plan = plan.with_reading_calls(crate::shell::restricted::programs());
    assert!(plan.exec.is_judged());
    let listed = |name: &str| plan.reading.as_ref().unwrap().contains(&name.into());
    assert!(["cat", "awk", "sed", "jq", "git", "find"].into_iter().all(listed));
    for name in "sh bash dash python3 perl ruby node make cargo npm pip rm mv cp tee touch dd".split(' ') {
        assert!(!listed(name), "{name}");
    }
}

/// Without `shell` no rule for reading lets execute. (A write rule does; but then no call is granted a program.)
#[test]
fn without_shell_nothing_executes() {
    let manifest = manifest("[requires.fs]\nread = [\"**\"]");
    let plan = session(&effective(&manifest), &facts(), &manifest.env, &bounds(&manifest)).unwrap();
    assert!(plan.rules().all(|rule| rule.access != FsAccess::ReadExecute));
}

/// Single programs: no rule for a tree lets execute, and every exec is judged. Any program with any arguments, whatever else is
/// granted, is not.
#[test]
fn single_programs_are_judged() {
    let plan = |shell: &str| {
        let manifest = manifest(&format!("[requires.fs]\nread = [\"**\"]\n{shell}"));
        session(&effective(&manifest), &facts(), &manifest.env, &bounds(&manifest)).unwrap()
    };
    let executes = |plan: &SessionPlan| plan.rules().any(|rule| rule.access == FsAccess::ReadExecute);
    let (any, log) = ("[[requires.shell]]\ncmd = \"*\"\n", "[[requires.shell]]\ncmd = \"git\"\nargs = [\"log\"]\n");
    let one = plan(log);
    assert!(!executes(&one) && one.exec.names_all() && one.exec.judges_arguments());
    insta::assert_snapshot!("single_programs", one.to_string());
    let both = plan(&format!("{log}{any}"));
    assert!(executes(&both) && both.exec == Exec::Any);
    let any_program = plan("[[requires.shell]]\ncmd = \"*\"\nargs = [\"--version\"]\n");
    assert!(executes(&any_program) && any_program.exec.is_judged() && !any_program.exec.names_all());
    let program = plan("[[requires.shell]]\ncmd = \"git\"\n");
    assert!(program.exec.is_judged() && !program.exec.judges_arguments());
}

/// Where single programs are granted, no call writes the start-up files that they find in `HOME`. Caches are always elsewhere.
#[test]
fn home_is_kept_where_single_programs_are_granted() {
    let plan = |text: &str| {
        let manifest = manifest(text);
        session(&effective(&manifest), &facts(), &manifest.env, &bounds(&manifest)).unwrap()
    };
    let home = |plan: &SessionPlan| {
        let rules: Vec<FsAccess> =
            plan.rules().filter(|rule| rule.path == "/run/s1/home".into()).map(|rule| rule.access).collect();
        (rules, plan.env.get("XDG_CACHE_HOME").cloned())
    };
    let cache = Some(HostPath::from("/run/s1/tmp/cache"));
    for (shell, wanted) in [
        ("cmd = \"*\"", (vec![FsAccess::Write], cache.clone())),
        ("cmd = \"make\"\nargs = [\"all\"]", (vec![FsAccess::Read], cache.clone())),
        ("cmd = \"/w/tool.py\"", (vec![FsAccess::Read], cache)),
        ("cmd = \"go\"\n[env]\nset = { XDG_CACHE_HOME = \"/w/c\" }", (vec![FsAccess::Read], Some("/w/c".into()))),
    ] {
        assert_eq!(home(&plan(&format!("[[requires.shell]]\n{shell}"))), wanted, "{shell}");
    }
}

/// S0-36, B11: what is granted is in the plan, within what bounds it; and nothing granted is nothing.
#[test]
fn s0_36_hosts_are_in_the_plan() {
    let hosts = |text: &str| {
        let manifest = manifest(text);
        let asked = Declared::union(&[Contribution::manifest(&manifest)], &variables(), &[]).unwrap();
        let effective = narrow(&asked, &manifest.ceiling_bounds(&variables()).unwrap());
        let plan = session(&effective, &facts(), &manifest.env, &bounds(&manifest)).unwrap();
        let network = plan.network;
        network.map(|network| network.hosts.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    assert_eq!(hosts(MANIFEST), None);
    assert_eq!(hosts("[requires.net]\nhosts = []"), None);
    let asked = "[requires.net]\nhosts = [\"*.a.com\", \"10.0.0.1:5432\", \"b.com\"]";
    assert_eq!(hosts(asked).unwrap(), ["b.com", "*.a.com", "10.0.0.1:5432"]);
    let bounded = format!("{asked}\n[ceiling.net]\nhosts = [\"x.a.com:443\", \"10.0.0.0/8:*\"]");
    assert_eq!(hosts(&bounded).unwrap(), ["x.a.com:https", "10.0.0.1:5432"]);
    assert_eq!(hosts(&format!("{asked}\n[ceiling.net]\nhosts = []")), None);
}

/// Secrets and loaders stay out; what callgate decides cannot be set.
#[test]
fn the_environment_is_named() {
    let facts = facts();
    let compile = |env: &Env, offline| env::compile(EnvSources { facts: &facts, env, offline });
    let names = |env: &Env| compile(env, false).map(|all| all.into_keys().collect::<Vec<_>>());
    assert_eq!(
        names(&Env::default()).unwrap(),
        [
            // Where hosts are granted.
            "CALLGATE_PROXY",
            "GOCACHE",
            "HOME",
            "LANG",
            "LC_TIME",
            "PATH",
            // And names are answered by TCP alone.
            "RES_OPTIONS",
            "SCREENDIR",
            "SHELL",
            "TMPDIR",
            "TMUX_TMPDIR",
            "XDG_CACHE_HOME",
            "npm_config_cache"
        ]
    );
    let pass = |name: &str| Env { pass: vec![name.to_owned()], ..Env::default() };
    assert_eq!(names(&pass("PATH")), Err(PlanError::FixedVariable("PATH".into())));
    assert_eq!(env::warnings(&pass("API_TOKEN")), [env::EnvWarning::Secret("API_TOKEN".into())]);
    assert_eq!(env::warnings(&pass("LD_PRELOAD")), [env::EnvWarning::Loader("LD_PRELOAD".into())]);
    assert_eq!(compile(&Env::default(), false).unwrap()["PATH"], "/usr/bin:/bin".into());
}

/// Where no host is granted, package managers are told so; whoever names one of those variables wins.
#[test]
fn offline_switches_give_way_to_what_was_named() {
    let mut facts = facts();
    facts.env.insert("PIP_RETRIES".into(), "7".into());
    let value = |env: &Env, offline: bool, name: &str| {
        let all = env::compile(EnvSources { facts: &facts, env, offline }).unwrap();
        all.get(name).map(ToString::to_string)
    };
    let nothing = Env::default();
    assert_eq!(value(&nothing, true, "CARGO_NET_OFFLINE").as_deref(), Some("true"));
    assert_eq!(value(&nothing, true, "PIP_RETRIES").as_deref(), Some("0"), "the caller's own is not passed unasked");
    assert_eq!(value(&nothing, false, "CARGO_NET_OFFLINE"), None);
    let pass = Env { pass: vec!["PIP_RETRIES".into(), "CARGO_NET_OFFLINE".into()], ..Env::default() };
    assert_eq!(value(&pass, true, "PIP_RETRIES").as_deref(), Some("7"));
    assert_eq!(value(&pass, true, "CARGO_NET_OFFLINE"), None, "the caller has none");
    let set = Env { set: [("NPM_CONFIG_OFFLINE".into(), "false".into())].into(), ..Env::default() };
    assert_eq!(value(&set, true, "NPM_CONFIG_OFFLINE").as_deref(), Some("false"));
    assert_eq!(value(&set, true, "npm_config_offline"), None, "npm reads both");
    let names: std::collections::BTreeSet<_> = env::OFFLINE.iter().map(|(name, ..)| name).collect();
    assert_eq!(names.len(), env::OFFLINE.len());
}

/// C19: no shell reads lines by another character set than rules do, nor in another way: the caller's locale is replaced, and one that
/// was named is an error.
#[test]
fn shells_read_lines_as_rules_do() {
    let mut facts = facts();
    let odd = [("LANG", "zh_CN.GB18030"), ("LC_ALL", "ja_JP.SJIS"), ("LC_TIME", "de_DE"), ("LANGUAGE", "../x")];
    facts.env.extend(odd.map(|(name, value)| (name.to_owned(), HostPath::from(value))));
    facts.env.insert("LC_CTYPE".into(), "de_DE.UTF-8".into());
    facts.env.insert("LOCPATH".into(), "/w".into());
    let compile = |env: &Env| env::compile(EnvSources { facts: &facts, env, offline: true });
    let all = compile(&Env::default()).unwrap();
    for name in ["LANG", "LC_ALL", "LC_TIME"] {
        assert_eq!(all[name], "C.UTF-8".into(), "{name}");
    }
    assert_eq!(all["LC_CTYPE"], "de_DE.UTF-8".into());
    assert!(!all.contains_key("LANGUAGE") && !all.contains_key("LOCPATH"), "{all:?}");
    let error = |name: &str, value: &str| Err(PlanError::Reading { name: name.to_owned(), value: value.into() });
    for (name, value) in odd.into_iter().chain([("LOCPATH", "/w")]) {
        assert_eq!(compile(&Env { pass: vec![name.to_owned()], ..Env::default() }), error(name, value));
    }
    for (name, value) in
        odd.into_iter().chain([("POSIXLY_CORRECT", "1"), ("BASH_COMPAT", "31"), ("SHELLOPTS", "posix")])
    {
        let set = [(name.to_owned(), value.to_owned())].into();
        assert_eq!(compile(&Env { set, ..Env::default() }), error(name, value));
    }
}

/// A variable that is typed may not change which code a granted program runs; what a manifest says may, and so may what is typed where any
/// program may start.
#[test]
fn typed_loaders_are_refused_where_programs_are_judged() {
    let typed = |name: &str| Env { set: [(name.to_owned(), "x".to_owned())].into(), ..Env::default() };
    let judged = Exec::Only(Vec::new());
    for name in ["LD_PRELOAD", "BASH_ENV", "PYTHONPATH", "MAKEFILES", "GIT_SSH_COMMAND"] {
        assert_eq!(env::refuse_steering(&typed(name), &judged), Err(PlanError::Steering(name.into())));
        assert_eq!(env::refuse_steering(&typed(name), &Exec::Any), Ok(()));
    }
    assert_eq!(env::refuse_steering(&typed("API_TOKEN"), &judged), Ok(()));
}

/// Each variable is listed once, with what became of it; the value of one that was dropped is not.
#[test]
fn every_variable_is_explained() {
    let facts = facts();
    let env = Env { set: [("X".into(), "1".into())].into(), ..Env::default() };
    let all = env::explain(EnvSources { facts: &facts, env: &env, offline: true }).unwrap();
    let find = |name: &str| all.iter().find(|variable| variable.name == name).unwrap();
    for (name, fate) in [
        ("LANG", Fate::Passed),
        ("X", Fate::Set),
        ("UV_OFFLINE", Fate::Set),
        ("PATH", Fate::Set),
        ("API_TOKEN", Fate::Dropped),
        ("LD_PRELOAD", Fate::Dropped),
    ] {
        let variable = find(name);
        assert_eq!((variable.fate, variable.value.is_none()), (fate, fate == Fate::Dropped), "{name}");
        assert!(!variable.why.is_empty());
    }
    assert!(find("API_TOKEN").why.contains("secret"));
}

/// S0-15: what a call's sub-policy lets it change lies within what the session lets it, by the same writer; a kept name that is named
/// is no exception; it may read what it could, and reach what both name.
#[test]
fn s0_15_a_narrowed_call_is_within_its_session() {
    let source = |grant: &str| {
        format!(
            "[requires.fs]\nread = [\"/srv/**\"]\nwrite = [\"**\", \"/data/x\"]\n[requires.net]\nhosts = [\"*.a.com\", \"b.com:22\"]\n\
             [[requires.shell]]\ncmd = \"*\"\n\
             [[rules]]\npermission = \"bash\"\naction = \"allow\"\ngrant = {grant}"
        )
    };
    let left = |grant: &str| -> (Vec<(String, FsAccess, Extent)>, Option<Network>) {
        let manifest = manifest(&source(grant));
        let effective = effective(&manifest);
        let needs = Effects::of(Effect::Runs(ProgramRun::shell("true", "/w".into())));
        let checked = effective.check(&needs).unwrap();
        let work = CallWork::program(vec!["ls".into()], "/w".into());
        let spec = CallSpec { work, bounds: bounds(&manifest), timeout: Duration::from_secs(60) };
        let session = session(&effective, &facts(), &manifest.env, &bounds(&manifest)).unwrap();
        let mut rules = RuleSet::default();
        let place = RuleSource { scope: RuleScope::Manifest, place: "m:1".into() };
        rules.add(&manifest.rules[0], &place, &variables()).unwrap();
        let ruled = runs("bash", vec![Act::UnknownCommand]);
        let sub_policy = rules.sub_policy(&ruled).unwrap();
        let whole = call(&checked, &facts(), spec).unwrap();
        let plan = narrowed(whole, &checked, &sub_policy, &session, &facts()).unwrap();
        let CallRules::Narrowed(own) = &plan.rules else { unreachable!("it reads what its session reads") };
        assert!(own.iter().all(|rule| rule.access.changes() || rule.access == FsAccess::Device), "{own:?}");
        for rule in own.iter().filter(|rule| rule.access.changes()) {
            let within = |of: &FsRule| of.access.changes() && rule.path.as_path().starts_with(&of.path);
            assert!(session.rules().any(within), "{rule:?}");
        }
        let granted = own.iter().filter(|rule| rule.access.changes() && !session.surroundings.contains(rule));
        (granted.map(|rule| (rule.path.to_string(), rule.access, rule.extent)).collect(), plan.network)
    };
    let written = |grant: &str| left(grant).0;
    let reached = |grant: &str| {
        let network = left(grant).1;
        network.map(|network| network.hosts.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    assert_eq!(reached("{ write = [] }"), None, "what its session may");
    assert_eq!(reached("{ net = [] }").unwrap(), [""; 0]);
    assert_eq!(reached("{ net = [\"x.a.com:443\", \"*.b.com\", \"c.com\"] }").unwrap(), ["x.a.com:https"]);
    assert_eq!(reached("{ net = [\"b.com:*\"] }").unwrap(), ["b.com:22"]);
    let tree = |path: &str| (path.to_owned(), FsAccess::Kept, Extent::Subtree);
    let entry = |path: &str| (path.to_owned(), FsAccess::Kept, Extent::Entry);
    assert_eq!(written("{ write = [] }"), []);
    assert_eq!(written("{ net = [] }"), [entry("/data/x"), tree("/w")]);
    assert_eq!(written("{ write = [\"target/**\", \"/etc/**\"] }"), [tree("/w/target")]);
    assert_eq!(written("{ write = [\".vscode/**\", \"notes\"] }"), [entry("/w/notes")]);
    assert_eq!(written("{ write = [\"/data/**\"] }"), [entry("/data/x")]);
}

/// S0-15, A10: a call that changes nothing may not write in the session's own `/tmp`, of which Landlock takes a tree for a part that a grant
/// leads to by a link.
#[test]
fn s0_15_a10_a_call_that_changes_nothing_changes_no_tree_that_a_link_leads_to() {
    let manifest = manifest("[requires.fs]\nwrite = [\"target/**\"]\n[[requires.shell]]\ncmd = \"*\"");
    let effective = effective(&manifest);
    let facts = HostFacts {
        strength: Strength::Namespaces,
        private: PrivateDir { inside: "/run/callgate".into(), kind: PrivateKind::InNamespace },
        ..facts()
    };
    let left = |leads_to: Option<&str>| {
        let (path, leads_to) = ("/w/target".into(), leads_to.map(HostPath::from));
        let seen = Seen { path, device: 1, inode: 2, directory: true, leads_to };
        let session = session(&effective, &facts, &manifest.env, &bounds(&manifest)).unwrap();
        let session = session.bound_to(vec![seen], &[]);
        let free = session.grants.iter().find(|rule| rule.path == "/w/target".into()).unwrap();
        assert_eq!(free.access, FsAccess::Write, "the kernel writes in it");
        let needs = Effects::of(Effect::Runs(ProgramRun::shell("true", "/w/target/x".into())));
        let work = CallWork::program(vec!["ls".into()], "/w".into());
        let spec = CallSpec { work, bounds: bounds(&manifest), timeout: Duration::from_secs(60) };
        let whole = call(&effective.check(&needs).unwrap(), &facts, spec).unwrap();
        let CallRules::Narrowed(rules) = reading_alone(whole, &session, &facts).rules else {
            unreachable!("it may do less than its session")
        };
        let written = rules.into_iter().filter(|rule| rule.access.changes());
        written.map(|rule| rule.path.to_string()).collect::<Vec<_>>()
    };
    let own = ["/tmp", "/dev/shm", "/run/callgate/tmp", "/run/callgate/shm"];
    assert_eq!(left(None), own, "the control");
    assert_eq!(left(Some("/srv/target")), own, "the control");
    assert_eq!(left(Some("/tmp/target")), ["/dev/shm", "/run/callgate/shm"]);
    assert_eq!(left(Some("/dev/shm/target")), ["/tmp", "/run/callgate/tmp"]);
}

/// A8: the broker opens a single name for reading unless a tree holds it that may be read, by where a link leads.
#[test]
fn a8_a_name_is_in_a_tree_by_where_it_leads() {
    let writer = |leads_to: Option<&str>, (read, write): (&str, &str)| {
        let manifest = manifest(&format!("[requires.fs]\nread = [\"{read}/**\"]\nwrite = [\"{write}/x\"]"));
        let session = session(&effective(&manifest), &facts(), &manifest.env, &bounds(&manifest)).unwrap();
        let (path, leads_to) = ("/srv/t/link".into(), leads_to.map(HostPath::from));
        let seen = Seen { path, device: 1, inode: 2, directory: true, leads_to };
        session.bound_to(vec![seen], &[]).writer()
    };
    let within = ("/srv/t", "/srv/t/link");
    assert_eq!(writer(None, within), Writer::Broker, "the control");
    assert_eq!(writer(Some("/srv/t/other"), within), Writer::Broker);
    assert_eq!(writer(Some("/srv/e"), within), Writer::BrokerReadsToo);
    assert_eq!(writer(None, ("/srv/e", "/srv/t/link")), Writer::BrokerReadsToo, "the control");
    assert_eq!(writer(Some("/srv/e"), ("/srv/e", "/srv/t/link")), Writer::Broker);
}

/// S0-51: of what a search was granted, the kernel is not told of what rules deny as a whole; the rest is the tool's to leave out.
#[test]
fn s0_51_a_grant_that_is_denied_is_none() {
    use crate::denied::DeniedFiles;
    use crate::effect::FileScope;
    use crate::pattern::PathTemplate;
    let manifest = manifest("[requires.fs]\nread = [\"docs/**\", \"secret/**\", \"src/**\"]\n");
    let effective = effective(&manifest);
    let effects = Effects::of(Effect::Shows(FileScope::Tree("/w".into())));
    let work = CallWork::Tool { name: "grep".into(), paths: vec!["/w".into()], limit: 1 };
    let spec = CallSpec { work, bounds: bounds(&manifest), timeout: Duration::from_secs(1) };
    let plan = call(&effective.check(&effects).unwrap(), &facts(), spec).unwrap();
    let denied = |pattern: &str| {
        let pattern = PathTemplate::parse(pattern).unwrap().expand(&variables()).remove(0);
        DeniedFiles { pattern, rule: "a rule".to_owned() }
    };
    let paths = |plan: &CallPlan| plan.rules.own().iter().map(|rule| rule.path.to_string()).collect::<Vec<_>>();
    assert_eq!(paths(&plan), ["/w/docs", "/w/secret", "/w/src"], "the control");
    let left = leaving_out(plan, vec![denied("secret/**"), denied("src/*.pem")]);
    assert_eq!((paths(&left), left.without.len()), (vec!["/w/docs".to_owned(), "/w/src".to_owned()], 2));
}

/// S0-51: a place that a rule closes has the broker for its one writer, in every tree; one that holds what is the session's own cannot be
/// closed, and nor can one in it, unless a tree lies between that was granted.
#[test]
fn s0_51_closed_places_are_the_broker_s_to_write() {
    use crate::denied::ClosedPlace;
    use crate::plan::ClosedByRule;
    let manifest =
        manifest("[requires.fs]\nwrite = [\"target/**\", \"/run/s1/tmp/w/**\"]\n[[requires.shell]]\ncmd = \"*\"");
    let effective = effective(&manifest);
    let compiled = |place: &str| {
        let closed = ClosedPlace { path: place.into(), rule: "a rule".to_owned() };
        let closed = ClosedByRule { place: closed, names: vec![place.into()], passed: Vec::new() };
        let facts = HostFacts { closed: vec![closed], ..facts() };
        session(&effective, &facts, &manifest.env, &bounds(&manifest)).unwrap()
    };
    let free = session(&effective, &facts(), &manifest.env, &bounds(&manifest)).unwrap();
    let target = |plan: &SessionPlan| plan.grants.iter().find(|rule| rule.path == "/w/target".into()).unwrap().access;
    assert_eq!(target(&free), FsAccess::Write, "the control");
    for (place, can) in [
        ("/w/target/keep", true),
        ("/w", true),
        ("/elsewhere", true),
        ("/run/s1/tmp/w/docs", true),
        ("/run/s1/tmp/docs", false),
        ("/run/s1/home", false),
        ("/run", false),
        ("/", false),
        ("/dev/null", false),
    ] {
        let plan = compiled(place);
        assert_eq!((plan.protection.closed.len(), target(&plan)), (usize::from(can), FsAccess::Kept), "{place}");
    }
}
