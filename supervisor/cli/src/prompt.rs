//! Asking the person at the terminal (S0-59, X3-3).

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use callgate::shown;
use callgate::{Answer, Approver, Asked, Inquired, Inquiry, Query, Question, Reply};
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use rustix::termios::{QueueSelector, tcflush, tcgetpgrp, tcgetwinsize};
use tokio::io::unix::AsyncFd;

/// The line that asks. Enter alone is a no.
const ASKS: &str = "allow? once, always, reject [reject]: ";
/// The line that asks where more may be allowed.
const ASKS_WIDER: &str = "allow? once, always, wider, reject [reject]: ";
/// Between two screens of a question.
const MORE: &str = "callgate: there is more of it; press Enter to see it ";
/// Terminals with fewer rows are not paged.
const ROWS_LEAST: usize = 8;
/// Before the questions of an agent.
const ASKED: &str = "callgate: the agent asks you; what you type is given to it\n";
/// How soon a terminal that another question is on is looked at again.
const AGAIN: Duration = Duration::from_millis(50);
/// A line of an answer is no longer than a terminal gives at once, bytes (`N_TTY_BUF_SIZE`).
const LINE: usize = 4096;

/// The person at the terminal that controls this process.
#[derive(Debug, Clone, Copy)]
pub(super) struct AtTerminal;

impl Approver for AtTerminal {
    fn name(&self) -> &'static str {
        "terminal"
    }

    fn ask(&self, question: Arc<Question>) -> Asked {
        Box::pin(async move { ask(&question).await })
    }

    fn inquire(&self, inquiry: Arc<Inquiry>) -> Inquired {
        Box::pin(async move { inquire(&inquiry).await })
    }
}

/// `None` if there is no terminal, or it is not this process's turn to use it (it was started in the background).
async fn ask(question: &Question) -> Option<Answer> {
    let terminal = hold().await?;
    let mut withdrawn = Withdrawn { terminal: terminal.get_ref(), answered: false };
    let shown = shown::question(question, columns(&terminal));
    // What was typed before it was asked is no answer to it.
    tcflush(terminal.get_ref().as_fd(), QueueSelector::IFlush).ok()?;
    let asks = if question.wider.is_some() { ASKS_WIDER } else { ASKS };
    page(&mut withdrawn, &terminal, &shown).await?;
    write!(withdrawn.terminal, "{asks}").ok()?;
    let answer = loop {
        let line = line(&terminal).await;
        match line.as_deref().map(str::trim) {
            Some("o" | "once" | "y" | "yes") => break Answer::Once,
            Some("a" | "always") => break Answer::Always,
            Some("w" | "wider") if question.wider.is_some() => break Answer::Wider,
            Some("" | "r" | "reject" | "n" | "no" | "q") => break Answer::Reject,
            // An end of file (X3-3), which leaves the line as it is.
            None => {
                writeln!(withdrawn.terminal).ok()?;
                break Answer::Reject;
            }
            Some(_) if question.wider.is_some() => {
                write!(withdrawn.terminal, "type `once`, `always`, `wider` or `reject`: ").ok()?;
            }
            Some(_) => write!(withdrawn.terminal, "type `once`, `always` or `reject`: ").ok()?,
        }
    };
    withdrawn.answered = true;
    Some(answer)
}

/// Prints a text, a screen at a time where it is longer than one: nothing of it scrolls away unseen.
async fn page(withdrawn: &mut Withdrawn<'_>, terminal: &AsyncFd<File>, text: &str) -> Option<()> {
    let rows = tcgetwinsize(terminal.get_ref()).map_or(0, |size| usize::from(size.ws_row));
    // A terminal that says no size is not waited for.
    let most = if rows < ROWS_LEAST { usize::MAX } else { rows - 2 };
    let lines: Vec<&str> = text.lines().collect();
    writeln!(withdrawn.terminal).ok()?;
    for (number, screen) in lines.chunks(most.min(lines.len().max(1))).enumerate() {
        if number > 0 {
            write!(withdrawn.terminal, "{MORE}").ok()?;
            line(terminal).await?;
        }
        screen.iter().try_for_each(|line| writeln!(withdrawn.terminal, "{line}")).ok()?;
    }
    Some(())
}

/// Asks questions, one after the other.
async fn inquire(inquiry: &Inquiry) -> Option<Reply> {
    let terminal = hold().await?;
    let mut withdrawn = Withdrawn { terminal: terminal.get_ref(), answered: false };
    write!(withdrawn.terminal, "\n{}", ASKED).ok()?;
    let mut answers = Vec::new();
    for query in &inquiry.questions {
        // What was typed before a question was asked is no answer to it, nor is the rest of what was typed for the one before.
        tcflush(terminal.get_ref().as_fd(), QueueSelector::IFlush).ok()?;
        write!(withdrawn.terminal, "{}{}", shown::query(query, columns(&terminal)), asks(query)).ok()?;
        let answer = loop {
            let line = line(&terminal).await;
            match line.as_deref().map(str::trim) {
                Some("") => break None,
                None => {
                    writeln!(withdrawn.terminal).ok()?;
                    break None;
                }
                Some(text) => match chosen(query, text) {
                    Some(answer) => break Some(answer),
                    None => write!(withdrawn.terminal, "there is no such number; {}", asks(query)).ok()?,
                },
            }
        };
        match answer {
            Some(answer) => answers.push(answer),
            None => {
                withdrawn.answered = true;
                return Some(Reply::Dismissed);
            }
        }
    }
    withdrawn.answered = true;
    Some(Reply::Answers(answers))
}

/// The line that asks. Enter alone is no answer.
fn asks(query: &Query) -> &'static str {
    match (query.options.is_empty(), query.multi_select) {
        (true, _) => "answer? [none]: ",
        (false, false) => "answer? a number, or your own words [none]: ",
        (false, true) => "answer? numbers such as 1,2, or your own words [none]: ",
    }
}

/// Choices of a line: numbers of options, or something else in words. `None` for numbers that there are not.
fn chosen(query: &Query, line: &str) -> Option<Vec<String>> {
    let is_number = |c: char| c.is_ascii_digit() || c == ',' || c == ' ';
    if query.options.is_empty() || !line.chars().all(is_number) {
        return Some(vec![line.replace(char::is_control, " ")]);
    }
    let numbers = line.split([',', ' ']).filter(|number| !number.is_empty()).map(str::parse::<usize>);
    let mut numbers = numbers.collect::<Result<Vec<_>, _>>().ok()?;
    numbers.sort_unstable();
    numbers.dedup();
    let labels = numbers.iter().map(|number| Some(query.options.get(number.checked_sub(1)?)?.label.clone()));
    let labels = labels.collect::<Option<Vec<_>>>()?;
    (labels.len() == 1 || (query.multi_select && !labels.is_empty())).then_some(labels)
}

fn columns(terminal: &AsyncFd<File>) -> usize {
    let columns = tcgetwinsize(terminal.get_ref()).map_or(80, |size| usize::from(size.ws_col));
    if columns == 0 { 80 } else { columns }
}

/// Takes the terminal for a question.
async fn hold() -> Option<AsyncFd<File>> {
    let terminal = open()?;
    #[allow(deprecated, reason = "its replacement is unsafe; a File owns its descriptor and never gives another")]
    let terminal = AsyncFd::new(terminal).ok()?;
    // Of two programs that ask at once, the second waits. The lock is the open file's: it goes with this process.
    loop {
        match rustix::fs::flock(terminal.get_ref(), FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(Errno::WOULDBLOCK) => tokio::time::sleep(AGAIN).await,
            Err(_) => return None,
        }
    }
    Some(terminal)
}

/// The terminal, if this process may ask there now. It is opened by the name that it has, so that all who do so share a lock:
/// `/dev/tty` is one file for all terminals.
fn open() -> Option<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let options = || File::options().read(true).write(true).custom_flags(flags).clone();
    let controlling = options().open("/dev/tty").ok()?;
    // In the background it would be stopped, or speak in between.
    if tcgetpgrp(&controlling).ok()? != rustix::process::getpgrp() {
        return None;
    }
    let name = rustix::termios::ttyname(&controlling, Vec::new()).ok()?;
    // A name that leads elsewhere by now would be another's terminal.
    let named = options().open(std::path::Path::new(std::str::from_utf8(name.as_bytes()).ok()?)).ok()?;
    let same = rustix::fs::fstat(&named).ok()?.st_rdev == rustix::fs::fstat(&controlling).ok()?.st_rdev;
    same.then_some(named)
}

/// One line, without its end; `None` at the end of the file.
async fn line(terminal: &AsyncFd<File>) -> Option<String> {
    let mut buffer = [0; LINE];
    loop {
        let mut ready = terminal.readable().await.ok()?;
        match rustix::io::read(terminal.get_ref(), &mut buffer) {
            Ok(0) => return None,
            Ok(got) => return Some(String::from_utf8_lossy(&buffer[..got]).into_owned()),
            Err(Errno::AGAIN | Errno::INTR) => ready.clear_ready(),
            Err(_) => return None,
        }
    }
}

/// Says so if the question goes without an answer: its time was up, or somebody else answered.
struct Withdrawn<'a> {
    terminal: &'a File,
    answered: bool,
}

impl Drop for Withdrawn<'_> {
    fn drop(&mut self) {
        if !self.answered {
            // A terminal that is gone needs no word.
            drop(self.terminal.write_all(b"\ncallgate: the question is withdrawn\n"));
        }
    }
}
