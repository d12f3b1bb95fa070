//! The laws of narrowing, against a brute-force oracle on a small alphabet of paths.
#![allow(clippy::unwrap_used, reason = "a failing test may stop")]

use proptest::prelude::*;

use super::*;
use crate::ceiling::{Ceiling, FsCeiling, NetCeiling};
use crate::manifest::{Format, Manifest};
use crate::pattern::Host;
use crate::plan::AskedFor;
use crate::plan::protect::{Match, names};
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

/// True if a tool has all that it asked for itself.
fn own_is_granted(effective: &EffectiveSet) -> bool {
    effective.of_tools.values().all(|own| shape(&own.left) == shape(&own.asked.reduced()))
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

    /// S0-8, C-1: what a tool requires for its own calls is theirs, as far as every bound leaves it, and nobody else's. A child's tool has
    /// no more than its parent's.
    #[test]
    fn what_a_tool_requires_alone_is_for_its_calls(
        asked in requirements(),
        own in requirements(),
        ceiling in requirements(),
        of_child in requirements(),
        own_of_child in requirements(),
    ) {
        let source = Source::Default;
        let declared_with = |asked: &RequirementSet, own: &RequirementSet| {
            let all = [Contribution::from_source(&source, asked), Contribution::of_tool_alone("t", &source, own)];
            Declared::union(&all, &variables(), &[]).unwrap()
        };
        let ceiling = declared(&[ceiling]);
        let bound = Bound::at_most(Source::Ceiling, ceiling.rights.clone());
        let parent = narrow(&declared_with(&asked, &own), std::slice::from_ref(&bound));
        let of_ceiling = answers(&ceiling.rights);
        prop_assert_eq!(answers(parent.rights()), both(&answers(declared(std::slice::from_ref(&asked)).rights()), &of_ceiling));
        let united = declared(&[asked, own]);
        prop_assert_eq!(answers(parent.for_tool("t").rights()), both(&answers(united.rights()), &of_ceiling));
        prop_assert_eq!(answers(parent.for_tool("another").rights()), answers(parent.rights()));
        if !own_is_granted(&parent) {
            prop_assert!(parent.narrowings().iter().next().is_some(), "what is lost is told");
        }

        let child = narrow(&declared_with(&of_child, &own_of_child), &[bound, parent.as_parent()]);
        let of_child = answers(child.rights());
        prop_assert_eq!(both(&of_child, &answers(parent.rights())), of_child);
        let for_tool = answers(child.for_tool("t").rights());
        let mut of_parent = parent.for_tool("t").rights().clone();
        of_parent.capabilities = parent.as_parent().on_tool("t").capabilities.unwrap();
        prop_assert_eq!(both(&for_tool, &answers(&of_parent)), for_tool);
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
        let itself = Bound::at_most(Source::Parent, one.rights().clone());
        let again = narrow(&asked, &[ceiling.clone(), parent, ceiling, itself]);
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

/// A random ceiling: it bounds some kinds of right.
fn ceiling() -> impl Strategy<Value = serde_json::Value> {
    let written = (requirements(), proptest::array::uniform5(any::<bool>()));
    written.prop_map(|(most, [read, write, hosts, shell, capabilities])| {
        let ceiling = Ceiling {
            fs: FsCeiling { read: read.then_some(most.fs.read), write: write.then_some(most.fs.write) },
            net: NetCeiling { hosts: hosts.then_some(most.net.hosts) },
            shell: shell.then_some(most.shell),
            capabilities: capabilities.then_some(most.capabilities),
        };
        serde_json::to_value(ceiling).unwrap()
    })
}

/// Arguments of an opening: what it asks for, and the most that it may get.
fn asked_and_most() -> impl Strategy<Value = (RequirementSet, serde_json::Value)> {
    (requirements(), ceiling())
}

/// The requirements of a manifest's agents, within their parents.
fn generation(manifest: &Manifest, parent: Option<&EffectiveSet>) -> EffectiveSet {
    let asked = Declared::union(&[Contribution::manifest(manifest)], &variables(), &[]).unwrap();
    let mut bounds: Vec<Bound> = parent.map(EffectiveSet::as_parent).into_iter().collect();
    bounds.extend(manifest.ceiling_bounds(&variables()).unwrap());
    narrow(&asked, &bounds)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// X0-24, X0-25, X0-26: manifests of a parent, a child and a grandchild. Each may do what it has declared, its ceiling leaves
    /// and its parent may; a grandchild is bounded by the child and not by what the child's parent has; and what narrows a child
    /// narrows nobody above. X0-27: credentials stay with the first.
    #[test]
    fn x0_24_x0_25_x0_26_x0_27_a_child_lies_within_its_parent(
        [parent, child, grandchild] in [asked_and_most(), asked_and_most(), asked_and_most()],
    ) {
        let table = |(asked, most): &(RequirementSet, serde_json::Value), more: serde_json::Value| {
            let mut table = more;
            table["requires"] = serde_json::to_value(asked).unwrap();
            if most.as_object().is_some_and(|most| !most.is_empty()) {
                table["ceiling"] = most.clone();
            }
            table
        };
        let agent = |of: &(RequirementSet, serde_json::Value)| table(of, serde_json::json!({ "description": "x" }));
        let agents = serde_json::json!({ "child": agent(&child), "grandchild": agent(&grandchild) });
        let text = table(&parent, serde_json::json!({ "id": "parent", "agents": agents })).to_string();
        let manifest = Manifest::parse(&text, Format::Json, "m.json").map_err(|error| TestCaseError::fail(error.to_string()))?;
        let first = generation(&manifest, None);
        let of_child = manifest.of_agent("child").unwrap();
        let second = generation(&of_child, Some(&first));
        let third = generation(&of_child.of_agent("grandchild").unwrap(), Some(&second));
        let families = [(&first, &second, &child), (&second, &third, &grandchild)];
        for (above, below, (asked, most)) in families {
            let (above, below) = (answers(above.rights()), answers(below.rights()));
            let most: Ceiling = serde_json::from_value(most.clone()).unwrap();
            let bounds = Bound::of_ceiling(&most, |_| Source::Ceiling, &variables(), &[]).unwrap();
            let alone = answers(narrow(&declared(std::slice::from_ref(asked)), &bounds).rights());
            let mut expected = both(&above, &alone);
            let credentials = expected.len() - CAPABILITIES.len();
            for (answer, _) in expected[credentials..].iter_mut().zip(CAPABILITIES).filter(|(_, name)| NOT_DELEGATED.contains(name)) {
                *answer = false;
            }
            prop_assert_eq!(&below, &expected);
            prop_assert!(below.iter().zip(&above).all(|(below, above)| *above || !below));
        }
        prop_assert_eq!(answers(generation(&manifest, None).rights()), answers(first.rights()));
    }
}

/// Names that are kept in the trees `/w` and `/a`, names beside them, and ways to be granted them.
const NAMED_PATHS: [&str; 8] =
    ["/w/.git/hooks/x", "/w/.git/config", "/w/.env", "/w/.claude/x", "/w/x", "/w/s/.env", "/w/s/x", "/a/.git/hooks/x"];
const NAMING_PATTERNS: [&str; 13] = [
    "/**",
    "{workspace}/**",
    "{workspace}/.git/**",
    "{workspace}/.git/hooks/**",
    "{workspace}/.git/hooks/x",
    "{workspace}/.env",
    "{workspace}/.claude/**",
    "{workspace}/s/**",
    "{workspace}/s/.env",
    "{workspace}/*",
    "/w/**/x",
    "/a/**",
    "/a/.git/hooks/**",
];

/// Places that may be changed when a name that is kept in a tree is released by its name alone.
fn changeable(rights: &Rights) -> Vec<bool> {
    let is_kept = |top: &HostPath, path: &str| {
        let below = std::path::Path::new(path).strip_prefix(top.as_path()).ok();
        below.is_some_and(|below| {
            let found = names().find(names().root(top.as_bytes()), below.as_os_str().as_encoded_bytes());
            matches!(found, Match::Kept { .. })
        })
    };
    let may_change = |path: &str| {
        let mut regions = rights.write.iter().filter(|(region, _)| region.matches(&path.into()));
        regions.any(|(region, _)| !is_kept(&region.literal_prefix(), path))
    };
    NAMED_PATHS.iter().map(|path| may_change(path)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// X0-25: what is kept in the trees of a session is kept in those of all below it, whatever they ask for by name; and a child
    /// that asks for what its parent has gets that.
    #[test]
    fn x0_25_a_child_names_nothing_that_its_parent_has_not_named(
        [parent, ceiling, child, grandchild] in proptest::array::uniform4(some(&NAMING_PATTERNS)),
    ) {
        let writes = |patterns: &[&str]| -> RequirementSet {
            serde_json::from_value(serde_json::json!({ "fs": { "write": patterns } })).unwrap()
        };
        let most = Ceiling {
            fs: FsCeiling { read: None, write: Some(writes(&ceiling).fs.write) },
            ..Ceiling::default()
        };
        let most = Bound::of_ceiling(&most, |_| Source::Ceiling, &variables(), &[]).unwrap();
        let first = narrow(&declared(&[writes(&parent)]), &[]);
        let same = narrow(&declared(&[writes(&parent)]), &[first.as_parent()]);
        prop_assert_eq!(changeable(same.rights()), changeable(first.rights()));
        let bounds: Vec<Bound> = [first.as_parent()].into_iter().chain(most.clone()).collect();
        let turned: Vec<Bound> = most.into_iter().chain([first.as_parent()]).collect();
        let second = narrow(&declared(&[writes(&child)]), &bounds);
        prop_assert_eq!(shape(second.rights()), shape(narrow(&declared(&[writes(&child)]), &turned).rights()));
        let third = narrow(&declared(&[writes(&grandchild)]), &[second.as_parent()]);
        for (above, below) in [(&first, &second), (&second, &third)] {
            let (above, below) = (changeable(above.rights()), changeable(below.rights()));
            prop_assert!(below.iter().zip(&above).all(|(below, above)| *above || !below), "{:?} {:?}", above, below);
        }
    }
}

/// X0-25: where the child's own text says where a right came from, that is its line in the agent's table.
#[test]
fn an_agent_s_rights_are_told_by_their_lines() {
    let text = "id = \"p\"\n[requires.fs]\nread = [\"{workspace}/**\"]\n[agents.a]\ndescription = \"x\"\nrunner = [\"git\"]\n\
                [agents.a.requires.fs]\nread = [\n  \"{workspace}/docs/**\",\n  \"/b/**\",\n]\n";
    let manifest = Manifest::parse(text, Format::Toml, "m.toml").unwrap();
    let child = generation(&manifest.of_agent("a").unwrap(), Some(&generation(&manifest, None)));
    let lost: Vec<String> = child.narrowings().iter().map(ToString::to_string).collect();
    let expected = [
        "fs.read /b/**: bounded to nothing by the parent (asked by m.toml:10: fs.read \"/b/**\")",
        "shell git: bounded to nothing by the parent (asked by m.toml:6: shell \"git\")",
    ];
    assert_eq!(lost, expected);
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
    assert_eq!(from(&["/**", "/w/**"], &[ceiling(&["/w/**"])]), ["/".into()], "the outermost");
    assert_eq!(from(&["/p/**"], &[ceiling(&["/p/b/**"])]), ["/p".into()]);
    // And all of them count for links and programs, whatever is left.
    let asked = |asked: &[&str], bounds: &[Bound]| {
        let asked = narrow(&writes(asked), bounds).asked_for();
        asked
            .into_iter()
            .map(|AskedFor { path, is_tree }| format!("{path}{}", if is_tree { "/**" } else { "" }))
            .collect::<Vec<_>>()
    };
    for left in [&["/**"][..], &["/w/a/**"], &["/v/x"], &[]] {
        let trees = asked(&["/w/**", "/v/**", "/v/a/*.md", "/v/x", "/w/b/c"], &[ceiling(left)]);
        assert_eq!(trees, ["/v/**", "/w/**"], "{left:?}: what lies in a tree is that's");
        assert_eq!(asked(&["/v/x", "/w/**"], &[ceiling(left)]), ["/v/x", "/w/**"], "{left:?}: a single name as well");
    }
    let parent = narrow(&writes(&["/w/**"]), &[ceiling(&["/w/a/**"])]).as_parent();
    assert_eq!(asked(&["/w/a/b/**"], &[parent]), ["/w/**", "/w/a/**", "/w/a/b/**"], "those of parents too");
}

/// X0-25, X0-26: what bounds have left of a tree for a session is left of it for all below, who ask for just that place.
#[test]
fn what_is_left_of_a_tree_stays_so_in_all_below() {
    let writes = |pattern: &str| {
        let text = serde_json::json!({ "fs": { "write": [pattern] } });
        declared(&[serde_json::from_value::<RequirementSet>(text).unwrap()])
    };
    let expected: BTreeMap<HostPath, HostPath> = [("/w/a/b".into(), "/w".into())].into();
    let ceiling = Bound::at_most(Source::Ceiling, writes("/w/a/b/**").rights);
    let mut generation = narrow(&writes("/w/**"), &[ceiling]);
    for _ in 0..3 {
        assert_eq!(generation.left_of(), expected);
        generation = narrow(&writes("/w/a/b/**"), &[generation.as_parent()]);
    }
    let mut generation = narrow(&writes("/w/**"), &[]);
    for _ in 0..3 {
        generation = narrow(&writes("/w/a/b/**"), &[generation.as_parent()]);
        assert_eq!(generation.left_of(), expected);
    }
}
