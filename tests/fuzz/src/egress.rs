//! Any bytes as what a program sends to egress.

use callgate_worker::egress::fuzzing::{self, GRANTED};

/// Any bytes as a question for names: nobody but egress hears of a name that was not granted, and each answer is a message (B4).
pub fn question(data: &[u8]) {
    fuzzing::question(data);
}

/// Any bytes as the beginning of a connection, and as a TLS hello: what is spoken, and which server it is for, are settled once (B13).
pub fn hello(data: &[u8]) {
    fuzzing::opening(data);
    fuzzing::hello(data);
}

/// Any bytes as requests to a granted host: another reader finds in what leaves only whole requests for that host (B13).
pub fn requests(data: &[u8]) {
    let sent = fuzzing::requests(data);
    let mut rest = &*sent;
    while !rest.is_empty() {
        let Some(next) = request(rest, &sent) else { return };
        rest = next;
    }
}

/// Rest after the first request, which must be for the granted host. `None` if it is cut off.
fn request<'a>(bytes: &'a [u8], all: &[u8]) -> Option<&'a [u8]> {
    let mut headers = [httparse::EMPTY_HEADER; 512];
    let mut head = httparse::Request::new(&mut headers);
    let parsed = head.parse(bytes).unwrap_or_else(|error| panic!("{error} in {}", all.escape_ascii()));
    let httparse::Status::Complete(length) = parsed else { return None };
    let of = |name: &str| -> Vec<&[u8]> {
        let headers = head.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
        headers.map(|header| header.value).collect()
    };
    let path = head.path.unwrap_or_default();
    assert!(path.starts_with('/') || path == "*" || path.starts_with('?'), "{path} in {}", all.escape_ascii());
    let [host] = *of("host") else { panic!("not one host in {}", all.escape_ascii()) };
    let host = String::from_utf8_lossy(host).to_ascii_lowercase();
    let host = host.strip_suffix(":80").or(host.strip_suffix(':')).unwrap_or(&host);
    assert_eq!(host.strip_suffix('.').unwrap_or(host), GRANTED, "in {}", all.escape_ascii());
    assert!(of("upgrade").iter().all(|to| to.eq_ignore_ascii_case(b"websocket") || to.eq_ignore_ascii_case(b"tcp")));
    let body = bytes.get(length..)?;
    match (&*of("content-length"), &*of("transfer-encoding")) {
        ([], []) => Some(body),
        ([length], []) => body.get(std::str::from_utf8(length).ok()?.parse().ok()?..),
        ([], [coding]) => {
            assert!(coding.eq_ignore_ascii_case(b"chunked"), "in {}", all.escape_ascii());
            chunks(body)
        }
        _ => panic!("two lengths in {}", all.escape_ascii()),
    }
}

/// Rest after a body in chunks.
fn chunks(mut body: &[u8]) -> Option<&[u8]> {
    loop {
        let Ok(httparse::Status::Complete((start, size))) = httparse::parse_chunk_size(body) else { return None };
        if size == 0 {
            // Trailers end with an empty line.
            let mut rest = body.get(start..)?;
            loop {
                let end = rest.windows(2).position(|window| window == b"\r\n")?;
                let line = rest.get(..end)?;
                rest = rest.get(end + 2..)?;
                if line.is_empty() {
                    return Some(rest);
                }
            }
        }
        body = body.get(start..)?.get(usize::try_from(size).ok()?..)?.strip_prefix(b"\r\n")?;
    }
}
