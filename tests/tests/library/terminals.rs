//! A host gives programs terminals: a pty for `spawn` (D6).

use callgate::{Program, ProgramEnd, Session, Terminal, WindowSize};

use super::in_sessions;

const SIZE: WindowSize = WindowSize { rows: 40, columns: 100 };

/// A shell command on a terminal of its own.
async fn on_terminal(session: &Session, command: &str) -> (Program, Terminal) {
    let (terminal, stdio) = session.terminal(SIZE).unwrap();
    let words = ["sh", "-c", command].map(std::ffi::OsString::from);
    (session.spawn(&words, stdio).await.unwrap(), terminal)
}

/// Text that is shown until it ends in `text`.
async fn shown_until(terminal: &Terminal, text: &str) -> String {
    let (mut shown, mut buffer) = (String::new(), [0; 4096]);
    while !shown.ends_with(text) {
        let got = terminal.read(&mut buffer).await.unwrap();
        assert_ne!(got, 0, "it ends before {text:?}: {shown:?}");
        shown.push_str(&String::from_utf8_lossy(&buffer[..got]));
    }
    shown
}

async fn end(program: &Program, terminal: &Terminal) -> (ProgramEnd, String) {
    let (mut shown, mut buffer) = (String::new(), [0; 4096]);
    let end = program.wait().await.unwrap();
    loop {
        match terminal.read(&mut buffer).await.unwrap() {
            0 => return (end, shown),
            got => shown.push_str(&String::from_utf8_lossy(&buffer[..got])),
        }
    }
}

#[test]
fn a_program_is_typed_to_resized_and_interrupted() {
    in_sessions(async |session, _| {
        let ask = "stty size; stty -echo; printf 'name? '; read name; echo hello $name; exec sleep 1000";
        let (program, terminal) = on_terminal(session, ask).await;
        assert_eq!(shown_until(&terminal, "name? ").await, "40 100\r\nname? ");
        terminal.write(b"you\r").await.unwrap();
        assert_eq!(shown_until(&terminal, "\n").await, "hello you\r\n");
        terminal.write(b"\x03").await.unwrap();
        let (ended, _) = end(&program, &terminal).await;
        assert_eq!((ended.code, ended.signal), (None, Some(2)));

        let follow = "trap 'stty size; exit 3' WINCH; echo ready; while :; do sleep 0.01; done";
        let (program, terminal) = on_terminal(session, follow).await;
        shown_until(&terminal, "ready\r\n").await;
        terminal.resize(WindowSize { rows: 10, columns: 20 }).unwrap();
        let (ended, shown) = end(&program, &terminal).await;
        assert_eq!((ended.code, shown.as_str()), (Some(3), "10 20\r\n"));
    });
}

/// A host that lets go of a terminal hangs it up, as a modem would.
#[test]
fn a_terminal_that_is_dropped_is_hung_up() {
    in_sessions(async |session, _| {
        let (program, terminal) = on_terminal(session, "echo ready; exec sleep 1000").await;
        shown_until(&terminal, "ready\r\n").await;
        drop(terminal);
        assert_eq!(program.wait().await.unwrap().signal, Some(1));
    });
}

/// D6: calls of one session cannot open each other's terminals, by name or by /dev/tty; each has its own.
#[test]
fn d6_a_call_reaches_no_terminal_of_its_siblings() {
    in_sessions(async |session, _| {
        let (first, mine) = on_terminal(session, "tty; read line; echo got $line").await;
        let name = shown_until(&mine, "\n").await.trim().to_owned();
        assert!(name.starts_with("/dev/pts/"), "{name}");
        let attack = format!("stat -c %F {name}; (: > {name}); (: < {name}); (: > /dev/tty) && echo its own");
        let (second, other) = on_terminal(session, &attack).await;
        let (_, shown) = end(&second, &other).await;
        let lines: Vec<&str> = shown.lines().collect();
        let refused = |how: &str| format!("sh: 1: cannot {how} {name}: Permission denied");
        let wanted = ["character special file", &refused("create"), &refused("open"), "its own"];
        assert_eq!(lines, wanted, "the first is the control: it is there");
        // Nothing of it arrived.
        mine.write(b"typed\r").await.unwrap();
        let (ended, shown) = end(&first, &mine).await;
        assert_eq!((ended.code, shown.as_str()), (Some(0), "typed\r\ngot typed\r\n"));
    });
}
