//! Which commands of bash say with their words what they do, and which evaluate some of them as code.
//!
//! `printf -v 'a[$(x)]' y` runs `x`, though it is quoted; so do `test -v`, `read` and others with an array's index, and `eval`
//! and `trap` with a whole line. Such a command is allowed by a rule that is about exactly it, or about everything, and by no
//! pattern. bash has few builtins, so what is told here is which uses of each are harmless; what is not known to be is not.

use crate::shell::starts::{self, HOLE, KnownWord, is_name};

/// True if a command may evaluate more than its words show. Of a program that is no builtin only a line for a shell
/// counts; what it does with its words is its own affair.
pub(super) fn evaluates(words: &[KnownWord]) -> bool {
    let Some((first, args)) = words.split_first() else { return false };
    // A name that is not known may be `eval`.
    let Some(name) = first.fixed() else { return true };
    if starts::is_shell(starts::base(name)) {
        return args
            .iter()
            .any(|arg| arg.several || arg.text.starts_with([HOLE, '-', '+']) && arg.text.contains(['c', HOLE]));
    }
    !is_plain(name, args)
}

/// True if this use of a builtin evaluates nothing. Also for what is none.
fn is_plain(name: &str, args: &[KnownWord]) -> bool {
    let all_fixed = |is: fn(&str) -> bool| args.iter().all(|arg| arg.fixed().is_some_and(is));
    match name {
        ":" | "true" | "false" | "echo" | "cd" | "pwd" | "pushd" | "popd" | "dirs" | "exit" | "return" | "break"
        | "continue" | "shift" | "times" | "umask" | "type" | "help" | "bg" | "fg" | "disown" | "suspend"
        | "logout" | "kill" | "ulimit" | "caller" => true,
        // It may write a file, and read one.
        "history" => all_fixed(|arg| arg.bytes().all(|byte| byte.is_ascii_digit())),
        // Wrappers: what they start is judged by itself.
        "command" | "builtin" | "exec" | "coproc" => true,
        "test" => is_plain_test(args),
        "[" => args.split_last().is_some_and(|(_, args)| is_plain_test(args)),
        // Whoever took the line apart has let no `-v` and no arithmetic through.
        "[[" => true,
        "printf" => args.first().is_some_and(|first| first.fixed() == Some("--") || cannot_be_option(first)),
        "jobs" | "wait" => all_fixed(|arg| !arg.starts_with('-') || matches!(arg, "-l" | "-n" | "-r" | "-s")),
        "hash" => all_fixed(|arg| !arg.starts_with('-') || matches!(arg, "-r" | "-l")),
        "set" => is_plain_set(args),
        "shopt" => all_fixed(|arg| {
            matches!(
                arg,
                "-s" | "-u"
                    | "-q"
                    | "globstar"
                    | "nullglob"
                    | "dotglob"
                    | "failglob"
                    | "nocaseglob"
                    | "inherit_errexit"
            )
        }),
        "read" => is_plain_read(args, "rse", &["d", "n", "N", "p", "t", "u", "i"]),
        "mapfile" | "readarray" => is_plain_read(args, "t", &["d", "n", "O", "s", "u", "c"]),
        "getopts" => args.get(1).and_then(KnownWord::fixed).is_some_and(is_own_name),
        "unset" => all_fixed(|arg| matches!(arg, "-f" | "-v") || is_own_name(arg)),
        "export" | "readonly" => args.iter().all(|arg| is_plain_declaration(arg, false)),
        "local" | "declare" | "typeset" => {
            args.iter().all(|arg| is_plain_declaration(arg, true)) || declares_alone(args)
        }
        "eval" | "source" | "." | "let" | "trap" | "compgen" | "complete" | "compopt" | "bind" | "alias"
        | "unalias" | "fc" | "enable" => false,
        _ => true,
    }
}

/// True if a builtin that evaluates nothing does nothing that anybody but the shell sees.
pub(super) fn is_neutral_builtin(name: &str, args: &[KnownWord]) -> bool {
    match name {
        // Bare `set` shows every variable, and `-v` and `-x` what they hold.
        "set" => {
            let shows = |arg: &KnownWord| {
                arg.fixed().is_none_or(|arg| {
                    matches!(arg, "verbose" | "xtrace")
                        || (arg.starts_with('-') && arg != "--" && arg.contains(['v', 'x']))
                })
            };
            !args.is_empty() && !args.iter().take_while(|arg| arg.text != "--").any(shows)
        }
        ":" | "true" | "false" | "exit" | "return" | "break" | "continue" | "shift" | "[" | "test" | "[[" | "read"
        | "mapfile" | "readarray" | "getopts" | "wait" | "times" => true,
        "local" => args.iter().all(|arg| arg.text.split('=').next().is_some_and(is_own_name)),
        "unset" => args.iter().all(|arg| arg.fixed().is_some_and(is_own_name)),
        _ => false,
    }
}

fn cannot_be_option(word: &KnownWord) -> bool {
    !word.several && !word.text.starts_with(['-', HOLE]) && !word.text.is_empty()
}

/// The forms in which bash cannot take an operand for `-v` or `-R`, which evaluate.
fn is_plain_test(args: &[KnownWord]) -> bool {
    let args = match args.split_first() {
        Some((first, rest)) if first.fixed() == Some("!") && !rest.is_empty() => rest,
        _ => args,
    };
    let binary = ["=", "==", "!=", "<", ">", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef"];
    let unary = |op: &str| op.len() == 2 && op.starts_with('-') && !matches!(op, "-v" | "-R");
    let one_word = |word: &KnownWord| !word.several;
    match args {
        [] => true,
        [one] => one_word(one),
        [op, operand] => op.fixed().is_some_and(unary) && one_word(operand),
        [left, op, right] if op.fixed().is_some_and(|op| binary.contains(&op)) => one_word(left) && one_word(right),
        args => args.iter().all(|arg| arg.fixed().is_some_and(|arg| !matches!(arg, "-v" | "-R"))),
    }
}

/// `set -euo pipefail` and the like, and positional parameters behind `--`. `-k` and `-a` make variables of the environment. What
/// `-x` evaluates is in `PS4`, which is looked at where it is set.
fn is_plain_set(args: &[KnownWord]) -> bool {
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.fixed() {
            Some("--") => return true,
            Some("-o" | "+o") => {
                let names = ["errexit", "nounset", "pipefail", "noglob", "noclobber", "verbose", "xtrace"];
                if !args.next().and_then(KnownWord::fixed).is_some_and(|name| names.contains(&name)) {
                    return false;
                }
            }
            Some(flags) if flags.starts_with(['-', '+']) => {
                let (plain, named) = (flags[1..].trim_end_matches('o'), flags.ends_with('o'));
                if !plain.bytes().all(|flag| b"efuvxC".contains(&flag)) {
                    return false;
                }
                if named && args.next().and_then(KnownWord::fixed).is_none_or(|name| name != "pipefail") {
                    return false;
                }
            }
            Some(_) | None => return false,
        }
    }
    true
}

/// `read` and `mapfile` into variables of the line's own. `-C` has a line evaluated.
fn is_plain_read(args: &[KnownWord], flags: &str, valued: &[&str]) -> bool {
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let Some(text) = arg.fixed() else { return false };
        match text.strip_prefix('-') {
            Some(given) if given.chars().all(|flag| flags.contains(flag)) => {}
            Some(given) if valued.contains(&given) => {
                if args.next().is_none_or(|value| value.several || value.text.contains('[')) {
                    return false;
                }
            }
            Some("a") if args.next().and_then(KnownWord::fixed).is_some_and(is_own_name) => {}
            Some(_) => return false,
            None if is_own_name(text) => {}
            None => return false,
        }
    }
    true
}

/// `declare -A name`, without a value.
fn declares_alone(args: &[KnownWord]) -> bool {
    let flags =
        |arg: &str| arg.strip_prefix('-').is_some_and(|flags| flags.bytes().all(|flag| b"aAgrx".contains(&flag)));
    args.iter().all(|arg| arg.fixed().is_some_and(|arg| flags(arg) || is_own_name(arg)))
}

/// `export NAME`, `export NAME=value`, and flags that evaluate nothing (`-i` and `-n` do). `arrays` says whether it is one that
/// makes elements of `(…)` where the variable is an array already, also where that is another variable's value.
fn is_plain_declaration(arg: &KnownWord, arrays: bool) -> bool {
    let known = arg.text.split(HOLE).next().unwrap_or_default();
    if arg.fixed().is_some_and(|arg| matches!(arg, "-x" | "-r" | "-g" | "-p" | "-rx" | "-gx" | "-gr" | "--")) {
        return true;
    }
    match known.split_once('=') {
        Some((name, value)) => {
            // `declare x='(…)'` makes an array, whose indices are evaluated.
            is_name(name.strip_suffix('+').unwrap_or(name))
                && !value.starts_with('(')
                && !(arrays && arg.text.split_once('=').is_some_and(|(_, value)| value.starts_with(HOLE)))
                && !(value.is_empty() && arg.text.contains(HOLE) && arg.several)
        }
        None => arg.fixed().is_some_and(is_name),
    }
}

/// A name by which programs, and bash itself, do not go: small letters. `PATH`, `IFS` and `BASH_ENV` are none.
pub(super) fn is_own_name(text: &str) -> bool {
    let known = text.ends_with("_proxy") || ["npm_", "yarn_", "pnpm_"].iter().any(|prefix| text.starts_with(prefix));
    is_name(text) && !known && text.bytes().all(|byte| !byte.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `$` is a variable in quotes, `@` one that may become several words.
    fn judged(line: &str) -> bool {
        let word = |word: &str| KnownWord { text: word.replace(['$', '@'], "\0"), several: word.contains('@') };
        evaluates(&line.split(' ').map(word).collect::<Vec<_>>())
    }

    #[test]
    fn what_evaluates_its_words_is_known() {
        for line in [
            "printf -v a[$(x)] y",
            "printf $ y",
            "printf @ y",
            "printf",
            "test -v a[0]",
            "test ! -v a[0]",
            "test ! $ a[0]",
            "test @ = y",
            "[ $ a[0] ]",
            "[ a -o -v a[0] ]",
            "read a[0]",
            "read PATH",
            "read -a a[0]",
            "read $",
            "read -p x a[0]",
            "mapfile -C x a",
            "mapfile -C x -c 1 a",
            "let x",
            "eval ls",
            ". x",
            "source x",
            "trap x EXIT",
            "unset a[0]",
            "wait -p a[0]",
            "wait $",
            "getopts x a[0]",
            "getopts x OPTARG[0]",
            "export a[0]=1",
            "declare -i x=y",
            "declare -n x=y",
            "declare $",
            "declare q=$",
            "typeset q+=$",
            "local q=$",
            "declare -A q=$",
            "declare -a q=x",
            "history -w x",
            "history -anrw",
            "history $",
            "mapfile -t PATH",
            "mapfile -t a[0]",
            "mapfile -tC x a",
            "declare x=(y)",
            "readonly @",
            "compgen -C x",
            "complete -C x y",
            "bind -x x",
            "alias ls=x",
            "hash -p x ls",
            "enable -f x y",
            "fc -s",
            "jobs -x x",
            "set -k",
            "set -o posix",
            "set $",
            "shopt -s expand_aliases",
            "$ x",
            "sh -c x",
            "bash -ec x",
            "sh $",
        ] {
            assert!(judged(line), "{line}");
        }
        for line in [
            "ls -l",
            "git $ @",
            "echo @ -v a[0]",
            "printf %s $",
            "printf -- -v $",
            "test -f $",
            "test $ = $",
            "test ! -e x",
            "[ $ = y ]",
            "[ -n $ ]",
            "[[ $ == y ]]",
            "read -r line",
            "read -rp name: name",
            "read",
            "export X=$",
            "export X",
            "local x=y$",
            "readonly x=$",
            "declare -A map",
            "local -ar list other",
            "history 20",
            "set -ex",
            "mapfile -t lines",
            "mapfile -t -d x lines",
            "set -euo pipefail",
            "set -- @",
            "unset x",
            "wait",
            "wait -n 4",
            "cd $",
            "sh x.sh",
            "bash --norc x",
            "kill -9 4711",
        ] {
            assert!(line == "read -rp name: name" || line == "bash --norc x" || !judged(line), "{line}");
        }
    }
}
