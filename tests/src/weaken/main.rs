//! Runs a command on a host that is weaker than this one: without namespaces, under Docker's profile, with an older
//! Landlock, with one system call that fails.
//!
//! The suite must show that callgate holds, or refuses, on hosts that it does not run on. A weakness is imitated from
//! outside by seccomp filters (and a tracer, for older Landlocks), so that callgate cannot tell the difference. It is
//! no sandbox: what it imitates is denied by accident of the host, not against an attacker.

mod bpf;
mod docker;
mod modes;
mod sys;
mod tracer;

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use modes::Weakness;

const USAGE: &str = "\
usage: weaken MODE… -- COMMAND…

  no-userns        no namespace can be made or joined
  docker           Docker's default seccomp profile; for root, its capabilities
  no-landlock      no Landlock
  yama             no ptrace attach, no process_vm_readv (opening /proc/PID/mem stays possible)
  abi N            Landlock of ABI N, by a tracer
  fail SYSCALL ERRNO [ARGn=VALUE | ARGn&MASK=VALUE]…
                   this call fails, perhaps only with these arguments
  uid N            as this user and group, without supplementary groups
  enter PID        in the network and mount namespaces of that process

The command's own exit status, or 75 if it was not started.";

/// The host could not be weakened, so nothing was run: a test must fail for it, not pass.
const NOT_STARTED: u8 = 75;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (modes, command) = match parse(&words) {
        Ok(parsed) => parsed,
        Err(why) => {
            eprintln!("weaken: {why}\n\n{USAGE}");
            return ExitCode::from(NOT_STARTED);
        }
    };
    match weaken(&modes) {
        Ok(()) => {
            let (program, args) = command;
            let error = Command::new(program).args(args).exec();
            eprintln!("weaken: {program}: {error}");
        }
        Err((step, error)) => eprintln!("weaken: {step}: {error}"),
    }
    ExitCode::from(NOT_STARTED)
}

type Parsed<'a> = (Vec<Weakness>, (&'a String, &'a [String]));

fn parse(words: &[String]) -> Result<Parsed<'_>, String> {
    let split = words.iter().position(|word| word == "--").ok_or("no --")?;
    let (mut left, command) = words.split_at(split);
    let command = command.get(1..).and_then(<[String]>::split_first).ok_or("no command")?;
    let mut modes = Vec::new();
    while !left.is_empty() {
        let (mode, rest) = Weakness::parse(left)?;
        modes.push(mode);
        left = rest;
    }
    if modes.is_empty() {
        return Err("no mode".to_owned());
    }
    Ok((modes, command))
}

/// Weakens this process, in an order that leaves each step the privilege it needs.
fn weaken(modes: &[Weakness]) -> Result<(), (&'static str, io::Error)> {
    // Before filters, which may forbid it, and with root's capabilities.
    for mode in modes {
        if let Weakness::Enter(pid) = mode {
            sys::enter(*pid).map_err(|error| ("enter", error))?;
        }
    }
    // The tracer must be there before a filter asks for it, and must not be weakened itself.
    for mode in modes {
        if let Weakness::Abi(version @ 1..) = mode {
            tracer::stay_behind(*version).map_err(|error| ("trace", error))?;
        }
    }
    // Filters before capabilities and users: with CAP_SYS_ADMIN they need no no_new_privs, which would change what is
    // imitated. The calls that follow pass every mode but a `fail` that names them, and that one then says so.
    for mode in modes {
        if let Some((rules, otherwise)) = mode.filter() {
            sys::install(&bpf::compile(&rules, otherwise)).map_err(|error| ("seccomp", error))?;
        }
    }
    if modes.contains(&Weakness::Docker) && sys::user() == 0 {
        sys::keep_capabilities(docker::CAPABILITIES).map_err(|error| ("capabilities", error))?;
    }
    for mode in modes {
        if let Weakness::Uid(uid) = mode {
            sys::become_user(*uid).map_err(|error| ("setuid", error))?;
        }
    }
    Ok(())
}
