//! Which language a file is written in, as far as its name says.

use std::path::Path;

/// Language of a file whose name says nothing.
const OTHER: &str = "other";

/// Names of whole files, in lower case.
const NAMES: &[(&str, &[&str])] = &[
    ("CMake", &["cmakelists.txt"]),
    ("Docker", &["dockerfile", "containerfile"]),
    ("Go module", &["go.mod", "go.sum"]),
    ("Just", &["justfile"]),
    ("Make", &["makefile", "gnumakefile"]),
    ("Meson", &["meson.build"]),
    ("Ruby", &["gemfile", "rakefile"]),
    ("Starlark", &["build", "workspace", "build.bazel"]),
    (
        "lock file",
        &["cargo.lock", "package-lock.json", "yarn.lock", "pnpm-lock.yaml", "poetry.lock", "uv.lock", "gemfile.lock"],
    ),
    ("text", &["license", "copying", "authors", "notice", "readme", "changelog"]),
];

/// Extensions, in lower case.
const EXTENSIONS: &[(&str, &[&str])] = &[
    ("Assembly", &["asm", "s"]),
    ("Astro", &["astro"]),
    ("C", &["c"]),
    ("C header", &["h"]),
    ("C#", &["cs", "csx"]),
    ("C++", &["cc", "cpp", "cxx", "c++", "ipp"]),
    ("C++ header", &["hh", "hpp", "hxx"]),
    ("CMake", &["cmake"]),
    ("CSS", &["css"]),
    ("CSV", &["csv", "tsv"]),
    ("CUDA", &["cu", "cuh"]),
    ("Clojure", &["clj", "cljc", "cljs", "edn"]),
    ("Crystal", &["cr"]),
    ("D", &["d"]),
    ("Dart", &["dart"]),
    ("Elixir", &["ex", "exs"]),
    ("Elm", &["elm"]),
    ("Erlang", &["erl", "hrl"]),
    ("F#", &["fs", "fsi", "fsx"]),
    ("Fortran", &["f", "f90", "f95", "f03"]),
    ("GLSL", &["glsl", "vert", "frag"]),
    ("Go", &["go"]),
    ("GraphQL", &["graphql", "gql"]),
    ("Groovy", &["groovy", "gradle"]),
    ("HCL", &["tf", "tfvars", "hcl"]),
    ("HTML", &["html", "htm", "xhtml"]),
    ("Haskell", &["hs", "lhs"]),
    ("INI", &["ini", "cfg", "conf", "properties"]),
    ("JSON", &["json", "jsonc", "json5", "jsonl", "ipynb"]),
    ("Java", &["java"]),
    ("JavaScript", &["js", "mjs", "cjs", "jsx"]),
    ("Julia", &["jl"]),
    ("Kotlin", &["kt", "kts"]),
    ("Less", &["less"]),
    ("Lisp", &["lisp", "el", "cl"]),
    ("Lua", &["lua"]),
    ("Make", &["mk"]),
    ("Markdown", &["md", "markdown", "mdx"]),
    ("Nim", &["nim"]),
    ("Nix", &["nix"]),
    ("OCaml", &["ml", "mli"]),
    ("Objective-C", &["m", "mm"]),
    ("PHP", &["php"]),
    ("Perl", &["pl", "pm", "t"]),
    ("PowerShell", &["ps1", "psm1"]),
    ("Protocol Buffers", &["proto"]),
    ("Python", &["py", "pyi", "pyx"]),
    ("R", &["r", "rmd"]),
    ("Ruby", &["rb", "rake", "gemspec", "erb"]),
    ("Rust", &["rs"]),
    ("SQL", &["sql"]),
    ("SVG", &["svg"]),
    ("Sass", &["sass", "scss"]),
    ("Scala", &["scala", "sc", "sbt"]),
    ("Scheme", &["scm", "ss", "rkt"]),
    ("Shell", &["sh", "bash", "zsh", "fish", "ksh"]),
    ("Solidity", &["sol"]),
    ("Starlark", &["bzl", "star"]),
    ("Svelte", &["svelte"]),
    ("Swift", &["swift"]),
    ("TOML", &["toml"]),
    ("TeX", &["tex", "sty", "bib"]),
    ("TypeScript", &["ts", "mts", "cts", "tsx"]),
    ("VHDL", &["vhd", "vhdl"]),
    ("Verilog", &["v", "sv", "svh"]),
    ("Vim script", &["vim"]),
    ("Vue", &["vue"]),
    ("WebAssembly text", &["wat"]),
    ("XML", &["xml", "xsd", "xsl", "plist", "csproj"]),
    ("YAML", &["yaml", "yml"]),
    ("Zig", &["zig"]),
    (
        "binary",
        &[
            "png", "jpg", "jpeg", "gif", "webp", "ico", "bmp", "pdf", "zip", "gz", "tgz", "xz", "bz2", "zst", "7z",
            "tar", "jar", "so", "a", "o", "dylib", "dll", "exe", "wasm", "ttf", "otf", "woff", "woff2", "mp3", "mp4",
            "webm", "ogg", "wav", "pyc", "class", "bin", "sqlite", "db", "parquet", "xlsx", "docx", "pptx",
        ],
    ),
    ("lock file", &["lock"]),
    ("reStructuredText", &["rst"]),
    ("text", &["txt", "text", "log"]),
];

/// The language of a file.
pub(super) fn of(path: &Path) -> &'static str {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let among = |table: &'static [(&'static str, &[&str])], word: &str| {
        table.iter().find(|(_, words)| words.contains(&word)).map(|(language, _)| *language)
    };
    among(NAMES, &name).or_else(|| among(EXTENSIONS, extension)).unwrap_or(OTHER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_extensions() {
        for (name, language) in [
            ("src/a.RS", "Rust"),
            ("Dockerfile", "Docker"),
            ("Cargo.lock", "lock file"),
            ("x", OTHER),
            ("rs", OTHER),
            (".rs", "Rust"),
        ] {
            assert_eq!(of(Path::new(name)), language, "{name}");
        }
        let mut all: Vec<&str> = EXTENSIONS.iter().chain(NAMES).flat_map(|(_, words)| *words).copied().collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "each once");
    }
}
