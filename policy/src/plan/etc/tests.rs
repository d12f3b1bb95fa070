use super::*;

const ID: FileId = FileId { device: 1, inode: 2 };
const FILE: Attributes = Attributes { kind: EntryKind::File, uid: 0, gid: 0, mode: 0o644, is_mount: false, id: ID };
const DIRECTORY: Attributes = Attributes { kind: EntryKind::Directory, mode: 0o755, ..FILE };

fn name(path: &str) -> ByName {
    by_name(&HostPath::from(path))
}

#[test]
fn what_everyone_may_read_and_root_alone_changes_is_fit() {
    for fit in [
        FILE,
        DIRECTORY,
        Attributes { mode: 0o444, ..FILE },
        Attributes { gid: 12, ..FILE },
        Attributes { mode: 0o664, ..FILE },
        Attributes { mode: 0o4755, ..FILE },
    ] {
        assert!(fit.fit(), "{fit:?}");
    }
    for unfit in [
        Attributes { mode: 0o640, ..FILE },
        Attributes { mode: 0o600, ..FILE },
        Attributes { uid: 1000, ..FILE },
        Attributes { uid: 65534, ..FILE },
        Attributes { mode: 0o646, ..FILE },
        Attributes { gid: 12, mode: 0o664, ..FILE },
        Attributes { is_mount: true, ..FILE },
        Attributes { kind: EntryKind::Other, mode: 0o666, ..FILE },
        Attributes { mode: 0o750, ..DIRECTORY },
        Attributes { mode: 0o711, ..DIRECTORY },
        Attributes { mode: 0o754, ..DIRECTORY },
        Attributes { mode: 0o1777, ..DIRECTORY },
        Attributes { uid: 33, ..DIRECTORY },
        Attributes { is_mount: true, ..DIRECTORY },
    ] {
        assert!(!unfit.fit(), "{unfit:?}");
    }
}

/// Secrets and what tells machines apart, as distributions and programs name them.
#[test]
fn secrets_are_hidden_by_their_names() {
    for secret in [
        "/etc/shadow",
        "/etc/shadow-",
        "/etc/gshadow",
        "/etc/passwd-",
        "/etc/group-",
        "/etc/subuid-",
        "/etc/master.passwd",
        "/etc/security",
        "/etc/sudoers",
        "/etc/sudoers.d",
        "/etc/machine-id",
        "/etc/Machine-ID",
        "/etc/ssh/ssh_host_rsa_key",
        "/etc/ssh/ssh_host_rsa_key.pub",
        "/etc/ssh/sshd_config",
        "/etc/ssl/private",
        "/etc/ssl/server.key",
        "/etc/ssl/server.pem",
        "/etc/pki/tls/private",
        "/etc/krb5.keytab",
        "/etc/NetworkManager",
        "/etc/network",
        "/etc/netplan",
        "/etc/wpa_supplicant",
        "/etc/wpa_supplicant.conf",
        "/etc/wireguard",
        "/etc/openvpn",
        "/etc/x/office.ovpn",
        "/etc/ppp",
        "/etc/fstab",
        "/etc/cifs-credentials",
        "/etc/msmtprc",
        "/etc/netrc",
        "/etc/x/.netrc",
        "/etc/apt/auth.conf",
        "/etc/apt/auth.conf.d",
        "/etc/zypp",
        "/etc/pip.conf",
        "/etc/docker",
        "/etc/kubernetes",
        "/etc/haproxy",
        "/etc/keepalived",
        "/etc/squid",
        "/etc/vault.d",
        "/etc/tomcat9",
        "/etc/mysql",
        "/etc/my.cnf.d",
        "/etc/postgresql",
        "/etc/redis",
        "/etc/nginx/sites-enabled",
        "/etc/nginx/.htpasswd",
        "/etc/app/password.txt",
        "/etc/app/MySecrets",
        "/etc/app/api_key",
        "/etc/app/api-token.json",
        "/etc/app/credentials.ini",
        "/etc/app/app.env",
        "/etc/app/config.bak",
        "/etc/app/config~",
        "/etc/default",
        "/etc/default/tailscaled",
        "/etc/systemd",
        "/etc/cron.d",
        "/etc/environment.d",
        "/elsewhere",
        "/etc",
    ] {
        // What lies below a hidden directory is hidden because the walk does not enter it.
        let hidden = secret.match_indices('/').skip(2).map(|(at, _)| &secret[..at]).chain([secret]);
        assert!(hidden.into_iter().any(|path| name(path) == ByName::Hidden), "{secret}");
    }
}

#[test]
fn what_programs_look_for_is_not_hidden() {
    for open in [
        "/etc/maven",
        "/etc/maven/settings.xml",
        "/etc/maven/m2.conf",
        "/etc/ImageMagick-6",
        "/etc/ImageMagick-6/policy.xml",
        "/etc/manpath.config",
        "/etc/dpkg",
        "/etc/dpkg/dpkg.cfg",
        "/etc/apt",
        "/etc/apt/apt.conf.d",
        "/etc/apt/sources.list",
        "/etc/apt/preferences.d",
        "/etc/apt/trusted.gpg.d",
        "/etc/chromium",
        "/etc/chromium.d",
        "/etc/fonts",
        "/etc/java-17-openjdk",
        "/etc/java-17-openjdk/security/java.security",
        "/etc/php",
        "/etc/postgresql-common",
        "/etc/ssh",
        "/etc/ssh/ssh_config",
        "/etc/ssh/ssh_known_hosts",
        "/etc/ssl",
        "/etc/crypto-policies",
        "/etc/krb5.conf",
        "/etc/ldap/ldap.conf",
        "/etc/gitconfig",
        "/etc/profile.d",
        "/etc/vim",
        "/etc/emacs",
        "/etc/X11",
        "/etc/login.defs",
        "/etc/selinux/config",
        "/etc/wgetrc",
        "/etc/odbcinst.ini",
    ] {
        assert_eq!(name(open), ByName::Open, "{open}");
    }
    for granted in ["/etc/passwd", "/etc/group", "/etc/ssl/certs", "/etc/ssl/certs/a.pem", "/etc/alternatives"] {
        assert_eq!(name(granted), ByName::Granted, "{granted}");
    }
}

#[test]
fn a_pattern_stands_for_one_name() {
    for (pattern, path, wanted) in [
        ("sudo*", "sudoers.d", true),
        ("sudo*", "sudo", true),
        ("sudo*", "sudo/x", false),
        ("apache2/conf*", "apache2/conf.d", true),
        ("apache2/conf*", "apache2/apache2.conf", false),
        ("port*sentry*", "port-x-sentry.d", true),
        ("mail", "mailcap", false),
        ("init", "init", true),
        ("*", "", true),
    ] {
        assert_eq!(matches(pattern.as_bytes(), path.as_bytes()), wanted, "{pattern} {path}");
    }
}

fn part(path: &str, reading: EtcReading) -> Readable {
    Readable { path: path.into(), reading, id: ID }
}

#[test]
fn a_directory_is_granted_whole_or_by_its_parts() {
    let mut inner = WalkedDirectory::new("/etc/a/in".into(), ID);
    inner.file("/etc/a/in/f".into(), ID);
    let inner = inner.close();
    assert_eq!(inner, ReadablePart::Whole);

    let mut outer = WalkedDirectory::new("/etc/a".into(), ID);
    outer.directory("/etc/a/in".into(), ID, inner.clone());
    outer.file("/etc/a/f".into(), ID);
    outer.hidden(false);
    let outer = outer.close();
    let parts = vec![
        part("/etc/a/in", EtcReading::Tree),
        part("/etc/a/f", EtcReading::File),
        part("/etc/a", EtcReading::Names),
    ];
    assert_eq!(outer, ReadablePart::Parts { parts, lists: true });

    let mut top = WalkedDirectory::new("/etc".into(), ID);
    top.directory("/etc/a".into(), ID, outer.clone());
    assert_eq!(
        top.close(),
        ReadablePart::Parts {
            parts: vec![
                part("/etc/a/in", EtcReading::Tree),
                part("/etc/a/f", EtcReading::File),
                part("/etc", EtcReading::Names),
            ],
            lists: true
        }
    );

    // Names of a hidden directory stay hidden, at any depth.
    let mut top = WalkedDirectory::new("/etc".into(), ID);
    top.directory("/etc/a".into(), ID, outer);
    top.hidden(true);
    let parts = vec![
        part("/etc/a/in", EtcReading::Tree),
        part("/etc/a/f", EtcReading::File),
        part("/etc/a", EtcReading::Names),
    ];
    assert_eq!(top.close(), ReadablePart::Parts { parts, lists: false });
}

/// Only what lies in it is granted, however the walk went.
#[test]
fn nothing_is_granted_of_a_directory_of_hidden_files() {
    let mut directory = WalkedDirectory::new("/etc/a".into(), ID);
    directory.hidden(false);
    directory.hidden(true);
    assert_eq!(directory.close(), ReadablePart::Parts { parts: vec![], lists: false });
}

/// They are found by their first byte.
#[test]
fn every_hidden_place_begins_with_a_byte_of_its_own() {
    for place in PLACES.iter().flat_map(|(_, places)| *places) {
        assert!(!place.starts_with('*'), "{place}");
        let path = format!("/etc/{}", place.replace('*', "x"));
        assert_eq!(name(&path), ByName::Hidden, "{path}");
    }
}
