//! The laws of narrowing, against a brute-force oracle on a small alphabet of paths.
#![allow(clippy::unwrap_used, reason = "a failing test may stop")]

use proptest::prelude::*;

use super::*;
use crate::ceiling::{Ceiling, FsCeiling, NetCeiling};
use crate::pattern::Host;
use crate::requirement::RequirementSet;
use crate::variable::Variables;

const PATHS: [&str; 16] = [
    "/", "/a", "/a/a", "/a/b", "/a/a/a", "/a/a/b", "/a/b/a", "/a/b/b", "/b", "/b/a", "/b/b", "/b/a/b", "/b/b/b", "/w",
    "/w/a", "/w/a/b",
];
const PATTERNS: [&str; 20] = [
    "/**",
    "/a/**",
    "/a/b/**",
    "/b/**",
    "/a",
    "/a/b",
    "/a/a/b",
    "/b/b",
    "/a/*",
    "/*/b",
    "/**/b",
    "/a/**/b",
    "/*/*/a",
    "/a/?/a",
    "/a/{a,b}/*",
    "/b/*/b",
    "{workspace}/**",
    "a",
    "a/*",
    "{ad-hoc}/**",
];
const HOSTS: [(&str, u16); 5] =
    [("x.com", 443), ("a.x.com", 443), ("a.x.com", 22), ("10.0.0.1", 80), ("b.a.x.com", 80)];
const HOST_PATTERNS: [&str; 9] = [
    "x.com",
    "*.x.com",
    "a.x.com:22",
    "10.0.0.0/8",
    "*.a.x.com:80",
    "10.0.0.1:80",
    "a.x.com:http,20-30",
    "*.x.com:*",
    "*.x.com:22,443",
];
const ARGVS: [&[&str]; 9] = [
    &["git"],
    &["git", "log"],
    &["git", "push", "x"],
    &["/w/t"],
    &["ls", "log"],
    &["/w/t/x"],
    &["/w/t/d/x", "log"],
    &["/w/tx", "log"],
    &["/w/t/../x"],
];
const PROGRAMS: [&str; 11] = [
    r#"{"cmd": "git"}"#,
    r#"{"cmd": "*"}"#,
    r#"{"cmd": "git", "args": ["log"]}"#,
    r#"{"cmd": "*", "args": [{"prefix": "l"}, {"rest": true}]}"#,
    r#"{"cmd": "{workspace}/t"}"#,
    r#"{"cmd": "git", "args": [{"wildcard": true}, {"rest": true}]}"#,
    r#"{"cmd": "{workspace}/t/**"}"#,
    r#"{"cmd": "/w/t/d/**", "args": ["log"]}"#,
    r#"{"cmd": "/w/**", "args": [{"rest": true}]}"#,
    r#"{"cmd": "/w/t/x"}"#,
    r#"{"cmd": "/w/t/d/x", "args": ["log"]}"#,
];

fn variables() -> Variables {
    Variables::new(vec!["/w".into()], vec![], vec![]).unwrap()
}

fn declared(sets: &[RequirementSet]) -> Declared {
    let source = Source::Default;
    let contributions: Vec<_> = sets.iter().map(|set| Contribution::from_source(&source, set)).collect();
    Declared::union(&contributions, &variables(), &[]).unwrap()
}

fn argv(words: &[&str]) -> Vec<HostPath> {
    words.iter().map(|word| HostPath::from(*word)).collect()
}

/// Every question that can be asked of rights, answered.
fn answers(rights: &Rights) -> Vec<bool> {
    let mut answers = Vec::new();
    for path in PATHS {
        answers.extend([rights.allows_read(&path.into()), rights.allows_write(&path.into())]);
    }
    answers.extend(HOSTS.iter().map(|(host, port)| rights.allows_host(&Host::parse(host).unwrap(), *port)));
    answers.extend(ARGVS.iter().map(|words| rights.allows_argv(&argv(words))));
    answers.extend(CAPABILITIES.iter().map(|name| rights.allows_capability(name)));
    answers
}

fn both(left: &[bool], right: &[bool]) -> Vec<bool> {
    left.iter().zip(right).map(|(left, right)| *left && *right).collect()
}

/// The regions without their origins.
fn shape(rights: &Rights) -> Vec<String> {
    let read = rights.read.iter().map(|(region, _)| format!("r {region}"));
    let write = rights.write.iter().map(|(region, _)| format!("w {region}"));
    let hosts = rights.hosts.iter().map(|(region, _)| region.to_string());
    let shell = rights.shell.iter().map(|(region, _)| region.to_string());
    read.chain(write)
        .chain(hosts)
        .chain(shell)
        .chain(rights.capabilities.iter().map(|(name, _)| name.clone()))
        .collect()
}

fn some<T: Clone + std::fmt::Debug + 'static>(from: &'static [T]) -> impl Strategy<Value = Vec<T>> {
    proptest::collection::vec(proptest::sample::select(from), 0..4)
}

fn requirements() -> impl Strategy<Value = RequirementSet> {
    (some(&PATTERNS), some(&PATTERNS), some(&HOST_PATTERNS), some(&PROGRAMS), some(&CAPABILITIES)).prop_map(
        |(read, write, hosts, shell, capabilities)| {
            let shell: Vec<serde_json::Value> = shell.iter().map(|json| serde_json::from_str(json).unwrap()).collect();
            serde_json::from_value(serde_json::json!({
                "fs": {"read": read, "write": write},
                "net": {"hosts": hosts},
                "shell": shell,
                "capabilities": capabilities,
            }))
            .unwrap()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// S0-7: the union allows what either asks for.
    #[test]
    fn union_is_either(left in requirements(), right in requirements()) {
        let united = declared(&[left.clone(), right.clone()]);
        let either: Vec<bool> = answers(declared(std::slice::from_ref(&left)).rights())
            .iter()
            .zip(answers(declared(std::slice::from_ref(&right)).rights()))
            .map(|(left, right)| *left || right)
            .collect();
        prop_assert_eq!(answers(united.rights()), either.clone());
        prop_assert_eq!(answers(declared(&[left.union(&right)]).rights()), either);
        prop_assert_eq!(answers(&united.rights.reduced()), answers(declared(&[left, right]).rights()));
    }

    /// One region at a time is the same as all of them and then reduced; and leaves nothing to reduce.
    #[test]
    fn what_is_added_stays_reduced(regions in some(&PATTERNS), others in some(&PATTERNS)) {
        let regions = declared(&[serde_json::from_value(serde_json::json!({ "fs": { "read": regions } })).unwrap()]);
        let others = declared(&[serde_json::from_value(serde_json::json!({ "fs": { "read": others } })).unwrap()]);
        let mut added = regions.rights.read.reduced();
        let mut inserted = added.clone();
        for (region, origins) in others.rights.read.iter() {
            added.add(region.clone(), origins.iter().cloned());
            inserted.insert(region.clone(), origins.iter().cloned());
        }
        prop_assert_eq!(&added, &added.reduced());
        prop_assert_eq!(added, inserted.reduced());
    }

    /// X0-1: exactly what is declared and what each bound allows.
    #[test]
    fn narrow_is_the_intersection(asked in requirements(), ceiling in requirements(), parent in requirements()) {
        let (asked, ceiling, parent) = (declared(&[asked]), declared(&[ceiling]), declared(&[parent]));
        let bounds = [
            Bound::at_most(Source::Ceiling, ceiling.rights.clone()),
            Bound::at_most(Source::Parent, parent.rights.clone()),
        ];
        let effective = narrow(&asked, &bounds);
        let oracle = both(&both(&answers(&asked.rights), &answers(&ceiling.rights)), &answers(&parent.rights));
        prop_assert_eq!(answers(effective.rights()), oracle);
        for path in PATHS {
            prop_assert!(!effective.allows_write(&path.into()) || effective.allows_read(&path.into()));
        }
    }

    /// The order of bounds does not matter, nor does repeating them.
    #[test]
    fn narrow_has_one_result(asked in requirements(), ceiling in requirements(), parent in requirements()) {
        let asked = declared(&[asked]);
        let ceiling = Bound::at_most(Source::Ceiling, declared(&[ceiling]).rights);
        let parent = Bound::at_most(Source::Parent, declared(&[parent]).rights);
        let one = narrow(&asked, &[ceiling.clone(), parent.clone()]);
        let other = narrow(&asked, &[parent.clone(), ceiling.clone()]);
        prop_assert_eq!(shape(one.rights()), shape(other.rights()));
        prop_assert_eq!(one.narrowings(), other.narrowings());
        let again = narrow(&asked, &[ceiling.clone(), parent, ceiling, one.as_parent()]);
        prop_assert_eq!(shape(one.rights()), shape(again.rights()));
    }

    /// Nothing is lost in silence.
    #[test]
    fn every_lost_right_is_recorded(asked in requirements(), ceiling in requirements()) {
        let asked = declared(&[asked]);
        let effective = narrow(&asked, &[Bound::at_most(Source::Ceiling, declared(&[ceiling]).rights)]);
        let recorded = |kind: Kind, text: &str| {
            effective.narrowings().iter().any(|n| n.kind == kind && n.asked == text && n.bound == Source::Ceiling)
        };
        for path in PATHS.map(HostPath::from) {
            for (region, _) in asked.rights.read.iter().filter(|(region, _)| region.matches(&path)) {
                prop_assert!(effective.allows_read(&path) || recorded(Kind::Read, &region.to_string()));
            }
            for (region, _) in asked.rights.write.iter().filter(|(region, _)| region.matches(&path)) {
                prop_assert!(effective.allows_write(&path) || recorded(Kind::Write, &region.to_string()));
            }
        }
        for words in ARGVS {
            for (region, _) in asked.rights.shell.iter().filter(|(region, _)| region.matches(&argv(words))) {
                let kept = effective.rights().allows_argv(&argv(words));
                prop_assert!(kept || recorded(Kind::Shell, &region.to_string()));
            }
        }
        prop_assert!(!effective.narrowings().is_empty() || answers(effective.rights()) == answers(&asked.rights));
    }

    /// C-1: a ceiling bounds the kinds that it names and no other; what reading is bounded to bounds writing too; and every
    /// right that it takes is recorded with its source.
    #[test]
    fn a_ceiling_bounds_what_it_names(
        asked in requirements(),
        ceiling in requirements(),
        named in proptest::array::uniform5(any::<bool>()),
    ) {
        let most = declared(std::slice::from_ref(&ceiling)).rights;
        let [read, write, hosts, shell, capabilities] = named;
        let written = Ceiling {
            fs: FsCeiling { read: read.then(|| ceiling.fs.read.clone()), write: write.then(|| ceiling.fs.write.clone()) },
            net: NetCeiling { hosts: hosts.then(|| ceiling.net.hosts.clone()) },
            shell: shell.then(|| ceiling.shell.clone()),
            capabilities: capabilities.then(|| ceiling.capabilities.clone()),
        };
        let source = |kind| Source::ManifestCeiling { file: "m".to_owned(), line: 7, kind };
        let bounds = Bound::of_ceiling(&written, source, &variables(), &[]).unwrap();
        let asked = declared(&[asked]);
        let effective = narrow(&asked, &bounds);
        let only_read = declared(&[RequirementSet {
            fs: crate::requirement::FsRequirement { write: Vec::new(), ..ceiling.fs.clone() },
            ..RequirementSet::default()
        }]).rights;
        for path in PATHS.map(HostPath::from) {
            // What may be written may be read; without a word about writing there is nothing of that.
            let to_read = if write { most.allows_read(&path) } else { only_read.allows_read(&path) };
            prop_assert_eq!(effective.allows_read(&path), asked.rights.allows_read(&path) && (!read || to_read), "{}", &path);
            let to_write = if write { most.allows_write(&path) } else { !read || to_read };
            prop_assert_eq!(effective.allows_write(&path), asked.rights.allows_write(&path) && to_write, "{}", &path);
            prop_assert!(!effective.allows_write(&path) || effective.allows_read(&path));
        }
        let (answered, all) = (answers(effective.rights()), answers(&asked.rights));
        let (others, bounded) = (PATHS.len() * 2, answers(&most));
        for at in others..answered.len() {
            let kind = if at < others + HOSTS.len() { hosts } else if at < others + HOSTS.len() + ARGVS.len() { shell } else { capabilities };
            prop_assert_eq!(answered[at], all[at] && (!kind || bounded[at]));
        }
        let is_its_own = |n: &Narrowing| matches!(n.bound, Source::ManifestCeiling { line: 7, .. });
        prop_assert!(effective.narrowings().iter().all(is_its_own));
        prop_assert!(!effective.narrowings().is_empty() || answered == all);
    }

    /// S0-8, C-1: under the default ceiling all that is declared is in force.
    #[test]
    fn the_default_ceiling_takes_nothing(asked in requirements()) {
        let asked = declared(&[asked]);
        let effective = narrow(&asked, &[Bound::unlimited(Source::Ceiling)]);
        prop_assert_eq!(answers(effective.rights()), answers(&asked.rights));
        prop_assert!(effective.narrowings().is_empty());
    }
}

/// S0-8 and X0-1 side by side (C-1): a tool's requirement takes effect by itself, unless a ceiling is set.
#[test]
fn a_tool_extends_requirements_never_authority() {
    let parse = |json| serde_json::from_str::<RequirementSet>(json).unwrap();
    let (manifest, tool) = (parse(r#"{"fs": {"read": ["src/**"]}}"#), parse(r#"{"fs": {"write": ["out/**"]}}"#));
    let (default, id) = (Source::Default, Source::Tool("build".into()));
    let asked = [Contribution::from_source(&default, &manifest), Contribution::from_source(&id, &tool)];
    let asked = Declared::union(&asked, &variables(), &[]).unwrap();
    let file = HostPath::from("/w/out/x");

    assert!(narrow(&asked, &[Bound::unlimited(Source::Ceiling)]).allows_write(&file), "S0-8");

    let ceiling = declared(&[parse(r#"{"fs": {"read": ["**"]}}"#)]);
    let bounded = narrow(&asked, &[Bound::at_most(Source::Ceiling, ceiling.rights)]);
    assert!(!bounded.allows_write(&file), "X0-1");
    assert!(bounded.allows_read(&file), "the ceiling grants reading, and writing includes it");
    let lost: Vec<String> = bounded.narrowings().iter().map(ToString::to_string).collect();
    assert_eq!(
        lost,
        ["fs.write /w/out/**: bounded to nothing by the ceiling (asked by tool build: fs.write \"out/**\")"]
    );
}

/// C-1: a ceiling grants nothing. A name that is kept in a tree is released by whoever asks for it, not by a bound that names it.
#[test]
fn a_ceiling_releases_no_kept_name() {
    let parse = |json| serde_json::from_str::<RequirementSet>(json).unwrap();
    let both = parse(r#"{"fs": {"write": ["out/**", ".env"]}}"#);
    let bounds = Bound::of_ceiling(&Ceiling::of_named(&both), |_| Source::Ceiling, &variables(), &[]).unwrap();
    let written = |asked: &[RequirementSet]| -> Vec<String> {
        let effective = narrow(&declared(asked), &bounds);
        effective.rights().write().iter().map(|(region, _)| region.to_string()).collect()
    };
    let all = parse(r#"{"fs": {"write": ["**"]}}"#);
    assert_eq!(written(std::slice::from_ref(&all)), ["/w/out/**"]);
    assert_eq!(written(&[all, parse(r#"{"fs": {"write": [".env"]}}"#)]), ["/w/.env", "/w/out/**"], "the control");
}

/// S0-7: what tools require is told where it lies beyond what others named, and only that.
#[test]
fn what_tools_require_beyond_what_is_named_is_told() {
    let parse = |json| serde_json::from_str::<RequirementSet>(json).unwrap();
    let (write, edit) = (Source::Tool("write".into()), Source::Tool("edit".into()));
    let tools = parse(r#"{"fs": {"write": ["**"]}}"#);
    for (named, told) in [
        (r#"{"fs": {"write": ["out/**"]}}"#, vec![(Kind::Write, vec!["edit", "write"])]),
        (r#"{"fs": {"write": ["**"]}}"#, vec![]),
        (r#"{"fs": {"read": ["**"]}}"#, vec![(Kind::Write, vec!["edit", "write"])]),
    ] {
        let named = declared(&[parse(named)]);
        let asked = [Contribution::from_source(&write, &tools), Contribution::from_source(&edit, &tools)];
        let mut both = Declared::union(&asked, &variables(), &[]).unwrap();
        for (region, origins) in named.rights.write.iter() {
            both.rights.write.insert(region.clone(), origins.iter().cloned());
        }
        let beyond = beyond(&narrow(&both, &[]), &named);
        let found: Vec<_> =
            beyond.iter().map(|found| (found.kind, found.tools.iter().map(String::as_str).collect())).collect();
        assert_eq!(found, told);
    }
}

/// S0-40: without a workspace nothing relative to it is in force.
#[test]
fn no_workspace_grants_nothing() {
    let set: RequirementSet =
        serde_json::from_str(r#"{"fs": {"write": ["**"]}, "shell": [{"cmd": "{workspace}/t"}]}"#).unwrap();
    let contribution = [Contribution::from_source(&Source::Default, &set)];
    let effective = narrow(&Declared::union(&contribution, &Variables::default(), &[]).unwrap(), &[]);
    assert!(effective.rights().read().is_empty() && effective.rights().write().is_empty());
    assert!(effective.rights().shell().is_empty());
}

#[test]
fn an_unknown_capability_is_refused_by_name() {
    let set: RequirementSet = serde_json::from_str(r#"{"capabilities": ["gpu"]}"#).unwrap();
    let source = Source::Tool("train".into());
    let contribution = [Contribution::from_source(&source, &set)];
    let error = Declared::union(&contribution, &Variables::default(), &[]).unwrap_err();
    assert_eq!(error.to_string(), "tool train: capabilities \"gpu\": there is no such capability");
    assert!(Declared::union(&contribution, &Variables::default(), &["gpu"]).is_ok());
}

/// S0-46, C-26: the session reads its own directory, and does not hand that on.
#[test]
fn the_session_directory_is_readable_and_stays_its_own() {
    let effective = narrow(&declared(&[]), &[]).with_session_dir("/run/s1".into());
    assert!(effective.allows_read(&"/run/s1/out".into()));
    assert!(!effective.allows_write(&"/run/s1/out".into()));
    assert!(!effective.allows_read(&"/run/s10/out".into()));
    assert!(!effective.allows_read(&"/run/s1/../s2".into()));
    let everything: RequirementSet = serde_json::from_str(r#"{"fs": {"read": ["/**"]}}"#).unwrap();
    let below = narrow(&declared(&[everything]), &[effective.as_parent()]);
    assert!(!below.allows_read(&"/run/s1/out".into()));
}

/// A1, A3, A18: what bounds leave of a larger tree is known with that tree; what was asked for by itself is not, and the part of a
/// child is left of its parent's.
#[test]
fn what_is_left_of_a_tree_is_known_with_it() {
    let writes = |patterns: &[&str]| {
        let text = serde_json::json!({ "fs": { "write": patterns } });
        declared(&[serde_json::from_value::<RequirementSet>(text).unwrap()])
    };
    let bound = |source: Source, patterns: &[&str]| Bound::at_most(source, writes(patterns).rights);
    let left = |asked: &[&str], bounds: &[Bound]| -> Vec<String> {
        let of = narrow(&writes(asked), bounds).left_of();
        of.iter().map(|(place, tree)| format!("{place} of {tree}")).collect()
    };
    let ceiling = |patterns: &[&str]| bound(Source::Ceiling, patterns);
    assert_eq!(left(&["/w/**"], &[]), [""; 0]);
    assert_eq!(left(&["/w/**"], &[ceiling(&["/**"])]), [""; 0]);
    assert_eq!(left(&["/w/**"], &[ceiling(&["/w/a/**", "/w/b/c"])]), ["/w/a of /w", "/w/b/c of /w"]);
    assert_eq!(left(&["/**", "/w/a/b/**"], &[ceiling(&["/w/a/**"])]), ["/w/a of /"]);
    assert_eq!(left(&["/w/**", "/w/a/*.md"], &[ceiling(&["/w/a/**"])]), ["/w/a of /w"], "less was named");
    assert_eq!(left(&["/w/**", "/w/a/**"], &[ceiling(&["/w/a/**"])]), ["/w/a of /w"], "the second says nothing");
    assert_eq!(
        left(&["/w/**", "/w/.vscode/**"], &[ceiling(&["/w/.vscode/**"])]),
        [""; 0],
        "a protected name is asked for"
    );
    assert_eq!(left(&["/w/a/**"], &[ceiling(&["/w/**"])]), [""; 0], "asked for by itself");
    assert_eq!(left(&["/w/a/**"], &[bound(Source::Parent, &["/w/**"])]), ["/w/a of /w"]);
    assert_eq!(left(&["/w/a/**"], &[bound(Source::Parent, &["/w/a/**"])]), [""; 0]);
    // A parent that has less than it was asked for leaves a part of that.
    let parent = narrow(&writes(&["/w/**"]), &[ceiling(&["/w/a/b/**"])]).as_parent();
    let child = narrow(&writes(&["/w/a/**"]), std::slice::from_ref(&parent));
    assert_eq!(child.left_of(), [("/w/a/b".into(), "/w".into())].into());
    assert_eq!(
        narrow(&writes(&["/w/a/b/**"]), &[child.as_parent()]).left_of(),
        [("/w/a/b".into(), "/w".into())].into()
    );
    // What bounds leave nothing of may lead to what they leave.
    let from = |asked: &[&str], bounds: &[Bound]| narrow(&writes(asked), bounds).judged_from();
    assert_eq!(from(&["/w/**", "/v/**", "/v/a/**"], &[ceiling(&["/w/**"])]), ["/v".into()]);
    assert_eq!(from(&["/w/**", "/w/a/**", "/v/x"], &[]), []);
    assert_eq!(from(&["/w/**"], &[ceiling(&[])]), ["/w".into()], "an earlier session may have written there");
}
