//! One case per file in `tests/data/manifest`, each with its snapshot beside it.
#![allow(clippy::unwrap_used, reason = "a failing test may stop")]

use std::path::{Path, PathBuf};

use super::*;

fn data(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/manifest").join(folder)
}

fn each_case(folder: &str, minimum: usize, check: impl Fn(&str, Format, &str)) {
    let mut cases: Vec<PathBuf> = std::fs::read_dir(data(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.retain(|path| path.extension().is_some_and(|extension| extension == "toml" || extension == "json"));
    cases.sort();
    assert!(cases.len() >= minimum, "only {} cases in {folder}", cases.len());
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(data(folder));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    for path in cases {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let format = if name.ends_with(".json") { Format::Json } else { Format::Toml };
        let text = std::fs::read_to_string(&path).unwrap();
        settings.bind(|| check(&text, format, &name));
    }
}

#[test]
fn accepted_manifests_mean_what_their_snapshots_say() {
    each_case("accept", 8, |text, format, name| match Manifest::parse(text, format, name) {
        Ok(manifest) => insta::assert_snapshot!(name, said(&manifest)),
        Err(error) => panic_with(name, &error.to_string()),
    });
}

/// All that a manifest says, as JSON and as a person is shown it, and the lines where it says so. A key that it does not have is not
/// there, so that a new one changes no snapshot but its own.
fn said(manifest: &Manifest) -> String {
    let mut text = serde_json::to_string_pretty(&manifest.to_json()).unwrap();
    for (key, shown) in manifest.entries() {
        text.push_str(&format!("\n{key}: {shown}"));
    }
    for (kind, lines) in &manifest.lines {
        text.push_str(&format!("\nlines of {kind:?}: {lines:?}"));
    }
    for (kind, line) in &manifest.ceiling_lines {
        text.push_str(&format!("\nline of the ceiling's {kind}: {line}"));
    }
    if !manifest.rule_lines.is_empty() {
        text.push_str(&format!("\nlines of rules: {:?}", manifest.rule_lines));
    }
    text
}

/// S0-41 and design "Manifest": each refusal shows its line.
#[test]
fn refused_manifests_show_the_line() {
    each_case("refuse", 20, |text, format, name| match Manifest::parse(text, format, name) {
        Err(error) => {
            assert!(error.to_string().contains(&format!("{name}:{}", error.line())), "{error}");
            insta::assert_snapshot!(name, error.to_string());
        }
        Ok(_) => panic_with(name, "accepted"),
    });
}

#[track_caller]
fn panic_with(name: &str, why: &str) {
    assert!(why.is_empty(), "{name}: {why}");
}

#[test]
fn a_huge_manifest_is_refused() {
    let text = format!("id = \"{}\"", "x".repeat(MAX_BYTES));
    let error = Manifest::parse(&text, Format::Toml, "big.toml").unwrap_err();
    assert_eq!(error.message(), "the manifest is larger than 1024 KiB");
    assert!(error.to_string().len() < 2_000, "the message is not as large as the manifest");
}

/// The readers recurse; depth must be refused before the stack ends.
#[test]
fn deep_nesting_is_refused() {
    for depth in [17, 100, 100_000] {
        let json = format!("{{\"id\": {}1{}}}", "[".repeat(depth), "]".repeat(depth));
        assert!(Manifest::parse(&json, Format::Json, "deep.json").is_err());
        let toml = format!("id = {}1{}", "[".repeat(depth), "]".repeat(depth));
        assert!(Manifest::parse(&toml, Format::Toml, "deep.toml").is_err());
        let dotted = format!("{} = 1", vec!["a"; depth].join("."));
        assert!(Manifest::parse(&dotted, Format::Toml, "dotted.toml").is_err());
    }
}

/// No text makes the reader panic, whatever its line ends and characters.
#[test]
fn odd_texts_are_refused_with_a_message() {
    for text in [
        "\u{feff}",
        "é = ",
        "id = \"é\nx",
        "{\"é\": ",
        "\r\n\r\n[",
        "id=1\r\nmode=\"é\"",
        "[[é]]",
        "\0",
        "{\"id\":\"\\ud800\"}",
    ] {
        for format in [Format::Toml, Format::Json] {
            let error = Manifest::parse(text, format, "odd").unwrap_err();
            assert!(!error.to_string().is_empty() && error.line() >= 1 && error.column() >= 1);
        }
    }
}

/// The reference shows a manifest with every key there is.
#[test]
fn the_reference_s_example_is_accepted_and_has_every_key() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/manifest.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, after) = text.split_once("```toml\n").unwrap();
    let (example, _) = after.split_once("```").unwrap();
    let manifest = Manifest::parse(example, Format::Toml, "manifest.md").unwrap();
    let Limits {
        wall,
        cpu,
        memory,
        file_size,
        processes,
        open_files,
        disk,
        output,
        network,
        session_network,
        network_rate,
    } = manifest.limits;
    assert!(network.is_some() && session_network.is_some() && network_rate.is_some());
    assert!(wall.is_some() && cpu.is_some() && memory.is_some() && file_size.is_some());
    assert!(processes.is_some() && open_files.is_some() && disk.is_some() && output.is_some());
    let kinds = [Kind::Read, Kind::Write, Kind::Hosts, Kind::Shell, Kind::Capabilities];
    assert!(kinds.iter().all(|kind| manifest.ceiling.bounds(*kind)) && manifest.ceiling.fs.write.is_some());
    let keys = "id mode profile tools capabilities read write exact hosts cmd args prefix wildcard rest permission pattern \
                action pass set";
    for key in keys.split_whitespace() {
        assert!(example.contains(&format!("{key} ")), "{key}");
    }
}
