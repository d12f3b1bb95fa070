//! What the first bytes of an executable file say of what else the kernel opens to run it: no more than execve(2) reads.

/// As much of a file as is looked at.
pub const HEADER_BYTES: usize = 4096;

/// As much of a `#!` line as the kernel reads (`BINPRM_BUF_SIZE`, binfmts.h).
const LINE_BYTES: usize = 256;

/// What a file is to execve(2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Header {
    /// A script: its interpreter, and all that follows on the line as one argument.
    Script {
        /// As the line has it.
        interpreter: Vec<u8>,
        /// `None` if the line has none.
        argument: Option<Vec<u8>>,
    },
    /// A program with a dynamic loader (`PT_INTERP`).
    Dynamic {
        /// Where the loader is.
        loader: Vec<u8>,
    },
    /// Another program: static, or one that the kernel will refuse.
    Image,
    /// None that the kernel runs: a shell may.
    Text,
}

/// Reads the first bytes of a file, [`HEADER_BYTES`] of them or all that there are. What does not make sense is told as what
/// grants the least: no interpreter, no loader.
#[must_use]
pub fn read_header(bytes: &[u8]) -> Header {
    if let Some(line) = bytes.strip_prefix(b"#!") {
        return script(&line[..line.len().min(LINE_BYTES - 2)]);
    }
    if !bytes.starts_with(b"\x7fELF") {
        return Header::Text;
    }
    match loader(bytes) {
        Some(loader) => Header::Dynamic { loader },
        None => Header::Image,
    }
}

/// binfmt_script(fs/binfmt_script.c): blanks are skipped, the line ends at a newline or a NUL, and trailing blanks are cut. A
/// line that is longer than what is read is not a script's.
fn script(line: &[u8]) -> Header {
    let Some(end) = line.iter().position(|byte| matches!(byte, b'\n' | 0)) else { return Header::Text };
    let trim = |mut text: &'_ [u8]| -> Vec<u8> {
        while text.first().is_some_and(is_blank) {
            text = &text[1..];
        }
        while text.last().is_some_and(is_blank) {
            text = &text[..text.len() - 1];
        }
        text.to_vec()
    };
    let line = trim(&line[..end]);
    if line.is_empty() {
        return Header::Text;
    }
    let at = line.iter().position(is_blank).unwrap_or(line.len());
    let argument = trim(&line[at..]);
    Header::Script { interpreter: line[..at].to_vec(), argument: (!argument.is_empty()).then_some(argument) }
}

fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// The path in `PT_INTERP`, of a 64-bit or 32-bit file of either byte order, if program headers and path lie in what was read.
fn loader(bytes: &[u8]) -> Option<Vec<u8>> {
    const PT_INTERP: u64 = 3;
    let wide = *bytes.get(4)? == 2;
    let big = *bytes.get(5)? == 2;
    let number = |at: usize, len: usize| -> Option<u64> {
        let field = bytes.get(at..at.checked_add(len)?)?;
        let add = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        Some(if big { field.iter().fold(0, add) } else { field.iter().rev().fold(0, add) })
    };
    let small = |at, len| number(at, len).and_then(|value| usize::try_from(value).ok());
    // elf(5): e_phoff, e_phentsize, e_phnum; and of a program header p_offset and p_filesz.
    let (table, size, count) = if wide {
        (small(32, 8)?, small(54, 2)?, small(56, 2)?)
    } else {
        (small(28, 4)?, small(42, 2)?, small(44, 2)?)
    };
    let header = (0..count.min(64)).map(|index| table.saturating_add(index * size));
    let at = header.into_iter().find(|at| number(*at, 4) == Some(PT_INTERP))?;
    let (offset, length) =
        if wide { (small(at + 8, 8)?, small(at + 32, 8)?) } else { (small(at + 4, 4)?, small(at + 16, 4)?) };
    let path = bytes.get(offset..offset.checked_add(length)?)?;
    let end = path.iter().position(|byte| *byte == 0)?;
    path.starts_with(b"/").then(|| path[..end].to_vec())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use proptest::prelude::*;

    use super::*;

    fn line(text: &str) -> Header {
        read_header(text.as_bytes())
    }

    fn script(interpreter: &str, argument: Option<&str>) -> Header {
        Header::Script { interpreter: interpreter.into(), argument: argument.map(Into::into) }
    }

    #[test]
    fn a_line_is_read_as_the_kernel_reads_it() {
        assert_eq!(line("#!/bin/sh\nrest"), script("/bin/sh", None));
        assert_eq!(line("#! /bin/sh -eu \t\n"), script("/bin/sh", Some("-eu")));
        assert_eq!(line("#!/usr/bin/env python3 -u\n"), script("/usr/bin/env", Some("python3 -u")));
        assert_eq!(line("#!/bin/sh\r\n"), script("/bin/sh\r", None), "C19: a carriage return is part of the name");
        assert_eq!(line("#!bin/sh\n"), script("bin/sh", None));
        for text in ["", "#", "#!", "#!\n", "#!  \n", "#!/bin/sh", "echo", &format!("#!/{}\n", "x".repeat(300))] {
            assert_eq!(line(text), Header::Text, "{text:?}");
        }
    }

    /// A file with one program header, `PT_INTERP`.
    fn elf(wide: bool, path: &[u8]) -> Vec<u8> {
        let (header, entry) = if wide { (64, 56) } else { (52, 32) };
        let mut bytes = vec![0; header + entry];
        bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', if wide { 2 } else { 1 }, 1]);
        let (table, size, count, offset, length) =
            if wide { (32, 54, 56, header + 8, header + 32) } else { (28, 42, 44, header + 4, header + 16) };
        bytes[table] = header as u8;
        bytes[size] = entry as u8;
        bytes[count] = 1;
        bytes[header] = 3;
        bytes[offset] = (header + entry) as u8;
        bytes[length] = path.len() as u8;
        bytes.extend(path);
        bytes
    }

    #[test]
    fn a_loader_is_found() {
        for wide in [true, false] {
            let found = Header::Dynamic { loader: b"/lib/ld.so".to_vec() };
            assert_eq!(read_header(&elf(wide, b"/lib/ld.so\0")), found);
            assert_eq!(read_header(&elf(wide, b"lib/ld.so\0")), Header::Image);
            assert_eq!(read_header(&elf(wide, b"/lib/ld.so")), Header::Image, "without an end");
            let whole = elf(wide, b"/lib/ld.so\0");
            assert_eq!(read_header(&whole[..whole.len() - 1]), Header::Image, "cut");
        }
        assert_eq!(read_header(b"\x7fELF"), Header::Image);
    }

    proptest! {
        /// Hostile files cost nothing but a wrong answer.
        #[test]
        fn nothing_stops_it(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), kind in 0..3) {
            match kind {
                0 => drop(bytes.splice(..0, *b"#!")),
                1 => drop(bytes.splice(..0, *b"\x7fELF\x02\x01")),
                _ => {}
            }
            drop(read_header(&bytes));
        }
    }
}
