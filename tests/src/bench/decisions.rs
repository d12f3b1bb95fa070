//! Costs of decisions, before anything runs: layers 1 and 2 with many rules, and the gate before each exec.

use std::time::{Duration, Instant};

use callgate::{Session, Stdio};
use callgate_policy::effective::Source;
use callgate_policy::pattern::{ArgPattern, ArgPatterns};
use callgate_policy::requirement::{Program, RequirementSet, ShellRunRequirement};
use callgate_policy::rules::{Action, Rule, RuleScope};
use callgate_policy::shell::Line;
use serde_json::{Value, json};

use crate::failure::BenchFailure;
use crate::figures::{FigureTarget, MeasuredFigures, micros, print};
use crate::sessions::BenchOpener;

/// As many as the target names.
const RULES: usize = 1000;
/// Decisions of each kind, for each run of a subject.
const DECISIONS: u32 = 10;
/// Programs that a shell starts, one after the other.
const PROGRAMS: u32 = 200;
/// The most runs of that shell of each kind, in turns.
const ROUNDS: u32 = 9;

struct Decisions {
    /// About a file, as `write` names it.
    file: MeasuredFigures,
    /// About a command line of three commands, taken apart.
    line: MeasuredFigures,
    /// Taking it apart, in its worker.
    grammar: MeasuredFigures,
    /// One program started by a shell, median: with no gate, with one that judges arguments, and with one that asks the
    /// watchdogs besides.
    program: Duration,
    judged: Duration,
    watched: Duration,
}

impl Decisions {
    /// Time that the gate adds to an exec.
    fn gate(&self) -> Duration {
        self.judged.saturating_sub(self.program)
    }

    /// And the watchdogs.
    fn watchdogs(&self) -> Duration {
        self.watched.saturating_sub(self.program)
    }
}

/// Measures, and prints.
pub(crate) async fn measure(opener: &BenchOpener<'_>, runs: u32, as_json: bool) -> Result<(), BenchFailure> {
    let decisions = measured(opener, runs).await?;
    let Decisions { file, line, grammar, program, judged, watched } = &decisions;
    let at_most = |what, at_most, measured| FigureTarget { what, at_most, measured, unit: "µs" };
    let figures = json!({
        "decision_us": {
            "rules": RULES,
            "file": micros(file.median),
            "line": micros(line.median),
            "grammar": micros(grammar.median),
        },
        "exec_us": { "any_program": micros(*program), "arguments_judged": micros(*judged), "watched": micros(*watched) },
    });
    let lines = format!(
        "layers 1 and 2 at 1,000 rules: {:.1} µs about a file, {:.1} µs about a line of three commands, once {:.0} µs have taken it apart\n\
         a program of a shell's: {:.0} µs with no gate, {:.0} µs more where its arguments are judged, {:.0} µs more where the watchdog \
         sees it\n",
        micros(file.median),
        micros(line.median),
        micros(grammar.median),
        micros(*program),
        micros(decisions.gate()),
        micros(decisions.watchdogs()),
    );
    let targets = [
        at_most("decision at 1,000 rules, a file", 20.0, micros(file.median)),
        at_most("decision at 1,000 rules, a line", 20.0, micros(line.median)),
        at_most("exec gate, each exec", 150.0, micros(decisions.gate())),
    ];
    print(figures, &lines, &targets, as_json).map_err(BenchFailure::io("print the figures"))
}

async fn measured(opener: &BenchOpener<'_>, runs: u32) -> Result<Decisions, BenchFailure> {
    let mut spec = opener.spec();
    spec.rules = rules();
    let session = opener.supervisor.open(spec).await?;
    let command = "cd src && cargo test --workspace 2>&1 | tail -n 20";
    let line = session.understand(command).await?;
    let mut grammar = Vec::new();
    for _ in 0..runs {
        let started = Instant::now();
        session.understand(command).await?;
        grammar.push(started.elapsed());
    }
    let file = decide(&session, "write", &json!({ "path": "src/deep/module.rs", "content": "x" }), None, runs).await?;
    let line = decide(&session, "bash", &json!({ "command": command }), Some(&line), runs).await?;
    let [program, judged, watched] = execs(opener, runs.min(ROUNDS)).await?;
    Ok(Decisions { file, line, grammar: MeasuredFigures::of(&grammar), program, judged, watched })
}

/// Half of them about files, half about commands; none about what is decided but the last, which allows it.
fn rules() -> Vec<(RuleScope, Rule)> {
    let rule = |permission: &str, pattern: String, action| {
        (RuleScope::Session, Rule::new(permission, action).pattern(pattern))
    };
    let other = |n: usize| match n % 4 {
        0 => rule("write", format!("generated/part{n}/**"), Action::Deny),
        1 => rule("fs.write", format!("src/**/*.part{n}"), Action::Ask),
        2 => rule("bash", format!("deploy{n} *"), Action::Deny),
        _ => rule("bash", format!("*--target{n}*"), Action::Ask),
    };
    (0..RULES - 1).map(other).chain([rule("write", "src/**".to_owned(), Action::Allow)]).collect()
}

/// Layers 1 and 2, for the same call again and again.
async fn decide(
    session: &Session,
    tool: &str,
    args: &Value,
    line: Option<&Line>,
    runs: u32,
) -> Result<MeasuredFigures, BenchFailure> {
    let mut samples = Vec::new();
    for _ in 0..runs.saturating_mul(DECISIONS) {
        let started = Instant::now();
        session.preview(tool, args, line).await?;
        samples.push(started.elapsed());
    }
    Ok(MeasuredFigures::of(&samples))
}

/// Costs of one program in a loop of a shell's, by session.
async fn execs(opener: &BenchOpener<'_>, rounds: u32) -> Result<[Duration; 3], BenchFailure> {
    let any = opener.spec();
    let mut judged = opener.spec();
    // `bash` requires any program.
    judged.tools = false;
    for (_, requires) in &mut judged.requires {
        requires.shell.clear();
    }
    let rest = ArgPatterns::new(vec![ArgPattern::Prefix("-".to_owned()), ArgPattern::Rest]);
    let failed = |reason: String| BenchFailure::of("the exec gate", reason);
    let grant = |name: &str, args| {
        let cmd = Program::parse(name).map_err(|e| failed(e.to_string()))?;
        Ok::<_, BenchFailure>(ShellRunRequirement { cmd, args })
    };
    let shell = vec![grant("bash", None)?, grant("true", Some(rest.map_err(|e| failed(e.to_string()))?))?];
    judged.requires.push((Source::CommandLine, RequirementSet { shell, ..RequirementSet::default() }));
    let watched = opener.spec().watch_execs();
    let mut sessions = Vec::new();
    for spec in [any, judged, watched] {
        sessions.push((opener.supervisor.open(spec).await?, Vec::new()));
    }
    let line = format!("for ((i = 0; i < {PROGRAMS}; i++)); do /bin/true -x y; done");
    for round in 0..=rounds {
        for (session, samples) in &mut sessions {
            let started = Instant::now();
            let stdio = Stdio::null().map_err(BenchFailure::io("open /dev/null"))?;
            let program = session.spawn(["bash", "--noprofile", "--norc", "-c", &line], stdio).await?;
            let end = program.wait().await?;
            if end.code != Some(0) {
                return Err(failed(format!("it ended with {end:?}")));
            }
            // The first warms up.
            if round > 0 {
                samples.push(started.elapsed() / PROGRAMS);
            }
        }
    }
    let medians: Vec<Duration> = sessions.iter().map(|(_, samples)| MeasuredFigures::of(samples).median).collect();
    medians.try_into().map_err(|_more| failed("it was not measured".to_owned()))
}
