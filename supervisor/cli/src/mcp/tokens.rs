//! The file with the tokens that clients show. It is this user's alone, and no session reaches it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use callgate::{Session, Store};
use callgate_mcp::Token;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::exit::CommandFailure;

/// Most bytes of a file of tokens, and most tokens in it.
const BYTES_MAX: u64 = 64 << 10;
const TOKENS_MAX: usize = 64;

pub(super) struct Tokens {
    /// Where they are.
    pub(super) file: PathBuf,
    tokens: Vec<Token>,
    /// True if they are of no use when the server has ended.
    is_ours: bool,
}

impl Tokens {
    /// Takes them from a file that was typed, with one token in each line, which is made with one if it is not there; otherwise makes
    /// one, in a file that is named after the server.
    pub(super) fn ready(
        typed: Option<&Path>,
        address: SocketAddr,
        store: &Store,
        session: &Session,
    ) -> Result<Self, CommandFailure> {
        let (file, is_ours) = match typed {
            Some(file) => {
                (std::path::absolute(file).map_err(CommandFailure::named(format!("find {}", file.display())))?, false)
            }
            None => {
                let name = format!("mcp-{}-{}.token", address.ip(), address.port());
                let file = store.path().with_file_name(name);
                // Of a server that was killed: another one that runs listens where this one does.
                match std::fs::remove_file(&file) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(CommandFailure::named(format!("replace {}", file.display()))(error));
                    }
                    Ok(()) | Err(_) => {}
                }
                (file, true)
            }
        };
        let (opened, is_new) = open(&file).map_err(|errno| {
            let what = format!("use {} for tokens", file.display());
            CommandFailure::named(what)(errno.into())
        })?;
        let mut tokens = Self { file, tokens: Vec::new(), is_ours };
        let taken = refuse_reach(&tokens.file, session).and_then(|()| match is_new {
            true => make(opened, &tokens.file),
            false => take(opened, &tokens.file),
        });
        match taken {
            Ok(taken) => tokens.tokens = taken,
            Err(failure) => {
                tokens.is_ours |= is_new;
                return Err(failure);
            }
        }
        Ok(tokens)
    }

    pub(super) fn all(&self) -> Vec<Token> {
        self.tokens.clone()
    }
}

impl Drop for Tokens {
    fn drop(&mut self) {
        if self.is_ours {
            // What is left is of no use to anybody.
            drop(std::fs::remove_file(&self.file));
        }
    }
}

/// The file, and whether it is new.
fn open(file: &Path) -> Result<(File, bool), Errno> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match rustix::fs::openat(CWD, file, flags | OFlags::RDONLY, Mode::empty()) {
        Err(Errno::NOENT) => {
            let new = flags | OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
            Ok((rustix::fs::openat(CWD, file, new, Mode::RUSR | Mode::WUSR)?.into(), true))
        }
        opened => Ok((opened?.into(), false)),
    }
}

/// A call that could read a token would be a client itself, of a server with more rights than it has, or with another person to ask.
fn refuse_reach(file: &Path, session: &Session) -> Result<(), CommandFailure> {
    match session.reaches(file)? {
        None => Ok(()),
        Some(granted) => Err(CommandFailure::Usage(format!(
            "--token-file {}: {} is granted to sessions, which could take the token from there",
            file.display(),
            granted.display()
        ))),
    }
}

fn make(mut opened: File, file: &Path) -> Result<Vec<Token>, CommandFailure> {
    let token = Token::make().map_err(|error| CommandFailure::runtime(std::io::Error::other(error)))?;
    writeln!(opened, "{}", token.text()).map_err(CommandFailure::named(format!("write {}", file.display())))?;
    Ok(vec![token])
}

fn take(opened: File, file: &Path) -> Result<Vec<Token>, CommandFailure> {
    let unfit = |why: &str| CommandFailure::Data(format!("{}: {why}", file.display()));
    let failed = || CommandFailure::named(format!("read {}", file.display()));
    let about = opened.metadata().map_err(failed())?;
    if !about.is_file() || about.nlink() != 1 {
        return Err(unfit("it is no regular file with one name"));
    }
    if about.uid() != rustix::process::geteuid().as_raw() || about.mode() & 0o077 != 0 {
        return Err(unfit("others may read it, or it is another user's: chmod 600"));
    }
    let mut text = String::new();
    opened.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(failed())?;
    if text.len() as u64 > BYTES_MAX {
        return Err(unfit("it is too large for a file of tokens"));
    }
    let mut tokens: Vec<Token> = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let token = Token::parse(line).map_err(|error| unfit(&error.to_string()))?;
        if tokens.contains(&token) {
            return Err(unfit("a token is there twice"));
        }
        tokens.push(token);
    }
    match tokens.len() {
        0 => Err(unfit("there is no token in it")),
        1..=TOKENS_MAX => Ok(tokens),
        _ => Err(unfit("it has more than 64 tokens")),
    }
}
