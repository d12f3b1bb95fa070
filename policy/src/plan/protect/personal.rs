//! The part of a person's git configuration that sessions get.
//!
//! `git commit` needs a name, and people expect their default branch, colours and short commands. A person's file also names
//! programs, files and secrets, and git gains keys with every release. So this is a list of keys that do none of that, each
//! with the values that it may have. Whatever is not in the list stays outside, and so does every file that is included.

use super::gitconfig::{self, Setting};
use super::gitkeys::Sub::{Either, Without};
use super::gitkeys::ValueForm::{OneOf, Ref, Text, Word, Words};
use super::gitkeys::{KeyLine, value_in};
use crate::watchdog::Builtin;

/// Most bytes of one value.
const LONGEST: usize = 1024;
/// Most bytes of what sessions get.
const MOST: usize = 16 * 1024;

const KEYS: &[KeyLine] = &[
    ("advice", Without, &[], Word),
    ("author", Without, &["name", "email"], Text),
    ("blame", Without, &["coloring", "date", "showemail", "showroot"], Word),
    ("branch", Without, &["autosetupmerge", "autosetuprebase", "sort"], Word),
    ("checkout", Without, &["guess", "workers"], Word),
    ("color", Either, &[], Words),
    ("column", Without, &[], Words),
    ("commit", Without, &["cleanup", "status", "verbose"], Word),
    ("committer", Without, &["name", "email"], Text),
    ("core", Without, &["abbrev", "quotepath", "safecrlf"], Word),
    ("core", Without, &["autocrlf"], OneOf(&["true", "false", "input"])),
    ("core", Without, &["eol"], OneOf(&["lf", "crlf", "native"])),
    ("core", Without, &["whitespace"], Words),
    (
        "diff",
        Without,
        &[
            "algorithm",
            "colormoved",
            "colormovedws",
            "context",
            "indentheuristic",
            "interhunkcontext",
            "mnemonicprefix",
            "noprefix",
            "renamelimit",
            "renames",
            "submodule",
        ],
        Word,
    ),
    ("fetch", Without, &["all", "parallel", "prune", "prunetags"], Word),
    ("grep", Without, &["column", "extendedregexp", "fullname", "linenumber", "patterntype"], Word),
    ("init", Without, &["defaultbranch"], Ref),
    ("log", Without, &["abbrevcommit", "decorate", "follow", "showroot"], Word),
    ("log", Without, &["date"], Words),
    (
        "merge",
        Without,
        &["autostash", "conflictstyle", "directoryrenames", "ff", "log", "renamelimit", "renames", "stat"],
        Word,
    ),
    ("pretty", Without, &[], Text),
    ("pull", Without, &["ff", "rebase"], Word),
    ("push", Without, &["autosetupremote", "default", "followtags", "useforceifincludes"], Word),
    (
        "rebase",
        Without,
        &[
            "abbreviatecommands",
            "autosquash",
            "autostash",
            "backend",
            "forkpoint",
            "missingcommitscheck",
            "rebasemerges",
            "stat",
            "updaterefs",
        ],
        Word,
    ),
    ("rerere", Without, &["autoupdate", "enabled"], Word),
    ("stash", Without, &["showincludeuntracked", "showpatch", "showstat"], Word),
    (
        "status",
        Without,
        &["aheadbehind", "branch", "relativepaths", "renames", "short", "showstash", "showuntrackedfiles"],
        Word,
    ),
    ("tag", Without, &["sort"], Word),
    ("user", Without, &["name", "email"], Text),
    ("user", Without, &["useconfigonly"], Word),
];

/// The settings of these files that sessions get, as the text of one file in git's format. Later files override earlier ones,
/// as they do for git. A file that cannot be read adds nothing.
#[must_use]
pub fn for_sessions<F: AsRef<[u8]>>(files: &[F]) -> String {
    let all = files.iter().filter_map(|file| gitconfig::parse(file.as_ref()).ok()).flatten();
    let mut text = String::new();
    for line in all.filter(is_admitted).filter_map(|setting| written(&setting)) {
        if text.len() + line.len() <= MOST {
            text.push_str(&line);
        }
    }
    text
}

/// True if a setting is known to run no program, to name no file and to hold no secret.
fn is_admitted(setting: &Setting) -> bool {
    let value = setting.value.as_deref();
    let is_short = value.is_none_or(|value| value.len() <= LONGEST && !asks_for_signatures(value));
    let is_known = match setting.section.as_str() {
        "alias" => setting.subsection.is_none() && value.is_some_and(is_alias),
        _ => value_in(KEYS, setting).is_some_and(|kind| kind.admits(value, |_remote| false)),
    };
    is_short && is_known
}

/// Formats of `git log` and `git branch` for which git runs gpg.
fn asks_for_signatures(value: &[u8]) -> bool {
    let has = |part: &[u8]| value.windows(part.len()).any(|window| window == part);
    has(b"%G") || has(b"(signature")
}

/// A setting in git's format; `None` if it is not plain text.
fn written(Setting { section, subsection, name, value }: &Setting) -> Option<String> {
    let quoted = |text: &[u8]| {
        let text = std::str::from_utf8(text).ok().filter(|text| !text.contains(char::is_control))?;
        Some(format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")))
    };
    let header = match subsection {
        Some(subsection) => format!("[{section} {}]", quoted(subsection)?),
        None => format!("[{section}]"),
    };
    let value = match value {
        Some(value) => format!(" = {}", quoted(value)?),
        None => String::new(),
    };
    Some(format!("{header}\n\t{name}{value}\n"))
}

/// Commands of git that an alias may stand for, each with its options of one letter that run no program and name no file.
/// Digits are allowed everywhere. `push` is not among them: rules are written for it, and a rule sees the alias alone.
const COMMANDS: &[(&str, &[u8])] = &[
    ("add", b"AefinNpuv"),
    ("blame", b"bcCefklMnpsw"),
    ("branch", b"acCdDfilmMqruv"),
    ("checkout", b"bBdfmpqt"),
    ("cherry", b"v"),
    ("cherry-pick", b"emnqs"),
    ("commit", b"acCeimnopqsuvz"),
    ("describe", b""),
    ("diff", HISTORY),
    ("fetch", b"afnpqtuv"),
    ("log", HISTORY),
    ("ls-files", b"cdikmostuvz"),
    ("merge", b"enqv"),
    ("pull", b"afnpqrtv"),
    ("rebase", b"finqrv"),
    ("reflog", HISTORY),
    ("remote", b"v"),
    ("reset", b"Npq"),
    ("restore", b"pqsSW"),
    ("rev-list", b""),
    ("rev-parse", b"q"),
    ("revert", b"en"),
    ("shortlog", b"acensw"),
    ("show", HISTORY),
    ("show-branch", b"a"),
    ("show-ref", b"dqs"),
    ("stash", b"akmpquS"),
    ("status", b"bsuvz"),
    ("switch", b"cCdfmqt"),
    ("tag", b"adfilmnv"),
    ("whatchanged", HISTORY),
];

/// Those of `git log` and `git diff`. `-O` names a file.
const HISTORY: &[u8] = b"abBcCDEgGilLmMnpPqrRsSuUvwWz";

/// Long options that run no program and name no file, whichever of these commands they are given to.
const OPTIONS: &[&str] = &[
    "abbrev",
    "abbrev-commit",
    "abbrev-ref",
    "abort",
    "all",
    "amend",
    "author",
    "author-date-order",
    "autosquash",
    "autostash",
    "branch",
    "branches",
    "cached",
    "color",
    "color-words",
    "column",
    "contains",
    "continue",
    "create",
    "date",
    "date-order",
    "decorate",
    "delete",
    "detach",
    "dirstat",
    "dry-run",
    "edit",
    "ff",
    "ff-only",
    "first-parent",
    "fixup",
    "follow",
    "format",
    "graph",
    "grep",
    "hard",
    "histogram",
    "ignore-all-space",
    "ignore-space-change",
    "ignored",
    "include-untracked",
    "intent-to-add",
    "interactive",
    "keep",
    "keep-index",
    "left-right",
    "list",
    "long",
    "max-count",
    "merged",
    "merges",
    "minimal",
    "mixed",
    "name-only",
    "name-status",
    "no-abbrev",
    "no-color",
    "no-decorate",
    "no-edit",
    "no-ff",
    "no-merged",
    "no-merges",
    "no-renames",
    "no-stat",
    "numstat",
    "oneline",
    "onto",
    "patch",
    "patience",
    "porcelain",
    "pretty",
    "prune",
    "quiet",
    "quit",
    "rebase",
    "relative",
    "remotes",
    "reverse",
    "set-upstream",
    "set-upstream-to",
    "short",
    "shortstat",
    "show-current",
    "show-toplevel",
    "simplify-by-decoration",
    "since",
    "skip",
    "soft",
    "sort",
    "squash",
    "staged",
    "stat",
    "summary",
    "symbolic-full-name",
    "tags",
    "topo-order",
    "track",
    "unified",
    "until",
    "untracked-files",
    "update",
    "verbose",
    "word-diff",
    "worktree",
];

/// True if an alias stands for one of git's own commands, with words that have it run nothing else, and that the
/// watchdog would let pass: it is shown the alias, and not what it stands for.
fn is_alias(value: &[u8]) -> bool {
    let Some(words) = std::str::from_utf8(value).ok().and_then(words) else { return false };
    let Some((command, rest)) = words.split_first() else { return false };
    let Some((_, letters)) = COMMANDS.iter().find(|(name, _)| name == command) else { return false };
    let line = || std::iter::once("git".to_owned()).chain(words.iter().cloned()).collect();
    rest.iter().all(|word| is_plain(word, letters)) && Builtin.lets_pass(line())
}

/// Splits an alias as git does (`split_cmdline`), except that one with a backslash, or with a quote that nothing closes, is not
/// read.
fn words(text: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in text.chars() {
        match c {
            '\\' => return None,
            c if quote == Some(c) => quote = None,
            '\'' | '"' if quote.is_none() => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            // As git's isspace.
            ' ' | '\t' | '\n' | '\r' if quote.is_none() => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

/// True if a word of an alias is an option from the lists, or names a branch, a commit or a file of the repository.
fn is_plain(word: &str, letters: &[u8]) -> bool {
    if let Some(option) = word.strip_prefix("--").filter(|option| !option.is_empty()) {
        let name = option.split_once('=').map_or(option, |(name, _)| name);
        return OPTIONS.contains(&name);
    }
    if let Some(option) = word.strip_prefix('-').filter(|_| word != "--") {
        return option.bytes().all(|c| c.is_ascii_digit() || letters.contains(&c));
    }
    let is_known = |c: u8| c.is_ascii_alphanumeric() || b" -_.@{}^~/+=%,#".contains(&c);
    let is_below = !word.starts_with(['/', '~']) && !word.split('/').any(|part| part == "..");
    word.bytes().all(is_known) && is_below
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use proptest::prelude::*;

    use super::*;

    fn of(text: &str) -> String {
        for_sessions(&[text])
    }

    /// True if git is told the first key of this text.
    fn passes(text: &str) -> bool {
        let passed = of(text);
        assert!(
            passed.is_empty() || gitconfig::parse(passed.as_bytes()) == gitconfig::parse(text.as_bytes()),
            "{text}"
        );
        !passed.is_empty()
    }

    #[test]
    fn what_people_set_passes() {
        for text in [
            "[user]\nname = Ada Lovelace\nemail = ada@example.com\n",
            "[user]\nname = Zoë \"Z\" O'Neil \\\\ # none\n",
            "[user]\nname = \"  # ; \\\" \\\\ \"\n",
            "[init]\ndefaultBranch = trunk\n",
            "[core]\nautocrlf = input\neol = lf\n",
            "[color]\nui\n[color \"branch\"]\ncurrent = yellow reverse\n",
            "[pull]\nrebase = merges\n[push]\ndefault = current\nautoSetupRemote = true\n",
            "[rebase]\nautosquash\nautostash = yes\n[merge]\nconflictStyle = zdiff3\n",
            "[diff]\ncolorMoved = dimmed-zebra\n[log]\ndate = iso\n[rerere]\nenabled = 1\n",
            "[pretty]\nline = %C(yellow)%h%Creset %s\n",
            "[alias]\nst = status -sb\n",
            "[alias]\nlg = log --graph --pretty=format:'%Cred%h%Creset -%C(yellow)%d%Creset %s (%cr) <%an>' --abbrev-commit\n",
            "[alias]\nundo = reset --soft HEAD~1\nlast = log -1 HEAD --stat\n",
            "[alias]\nwip = commit -am \\\"work in progress\\\"\n",
            "[alias]\nco = checkout\nback = checkout -\ndrop = checkout --\nwho = shortlog -sn\n",
            "[alias]\nnew = log main..@{u} --since='2 weeks ago'\n",
        ] {
            assert!(passes(text), "{text}");
        }
        assert_eq!(for_sessions::<&str>(&[]), "");
        assert_eq!(
            for_sessions(&["[user]\nname = a", "[user]\nname = b"]),
            "[user]\n\tname = \"a\"\n[user]\n\tname = \"b\"\n"
        );
    }

    /// A setting is left out that runs a program, names a file, holds a secret, includes another file, or is not known.
    #[test]
    fn nothing_else_passes() {
        for text in [
            "[core]\neditor = vi\n",
            "[core]\npager = less\n",
            "[core]\nsshCommand = ssh\n",
            "[core]\nhooksPath = /h\n",
            "[core]\nfsmonitor = true\n",
            "[core]\nattributesFile = /a\n",
            "[core]\nexcludesFile = ~/.gitignore\n",
            "[core]\naskPass = x\n",
            "[core]\ngitProxy = x\n",
            "[core]\nworktree = /\n",
            "[core]\nautocrlf = !x\n",
            "[core \"x\"]\neol = lf\n",
            "[include]\npath = ~/other\n",
            "[includeIf \"gitdir:~/work/\"]\npath = ~/other\n",
            "[credential]\nhelper = store\n",
            "[credential \"https://x\"]\nusername = x\n",
            "[url \"https://token@x/\"]\ninsteadOf = gh:\n",
            "[http]\nextraHeader = Authorization: x\n",
            "[http]\nproxy = http://u:p@x\n",
            "[sendemail]\nsmtpPass = x\n",
            "[github]\ntoken = x\n",
            "[user]\nsigningKey = x\n",
            "[commit]\ngpgSign = true\n",
            "[commit]\ntemplate = ~/t\n",
            "[tag]\ngpgSign = true\n",
            "[push]\ngpgSign = true\n",
            "[gpg]\nprogram = x\n",
            "[gpg \"ssh\"]\nprogram = x\n",
            "[log]\nshowSignature = true\n",
            "[log]\nmailmap = /m\n",
            "[pretty]\nline = %h %G?\n",
            "[pretty]\nline = %(signature:grade)\n",
            "[pretty \"x\"]\nline = x\n",
            "[diff]\nexternal = x\n",
            "[diff]\ntool = vimdiff\n",
            "[diff]\norderFile = /o\n",
            "[diff \"x\"]\ntextconv = x\n",
            "[diff \"x\"]\ncommand = x\n",
            "[difftool \"x\"]\ncmd = x\n",
            "[merge]\ntool = x\n",
            "[merge]\nrenormalize = true\n",
            "[merge \"x\"]\ndriver = x\n",
            "[filter \"lfs\"]\nprocess = git-lfs filter-process\n",
            "[pager]\nlog = x\n",
            "[color]\npager = $(x)\n",
            "[help]\nautocorrect = 1\n",
            "[init]\ntemplateDir = /t\n",
            "[init]\ndefaultBranch = -x\n",
            "[remote \"origin\"]\nurl = https://x/y\n",
            "[remote]\npushDefault = origin\n",
            "[branch \"main\"]\nremote = .\n",
            "[safe]\ndirectory = *\n",
            "[protocol]\nallow = always\n",
            "[protocol \"ext\"]\nallow = always\n",
            "[extensions]\nworktreeConfig = true\n",
            "[uploadpack]\npackObjectsHook = x\n",
            "[trailer \"x\"]\ncommand = x\n",
            "[trace2]\neventTarget = /f\n",
            "[sequence]\neditor = x\n",
            "[rebase]\ninstructionFormat = %G?\n",
            "[submodule]\nrecurse = true\n",
            "[user]\nname\n",
            "[user]\nname = a\\tb\n",
            "[user]\nname = a\\nb\n",
            "[user]\nname = a\\bb\n",
            "[user \"x\"]\nname = x\n",
            "[x]\nname = x\n",
        ] {
            assert!(!passes(text), "{text}");
        }
        assert!(!passes(&format!("[user]\nname = {}\n", "x".repeat(LONGEST + 1))));
        assert_eq!(for_sessions(&[b"[user]\nname = \xff\n"]), "");
        assert_eq!(
            for_sessions(&[&b"[user]\nname = a\n\0"[..], b"[user]\nname = b\nname"]),
            "[user]\n\tname = \"b\"\n",
            "unreadable"
        );
        let long = format!("[user]\n{}", format!("name = {}\n", "x".repeat(LONGEST)).repeat(100));
        assert!(of(&long).len() <= MOST);
    }

    /// Aliases that run something, name a file outside or another repository, or that cannot be read.
    #[test]
    fn aliases_run_git_alone() {
        for alias in [
            "!sh",
            "\\\"!sh\\\"",
            " !sh",
            "",
            "'",
            "log '",
            "log \\\\",
            "unknown",
            "-c core.pager=x log",
            "-p log",
            "--exec-path=/x log",
            "-C / status",
            "config --global x y",
            "rebase -x make main",
            "rebase -ix make main",
            "rebase --exec make main",
            "rebase --exec=make main",
            "rebase --exe=make main",
            "rebase -s x main",
            "merge -s x main",
            "merge --strategy=x main",
            "merge -F /f",
            "commit -F /f",
            "commit -F../f",
            "commit --file=/f",
            "commit -t/f",
            "commit --template=/f",
            "commit -S",
            "commit --gpg-sign",
            "tag -s v1",
            "tag -F /f",
            "log -O/f",
            "log --ext-diff",
            "log --textconv",
            "log --output=/f",
            "log --show-signature",
            "log --format=%G?",
            "log --pretty='%h %GK'",
            "branch --format='%(signature)'",
            "log -- /etc",
            "log ~/x",
            "log ../x",
            "log x/../../y",
            "diff --no-index x y",
            "diff --outpu=/f",
            "grep -Oless x",
            "grep --open-files-in-pager=x y",
            "difftool -x x",
            "mergetool",
            "bisect run x",
            "submodule foreach x",
            "filter-branch --tree-filter x",
            "fetch --upload-pack=x",
            "fetch ext::x",
            "fetch file:///x",
            "fetch /x",
            "push",
            "push --receive-pack=x",
            "push --exec=x",
            "clone x",
            "reset --hard",
            "checkout .",
            "branch -D",
            "stash drop",
            "reflog expire",
            "clean -fdx",
            "archive --remote=x",
            "log $(x)",
            "log `x`",
            "log x;y",
            "log x|y",
            "log é",
        ] {
            let text = format!("[alias]\nx = \"{alias}\"\n");
            assert!(gitconfig::parse(text.as_bytes()).is_ok() && !passes(&text), "{text}");
        }
        assert!(!passes("[alias]\nx\n") && !passes("[alias \"x\"]\ncommand = log\n"));
    }

    proptest! {
        /// Whatever the values are, the file that is written says what passed and nothing else.
        #[test]
        fn what_is_written_is_what_is_read(values in prop::collection::vec("[ -~\u{e0}-\u{ff}]{0,40}", 0..6)) {
            let escaped = |value: &String| value.replace('\\', "\\\\").replace('"', "\\\"");
            let text: String =
                values.iter().map(|value| format!("[user]\nname = \"{}\"\n[x]\ny = 1\n", escaped(value))).collect();
            let read = gitconfig::parse(of(&text).as_bytes()).unwrap();
            let wanted: Vec<Vec<u8>> = values
                .iter()
                .map(|value| value.clone().into_bytes())
                .filter(|value| !asks_for_signatures(value))
                .collect();
            prop_assert!(read.iter().all(|setting| setting.section == "user" && setting.name == "name"));
            prop_assert_eq!(read.into_iter().map(|setting| setting.value.unwrap()).collect::<Vec<_>>(), wanted);
        }
    }
}
