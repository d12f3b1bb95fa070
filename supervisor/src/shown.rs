//! A question as text that cannot be mistaken for anything else (E8): what every way of asking a person shows.
//!
//! What a model wrote is shown as what it is: no byte of it reaches the terminal as a command, turns the direction of the
//! text, hides, or comes to stand at the beginning of a line, where only callgate writes. What is too long is cut, and said
//! to be.

use std::fmt::Write as _;

use serde_json::{Map, Value};
use unicode_width::UnicodeWidthChar as _;

use crate::{Query, Question, ShownEffect};

/// Before every line of text that is not callgate's own.
const MARGIN: &str = "  | ";
/// Most lines of one text.
const LINES: usize = 8;
/// Most texts of one kind, such as files.
const ITEMS: usize = 64;
/// How many lines of a text that is too long are its last.
const LAST: usize = 3;
/// Narrower terminals are taken to be so wide, columns.
const NARROWEST: usize = 24;

/// The whole question but the line that asks, for a terminal of so many columns.
#[must_use]
pub fn question(question: &Question, columns: usize) -> String {
    let columns = columns.max(NARROWEST);
    let mut shown = Shown { text: String::new(), columns };
    shown.own(&match &question.agent {
        None => format!("callgate: the tool `{}` asks to be run", escaped(&question.tool)),
        // What a person has not asked for themselves, an agent may have been talked into.
        Some(agent) => {
            format!("callgate: the subagent `{}` asks to run the tool `{}`", escaped(agent), escaped(&question.tool))
        }
    });
    shown.effects(&question.effects);
    // What the effects do not say: the content of a file, for how long.
    if let Some(arguments) = unsaid(question) {
        shown.own("with the arguments:");
        shown.foreign(&arguments.to_string());
    }
    shown.items("it could:", &question.reach);
    shown.items("callgate adds your credentials:", &question.credentials);
    shown.items("asked because:", &question.why);
    shown.own(&format!("\"always\" allows exactly this, for this {}", question.kept_for.name()));
    if let Some(wider) = &question.wider {
        shown.own("\"wider\" allows besides:");
        shown.foreign(wider);
    }
    shown.text
}

/// The arguments of a call that stand in none of its effects; `None` if there are none.
fn unsaid(question: &Question) -> Option<Value> {
    let texts = || question.effects.iter().map(|effect| &effect.text);
    let whole = question.arguments.to_string();
    if texts().any(|text| text.ends_with(&whole)) {
        return None;
    }
    // An effect says it as words of its own, or in quotes.
    let has = |text: &str, value: &str| {
        text.match_indices(value).any(|(at, _)| {
            let (before, behind) = (&text[..at], &text[at + value.len()..]);
            (before.is_empty() || before.ends_with([' ', '\n', '/']))
                && (behind.is_empty() || behind.starts_with([' ', '\n', ':']))
        })
    };
    let is_said = |value: &str| texts().any(|text| has(text, value) || text.contains(&format!("{value:?}")));
    let Value::Object(arguments) = &question.arguments else { return Some(question.arguments.clone()) };
    let is_unsaid = |value: &Value| value.as_str().is_none_or(|value| value.is_empty() || !is_said(value));
    let left: Map<String, Value> = arguments
        .iter()
        .filter(|(_, value)| is_unsaid(value))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    (!left.is_empty()).then_some(Value::Object(left))
}

/// Most options that are shown.
const OPTIONS: usize = 32;

/// One question of an agent's, without the line that asks.
#[must_use]
pub fn query(query: &Query, columns: usize) -> String {
    let mut shown = Shown { text: String::new(), columns: columns.max(NARROWEST) };
    query.header.iter().for_each(|header| shown.foreign(header));
    shown.foreign(&query.question);
    for (at, option) in query.options.iter().enumerate().take(OPTIONS) {
        shown.own(&format!("{}:", at + 1));
        shown.foreign(&option.label);
        option.description.iter().filter(|text| !text.is_empty()).for_each(|text| shown.foreign(text));
    }
    shown.text
}

struct Shown {
    text: String,
    columns: usize,
}

impl Shown {
    /// A line of callgate's own, which holds nothing of anybody else's.
    fn own(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn items(&mut self, title: &str, items: &[String]) {
        if items.is_empty() {
            return;
        }
        self.own(title);
        items.iter().take(ITEMS).for_each(|item| self.foreign(item));
        if items.len() > ITEMS {
            self.own(&format!("  ... and {} more", items.len() - ITEMS));
        }
    }

    /// All effects, whole: what a person says yes to is what they have seen.
    fn effects(&mut self, effects: &[ShownEffect]) {
        for (is_implied, title) in [(false, "it would:"), (true, "by this:")] {
            let mut effects = effects.iter().filter(|effect| effect.is_implied == is_implied).peekable();
            if effects.peek().is_some() {
                self.own(title);
            }
            for effect in effects {
                self.whole(&effect.text);
                match &effect.parts {
                    Some(parts) if parts.len() > 1 => {
                        self.own("which is:");
                        parts.iter().for_each(|part| self.whole(part));
                    }
                    Some(_) => {}
                    None => self.own("which could not be taken apart before it runs"),
                }
            }
        }
    }

    /// Text of somebody else's, none of it left out.
    fn whole(&mut self, text: &str) {
        self.lines_of(text).iter().for_each(|line| self.line(line));
    }

    /// A text in lines of callgate's own making: no terminal has to break one.
    fn lines_of(&self, text: &str) -> Vec<String> {
        let room = self.columns - MARGIN.len() - 1;
        text.split('\n').flat_map(|line| wrapped(&escaped(line), room)).collect()
    }

    /// Text of somebody else's, of which the middle is left out if it is long.
    fn foreign(&mut self, text: &str) {
        let lines = self.lines_of(text);
        if lines.len() <= LINES {
            lines.iter().for_each(|line| self.line(line));
            return;
        }
        // What it does may stand at its end.
        let (first, rest) = lines.split_at(LINES - LAST);
        let (more, last) = rest.split_at(rest.len() - LAST);
        first.iter().for_each(|line| self.line(line));
        self.own(&format!("  ... and {} more lines, of {} bytes in all; its last are:", more.len(), text.len()));
        last.iter().for_each(|line| self.line(line));
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(MARGIN);
        self.text.push_str(line);
        self.text.push('\n');
    }
}

/// Cut into lines that are at most so wide. There is always one. Letters that some terminals give two columns and others one
/// (UAX 11: ambiguous) are taken for two.
fn wrapped(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut width = 0;
    for c in text.chars() {
        let wide = c.width_cjk().unwrap_or(0);
        if width + wide > room {
            lines.push(String::new());
            width = 0;
        }
        width += wide;
        if let Some(line) = lines.last_mut() {
            line.push(c);
        }
    }
    lines
}

/// With everything that does not stand for itself, in one or two columns, as its number.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' => escaped.push_str("\\t"),
            '\r' => escaped.push_str("\\r"),
            _ if stands_for_itself(c) => escaped.push(c),
            _ => escaped.extend(c.escape_unicode()),
        }
    }
    escaped
}

/// Escaped text with its line ends: for messages of several lines.
#[must_use]
pub fn escaped_lines(text: &str) -> String {
    text.split('\n').map(escaped).collect::<Vec<_>>().join("\n")
}

/// JSON in which what a terminal would take for more than a letter is a number. Outside strings there are only line ends and
/// blanks.
#[must_use]
pub fn escaped_json(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if c == '\n' || c == ' ' || stands_for_itself(c) || (turns_the_line(c) && c.is_alphanumeric()) {
            escaped.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a string does not fail.
            write!(escaped, "\\u{unit:04x}").unwrap_or(());
        }
    }
    escaped
}

/// Letters from right to left, and the numbers among them: beside them a terminal may put digits and punctuation in another
/// order. The blocks that Unicode has set apart for their scripts, also what is not assigned in them yet
/// (DerivedBidiClass.txt: all of the classes R, AL and AN but for marks that are not seen).
fn turns_the_line(c: char) -> bool {
    matches!(
        c,
        '\u{590}'..='\u{8ff}'
            | '\u{fb1d}'..='\u{fdff}'
            | '\u{fe70}'..='\u{feff}'
            | '\u{10800}'..='\u{10fff}'
            | '\u{1e800}'..='\u{1efff}'
    )
}

/// True if a character is seen as itself and changes nothing around it.
///
/// Not control characters, which have no width; nor what joins others, turns their direction, or is not seen: all of no
/// width. Nor letters that turn it. Nor blanks other than the one that everybody knows: they could pad, or pass for it. Nor the letters of private use.
#[must_use]
pub fn stands_for_itself(c: char) -> bool {
    let seen = c.width().is_some_and(|width| width > 0);
    let private = matches!(c, '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..);
    // These have a width, and nothing to be seen.
    let empty = matches!(
        c,
        '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' | '\u{2800}' | '\u{ad}' | '\u{fff9}'..='\u{fffc}'
    );
    seen && !private && !empty && !turns_the_line(c) && (c == ' ' || !c.is_whitespace())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use callgate_policy::delegated::DelegatedWork;
    use callgate_policy::effect::{Effect, ProgramRun, ServedRequest, WriteKind};
    use serde_json::json;

    use super::*;

    fn of(command: &str) -> Question {
        let mut question = Question::new("bash", "execute", json!({ "command": command }));
        question.session = "ses_1".into();
        question.why = vec!["no rule allows it".into()];
        let runs = ShownEffect::new(&Effect::Runs(ProgramRun::shell(command, "/w".into())));
        question.effects = vec![ShownEffect { parts: Some(vec!["make".into(), "./x".into()]), ..runs }];
        question.reach = vec!["change /w/**".into()];
        question
    }

    #[test]
    fn a_question_says_what_runs_and_why() {
        assert_eq!(
            question(&of("make && ./x"), 80),
            "callgate: the tool `bash` asks to be run\n\
             it would:\n  | runs in /w:\n  | make && ./x\n\
             which is:\n  | make\n  | ./x\n\
             it could:\n  | change /w/**\n\
             asked because:\n  | no rule allows it\n\
             \"always\" allows exactly this, for this session\n"
        );
    }

    /// F17: a call of a subagent is shown as one, by a name that cannot forge the question.
    #[test]
    fn f17_a_question_names_the_subagent_whose_call_it_is() {
        let mut asked = of("ls");
        asked.agent = Some("x` asks\u{1b}[2J".into());
        let shown = question(&asked, 80);
        let wanted = "callgate: the subagent `x` asks\\u{1b}[2J` asks to run the tool `bash`\nit would:\n  | runs in /w:\n  | ls\n";
        assert!(shown.starts_with(wanted), "{shown}");
    }

    /// E8: a subagent is shown with its task, and with the whole command of the program that runs it.
    #[test]
    fn e8_a_subagent_is_shown_with_its_prompt_and_its_program() {
        let mut asked = of("");
        asked.tool = "task".into();
        let task = "look\n\u{1b}[2Jrm -rf x";
        asked.arguments = json!({ "subagent_type": "sh", "prompt": task });
        let delegates = ShownEffect::new(&Effect::Delegates(DelegatedWork::new("sh", task)));
        let runner = vec!["/bin/bash".into(), "-c".into(), "".into()];
        let runs = ShownEffect::new(&Effect::Runs(ProgramRun::program(runner, "/w".into())));
        asked.effects = vec![delegates, ShownEffect { is_implied: true, ..runs }];
        asked.wider = Some("every call like it: sh".into());
        assert_eq!(
            question(&asked, 80),
            "callgate: the tool `task` asks to be run\n\
             it would:\n  | has the agent sh work:\n  | look\n  | \\u{1b}[2Jrm -rf x\n\
             by this:\n  | runs in /w:\n  | /bin/bash -c \"\"\n\
             it could:\n  | change /w/**\n\
             asked because:\n  | no rule allows it\n\
             \"always\" allows exactly this, for this session\n\
             \"wider\" allows besides:\n  | every call like it: sh\n"
        );
    }

    /// E8: what a tool is given is shown with all its arguments, whatever one is called; so is what the effects do not say.
    #[test]
    fn e8_another_tool_is_shown_with_all_its_arguments() {
        let arguments = json!({ "command": "true", "target": "production", "working_dir": "/w" });
        let request = ServedRequest { tool: "deploy".into(), arguments: arguments.clone(), key: None, words: None };
        let mut asked = Question::new("deploy", "execute", arguments);
        asked.effects = vec![ShownEffect::new(&Effect::Serves(request))];
        let text = question(&asked, 200);
        assert!(text.contains("it would:\n  | calls deploy with {"), "{text}");
        assert!(text.contains("\"target\":\"production\"") && !text.contains("with the arguments:"), "{text}");
        let mut asked = Question::new("write", "edit", json!({ "path": "a", "content": "secret plan" }));
        asked.effects = vec![ShownEffect::new(&Effect::Writes { path: "/w/a".into(), how: WriteKind::Write })];
        let text = question(&asked, 80);
        assert!(text.contains("it would:\n  | writes /w/a\n") && text.contains("secret plan"), "{text}");
        let mut asked = of("make");
        asked.arguments = json!({ "command": "make", "background": true, "timeout_ms": 9000, "stdin": "x\n" });
        let program = ProgramRun::Line { line: "make".into(), directory: "/w".into(), input: Some("x\n".into()) };
        asked.effects = vec![ShownEffect::new(&Effect::Runs(program))];
        let text = question(&asked, 80);
        assert!(text.contains("with the arguments:\n  | {\"background\":true,\"timeout_ms\":9000}\n"), "{text}");
    }

    /// E8: no effect is left out, and of none the middle.
    #[test]
    fn e8_no_effect_is_left_out() {
        let commands: Vec<String> = (0..200).map(|number| format!("true {number}")).collect();
        let mut asked = of(&commands.join("; "));
        asked.effects[0].parts = Some(commands.clone());
        let text = question(&asked, 80);
        assert!(commands.iter().all(|command| text.contains(&format!("  | {command}\n"))), "{text}");
    }

    /// The parts that forgeries are made of: each alone is harmless to a careful eye, together they are not to a careless program.
    const PARTS: [&str; 25] = [
        "\x1b[2J\x1b[H",
        "\x1b]0;title\x07",
        "\x1b[A\x1b[2K",
        "\r",
        "\n",
        "\u{8}\u{8}\u{8}",
        "\u{202e}",
        "\u{2066}",
        "\u{200b}",
        "\u{feff}",
        "\u{85}",
        "\u{2028}",
        "\u{9b}2J",
        "allow? once, always, reject [reject]: ",
        "callgate: the tool `read` asks to be run",
        "  | ",
        "e\u{301}\u{301}\u{301}",
        "\u{e0041}",
        "                                                                                ",
        "\u{3164}",
        "rm -rf /\u{5d0} 12",
        "\u{627}\u{661}",
        "\u{10803}",
        "\u{1e95f}",
        "\u{b1}\u{2014}\u{2500}\u{3b1}",
    ];

    /// E8: 10,000 forged texts from a generator. No line but those with callgate's margin holds any of it, nothing moves the
    /// cursor or turns the text, and no line is broken by the terminal.
    #[test]
    fn forged_text_stays_behind_the_margin() {
        let mut seed = 0x2545_F491_4F6C_DD1D_u64;
        let mut next = |below: usize| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            usize::try_from(seed % below as u64).unwrap()
        };
        let own = question(&of(""), 80);
        let own: Vec<&str> = own.lines().filter(|line| !line.starts_with(MARGIN)).collect();
        for _ in 0..10_000 {
            let text: String = (0..next(30)).map(|_| PARTS[next(PARTS.len())]).collect();
            let columns = 20 + next(100);
            let shown = question(&of(&text), columns);
            for line in shown.lines() {
                assert!(line.chars().all(stands_for_itself), "{line:?}");
                if line.starts_with(MARGIN) {
                    let width: usize = line.chars().map(|c| c.width_cjk().unwrap()).sum();
                    assert!(width < columns.max(NARROWEST), "{line:?} in {columns}");
                } else {
                    assert!(own.contains(&line) || line.starts_with("  ... and ") || line == "which is:", "{line:?}");
                }
            }
        }
    }

    /// E8: the same for what an agent asks: nothing of it passes for callgate's own words.
    #[test]
    fn forged_questions_stay_behind_the_margin() {
        let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
        let mut next = |below: usize| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            usize::try_from(seed % below as u64).unwrap()
        };
        for _ in 0..2000 {
            let mut text = || (0..next(20)).map(|_| PARTS[next(PARTS.len())]).collect::<String>();
            let mut asked = Query::new(text(), vec![crate::Choice::new(text()), crate::Choice::new(text())]);
            (asked.header, asked.options[1].description) = (Some(text()), Some(text()));
            for line in query(&asked, 80).lines() {
                assert!(line.chars().all(stands_for_itself), "{line:?}");
                let own = line == "1:" || line == "2:" || line.starts_with("  ... and ");
                assert!(own || line.starts_with(MARGIN), "{line:?}");
            }
        }
    }

    /// E8: letters that turn the line are numbers; others, of whatever script, are themselves.
    #[test]
    fn nothing_turns_a_line() {
        for turns in
            ["\u{5d0}", "\u{627}", "\u{660}", "\u{7c0}", "\u{fb50}", "\u{10a00}", "\u{1ee00}", "\u{202e}", "\u{61c}"]
        {
            assert_eq!(escaped(turns), turns.escape_unicode().to_string());
        }
        let plain = "a1! \u{e9} \u{416} \u{4e2d} \u{3b1} \u{905}";
        assert_eq!(escaped(plain), plain);
    }

    /// E8: a terminal that gives ambiguous letters two columns breaks no line either.
    #[test]
    fn ambiguous_letters_are_taken_for_wide() {
        let lines = wrapped(&"\u{b1}".repeat(30), 20);
        assert_eq!(lines.iter().map(|line| line.chars().count()).collect::<Vec<_>>(), [10, 10, 10]);
    }

    /// The end of a long text is seen.
    #[test]
    fn the_end_of_a_long_text_is_shown() {
        let statement = format!("WITH note AS (SELECT '{}') DELETE FROM item", "harmless words ".repeat(60));
        let mut asked = Question::new("write", "edit", json!({ "content": statement }));
        asked.effects = vec![ShownEffect::new(&Effect::Writes { path: "/w/a".into(), how: WriteKind::Write })];
        assert!(question(&asked, 80).contains("DELETE FROM item"), "{}", question(&asked, 80));
    }

    /// A flood is cut, and said to be; what is asked about stays on the screen.
    #[test]
    fn a_flood_is_cut() {
        let mut asked = of("ls");
        asked.why = vec!["true\n".repeat(100_000)];
        let shown = question(&asked, 80);
        assert!(shown.contains("  ... and 99993 more lines, of 500000 bytes in all; its last are:\n"), "{shown}");
        assert!(shown.lines().count() < 24, "it fits on a screen");
    }
}
