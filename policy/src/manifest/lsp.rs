//! `[lsp.NAME]`: language servers, which the tool `lsp` asks (S0-25).

use std::path::Path;

use crate::pattern::Glob;

/// A server that a manifest names. It is no grant: the program must be granted like any other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LanguageServer {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The files that it is asked about, as patterns of their names.
    pub files: Vec<String>,
    /// Name of their language in the protocol; without it, the server's name here.
    pub language: Option<String>,
}

impl LanguageServer {
    /// True if it is asked about a file.
    #[must_use]
    pub fn serves(&self, file: &Path) -> bool {
        let Some(name) = file.file_name() else { return false };
        self.files.iter().any(|pattern| Glob::parse(pattern).is_ok_and(|glob| glob.matches(Path::new(name))))
    }

    /// Check of a pattern of names; an error says what is wrong.
    pub(super) fn check(pattern: &str) -> Result<(), String> {
        if pattern.is_empty() || pattern.contains('/') {
            return Err("a pattern of file names is neither empty nor has a `/`".to_owned());
        }
        Glob::parse(pattern).map(drop).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_asked_about_names() {
        let files = vec!["*.py".to_owned(), "SConstruct".to_owned()];
        let server = LanguageServer { command: vec!["pylsp".to_owned()], files, language: None };
        for (path, serves) in
            [("/w/a.py", true), ("/w/.py/a.rs", false), ("/w/SConstruct", true), ("/w/a.pyc", false), ("/", false)]
        {
            assert_eq!(server.serves(Path::new(path)), serves, "{path}");
        }
        assert!(LanguageServer::check("*.py").is_ok());
        assert!(LanguageServer::check("").is_err() && LanguageServer::check("src/*.py").is_err());
        assert!(LanguageServer::check("[a").is_err());
    }
}
