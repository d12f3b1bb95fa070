//! Part of `/etc` that a session reads, beyond the few files that [`super::system`] names: what every user of the host
//! may read, and that is no secret by its name (decision 0023).
//!
//! The supervisor walks `/etc` and asks [`by_name`] and [`Attributes::fit`] about each entry; [`WalkedDirectory`] makes as few
//! rules of the answers as it can. Nothing here reads a file's content.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use self::NamePart::{Anywhere, End, Start, Whole};
use super::rule::FileId;
use super::system;
use crate::path::HostPath;

/// How a part of `/etc` is readable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EtcReading {
    /// A directory with all below it.
    Tree,
    /// One file.
    File,
    /// The names in a directory and below it, not what the files hold.
    Names,
}

/// A part of `/etc` that a session reads.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Readable {
    /// An absolute path.
    pub path: HostPath,
    /// How much of it.
    pub reading: EtcReading,
    /// Identity of the entry that the walk found there.
    pub id: FileId,
}

/// Verdict by an entry's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByName {
    /// The base system's rules have it already.
    Granted,
    /// It may hold a secret, or tell which machine this is.
    Hidden,
    /// Nothing: its attributes decide.
    Open,
}

/// Kind of an entry. Symbolic links are not asked about: the kernel judges what they lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// Anything else: a FIFO, a socket, a device.
    Other,
}

/// Attributes of an entry, as the kernel has them (statx(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Kind of the entry.
    pub kind: EntryKind,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its permission bits.
    pub mode: u16,
    /// Something is mounted there: a container's configuration, or its secrets.
    pub is_mount: bool,
    /// Which file it is.
    pub id: FileId,
}

impl Attributes {
    /// True if every user of the host may read it, and root alone changes it.
    #[must_use]
    pub fn fit(&self) -> bool {
        let open = match self.kind {
            EntryKind::Directory => 0o5,
            EntryKind::File => 0o4,
            EntryKind::Other => return false,
        };
        let for_others = self.mode & open == open && self.mode & 0o2 == 0;
        let for_group = self.mode & 0o020 == 0 || self.gid == 0;
        self.uid == 0 && for_others && for_group && !self.is_mount
    }
}

/// Verdict by an entry's name. `path` is absolute.
#[must_use]
pub fn by_name(path: &HostPath) -> ByName {
    if system::names(path) {
        return ByName::Granted;
    }
    let Some(below) = path.as_bytes().strip_prefix(b"/etc/") else { return ByName::Hidden };
    let below = below.to_ascii_lowercase();
    let name = below.rsplit(|byte| *byte == b'/').next().unwrap_or(&below);
    let is_hidden = NAMES.iter().any(|(_, names)| names.iter().any(|part| part.is_in(name)))
        || below.first().is_some_and(|first| places(*first).any(|place| matches(place, &below)));
    if is_hidden { ByName::Hidden } else { ByName::Open }
}

/// A part of a name, in lower case.
#[derive(Debug, Clone, Copy)]
enum NamePart {
    Whole(&'static str),
    Start(&'static str),
    End(&'static str),
    Anywhere(&'static str),
}

impl NamePart {
    fn is_in(self, name: &[u8]) -> bool {
        match self {
            Self::Whole(part) => name == part.as_bytes(),
            Self::Start(part) => name.starts_with(part.as_bytes()),
            Self::End(part) => name.ends_with(part.as_bytes()),
            Self::Anywhere(part) => name.windows(part.len()).any(|window| window == part.as_bytes()),
        }
    }
}

/// Names that are hidden wherever they stand below `/etc`, in any case, and why.
const NAMES: &[(&str, &[NamePart])] = &[
    (
        "they say that they are secret",
        &[
            Anywhere("passw"),
            Anywhere("passphrase"),
            Anywhere("secret"),
            Anywhere("token"),
            Anywhere("credential"),
            Anywhere("apikey"),
            Anywhere("api-key"),
            Anywhere("api_key"),
            Anywhere("private"),
            Anywhere("vault"),
            Anywhere("shadow"),
            Anywhere("keytab"),
            Start("auth.conf"),
            Start("authinfo"),
            Whole("auth.json"),
            Whole("creds"),
            Whole("htdigest"),
            End(".pass"),
            End(".pwd"),
        ],
    ),
    (
        "private keys and stores of them; certificates that are trusted have directories of their own",
        &[
            End(".key"),
            End("_key"),
            End("-key"),
            End(".pem"),
            End(".p8"),
            End(".p12"),
            End(".pkcs12"),
            End(".priv"),
            End(".pfx"),
            End(".jks"),
            End(".keystore"),
            End(".kdb"),
            End(".kdbx"),
            End(".ppk"),
            End(".ovpn"),
            End(".psk"),
            Whole("key3.db"),
            Whole("key4.db"),
            Start("id_rsa"),
            Start("id_dsa"),
            Start("id_ecdsa"),
            Start("id_ed25519"),
            Start("ssh_host_"),
            Start("authorized_keys"),
        ],
    ),
    (
        "files in which clients keep passwords",
        &[
            Whole("netrc"),
            Whole(".netrc"),
            Whole("_netrc"),
            Whole(".git-credentials"),
            Whole(".pgpass"),
            Whole("pgpass"),
            Whole(".my.cnf"),
            Whole(".env"),
            End(".env"),
            Start(".ht"),
            End("msmtprc"),
            End("mailrc"),
            End("fetchmailrc"),
            End("getmailrc"),
            End("npmrc"),
            End("pypirc"),
            End("boto.cfg"),
            End(".s3cfg"),
        ],
    ),
    (
        "every version of what is there, the closed ones too",
        &[Whole(".git"), Whole(".hg"), Whole(".bzr"), Whole(".svn"), Whole("_darcs"), Whole("cvs"), Whole("rcs")],
    ),
    (
        "copies that stay when a file is closed or cleaned",
        &[
            End("~"),
            End("-"),
            End(".bak"),
            End(".old"),
            End(".orig"),
            End(".save"),
            End(".rej"),
            End(".swp"),
            End("-old"),
            End(".rpmsave"),
            End(".rpmorig"),
            End(".dpkg-bak"),
            End("-bak"),
            End(".augsave"),
            End(".pacsave"),
            End(".swo"),
            End(".backup"),
        ],
    ),
];

/// Places below `/etc` that are hidden with all below them, in any case, and why; `*` stands for anything within a name.
const PLACES: &[(&str, &[&str])] = &[
    (
        "accounts and privilege",
        &[
            "sudo*",
            "doas*",
            "pam.d",
            "pam*.conf",
            "security",
            "opasswd",
            "polkit-1",
            "dbconfig-common",
            "subscription*",
            "ldap.conf",
        ],
    ),
    (
        "which machine this is",
        &[
            "machine-id",
            "hostid",
            "hwid",
            "popularity-contest.conf",
            "machine-info",
            "kernel/cmdline",
            "zfs",
            "ethers",
            "udev",
            "cloud",
            "iscsi",
            "nvme",
            "mdadm*",
            "lvm",
            "brlapi*",
            "ubuntu-advantage",
            "rhsm",
            "insights-client",
            "pki/consumer",
            "pki/entitlement*",
            "pki/product*",
        ],
    ),
    (
        "disks: passwords of network mounts, keys, identifiers",
        &[
            "fstab*",
            "crypttab*",
            "cifs*",
            "auto.*",
            "autofs*",
            "davfs2",
            "luks*",
            "cryptsetup*",
            "clevis",
            "initramfs-tools",
            "dracut*",
            "grub*",
            "lilo*",
            "exports*",
            "multipath*",
            "target",
        ],
    ),
    (
        "networks: passwords of wireless networks, tunnels and lines, addresses of the machine",
        &[
            "network",
            "networkmanager",
            "netplan",
            "wpa_supplicant*",
            "hostapd*",
            "iwd",
            "ppp",
            "chatscripts",
            "wvdial*",
            "vpnc*",
            "openvpn*",
            "openconnect*",
            "openfortivpn*",
            "wireguard",
            "ipsec*",
            "strongswan*",
            "swanctl",
            "libreswan",
            "racoon*",
            "xl2tpd",
            "tinc",
            "stunnel*",
            "nebula",
            "tailscale",
            "zerotier*",
            "cloudflared",
            "frp*",
            "tor",
            "i2pd",
            "snmp*",
            "dhcp*",
            "ddclient*",
            "inadyn*",
            "no-ip*",
            "freeradius*",
            "raddb",
        ],
    ),
    (
        "firewalls and what watches the machine",
        &[
            "ufw",
            "iptables*",
            "nftables*",
            "firewalld",
            "shorewall*",
            "fail2ban",
            "crowdsec*",
            "csf",
            "audit*",
            "apparmor*",
            "ossec*",
            "wazuh*",
            "suricata",
            "snort",
            "aide*",
            "tripwire",
            "knockd*",
            "port*sentry*",
        ],
    ),
    (
        "what runs by itself: commands and environments with passwords in them",
        &[
            "cron*",
            "anacrontab",
            "at.*",
            "incron*",
            "fcron*",
            "default",
            "sysconfig",
            "conf.d",
            "systemd",
            "init",
            "init.d",
            "rc.local",
            "rc.d",
            "sv",
            "runit",
            "s6*",
            "supervis*",
            "monit*",
            "environment.d",
            "xinetd*",
            "inetd*",
            "pm2",
        ],
    ),
    (
        "mail",
        &[
            "exim*",
            "postfix",
            "dovecot",
            "ssmtp",
            "nullmailer",
            "dma",
            "courier",
            "mail",
            "opendkim*",
            "rspamd",
            "spamassassin",
            "amavis",
            "cyrus*",
            "imapd*",
            "esmtp*",
            "mailman*",
            "offlineimap*",
            "getmail*",
        ],
    ),
    (
        "web servers' sites",
        &[
            "nginx",
            "apache2",
            "httpd",
            "lighttpd",
            "php/*/fpm",
            "php/*/apache2",
            "caddy",
            "traefik*",
            "haproxy",
            "keepalived",
            "squid*",
            "varnish",
            "envoy",
            "tomcat*",
            "jetty*",
            "wildfly*",
            "glassfish*",
            "uwsgi*",
            "gunicorn*",
            "php-fpm*",
            "letsencrypt",
            "certbot*",
            "acme*",
            "lego",
            "phpmyadmin",
            "roundcube*",
            "wordpress*",
            "drupal*",
            "owncloud*",
            "nextcloud*",
            "webmin",
            "usermin",
            "cockpit",
            "guacamole*",
        ],
    ),
    (
        "databases and queues",
        &[
            "mysql*",
            "my.cnf*",
            "mariadb*",
            "postgresql",
            "pgbouncer*",
            "pgpool*",
            "redis*",
            "valkey*",
            "mongo*",
            "couchdb",
            "cassandra",
            "clickhouse*",
            "influxdb*",
            "elasticsearch",
            "opensearch*",
            "rabbitmq",
            "mosquitto",
            "kafka*",
            "neo4j",
            "odbc.ini",
            "odbcdatasources",
            "memcached*",
        ],
    ),
    (
        "containers, clusters, and what sets machines up",
        &[
            "docker*",
            "containerd",
            "containers",
            "crio",
            "cni",
            "kubernetes",
            "rancher",
            "k3s",
            "k0s",
            "microk8s",
            "etcd*",
            "consul*",
            "nomad*",
            "boundary*",
            "ansible",
            "salt",
            "puppet*",
            "puppetlabs",
            "chef*",
            "cinc",
            "mcollective",
            "terraform*",
            "libvirt",
            "xen",
            "pve",
            "lxc",
            "lxd",
            "incus",
            "ceph",
            "gluster*",
            "corosync",
            "pacemaker",
            "drbd*",
            "ha.d",
            "ganeti",
            "nova",
            "keystone",
            "openstack*",
            "cinder",
            "glance",
            "neutron",
        ],
    ),
    (
        "clouds, backups and copies",
        &[
            "aws",
            "azure",
            "gcloud",
            "google*",
            "boto*",
            "s3*",
            "rclone*",
            "restic*",
            "borg*",
            "duplic*",
            "duply",
            "bacula",
            "bareos",
            "burp",
            "amanda",
            "rsnapshot*",
            "rsyncd*",
            "backup*",
            "syncthing*",
            "proftpd*",
            "vsftpd*",
            "pure-ftpd*",
            "waagent*",
        ],
    ),
    (
        "watching, and delivering software",
        &[
            "grafana*",
            "prometheus*",
            "alertmanager*",
            "telegraf*",
            "kibana",
            "logstash",
            "filebeat",
            "metricbeat",
            "packetbeat",
            "fluent*",
            "td-agent*",
            "vector",
            "rsyslog*",
            "syslog*",
            "datadog*",
            "newrelic*",
            "zabbix*",
            "nagios*",
            "nrpe*",
            "icinga*",
            "check_mk",
            "munin",
            "collectd*",
            "netdata",
            "sensu",
            "jenkins*",
            "gitlab*",
            "gitea",
            "forgejo",
            "gogs",
            "buildkite*",
            "teamcity*",
            "github*",
            "act_runner",
            "woodpecker*",
            "drone*",
        ],
    ),
    (
        "directories of people, and how they log in",
        &[
            "sssd",
            "samba",
            "nslcd*",
            "libnss*",
            "pam_*",
            "ipa",
            "krb5kdc",
            "nis*",
            "yp*",
            "openldap/slapd*",
            "ldap/slapd*",
            "ldap.secret",
            "slapd*",
            "realmd*",
            "google-authenticator*",
            "duo",
            "ssh/sshd*",
            "dropbear*",
            "hosts.equiv",
            "shosts.equiv",
            "lightdm",
            "gdm*",
            "sddm*",
            "xrdp",
            "vnc*",
            "tigervnc",
            "x11vnc*",
            "teamviewer*",
            "anydesk*",
        ],
    ),
    (
        "names and telephones",
        &[
            "bind",
            "named*",
            "rndc*",
            "unbound",
            "powerdns",
            "pdns*",
            "nsd",
            "knot*",
            "dnsmasq*",
            "dnscrypt*",
            "asterisk",
            "freeswitch",
            "kamailio",
            "ejabberd",
            "prosody",
            "matrix*",
            "mumble*",
            "murmur*",
            "znc",
            "ircd*",
            "inspircd",
            "coturn*",
            "turnserver*",
            "jitsi*",
            "transmission*",
            "deluge*",
            "minidlna*",
            "cups",
        ],
    ),
    (
        "settings of package tools for the network, where registries have users and passwords",
        &["pip.conf", "yarnrc*", "gemrc", "opt", "zypp", "rhn", "yum*", "dnf", "subversion"],
    ),
];

/// The patterns of [`PLACES`] that begin with this byte: it is asked about every entry of `/etc`, and few begin as one does.
fn places(first: u8) -> impl Iterator<Item = &'static [u8]> {
    static BY_FIRST: LazyLock<BTreeMap<u8, Vec<&'static [u8]>>> = LazyLock::new(|| {
        let mut by_first = BTreeMap::<u8, Vec<&[u8]>>::new();
        for place in PLACES.iter().flat_map(|(_, places)| *places).map(|place| place.as_bytes()) {
            let Some(first) = place.first() else { continue };
            by_first.entry(*first).or_default().push(place);
        }
        by_first
    });
    BY_FIRST.get(&first).into_iter().flatten().copied()
}

/// True if a path is what a pattern of [`PLACES`] says. What lies below a hidden place is never asked about.
fn matches(pattern: &[u8], path: &[u8]) -> bool {
    match (pattern.first(), path.first()) {
        (None, None) => true,
        (Some(b'*'), Some(byte)) if *byte != b'/' => matches(&pattern[1..], path) || matches(pattern, &path[1..]),
        (Some(b'*'), _) => matches(&pattern[1..], path),
        (Some(wanted), Some(byte)) if wanted == byte => matches(&pattern[1..], &path[1..]),
        _ => false,
    }
}

/// Readable part of a directory that was walked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadablePart {
    /// All of it.
    Whole,
    /// These parts.
    Parts {
        /// They.
        parts: Vec<Readable>,
        /// True if it may be listed: no directory that is hidden lies below it.
        lists: bool,
    },
}

/// A directory while it is walked.
#[derive(Debug)]
pub struct WalkedDirectory {
    path: HostPath,
    id: FileId,
    parts: Vec<Readable>,
    whole: bool,
    lists: bool,
}

impl WalkedDirectory {
    /// A directory that is fit, of which nothing has been seen yet.
    #[must_use]
    pub fn new(path: HostPath, id: FileId) -> Self {
        Self { path, id, parts: Vec::new(), whole: true, lists: true }
    }

    /// A file in it is readable.
    pub fn file(&mut self, path: HostPath, id: FileId) {
        self.parts.push(Readable { path, reading: EtcReading::File, id });
    }

    /// A directory in it was walked.
    pub fn directory(&mut self, path: HostPath, id: FileId, found: ReadablePart) {
        match found {
            ReadablePart::Whole => self.parts.push(Readable { path, reading: EtcReading::Tree, id }),
            ReadablePart::Parts { parts, lists } => {
                self.parts.extend(parts);
                self.whole = false;
                self.lists &= lists;
            }
        }
    }

    /// Something in it is not readable. What is no directory may be listed.
    pub fn hidden(&mut self, is_directory: bool) {
        self.whole = false;
        self.lists &= !is_directory;
    }

    /// Readable part of it, in as few rules as say it.
    #[must_use]
    pub fn close(self) -> ReadablePart {
        if self.whole {
            return ReadablePart::Whole;
        }
        let mut parts = self.parts;
        if self.lists {
            // Of directories in it as well: the kernel's right to list covers all below.
            parts.retain(|part| part.reading != EtcReading::Names);
            parts.push(Readable { path: self.path, reading: EtcReading::Names, id: self.id });
        }
        ReadablePart::Parts { parts, lists: self.lists }
    }
}

#[cfg(test)]
mod tests;
