//! Manifests with rules that dice have chosen.

use crate::Dice;

const PATHS: [&str; 6] = ["src/**", "secret/**", "**/key", "a", "*.rs", "/etc/**"];
const COMMANDS: [&str; 6] = ["git push *", "ls", "git *", "cat *", "*secret*", "rm *"];
const HOSTS: [&str; 3] = ["example.org", "*.example", "127.0.0.1:80"];
const OF_FILES: [&str; 7] = ["read", "grep", "glob", "write", "edit", "fs.read", "fs.write"];

/// A mode and up to five rules, as a manifest begins.
pub fn random_rules(dice: &mut Dice) -> String {
    let mut text = format!("mode = '{}'\n", dice.one(&["ask", "yolo", "auto-edit"]));
    for _ in 0..=dice.below(5) {
        let (permissions, patterns): (&[&str], &[&str]) = match dice.below(4) {
            0 => (&OF_FILES, &PATHS),
            1 => (&["bash", "shell.run"], &COMMANDS),
            2 => (&["web_fetch", "net.fetch"], &HOSTS),
            _ => (&["*"], &["secret/**", "git push *", "example.org"]),
        };
        let (permission, action) = (dice.one(permissions), dice.one(&["allow", "ask", "deny"]));
        let pattern = match dice.below(3) {
            0 => String::new(),
            _ => format!("pattern = '{}'\n", dice.one(patterns)),
        };
        text.push_str(&format!("[[rules]]\npermission = '{permission}'\n{pattern}action = '{action}'\n"));
    }
    text
}
