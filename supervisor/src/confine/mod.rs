//! Sessions and the processes behind them.

mod broker;
pub(crate) mod cgroup;
mod channel;
mod endpoint;
mod error;
mod launcher;
mod logged;
mod outputs;
mod private;
mod program;
mod session;
mod stdio;
mod terminal;
mod worker;
mod workers;

pub(crate) use channel::AsyncChannel;
pub(crate) use endpoint::{Endpoint, EndpointOfBroker};
pub use error::ConfineError;
pub use launcher::{LAUNCHER_NAME, Launcher, LauncherError};
pub use outputs::OutputsError;
pub(crate) use outputs::{Output, Outputs};
pub(crate) use private::{PrivateError, private_directory};
pub use program::Program;
pub(crate) use session::Opened;
pub use stdio::{ProgramPipes, Stdio};
pub use terminal::{Terminal, TerminalError, WindowSize};
pub(crate) use worker::{ToolError, ToolOutput, ToolRun};
pub(crate) use workers::Aborter;
