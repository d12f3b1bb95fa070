//! Sessions and the processes behind them.

mod channel;
mod launcher;
mod private;
mod program;
mod session;

pub use launcher::{LAUNCHER_NAME, Launcher, LauncherError};
pub use program::{Program, Stdio};
pub(crate) use private::Private;
pub(crate) use session::{Opened, ToolRun};
pub use session::ConfineError;
