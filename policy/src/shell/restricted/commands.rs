//! Which commands there are, as data (S4-9, X4-5). Each rule has lines that it passes and lines that it catches; a test
//! tries them all.

use super::arguments::ArgumentRule;
use super::scripts::{
    awk, command, curl, env, find, git, nice, packed, read, sed, tar, test, timed, timeout, xargs, xxd,
};

/// One rule over commands of a kind.
pub struct CommandRule {
    /// The commands.
    pub names: &'static [&'static str],
    /// Advice what to do instead of what it refuses.
    pub remedy: &'static str,
    /// Lines that it passes.
    pub passed: &'static [&'static str],
    /// Lines that it refuses.
    pub caught: &'static [&'static str],
    pub(super) how: ArgumentRule,
}

impl std::fmt::Debug for CommandRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rule").field("names", &self.names).finish_non_exhaustive()
    }
}

const fn rule(
    names: &'static [&'static str],
    how: ArgumentRule,
    remedy: &'static str,
    passed: &'static [&'static str],
    caught: &'static [&'static str],
) -> CommandRule {
    CommandRule { names, remedy, passed, caught, how }
}

const fn except(flags: &'static str, valued: &'static str, long: &'static [&'static str]) -> ArgumentRule {
    ArgumentRule::Except { flags, valued, long }
}

const fn few(most: usize, flags: &'static str, valued: &'static str, long: &'static [&'static str]) -> ArgumentRule {
    ArgumentRule::Few { most, flags, valued, long }
}

const LEAVE_OUT: &str = "leave that option out";

/// The commands that may run.
pub const RULES: &[CommandRule] = &[
    rule(
        &[
            "cat",
            "head",
            "tail",
            "wc",
            "ls",
            "dir",
            "vdir",
            "stat",
            "du",
            "df",
            "md5sum",
            "sha1sum",
            "sha224sum",
            "sha256sum",
            "sha384sum",
            "sha512sum",
            "b2sum",
            "cksum",
            "sum",
            "shasum",
            "md5",
            "cut",
            "tr",
            "column",
            "fmt",
            "fold",
            "nl",
            "expand",
            "unexpand",
            "paste",
            "join",
            "comm",
            "cmp",
            "tac",
            "rev",
            "seq",
            "echo",
            "true",
            "false",
            ":",
            "pwd",
            "whoami",
            "id",
            "groups",
            "nproc",
            "arch",
            "uname",
            "uptime",
            "basename",
            "dirname",
            "realpath",
            "readlink",
            "grep",
            "egrep",
            "fgrep",
            "zgrep",
            "zcat",
            "whereis",
            "printenv",
            "ps",
            "free",
            "jq",
            "hexdump",
            "od",
            "strings",
            "cd",
            "zipinfo",
            "numfmt",
            "pathchk",
            "lscpu",
            "tty",
            "exit",
            "nslookup",
            "host",
            "netstat",
            "ping",
            "which",
            "type",
        ],
        ArgumentRule::Any,
        "",
        &[
            "cat a b | head -n 5",
            "grep rm file",
            "grep '>' file",
            "ls -la $dir *.rs",
            "wc -l $(git ls-files)",
            "cd src && ls",
            "which ls",
            "type ls",
        ],
        &["cat x | sh", "ls; rm x", "echo $(touch x)"],
    ),
    rule(
        &["find"],
        ArgumentRule::Own(find),
        "print the names, and let another command read them (find … -print0 | xargs -0 wc -l)",
        &["find . -name '*.rs' -not -path './target/*'", "find src -type f -size +1k -print0"],
        &["find . -delete", "find . -name x -exec rm {} +", "find . -fprint out", "find . -okdir sh ';'", "find . $x"],
    ),
    rule(
        &["sed"],
        ArgumentRule::Only {
            flags: "nErsuz",
            valued: "e",
            long: &[
                "quiet",
                "silent",
                "regexp-extended",
                "expression=",
                "separate",
                "null-data",
                "unbuffered",
                "posix",
                "sandbox",
            ],
            check: sed,
        },
        "let it print: sed -n '…p' file",
        &["sed -n '1,5p' f", "sed 's/a/b/g; /x/d' f", "sed -E 's#(a|w)#\\1#' f", "sed -e '1d' -e '$p' f"],
        &[
            "sed -i s/a/b/ f",
            "sed -ni p f",
            "sed 'w out' f",
            "sed 's/a/b/w out' f",
            "sed 's/a/rm x/e' f",
            "sed '1e rm x' f",
            "sed -f script f",
            "sed \"$x\" f",
            "sed --in-place=.bak p f",
        ],
    ),
    rule(
        &["awk", "gawk", "mawk", "nawk"],
        ArgumentRule::Own(awk),
        "let it print; write a comparison as `5 < $1`, and leave pipes to the shell",
        &[
            "awk '{print $1}' f",
            "awk -F: '/a|b/ { n++ } END { print n }' f",
            "awk '$1 ~ /x/ || 5 < $2' f",
            "awk -v x=\"$y\" 'NR==1' f",
            "awk '{ print ($1 + $2) / 2, $3 / n }' f",
            "awk '{ if (/a|b/) print /x/ ? 1 : 2 }' f",
        ],
        &[
            "awk 'BEGIN{system(\"rm x\")}'",
            "awk '{print > \"out\"}' f",
            "awk '{print | \"sh\"}' f",
            "awk -f prog f",
            "awk \"$x\" f",
            "awk '{\"date\" | getline}'",
            "awk '@load \"x\"'",
            "awk 'BEGIN{print /\"/;system(\"rm x\");/\"/}'",
            "awk 'BEGIN{if (1) /\"/;system(\"rm x\");/\"/}'",
            "awk '{x++ /\"/;system(\"rm x\");/\"/}'",
            "awk '{length /\"/;system(\"rm x\");/\"/}'",
        ],
    ),
    rule(
        &["git"],
        ArgumentRule::Own(git),
        "use log, diff, show, status, blame, grep, ls-files and the like, without options that write or start programs",
        &[
            "git log --oneline -n 5",
            "git diff HEAD~1 -- src",
            "git --no-pager show --stat",
            "git -C sub status -sb",
            "git branch -a",
            "git grep -n x",
            "git config --get user.name",
            "git config --global --list",
            "git tag --sort=-v:refname -l 'v*'",
            "git branch -r --contains HEAD",
            "git stash list",
            "git remote -v",
        ],
        &[
            "git push",
            "git checkout .",
            "git clean -fd",
            "git -c core.pager=x log",
            "git diff --ext-diff",
            "git grep -Ox y",
            "git grep --open-files-in-pager=x y",
            "git log --output=f",
            "git branch -D main",
            "git branch new",
            "git branch -v new",
            "git remote -v update",
            "git config core.pager x",
            "git stash",
            "git --exec-path=. log",
            "git remote add a b",
            "git tag v1",
            "git tag --format -l new",
            "git branch --sort --list new",
            "git config set --comment -l k v",
            "git config --default --get k v",
            "git $x",
        ],
    ),
    rule(
        &["curl"],
        ArgumentRule::Only {
            flags: "sSLfkivIG46#gN0",
            valued: "HAemXroRw",
            long: &[
                "silent",
                "show-error",
                "location",
                "fail",
                "fail-with-body",
                "include",
                "verbose",
                "head",
                "compressed",
                "max-time=",
                "connect-timeout=",
                "header=",
                "user-agent=",
                "referer=",
                "retry=",
                "request=",
                "range=",
                "write-out=",
                "output=",
                "http1.1",
                "http2",
                "ipv4",
                "ipv6",
                "insecure",
                "globoff",
                "no-progress-meter",
                "max-redirs=",
            ],
            check: curl,
        },
        "fetch to standard output: curl -fsSL URL",
        &[
            "curl -fsSL https://example.com/x.json | jq .",
            "curl -sI https://example.com",
            "curl -s -o /dev/null -w '%{http_code}' https://example.com",
            "curl -H 'Accept: text/html' https://example.com",
        ],
        &[
            "curl -o f https://example.com",
            "curl -sO https://example.com/f",
            "curl -T f https://example.com",
            "curl -d @f https://example.com",
            "curl -K conf",
            "curl -X POST https://example.com",
            "curl -H @f https://example.com",
            "curl -w '%output{f}' https://example.com",
            "curl --output-dir d https://example.com",
            "curl telnet://example.com",
            "curl --upload-file f https://example.com",
        ],
    ),
    rule(
        &["tar"],
        ArgumentRule::Own(tar),
        "list: tar -tf FILE",
        &["tar tf a.tar", "tar -tzvf a.tgz", "tar --list --file=a.tar"],
        &[
            "tar xf a.tar",
            "tar -cf a.tar .",
            "tar -tf a.tar --to-command=sh",
            "tar -tf host:a",
            "tar -t -I sh -f a",
            "tar tf a --checkpoint-action=exec=sh",
        ],
    ),
    rule(
        &["unzip"],
        ArgumentRule::Only {
            flags: "lvtpqZ1",
            valued: "",
            long: &[],
            check: |args| if args.has(&["l", "v", "t", "p", "Z"]) { Ok(()) } else { Err("it unpacks".to_owned()) },
        },
        "list: unzip -l FILE",
        &["unzip -l a.zip"],
        &["unzip a.zip", "unzip -o a.zip", "unzip -lo a.zip -d x"],
    ),
    rule(
        &["gzip", "gunzip", "bzip2", "bunzip2", "xz", "unxz", "zstd"],
        ArgumentRule::Only {
            flags: "cdltvkq",
            valued: "",
            long: &["stdout", "to-stdout", "decompress", "list", "test", "keep", "verbose"],
            check: packed,
        },
        "write to standard output: gzip -dc FILE",
        &["gzip -dc a.gz | head", "gzip -l a.gz", "xz -t a.xz", "zstd -dc a.zst"],
        &[
            "gzip a",
            "gunzip a.gz",
            "xz -d a.xz",
            "xz -td a.xz",
            "bzip2 -td a.bz2",
            "zstd -td a.zst",
            "xz -l --decompress a",
        ],
    ),
    rule(
        &["sort"],
        except("oT", "ktS", &["output", "compress-program", "temporary-directory"]),
        "write to standard output, and put `./` or `--` before names",
        &["sort -u f | uniq -c", "sort -k2 -t: f", "sort -to f", "sort ./*.txt", "sort -- \"$f\""],
        &[
            "sort -o f f",
            "sort -uo f f",
            "sort --compress-program=sh f",
            "sort --comp=sh f",
            "sort --outp f f",
            "sort $x",
            "sort *.txt",
            "sort -T d f",
        ],
    ),
    rule(
        &["uniq"],
        few(1, "", "fsw", &[]),
        "write to standard output: it takes one file",
        &["uniq -c f", "uniq -f 1"],
        &["uniq in out", "uniq ./*", "uniq $x"],
    ),
    rule(
        &["xxd"],
        ArgumentRule::Own(xxd),
        "write to standard output: it takes one file",
        &["xxd f", "xxd -l 16 f", "xxd -ps f", "xxd -l16 -c 8 -s +4 f", "head f | xxd -p"],
        &["xxd f out", "xxd -r f", "xxd -ps in f", "xxd -p in f", "xxd -revert f", "xxd -l $x f", "xxd ./*"],
    ),
    rule(
        &["rg"],
        except("z", "", &["pre", "pre-glob", "hostname-bin", "search-zip"]),
        LEAVE_OUT,
        &["rg -n x src", "rg --pretty x", "rg -g '*.rs' x"],
        &["rg --pre sh x", "rg --pre=sh x", "rg --hostname-bin=sh x", "rg $x"],
    ),
    rule(&["ag"], except("z", "", &["pager", "search-zip"]), LEAVE_OUT, &["ag x src"], &["ag --pager=sh x"]),
    rule(
        &["diff"],
        except("l", "", &["paginate"]),
        LEAVE_OUT,
        &["diff -u a b", "diff <(ls a) <(ls b)"],
        &["diff -l a b"],
    ),
    rule(&["pr"], except("", "", &[]), LEAVE_OUT, &["pr -t f"], &["pr $x"]),
    rule(
        &["file"],
        except("Czm", "", &["compile", "uncompress", "magic-file"]),
        LEAVE_OUT,
        &["file ./*.c a"],
        &["file -C -m x"],
    ),
    rule(&["tree"], except("oR", "", &["output"]), LEAVE_OUT, &["tree -L 2 src"], &["tree -o f", "tree -R -L 1"]),
    rule(&["locate"], except("", "", &["database"]), LEAVE_OUT, &["locate x"], &["locate $x"]),
    rule(
        &["less", "more", "zless"],
        ArgumentRule::Only {
            flags: "NSRFXEMnirsgcdfp",
            valued: "",
            long: &[],
            check: |args| {
                if args.operands.iter().any(|word| word.known_start().starts_with('+') || word.known_start().is_empty())
                {
                    Err("it may be told to start a command".to_owned())
                } else {
                    Ok(())
                }
            },
        },
        "use cat, head or tail",
        &["less -R f"],
        &["less -o log f", "less '+!sh' f", "less --log-file=x f", "less $x"],
    ),
    rule(
        &["date"],
        ArgumentRule::Only {
            flags: "uIR",
            valued: "dr",
            long: &["utc", "date=", "iso-8601", "rfc-3339", "reference="],
            check: |args| {
                if args.operands.iter().all(|word| word.known_start().starts_with('+')) {
                    Ok(())
                } else {
                    Err("it may set the clock".to_owned())
                }
            },
        },
        "date +FORMAT",
        &["date", "date -u +%F", "date -d yesterday"],
        &["date -s 12:00", "date 010203042026", "date --set=x"],
    ),
    rule(
        &["hostname"],
        few(0, "Fb", "", &["file", "boot"]),
        "give it no name",
        &["hostname -f"],
        &["hostname x", "hostname -F f"],
    ),
    rule(
        &["env"],
        ArgumentRule::Own(env),
        "name the command itself; env only prints here",
        &["env", "env | sort"],
        &["env sh -c x", "env X=1 ls", "env -i sh", "env -S'sh x'", "env $x"],
    ),
    rule(
        &["ss"],
        except("KDF", "", &["kill", "diag", "filter"]),
        LEAVE_OUT,
        &["ss -tln"],
        &["ss -K dst x", "ss --kill", "ss -D f"],
    ),
    rule(&["dig"], except("f", "", &[]), LEAVE_OUT, &["dig +short example.com"], &["dig -f x"]),
    rule(
        &["top"],
        ArgumentRule::Only {
            flags: "bciHS1",
            valued: "ndpuo",
            long: &[],
            check: |args| if args.has(&["b"]) { Ok(()) } else { Err("it waits for keys".to_owned()) },
        },
        "top -b -n 1",
        &["top -b -n 1"],
        &["top"],
    ),
    rule(
        &["yq"],
        except("is", "", &["inplace", "in-place", "split-exp", "split-exp-file"]),
        "let it print",
        &["yq .a f.yml"],
        &["yq -i .a=1 f.yml", "yq --inplace .a=1 f"],
    ),
    rule(
        &["xmllint"],
        ArgumentRule::Only {
            flags: "",
            valued: "",
            long: &["noout", "format", "xpath=", "html", "valid", "nonet"],
            check: |_| Ok(()),
        },
        "xmllint --format or --xpath",
        &["xmllint --format a.xml", "xmllint --xpath '//a' a.xml"],
        &["xmllint --output f a.xml", "xmllint --shell a.xml"],
    ),
    rule(
        &["printf"],
        ArgumentRule::Own(|args| {
            if args.first().is_some_and(|first| {
                first.may_be_option() && !first.text().is_some_and(|text| !text.starts_with("-v") && text == "--")
            }) {
                Err("-v assigns a variable".to_owned())
            } else {
                Ok(())
            }
        }),
        "printf FORMAT …",
        &["printf '%s\\n' \"$x\""],
        &["printf -v PATH x", "printf $x"],
    ),
    rule(
        &["test", "[", "[["],
        ArgumentRule::Own(test),
        "name what is tested, and put variables in double quotes",
        &[
            "[ -f x ] && cat x",
            "[ \"$a\" = b ]",
            "[ ! -e \"$a\" ]",
            "[ \"$n\" -gt 3 ]",
            "[ \"$a\" ]",
            "[[ -n $(ls) ]]",
            "test -d src",
            "[ -f x -a -r x ]",
        ],
        &[
            "[ $x ]",
            "test -v 'a[$(rm x)]'",
            "[ \"$x\" \"$y\" ]",
            "test ! \"$op\" 'a[$(rm x)]'",
            "test \"$a\" \"$op\" 'a[$(rm x)]'",
            "[ a \"$op\" b ]",
            "[ \"$a\" = b -a \"$c\" = d ]",
            "[ '(' \"$x\" 'a[$(rm x)]' ')' ]",
        ],
    ),
    rule(
        &["read"],
        ArgumentRule::Own(read),
        "read -r into variables in small letters",
        &["ls | while read -r f; do wc -l \"$f\"; done", "read -r a b < f"],
        &["read PATH", "read -a x", "read 'a[$(rm x)]'"],
    ),
    rule(
        &["command"],
        ArgumentRule::Starts(command),
        "command -v NAME",
        &["command -v cargo", "command -v bash", "command ls -l", "command -V \"$x\""],
        &["command rm x", "command $x", "command -p rm x", "command bash <<< 'rm x'", "command bash", "command -v $x"],
    ),
    rule(&["time"], ArgumentRule::Starts(timed), LEAVE_OUT, &["time ls"], &["time rm x", "time -o f ls"]),
    rule(
        &["timeout"],
        ArgumentRule::Starts(timeout),
        LEAVE_OUT,
        &["timeout 5 ls -R", "timeout -k 1 5 cat f"],
        &["timeout 5 rm x", "timeout 5 sh -c ls", "timeout -k $x ls", "timeout -k $x 5 ls"],
    ),
    rule(
        &["nice"],
        ArgumentRule::Starts(nice),
        LEAVE_OUT,
        &["nice -n 5 grep -r x ."],
        &["nice rm x", "nice -n 5 sh", "nice -n $x ls"],
    ),
    rule(
        &["xargs"],
        ArgumentRule::Starts(xargs),
        "let xargs start a command that reads, and put `--` before the names it adds",
        &[
            "find . -name '*.rs' -print0 | xargs -0 wc -l",
            "ls | xargs -n 1 grep -l x",
            "git ls-files | xargs -I{} head -n 1 {}",
            "ls | xargs sort --",
        ],
        &[
            "ls | xargs rm",
            "ls | xargs sort",
            "ls | xargs sh -c",
            "ls | xargs -a f rm",
            "ls | xargs -I{} {} x",
            "ls | xargs find",
            "xargs -n $x ls",
            "xargs -d $x ls",
            "ls | xargs -I% -n9 sort",
            "ls | xargs -L1 -I% sort",
            "ls | xargs -I% find . -name x \"%$y\"",
            "ls | xargs -I% sort \"$y%\"",
        ],
    ),
];

/// Reason why another command is refused, and what to do.
pub(super) fn instead(name: &str) -> (&'static str, &'static str) {
    let known: &[(&[&str], &str, &str)] = &[
        (&["rm", "rmdir", "unlink", "shred", "truncate"], "it removes files", "leave files as they are"),
        (
            &[
                "mv", "cp", "ln", "install", "touch", "mkdir", "mkfifo", "mktemp", "tee", "dd", "split", "csplit",
                "patch",
            ],
            "it writes files",
            "let the result come as output",
        ),
        (
            &["chmod", "chown", "chgrp", "chattr", "setfacl"],
            "it changes who may do what",
            "leave modes and owners as they are",
        ),
        (&["kill", "pkill", "killall"], "it ends processes", "use ps to look at them"),
        (
            &["sudo", "su", "doas", "pkexec", "runuser"],
            "it asks for another user's rights",
            "nothing here may gain any",
        ),
        (&["wget"], "it writes what it fetches to a file", "use curl -fsSL URL"),
        (
            &["sh", "zsh", "dash", "ksh", "fish", "csh", "eval", "source", ".", "exec"],
            "what it runs cannot be looked at",
            "write the commands themselves",
        ),
        (
            &[
                "export",
                "declare",
                "typeset",
                "local",
                "readonly",
                "unset",
                "set",
                "shopt",
                "alias",
                "let",
                "mapfile",
                "readarray",
                "getopts",
                "trap",
                "enable",
                "hash",
            ],
            "it changes the shell that later commands run in",
            "leave it out",
        ),
        (&["ack"], "its options run perl", "use rg or grep"),
        (
            &[
                "bash", "python", "python3", "perl", "ruby", "node", "deno", "bun", "php", "java", "make", "cmake",
                "cargo", "rustc", "rustup", "gcc", "g++", "cc", "clang", "go", "dotnet", "npm", "npx", "yarn", "pip",
                "pip3", "uv", "docker", "kubectl",
            ],
            "it runs what it is given",
            "use commands that read; `command -v NAME` tells whether it is there",
        ),
    ];
    let found = known.iter().find(|(names, _, _)| names.contains(&name));
    found.map_or(
        ("it is not among the commands that only read", "use the tools for files, or ask for an unrestricted shell"),
        |(_, why, remedy)| (why, remedy),
    )
}
