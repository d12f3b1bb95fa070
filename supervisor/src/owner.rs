//! Users of this user namespace.

use std::fs::File;
use std::io::Read as _;

/// Owner of what belongs to nobody in this user namespace (user_namespaces(7)).
const NOBODY: u32 = 65534;

/// True if somebody in this user namespace is this user. What an outer namespace's users own is shown as nobody's: whoever set
/// this one up has put it there, and none of its processes acts as them.
pub(crate) fn is_somebody(uid: u32) -> bool {
    uid != NOBODY || uid_map().map_or(true, |map| maps(&map, uid))
}

fn uid_map() -> std::io::Result<String> {
    /// Bytes; a map has at most 340 lines.
    const MOST: u64 = 64 * 1024;
    let mut map = String::new();
    File::open("/proc/self/uid_map")?.take(MOST).read_to_string(&mut map)?;
    Ok(map)
}

fn maps(map: &str, uid: u32) -> bool {
    map.lines().any(|line| {
        let mut fields = line.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(first)), Some(Ok(_)), Some(Ok(count))) = (fields.next(), fields.next(), fields.next()) else {
            return true;
        };
        (first..first + count).contains(&u64::from(uid))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_nobody_here() {
        assert!(maps("0 0 4294967295\n", NOBODY) && maps("0 100000 65536\n", NOBODY) && maps("?", NOBODY));
        assert!(!maps("0 1000 1\n", NOBODY) && !maps("", NOBODY));
    }
}
