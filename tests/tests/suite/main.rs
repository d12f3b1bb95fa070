//! The suite: one behaviour per module, every denial with its control.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test reports by panicking")]

// The programs that the others rely on.
mod probe;
mod task;
mod weaken;

// The command line.
mod cli;
// What calls are made with.
mod arguments;
// What comes of them.
mod databases;
mod hosted;
mod kept_output;
mod language_servers;
mod logs;
mod patch;
mod repositories;
mod services;
mod tool_requires;
mod web_fetch;
mod web_search;
// What must work.
mod compat;
mod terminals;
mod whole_session;

// Who may do what.
mod approvals;
mod profiles;
mod rules;
mod sub_policies;
mod trust;

// Attacks on callgate.
mod agent_endpoint;
mod attack;
mod background_kills;
mod bounded;
mod campaign;
mod ceiling;
mod chaos;
mod claims;
mod clean_up;
mod closed;
mod contract;
mod credentials;
mod debug;
mod declared;
mod documents;
mod envelope;
mod etc;
mod every_abi;
mod everyday_projects;
mod exec_gate;
mod exec_trees;
mod fd_env_leak;
mod fifos;
mod fs_outside;
mod git_anywhere;
mod git_everyday;
mod granted_host;
mod grants;
mod homes;
mod identity;
mod ipc;
mod kill_tree;
mod kin;
mod lacking;
mod led_astray;
mod limits;
mod linked_grants;
mod mcp;
mod mcp_clients;
mod mcp_conformance;
mod mcp_documented;
mod mcp_hostile;
mod mcp_http;
mod mcp_kills;
mod mcp_malformed;
mod mcp_servers;
mod mcp_volume;
mod metadata;
mod nested;
mod net_none;
mod network;
mod network_programs;
mod openings;
mod own_network;
mod own_proc;
mod planted;
mod planted_links;
mod policy_files;
mod processes;
mod protect;
mod refusals;
mod remembered;
mod sessions;
mod siblings;
mod single_files;
mod steps;
mod straddling;
mod syscalls;
mod undisturbed;
mod unix_sockets;
mod variables;
