//! A callgate session as a server of the Model Context Protocol: what an agent host plugs in.
//!
//! Both eras of the protocol are spoken: those that begin with `initialize` (until 2025-11-25), and 2026-07-28, in which each
//! request stands for itself. Whom a call has to ask, it asks through the client: by an elicitation, or by a result that says what
//! input is required. A client that can do neither is nobody, and then no is the answer (S0-57).
//!
//! Agents that are programs are clients of their own sessions ([`Agents`]).

mod agent;
mod asking;
mod http;
mod listed;
mod remote;
mod result;
mod server;
mod servers;
mod shown;
mod taken_back;
mod values;
mod wire;
mod wrap;

pub use agent::Agents;
pub use asking::Client;
pub use http::{HttpError, HttpServer, Opened, Opening, Token, TokenError};
pub use remote::{Remote, RemoteError, RemoteSpec};
pub use server::{ServeError, serve};
pub use servers::Servers;
pub use wrap::wrap;
