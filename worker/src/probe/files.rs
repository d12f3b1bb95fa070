//! Acts on paths: contents, names and metadata (attacks A5, A6, A7, A12, A13 and the plain ones).

use std::ffi::CStr;

use serde_json::json;

use crate::probe::act::{ProbeAct, act};
use crate::probe::outcome::{ActArgs, ActFailure, ActOutcome};
use crate::sys::probe::{self as sys, bits, call, call_fd, fd, from, int, into, legacy, len, null, text};

pub(crate) const ACTS: &[ProbeAct] = &[
    act("read", "A2", "PATH", "open for reading and read", read),
    act("write", "A2", "PATH TEXT", "open for writing and write", write),
    act("create", "A1", "PATH [TEXT]", "create a new file", create),
    act("creat", "A5", "PATH", "creat(2), the call itself", creat),
    act("open-legacy", "A5", "PATH FLAGS", "open(2), the call itself", open_legacy),
    act("open-trunc", "A15", "PATH [FLAGS]", "openat with O_TRUNC", open_trunc),
    act("openat2", "A5", "PATH FLAGS", "openat2(2): flags behind a pointer", openat2),
    act("open-o-path-reopen", "A5", "PATH [FLAGS]", "O_PATH, then open /proc/self/fd/N", o_path_reopen),
    act("open-by-handle", "A5", "PATH", "name_to_handle_at, open_by_handle_at", by_handle),
    act("proc-root", "A7", "PATH", "read /proc/self/root/PATH", proc_root),
    act("truncate", "A15", "PATH", "truncate(2) to nothing", truncate),
    act("unlink", "A4", "PATH", "remove a name", unlink),
    act("rmdir", "A4", "PATH", "remove a directory", rmdir),
    act("mkdir", "A1", "PATH", "make a directory", mkdir),
    act("rename", "A4", "FROM TO", "rename", rename),
    act("rename-exchange", "A4", "A B", "renameat2 RENAME_EXCHANGE", rename_exchange),
    act("link", "A3", "FROM TO", "hard link", link),
    act("symlink", "A2", "TARGET PATH", "symbolic link", symlink),
    act("mknod", "A13", "PATH [c|b MAJOR MINOR]", "make a device node", mknod),
    act("chmod", "A12", "PATH MODE", "chmod(2)", chmod),
    act("fchmodat", "A12", "PATH MODE", "fchmodat(2)", fchmodat),
    act("fchmodat2", "A12", "PATH MODE", "fchmodat2(2), number 452", fchmodat2),
    act("fchmod", "A12", "PATH MODE", "fchmod on a read-only descriptor", fchmod),
    act("chown", "A12", "PATH", "chown to one's own ids", chown),
    act("lchown", "A12", "PATH", "lchown to one's own ids", lchown),
    act("fchownat", "A12", "PATH", "fchownat to one's own ids", fchownat),
    act("fchown", "A12", "PATH", "fchown on a read-only descriptor", fchown),
    act("utimens", "A12", "PATH", "set times to 1000 seconds", utimens),
    act("futimens", "A12", "PATH", "set times by a read-only descriptor", futimens),
    act("utime-legacy", "A12", "PATH", "utime(2), the call itself", utime_legacy),
    act("setxattr", "A12", "PATH", "set user.callgate", setxattr),
    act("lsetxattr", "A12", "PATH", "lsetxattr user.callgate", lsetxattr),
    act("fsetxattr", "A12", "PATH", "set it by a read-only descriptor", fsetxattr),
    act("setxattrat", "A12", "PATH", "setxattrat(2), number 463", setxattrat),
    act("removexattr", "A12", "PATH", "remove user.callgate", removexattr),
    act("fremovexattr", "A12", "PATH", "remove it by a read-only descriptor", fremovexattr),
    act("removexattrat", "A12", "PATH", "removexattrat(2), number 466", removexattrat),
    act("file-setattr", "A12", "PATH", "file_setattr(2), number 469: nodump", file_setattr),
    act("fs-ioctl", "A12", "PATH", "FS_IOC_SETFLAGS nodump, read-only descriptor", fs_ioctl),
    act("readdir", "A2", "PATH", "list a directory", readdir),
    act("stat", "A2", "PATH", "stat", stat),
    act("inotify", "A2", "PATH", "watch a path", inotify),
    act("flock", "A2", "PATH", "take an exclusive lock without waiting", flock),
    act("fifo-open", "A2", "PATH", "open a FIFO both ways, O_NONBLOCK", fifo_open),
];

fn nothing() -> ActOutcome {
    Ok(json!({}))
}

fn cwd<'a>() -> sys::Arg<'a> {
    int(libc::AT_FDCWD)
}

fn read_all(path: &CStr, at: &str) -> ActOutcome {
    let file = sys::open(at, path, libc::O_RDONLY)?;
    let mut data = vec![0_u8; 65536];
    let mut held = 0;
    while let Some(room) = data.get_mut(held..).filter(|room| !room.is_empty()) {
        let size = len(room);
        match usize::try_from(call("read", libc::SYS_read, &[fd(&file), into(room), size])?) {
            Ok(0) | Err(_) => break,
            Ok(more) => held += more,
        }
    }
    data.truncate(held);
    Ok(json!({ "data": String::from_utf8_lossy(&data) }))
}

/// Reads a file by descriptor 3-style open; the other families use it for what `/proc` shows.
pub(crate) fn read_path(path: &str) -> ActOutcome {
    read_all(&sys::c(path), "open")
}

fn read(args: &ActArgs<'_>) -> ActOutcome {
    read_all(&args.path(0)?, "open")
}

fn write_text(file: &impl std::os::fd::AsRawFd, words: &str) -> Result<(), ActFailure> {
    let bytes = words.as_bytes();
    call("write", libc::SYS_write, &[fd(file), from(bytes), len(bytes)]).map(|_written| ())
}

fn write(args: &ActArgs<'_>) -> ActOutcome {
    let file = sys::open("open", &args.path(0)?, libc::O_WRONLY)?;
    write_text(&file, args.word(1)?)?;
    nothing()
}

fn create(args: &ActArgs<'_>) -> ActOutcome {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
    let file = sys::open("open", &args.path(0)?, flags)?;
    write_text(&file, args.word_or(1, ""))?;
    nothing()
}

fn creat(args: &ActArgs<'_>) -> ActOutcome {
    call("creat", legacy::CREAT, &[text(&args.path(0)?), int(0o600)])?;
    nothing()
}

fn open_legacy(args: &ActArgs<'_>) -> ActOutcome {
    let flags = open_flags(args.word_or(1, "read"))?;
    call("open", legacy::OPEN, &[text(&args.path(0)?), bits(flags), int(0o600)])?;
    nothing()
}

fn utime_legacy(args: &ActArgs<'_>) -> ActOutcome {
    let times = [1000_i64, 1000];
    call("utime", legacy::UTIME, &[text(&args.path(0)?), from(&times)])?;
    nothing()
}

fn open_flags(word: &str) -> Result<u64, ActFailure> {
    let flags = match word {
        "read" => libc::O_RDONLY,
        "write" => libc::O_WRONLY,
        "trunc" => libc::O_WRONLY | libc::O_TRUNC,
        "read-trunc" => libc::O_RDONLY | libc::O_TRUNC,
        "create" => libc::O_WRONLY | libc::O_CREAT,
        "ioctl-trunc" => libc::O_ACCMODE | libc::O_TRUNC,
        "path" => libc::O_PATH,
        "tmpfile" => libc::O_WRONLY | libc::O_TMPFILE,
        _ => {
            return Err(ActFailure::unready(format!(
                "{word}: read, write, trunc, read-trunc, ioctl-trunc, create, path or tmpfile"
            )));
        }
    };
    Ok(u64::from((flags | libc::O_CLOEXEC).cast_unsigned()))
}

fn open_trunc(args: &ActArgs<'_>) -> ActOutcome {
    let flags = open_flags(args.word_or(1, "trunc"))?;
    call_fd("open", libc::SYS_openat, &[cwd(), text(&args.path(0)?), bits(flags)])?;
    nothing()
}

fn openat2(args: &ActArgs<'_>) -> ActOutcome {
    let flags = open_flags(args.word_or(1, "read"))?;
    let creates = flags & (libc::O_CREAT | libc::O_TMPFILE & !libc::O_DIRECTORY) as u64 != 0;
    let how = [flags, if creates { 0o600 } else { 0 }, 0_u64];
    call_fd("openat2", libc::SYS_openat2, &[cwd(), text(&args.path(0)?), from(&how), len(&how)])?;
    nothing()
}

fn o_path_reopen(args: &ActArgs<'_>) -> ActOutcome {
    let flags = open_flags(args.word_or(1, "read"))?;
    let handle = sys::open("open-o-path", &args.path(0)?, libc::O_PATH)?;
    let again = sys::c(&format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&handle)));
    call_fd("reopen", libc::SYS_openat, &[cwd(), text(&again), bits(flags)])?;
    nothing()
}

fn by_handle(args: &ActArgs<'_>) -> ActOutcome {
    // struct file_handle: u32 handle_bytes, i32 handle_type, then up to MAX_HANDLE_SZ (128) bytes.
    let mut handle = [0_u32; 34];
    handle[0] = 128;
    let mut mount = 0_i32;
    let path = args.path(0)?;
    call(
        "name_to_handle_at",
        libc::SYS_name_to_handle_at,
        &[cwd(), text(&path), into(&mut handle), into(&mut mount), int(0)],
    )?;
    let words = args.word(0)?;
    let parent = words.rsplit_once('/').map_or(".", |(parent, _)| if parent.is_empty() { "/" } else { parent });
    let flags = libc::O_RDONLY | libc::O_DIRECTORY;
    // Any descriptor on that mount serves; "/" is readable where the parent is not.
    let mount = sys::open("open-mount", &sys::c(parent), flags).or_else(|_| sys::open("open-mount", c"/", flags))?;
    call_fd("open_by_handle_at", libc::SYS_open_by_handle_at, &[fd(&mount), into(&mut handle), int(libc::O_RDONLY)])?;
    nothing()
}

fn proc_root(args: &ActArgs<'_>) -> ActOutcome {
    read_path(&format!("/proc/self/root/{}", args.word(0)?.trim_start_matches('/')))
}

fn truncate(args: &ActArgs<'_>) -> ActOutcome {
    call("truncate", libc::SYS_truncate, &[text(&args.path(0)?), int(0)])?;
    nothing()
}

fn unlink(args: &ActArgs<'_>) -> ActOutcome {
    call("unlinkat", libc::SYS_unlinkat, &[cwd(), text(&args.path(0)?), int(0)])?;
    nothing()
}

fn rmdir(args: &ActArgs<'_>) -> ActOutcome {
    call("rmdir", libc::SYS_unlinkat, &[cwd(), text(&args.path(0)?), int(libc::AT_REMOVEDIR)])?;
    nothing()
}

fn mkdir(args: &ActArgs<'_>) -> ActOutcome {
    call("mkdirat", libc::SYS_mkdirat, &[cwd(), text(&args.path(0)?), int(0o700)])?;
    nothing()
}

fn renameat2(args: &ActArgs<'_>, flags: u32) -> ActOutcome {
    let (old, new) = (args.path(0)?, args.path(1)?);
    call("renameat2", libc::SYS_renameat2, &[cwd(), text(&old), cwd(), text(&new), int(flags)])?;
    nothing()
}

fn rename(args: &ActArgs<'_>) -> ActOutcome {
    renameat2(args, 0)
}

fn rename_exchange(args: &ActArgs<'_>) -> ActOutcome {
    renameat2(args, libc::RENAME_EXCHANGE)
}

fn link(args: &ActArgs<'_>) -> ActOutcome {
    let (old, new) = (args.path(0)?, args.path(1)?);
    call("linkat", libc::SYS_linkat, &[cwd(), text(&old), cwd(), text(&new), int(0)])?;
    nothing()
}

fn symlink(args: &ActArgs<'_>) -> ActOutcome {
    call("symlinkat", libc::SYS_symlinkat, &[text(&args.path(0)?), cwd(), text(&args.path(1)?)])?;
    nothing()
}

fn mknod(args: &ActArgs<'_>) -> ActOutcome {
    let kind = match args.word_or(1, "c") {
        "c" => libc::S_IFCHR,
        "b" => libc::S_IFBLK,
        other => return Err(ActFailure::unready(format!("{other}: c or b"))),
    };
    let (major, minor) = (args.number_or(2, 1)?, args.number_or(3, 3)?);
    let device = major << 8 | minor;
    call("mknodat", libc::SYS_mknodat, &[cwd(), text(&args.path(0)?), int(kind | 0o600), int(device)])?;
    nothing()
}

fn mode<'a>(args: &ActArgs<'_>) -> Result<sys::Arg<'a>, ActFailure> {
    let word = args.word(1)?;
    i64::from_str_radix(word, 8).map(int).map_err(|_not_octal| ActFailure::unready(format!("{word} is no mode")))
}

fn chmod(args: &ActArgs<'_>) -> ActOutcome {
    call("chmod", legacy::CHMOD, &[text(&args.path(0)?), mode(args)?])?;
    nothing()
}

fn fchmodat(args: &ActArgs<'_>) -> ActOutcome {
    call("fchmodat", libc::SYS_fchmodat, &[cwd(), text(&args.path(0)?), mode(args)?])?;
    nothing()
}

fn fchmodat2(args: &ActArgs<'_>) -> ActOutcome {
    call("fchmodat2", 452, &[cwd(), text(&args.path(0)?), mode(args)?, int(0)])?;
    nothing()
}

fn readable(args: &ActArgs<'_>) -> Result<std::os::fd::OwnedFd, ActFailure> {
    sys::open("open", &args.path(0)?, libc::O_RDONLY)
}

fn fchmod(args: &ActArgs<'_>) -> ActOutcome {
    call("fchmod", libc::SYS_fchmod, &[fd(&readable(args)?), mode(args)?])?;
    nothing()
}

fn own_ids<'a>() -> Result<(sys::Arg<'a>, sys::Arg<'a>), ActFailure> {
    let uid = call("geteuid", libc::SYS_geteuid, &[])?;
    let gid = call("getegid", libc::SYS_getegid, &[])?;
    Ok((int(uid), int(gid)))
}

fn chown(args: &ActArgs<'_>) -> ActOutcome {
    let (uid, gid) = own_ids()?;
    call("chown", legacy::CHOWN, &[text(&args.path(0)?), uid, gid])?;
    nothing()
}

fn lchown(args: &ActArgs<'_>) -> ActOutcome {
    let (uid, gid) = own_ids()?;
    call("lchown", legacy::LCHOWN, &[text(&args.path(0)?), uid, gid])?;
    nothing()
}

fn fchownat(args: &ActArgs<'_>) -> ActOutcome {
    let (uid, gid) = own_ids()?;
    call("fchownat", libc::SYS_fchownat, &[cwd(), text(&args.path(0)?), uid, gid, int(0)])?;
    nothing()
}

fn fchown(args: &ActArgs<'_>) -> ActOutcome {
    let (uid, gid) = own_ids()?;
    call("fchown", libc::SYS_fchown, &[fd(&readable(args)?), uid, gid])?;
    nothing()
}

/// Access and modification time 1000 s after the epoch.
const LONG_AGO: [i64; 4] = [1000, 0, 1000, 0];

fn utimens(args: &ActArgs<'_>) -> ActOutcome {
    call("utimensat", libc::SYS_utimensat, &[cwd(), text(&args.path(0)?), from(&LONG_AGO), int(0)])?;
    nothing()
}

fn futimens(args: &ActArgs<'_>) -> ActOutcome {
    call("futimens", libc::SYS_utimensat, &[fd(&readable(args)?), null(), from(&LONG_AGO), int(0)])?;
    nothing()
}

const XATTR: &CStr = c"user.callgate";
const XATTR_VALUE: &[u8] = b"probe";

fn setxattr(args: &ActArgs<'_>) -> ActOutcome {
    let path = args.path(0)?;
    call("setxattr", libc::SYS_setxattr, &[text(&path), text(XATTR), from(XATTR_VALUE), len(XATTR_VALUE), int(0)])?;
    nothing()
}

fn lsetxattr(args: &ActArgs<'_>) -> ActOutcome {
    let path = args.path(0)?;
    call("lsetxattr", libc::SYS_lsetxattr, &[text(&path), text(XATTR), from(XATTR_VALUE), len(XATTR_VALUE), int(0)])?;
    nothing()
}

fn fsetxattr(args: &ActArgs<'_>) -> ActOutcome {
    let file = readable(args)?;
    call("fsetxattr", libc::SYS_fsetxattr, &[fd(&file), text(XATTR), from(XATTR_VALUE), len(XATTR_VALUE), int(0)])?;
    nothing()
}

fn setxattrat(args: &ActArgs<'_>) -> ActOutcome {
    // struct xattr_args: u64 value, u32 size, u32 flags.
    let value = std::ptr::from_ref(XATTR_VALUE).cast::<u8>().expose_provenance() as u64;
    let how = [value, XATTR_VALUE.len() as u64];
    call("setxattrat", 463, &[cwd(), text(&args.path(0)?), int(0), text(XATTR), from(&how), len(&how)])?;
    nothing()
}

fn removexattr(args: &ActArgs<'_>) -> ActOutcome {
    call("removexattr", libc::SYS_removexattr, &[text(&args.path(0)?), text(XATTR)])?;
    nothing()
}

fn fremovexattr(args: &ActArgs<'_>) -> ActOutcome {
    call("fremovexattr", libc::SYS_fremovexattr, &[fd(&readable(args)?), text(XATTR)])?;
    nothing()
}

fn removexattrat(args: &ActArgs<'_>) -> ActOutcome {
    call("removexattrat", 466, &[cwd(), text(&args.path(0)?), int(0), text(XATTR)])?;
    nothing()
}

fn file_setattr(args: &ActArgs<'_>) -> ActOutcome {
    // struct file_attr: u64 fa_xflags (FS_XFLAG_NODUMP 0x80), u32 extsize, nextents, projid, cowextsize.
    let attributes = [0x80_u64, 0, 0];
    call("file_setattr", 469, &[cwd(), text(&args.path(0)?), from(&attributes), len(&attributes), int(0)])?;
    nothing()
}

fn fs_ioctl(args: &ActArgs<'_>) -> ActOutcome {
    const FS_IOC_GETFLAGS: u64 = 0x8008_6601;
    const FS_IOC_SETFLAGS: u64 = 0x4008_6602;
    const FS_NODUMP_FL: i64 = 0x40;
    let file = readable(args)?;
    let mut flags = 0_i64;
    call("FS_IOC_GETFLAGS", libc::SYS_ioctl, &[fd(&file), bits(FS_IOC_GETFLAGS), into(&mut flags)])?;
    flags |= FS_NODUMP_FL;
    call("FS_IOC_SETFLAGS", libc::SYS_ioctl, &[fd(&file), bits(FS_IOC_SETFLAGS), from(&flags)])?;
    nothing()
}

fn readdir(args: &ActArgs<'_>) -> ActOutcome {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(args.word(0)?).map_err(|error| ActFailure::io("open", &error))? {
        let entry = entry.map_err(|error| ActFailure::io("getdents64", &error))?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(json!({ "names": names }))
}

fn stat(args: &ActArgs<'_>) -> ActOutcome {
    use std::os::unix::fs::MetadataExt;
    let seen = std::fs::symlink_metadata(args.word(0)?).map_err(|error| ActFailure::io("stat", &error))?;
    Ok(json!({ "mode": format!("{:o}", seen.mode()), "uid": seen.uid(), "size": seen.size() }))
}

fn inotify(args: &ActArgs<'_>) -> ActOutcome {
    let queue = call_fd("inotify_init1", libc::SYS_inotify_init1, &[int(0)])?;
    let path = args.path(0)?;
    call("inotify_add_watch", libc::SYS_inotify_add_watch, &[fd(&queue), text(&path), int(libc::IN_ALL_EVENTS)])?;
    nothing()
}

fn flock(args: &ActArgs<'_>) -> ActOutcome {
    call("flock", libc::SYS_flock, &[fd(&readable(args)?), int(libc::LOCK_EX | libc::LOCK_NB)])?;
    nothing()
}

fn fifo_open(args: &ActArgs<'_>) -> ActOutcome {
    let path = args.path(0)?;
    let reader = sys::open("open-read", &path, libc::O_RDONLY | libc::O_NONBLOCK)?;
    let writer = sys::open("open-write", &path, libc::O_WRONLY | libc::O_NONBLOCK)?;
    write_text(&writer, "through")?;
    let mut data = [0_u8; 16];
    let size = len(&data);
    let got = call("read", libc::SYS_read, &[fd(&reader), into(&mut data), size])?;
    Ok(json!({ "bytes": got }))
}
