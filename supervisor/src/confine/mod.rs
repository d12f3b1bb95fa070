//! Sessions and the processes behind them.

pub(crate) mod cgroup;
mod channel;
mod launcher;
pub(crate) mod measured;
mod outputs;
mod private;
mod program;
mod session;
mod terminal;

pub(crate) use channel::AsyncChannel;
pub(crate) use launcher::wait_for_the_end;
pub use launcher::{LAUNCHER_NAME, Launcher, LauncherError};
pub(crate) use outputs::{Output, Outputs};
pub(crate) use private::private_directory;
pub use program::{Program, Stdio};
pub use session::ConfineError;
pub(crate) use session::{Opened, ToolError, ToolOutput, ToolRun};
pub(crate) use terminal::write_all;
pub use terminal::{Terminal, TerminalError, WindowSize};
