//! Two lists: spellings of denied commands, of which none passes, and everyday lines, which ask nothing.

use callgate_policy::mode::Mode;
use callgate_policy::rules::Action;

use super::inner::judged;
use super::understand;

const DENIED: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/lines/denied.txt"));
const EVERYDAY: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/lines/everyday.txt"));

/// Groups of rules and lines, which empty lines part. `#` begins a comment.
fn groups(list: &str) -> impl Iterator<Item = (Vec<(&str, Action)>, bool, Vec<String>)> {
    list.split("\n\n").map(|group| {
        let (mut rules, mut passes, mut lines) = (Vec::new(), false, Vec::new());
        for line in group.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            match (line.strip_prefix("deny "), line.strip_prefix("allow ")) {
                (Some(pattern), _) => rules.push((pattern, Action::Deny)),
                (_, Some(pattern)) => rules.push((pattern, Action::Allow)),
                (None, None) if line == "pass" => passes = true,
                (None, None) => lines.push(line.replace('⏎', "\n")),
            }
        }
        (rules, passes, lines)
    })
}

/// C1 to C3, G7: no spelling of a denied command passes, even where everything else may; what only looks like it does.
#[test]
fn no_spelling_of_a_denied_command_passes() {
    let (mut spellings, mut others, mut unread) = (0, 0, 0);
    let mut wrong = Vec::new();
    for (rules, passes, lines) in groups(DENIED) {
        for line in lines {
            let is_denied = judged(&rules, Mode::Yolo, &line) == Action::Deny;
            if is_denied == passes {
                wrong.push(line.clone());
            }
            *(if passes { &mut others } else { &mut spellings }) += 1;
            unread += usize::from(understand(&line).unknown.is_some());
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(spellings >= 300 && others >= 50, "{spellings}, {others}");
    assert!(unread * 20 < spellings, "{unread} are denied since they are not read");
}

/// Lines of every day ask nothing beyond what a person's rules say, but for one in twenty. Fewer still are denied: `rm -f *.o` may
/// be `rm -f -r.o`, and of `eval "echo $x"` nobody knows what it is.
#[test]
fn everyday_lines_ask_nothing() {
    let lines: Vec<(Vec<(&str, Action)>, String)> = {
        let mut all = Vec::new();
        let mut rules = Vec::new();
        for (more, _, lines) in groups(EVERYDAY) {
            rules.extend(more);
            all.extend(lines.into_iter().map(|line| (rules.clone(), line)));
        }
        all
    };
    let verdicts: Vec<_> = lines.iter().map(|(rules, line)| (judged(rules, Mode::Ask, line), line)).collect();
    let asked: Vec<_> = verdicts.iter().filter(|(action, _)| *action != Action::Allow).collect();
    assert!(lines.len() >= 300, "{}", lines.len());
    assert!(asked.iter().filter(|(action, _)| *action == Action::Deny).count() <= 2, "{asked:#?}");
    assert!(asked.len() * 20 <= lines.len(), "{} of {}: {asked:#?}", asked.len(), lines.len());
    // The control: without the rules all that does anything is asked about.
    let free = lines.iter().filter(|(_, line)| judged(&[], Mode::Ask, line) == Action::Allow).count();
    assert!(free * 20 < lines.len(), "{free}");
}
