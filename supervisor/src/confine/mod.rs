//! Sessions and the processes behind them.

mod channel;
mod launcher;
mod private;
mod program;
mod session;

pub use launcher::{LAUNCHER_NAME, Launcher, LauncherError};
pub(crate) use private::Private;
pub use program::{Program, Stdio};
pub use session::ConfineError;
pub(crate) use session::{Opened, ToolError, ToolOutput, ToolRun};
