use std::collections::BTreeSet;

use super::types::{ALLOW, NOTIFY};
use super::*;
use crate::plan::{Starter, Strength, Writer};

fn variants() -> impl Iterator<Item = Variant> {
    [Strength::Landlock, Strength::Namespaces]
        .into_iter()
        .flat_map(|strength| [Writer::Kernel, Writer::Broker, Writer::BrokerReadsToo].map(|writer| (strength, writer)))
        .flat_map(|(strength, writer)| {
            // Who judges each start traces, and so nobody else does.
            let kinds = [(Starter::Kernel, false), (Starter::Broker, false), (Starter::Kernel, true)];
            kinds.map(|(starter, debug)| (strength, writer, starter, debug))
        })
        .flat_map(|(strength, writer, starter, debug)| {
            (1..=7).map(move |landlock_abi| Variant { strength, landlock_abi, writer, starter, debug })
        })
}

fn every_filter() -> impl Iterator<Item = Filter> {
    variants().map(base).chain([
        tool_delta(),
        search_delta(),
        fetch_delta(),
        ask_delta(),
        readers(),
        reader_delta(),
        searcher_delta(),
        egress(),
    ])
}

#[test]
fn printed_base_filter_is_pinned() {
    let (writer, starter) = (Writer::Kernel, Starter::Kernel);
    let variant = |strength, landlock_abi| Variant { strength, landlock_abi, writer, starter, debug: false };
    let printed = |strength, landlock_abi| base(variant(strength, landlock_abi)).to_string();
    let kept = Variant { writer: Writer::Broker, ..variant(Strength::Landlock, 7) };
    let debug = Variant { debug: true, ..variant(Strength::Landlock, 7) };
    insta::assert_snapshot!("base_debug", base(debug).to_string());
    insta::assert_snapshot!("base_kept", base(kept).to_string());
    insta::assert_snapshot!("base_landlock_abi_7", printed(Strength::Landlock, 7));
    insta::assert_snapshot!("base_landlock_abi_5", printed(Strength::Landlock, 5));
    insta::assert_snapshot!("base_namespaces_abi_7", printed(Strength::Namespaces, 7));
}

/// Only sessions that bound their programs are asked about them.
#[test]
fn programs_are_asked_about_where_they_are_bounded() {
    for variant in variants() {
        let wanted = if variant.starter == Starter::Broker { NOTIFY } else { ALLOW };
        let filter = base(variant);
        let of = |wanted| filter.calls().find(|(name, _)| *name == wanted).map(|(_, action)| action.clone());
        assert!(["execve", "execveat", "memfd_create"].iter().all(|name| of(*name) == Some(wanted.clone())));
    }
}

#[test]
fn printed_tool_filters_are_pinned() {
    insta::assert_snapshot!("tool_delta", tool_delta().to_string());
    insta::assert_snapshot!("fetch_delta", fetch_delta().to_string());
    insta::assert_snapshot!("ask_delta", ask_delta().to_string());
    insta::assert_snapshot!("readers", readers().to_string());
    insta::assert_snapshot!("reader_delta", reader_delta().to_string());
    insta::assert_snapshot!("search_delta", search_delta().to_string());
    insta::assert_snapshot!("searcher_delta", searcher_delta().to_string());
}

#[test]
fn printed_filter_of_egress_is_pinned() {
    insta::assert_snapshot!("egress", egress().to_string());
}

#[test]
fn no_name_appears_twice() {
    for filter in every_filter() {
        let mut seen = BTreeSet::new();
        for (name, _) in filter.calls() {
            assert!(seen.insert(name), "{name} twice in {}", filter.title);
        }
    }
}

#[test]
fn conditions_are_within_what_they_compare() {
    for filter in every_filter() {
        for (name, action) in filter.calls() {
            let CallAction::Args { rules, .. } = action else {
                continue;
            };
            for condition in rules.iter().flat_map(|rule| &rule.when) {
                assert!(condition.arg < 6, "{name}: {condition}");
                for arch in [Arch::X86_64, Arch::Aarch64] {
                    let value = condition.value.value(arch);
                    let mask = condition.mask.map_or(u64::MAX, |mask| mask.value(arch));
                    assert_eq!(value & !mask, 0, "{name}: {condition} can never hold");
                    if condition.width == Width::Low32 {
                        assert!(u32::try_from(value).is_ok(), "{name}: {condition} can never hold");
                    }
                }
            }
            assert!(rules.iter().all(|rule| !rule.when.is_empty()), "{name} has a rule without a condition");
        }
    }
}

/// Less is open without namespaces than with them, and less at a lower ABI than at a higher one.
#[test]
fn weaker_hosts_open_no_more() {
    let always_allowed = |variant| {
        let filter = base(variant);
        filter.calls().filter(|(_, action)| **action == ALLOW).map(|(name, _)| name).collect::<BTreeSet<_>>()
    };
    for variant in variants() {
        let bare = always_allowed(Variant { strength: Strength::Landlock, ..variant });
        let spaces = always_allowed(Variant { strength: Strength::Namespaces, ..variant });
        assert!(bare.is_subset(&spaces));
        let landlock_abi = variant.landlock_abi + 1;
        let higher = always_allowed(Variant { strength: Strength::Landlock, landlock_abi, ..variant });
        assert!(bare.is_subset(&higher));
    }
}
