//! Header of an executable file, which says what else the kernel opens to run it: no more than execve(2) reads.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use crate::path::HostPath;

/// As much of a file as is looked at.
pub const HEADER_BYTES: usize = 4096;

/// As much of a `#!` line as the kernel reads (`BINPRM_BUF_SIZE`, binfmts.h).
const LINE_BYTES: usize = 256;

/// How an ELF file begins.
const MAGIC: &[u8] = b"\x7fELF";
/// Kinds of program headers (elf(5)).
const PT_DYNAMIC: u64 = 2;
const PT_INTERP: u64 = 3;
/// Most program headers that are looked at, and most bytes of a dynamic section: compilers make some fifteen, and 600.
const SEGMENTS: usize = 64;
const DYNAMIC_BYTES: usize = 16 * 1024;

/// Kinds of files for execve(2).
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
    if !bytes.starts_with(MAGIC) {
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

/// Program that `#!/usr/bin/env` starts, and the words that it puts before the script's name. One word, or with `-S`
/// several plain ones: quotes, variables and further options are not read, and then nothing is granted by them.
#[must_use]
pub fn started_by_env(argument: &[u8]) -> Option<(HostPath, Vec<&[u8]>)> {
    let mut words = match argument.strip_prefix(b"-S") {
        Some(rest) => rest.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty()).collect(),
        None => vec![argument],
    };
    let plain = |word: &&[u8]| !word.iter().any(|byte| b"\\'\"$#=".contains(byte));
    if words.is_empty() || words[0].is_empty() || words[0].starts_with(b"-") || !words.iter().all(plain) {
        return None;
    }
    let program = words.remove(0);
    Some((HostPath::from(PathBuf::from(OsStr::from_bytes(program))), words))
}

/// True if a file that lies in a granted directory is a program by itself, judged by its first bytes and what `read`
/// has of it at an offset, no longer than asked. Of ELF files these are: one with a fixed place (`ET_EXEC`), one with a
/// dynamic loader (`PT_INTERP`), and a static one without a fixed place (`DF_1_PIE`). What remains are libraries and
/// dynamic loaders, which the kernel would start, to run the file that their arguments name (C8). Of what is no ELF
/// file the kernel starts nothing but the interpreter of a script.
pub fn is_program(bytes: &[u8], read: impl Fn(u64, usize) -> Option<Vec<u8>>) -> bool {
    !bytes.starts_with(MAGIC) || is_elf_program(bytes, read).unwrap_or(false)
}

/// `None` of what does not make sense.
fn is_elf_program(bytes: &[u8], read: impl Fn(u64, usize) -> Option<Vec<u8>>) -> Option<bool> {
    // elf(5): e_type, d_tag, d_val
    const ET_EXEC: u64 = 2;
    const ET_DYN: u64 = 3;
    const DT_NULL: u64 = 0;
    const DT_FLAGS_1: u64 = 0x6fff_fffb;
    const DF_1_PIE: u64 = 0x0800_0000;
    let file = Fields::of(bytes)?;
    match file.number(16, 2)? {
        ET_EXEC => return Some(true),
        ET_DYN => {}
        _ => return Some(false),
    }
    // Tools that change programs move the table to their end.
    let table = file.segments()?;
    let headers = read(table.offset, table.size * table.count)?;
    let headers = Fields { bytes: &headers, ..file };
    let table = Segments { offset: 0, ..table };
    if headers.find(&table, PT_INTERP).is_some() {
        return Some(true);
    }
    let (offset, length) = headers.extent(headers.find(&table, PT_DYNAMIC)?)?;
    let entries = read(offset, usize::try_from(length).ok()?.min(DYNAMIC_BYTES))?;
    let entries = Fields { bytes: &entries, ..file };
    let width = if file.wide { 8 } else { 4 };
    let entry = |index: usize| {
        Some((entries.number(2 * index * width, width)?, entries.number((2 * index + 1) * width, width)?))
    };
    let mut entries = (0..).map_while(entry).take_while(|(tag, _)| *tag != DT_NULL);
    Some(entries.any(|(tag, value)| tag == DT_FLAGS_1 && value & DF_1_PIE != 0))
}

/// The path in `PT_INTERP`, of a 64-bit or 32-bit file of either byte order, if program headers and path lie in what was read.
fn loader(bytes: &[u8]) -> Option<Vec<u8>> {
    let file = Fields::of(bytes)?;
    let (offset, length) = file.extent(file.find(&file.segments()?, PT_INTERP)?)?;
    let (offset, length) = (usize::try_from(offset).ok()?, usize::try_from(length).ok()?);
    let path = bytes.get(offset..offset.checked_add(length)?)?;
    let end = path.iter().position(|byte| *byte == 0)?;
    path.starts_with(b"/").then(|| path[..end].to_vec())
}

/// Bytes of an ELF file, whose numbers are read as its first bytes say (elf(5)).
#[derive(Clone, Copy)]
struct Fields<'a> {
    bytes: &'a [u8],
    /// Addresses have 64 bits.
    wide: bool,
    /// The highest byte comes first.
    big: bool,
}

/// Where the program headers are.
struct Segments {
    offset: u64,
    size: usize,
    count: usize,
}

impl<'a> Fields<'a> {
    /// From the beginning of the file.
    fn of(bytes: &'a [u8]) -> Option<Self> {
        Some(Self { bytes, wide: *bytes.get(4)? == 2, big: *bytes.get(5)? == 2 })
    }

    fn number(&self, at: usize, len: usize) -> Option<u64> {
        let field = self.bytes.get(at..at.checked_add(len)?)?;
        let add = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        Some(if self.big { field.iter().fold(0, add) } else { field.iter().rev().fold(0, add) })
    }

    fn small(&self, at: usize) -> Option<usize> {
        self.number(at, 2).and_then(|value| usize::try_from(value).ok())
    }

    /// `e_phoff`, `e_phentsize` and `e_phnum`.
    fn segments(&self) -> Option<Segments> {
        let (offset, size, count) = match self.wide {
            true => (self.number(32, 8)?, self.small(54)?, self.small(56)?),
            false => (self.number(28, 4)?, self.small(42)?, self.small(44)?),
        };
        // Another size is none that the kernel takes.
        (size == if self.wide { 56 } else { 32 }).then_some(Segments { offset, size, count: count.min(SEGMENTS) })
    }

    /// Where the first program header of a kind is.
    fn find(&self, Segments { offset, size, count }: &Segments, kind: u64) -> Option<usize> {
        let table = usize::try_from(*offset).ok()?;
        (0..*count).map(|index| table.saturating_add(index * size)).find(|at| self.number(*at, 4) == Some(kind))
    }

    /// `p_offset` and `p_filesz` of a program header.
    fn extent(&self, at: usize) -> Option<(u64, u64)> {
        match self.wide {
            true => Some((self.number(at.checked_add(8)?, 8)?, self.number(at.checked_add(32)?, 8)?)),
            false => Some((self.number(at.checked_add(4)?, 4)?, self.number(at.checked_add(16)?, 4)?)),
        }
    }
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

    /// A shared object (`ET_DYN`) or another type, with program headers of these kinds and this `DT_FLAGS_1`, if any.
    fn linked(wide: bool, big: bool, kind: u64, segments: &[u64], flags: Option<u64>) -> Vec<u8> {
        let (header, entry, width) = if wide { (64, 56, 8) } else { (52, 32, 4) };
        let table = header + 7;
        let dynamic = table + entry * segments.len();
        let mut bytes = vec![0; dynamic];
        let write = |bytes: &mut [u8], at: usize, len: usize, value: u64| {
            let little = value.to_le_bytes();
            let number = little[..len].iter().copied();
            let number: Vec<u8> = if big { number.rev().collect() } else { number.collect() };
            bytes[at..at + len].copy_from_slice(&number);
        };
        bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', if wide { 2 } else { 1 }, if big { 2 } else { 1 }]);
        write(&mut bytes, 16, 2, kind);
        let (offset, size, count) = if wide { (32, 54, 56) } else { (28, 42, 44) };
        write(&mut bytes, offset, width, table as u64);
        write(&mut bytes, size, 2, entry as u64);
        write(&mut bytes, count, 2, segments.len() as u64);
        for (index, segment) in segments.iter().enumerate() {
            let at = table + index * entry;
            write(&mut bytes, at, 4, *segment);
            write(&mut bytes, at + width, width, dynamic as u64);
            write(&mut bytes, at + 4 * width, width, 6 * width as u64);
        }
        let tags = [(5, 0x0800_0000), flags.map_or((6, 0), |flags| (DT_FLAGS_1, flags)), (0, 0), (DT_FLAGS_1, !0)];
        for (tag, value) in tags {
            let at = bytes.len();
            bytes.resize(at + 2 * width, 0);
            write(&mut bytes, at, width, tag & (!0 >> (64 - 8 * width)));
            write(&mut bytes, at + width, width, value & (!0 >> (64 - 8 * width)));
        }
        bytes
    }

    const DT_FLAGS_1: u64 = 0x6fff_fffb;

    /// As `is_program` is asked of a file that holds this.
    fn starts(bytes: &[u8]) -> bool {
        is_program(&bytes[..bytes.len().min(HEADER_BYTES)], |offset, most| {
            let from = bytes.get(usize::try_from(offset).ok()?..)?;
            Some(from[..from.len().min(most)].to_vec())
        })
    }

    /// C8: what is a program by itself, and what starts others.
    #[test]
    fn c8_a_loader_is_no_program() {
        for (wide, big) in [(true, false), (true, true), (false, false), (false, true)] {
            let file = |kind, segments: &[u64], flags| linked(wide, big, kind, segments, flags);
            assert!(starts(&file(2, &[1], None)), "a fixed place");
            assert!(starts(&file(3, &[1, 2, 3], None)) && starts(&file(3, &[6, 3], None)), "a loader of its own");
            assert!(starts(&file(3, &[1, 2], Some(0x0800_0001))), "static, without a fixed place");
            for (what, bytes) in [
                ("a loader, a library", file(3, &[1, 2], Some(0x1))),
                ("without flags, and more behind the end", file(3, &[1, 2], None)),
                ("not linked dynamically", file(3, &[1], Some(0x0800_0000))),
                ("no segments", file(3, &[], Some(0x0800_0000))),
                ("relocatable", file(1, &[1, 2, 3], None)),
                ("a core dump", file(4, &[1, 2, 3], None)),
                ("another kind", file(0xfe00, &[1, 2, 3], None)),
            ] {
                assert!(!starts(&bytes), "{what}");
            }
            // Wherever it is cut.
            let whole = file(3, &[1, 2], Some(0x0800_0000));
            let width = if wide { 8 } else { 4 };
            for length in 4..whole.len() - 4 * width {
                assert!(!starts(&whole[..length]), "{length}");
            }
        }
        assert!(!starts(b"\x7fELF"));
        assert!(starts(b"#!/bin/sh\n") && starts(b"text") && starts(b""), "the kernel starts none of these");
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
            let _is_program = starts(&bytes);
        }
    }

    #[test]
    fn what_env_starts() {
        let of = |text: &'static str| {
            started_by_env(text.as_bytes()).map(|(program, words)| (program.to_string(), words.len()))
        };
        assert_eq!(of("python3"), Some(("python3".to_owned(), 0)));
        assert_eq!(of("-S python3 -u -B"), Some(("python3".to_owned(), 2)));
        assert_eq!(of("-Spython3"), Some(("python3".to_owned(), 0)));
        for text in ["", "-S", "-i", "-S -i python3", "A=b", "-S A=b python3", "-S 'python3'", "-S $x"] {
            assert_eq!(of(text), None, "{text:?}");
        }
        // One argument, as the kernel passes it: a program by that name.
        assert_eq!(of("python3 -u"), Some(("python3 -u".to_owned(), 0)));
    }
}
