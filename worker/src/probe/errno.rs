//! Errno numbers by name, so that a probe's line and a test's message read the same on every architecture.

macro_rules! errnos {
    ($($name:ident)*) => {
        /// Every name known here, with its number on this architecture.
        const NAMES: &[(&str, i32)] = &[$((stringify!($name), libc::$name)),*];
    };
}

errnos! {
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT ENOTBLK EBUSY EEXIST
    EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM
    ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY ELOOP ENOMSG EIDRM ENODATA ETIME EOVERFLOW EILSEQ EUSERS
    ENOTSOCK EDESTADDRREQ EMSGSIZE EPROTOTYPE ENOPROTOOPT EPROTONOSUPPORT ESOCKTNOSUPPORT EOPNOTSUPP EPFNOSUPPORT
    EAFNOSUPPORT EADDRINUSE EADDRNOTAVAIL ENETDOWN ENETUNREACH ENETRESET ECONNABORTED ECONNRESET ENOBUFS EISCONN
    ENOTCONN ESHUTDOWN ETIMEDOUT ECONNREFUSED EHOSTDOWN EHOSTUNREACH EALREADY EINPROGRESS ESTALE EDQUOT ENOKEY
    EKEYREVOKED EKEYREJECTED EREMOTEIO ECANCELED
}

/// The name of `number`, or `E?` where it has none here.
pub fn name(number: i32) -> &'static str {
    NAMES.iter().find(|&&(_, known)| known == number).map_or("E?", |&(name, _)| name)
}

/// The number of `name`, or of a decimal number written out.
pub fn number(name: &str) -> Option<i32> {
    NAMES.iter().find(|&&(known, _)| known == name).map(|&(_, number)| number).or_else(|| name.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::{name, number};

    #[test]
    fn a_name_and_its_number_agree_both_ways() {
        assert_eq!(name(libc::EACCES), "EACCES");
        assert_eq!(number("EACCES"), Some(libc::EACCES));
        assert_eq!(number("13"), Some(13));
        assert_eq!(number("EWHATEVER"), None);
        assert_eq!(name(100_000), "E?");
    }
}
