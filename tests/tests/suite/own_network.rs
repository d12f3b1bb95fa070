//! UDP and route netlink, where the session has a network namespace of its own: they work there, and reach nothing else (B4, B8,
//! B17). Without one they are refused.

use std::net::{IpAddr, UdpSocket};
use std::os::fd::OwnedFd;

use callgate_tests::{Host, ProgramOutcome, ProgramRunner, TestEnv, matrix, skip};
use libc::{EACCES, EINVAL, EISCONN};

/// Script of what programs do with datagrams among themselves, and how they list interfaces.
const SELF: &str = "
import asyncio, ctypes, socket
def exchange(family, host):
    a, b = (socket.socket(family, socket.SOCK_DGRAM) for _ in 'ab')
    for s in (a, b): s.settimeout(60)
    a.bind((host, 0))
    b.sendto(b'by address', a.getsockname())
    data, peer = a.recvfrom(64)
    a.sendto(data.upper(), peer)
    answer = b.recv(64)
    b.connect(a.getsockname()); b.send(b'connected')
    back = a.recvfrom(64)
    # Undone (udp(7)): a program may connect a socket again and again.
    b.connect((host, 9)); b.connect(a.getsockname()); b.send(b'again')
    assert b.getpeername()[:2] == a.getsockname()[:2]
    return answer.decode(), back[0].decode(), a.recv(64).decode()
print(exchange(socket.AF_INET, '127.0.0.1'))
class Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport): self.transport = transport
    def datagram_received(self, data, peer): self.transport.sendto(data.upper(), peer)
class Ask(asyncio.DatagramProtocol):
    def __init__(self, answer): self.answer = answer
    def connection_made(self, transport): transport.sendto(b'asyncio')
    def datagram_received(self, data, peer): self.answer.set_result(data.decode())
async def main():
    loop = asyncio.get_running_loop()
    server, _ = await loop.create_datagram_endpoint(Echo, local_addr=('127.0.0.1', 0))
    answer = loop.create_future()
    client, _ = await loop.create_datagram_endpoint(lambda: Ask(answer), remote_addr=server.get_extra_info('sockname'))
    print(await asyncio.wait_for(answer, 60))
asyncio.run(main())
# A port is free again when its socket is closed, and nobody answers there.
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('127.0.0.1', 0)); at = s.getsockname(); s.close()
c = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); c.settimeout(60); c.connect(at)
try: c.send(b'x'); c.recv(9)
except ConnectionRefusedError: print('refused')
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(at)
try: s.listen()
except OSError as e: print('listen', e.errno)
print('lo' in [name for _, name in socket.if_nameindex()])
first = ctypes.c_void_p()
print('getifaddrs', ctypes.CDLL(None).getifaddrs(ctypes.byref(first)), first.value is not None)
";

fn python(run: &ProgramRunner, script: &str) -> ProgramOutcome {
    run.run(&["/usr/bin/python3", "-c", script])
}

/// B4: what asyncio, ZeroMQ, Gradle and test suites do.
#[test]
fn b4_datagrams_and_interfaces_work_in_the_session_s_own_network() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let control = python(&env.bare(), SELF);
        assert!(control.status.success() && control.stdout.contains("refused\n"), "{control:?}");
        let inside = python(&env.sandbox(), SELF);
        if target.has_namespaces() {
            assert_eq!(inside.stdout, control.stdout, "{inside:?}");
        } else {
            assert!(inside.stderr.contains(&format!("[Errno {EACCES}]")) && inside.stdout.is_empty(), "{inside:?}");
        }
    });
}

/// The address of this machine towards others, if it has one.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    // Sends nothing.
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().unwrap().ip())
}

/// B4: a datagram to any other address goes nowhere: to the host by each of its addresses, to other machines, by broadcast and
/// multicast. No option leads it elsewhere.
#[test]
fn b4_a_datagram_leaves_the_session_by_no_address_and_no_option() {
    let script = "
import errno, socket, sys
port, host = int(sys.argv[1]), sys.argv[2]
def tried(family, address, connected):
    s = socket.socket(family, socket.SOCK_DGRAM); s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    try:
        if connected: s.connect((address, port)); s.send(b'out')
        else: s.sendto(b'out', (address, port))
        return 'sent'
    except OSError as e: return errno.errorcode[e.errno]
for connected in (False, True):
    print(*[tried(socket.AF_INET, address, connected) for address in ['127.0.0.1', host]])
    print(*[tried(socket.AF_INET, address, connected) for address in ['192.0.2.1', '255.255.255.255', '224.0.0.251']])
def option(level, name, value):
    try: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).setsockopt(level, name, value); return 'set'
    except OSError as e: return errno.errorcode[e.errno]
print(option(1, 25, b'lo'), option(0, 19, 1), option(1, 36, 1), option(1, 26, bytes(16)))";
    matrix(&[Host::Namespaces], |target| {
        let env = TestEnv::new(target);
        let host = UdpSocket::bind("0.0.0.0:0").unwrap();
        host.set_nonblocking(true).unwrap();
        let came = || std::iter::from_fn(|| host.recv(&mut [0; 8]).ok()).count();
        let port = host.local_addr().unwrap().port().to_string();
        let own = own_address();
        if own.is_none() {
            skip("own-address", "this machine has no address but loopback");
        }
        let address = own.map_or("127.0.0.2".to_owned(), |own| own.to_string());
        let words = ["/usr/bin/python3", "-c", script, &port, &address];
        let control = env.bare().run(&words);
        assert!(control.stdout.starts_with("sent sent\n"), "{control:?}");
        assert!(came() >= 4, "the control arrived");
        let inside = env.sandbox().run(&words);
        let lines: Vec<&str> = inside.stdout.lines().collect();
        let nowhere = "ENETUNREACH ENETUNREACH ENETUNREACH";
        let to_host = if own.is_some() { "sent ENETUNREACH" } else { "sent sent" };
        let options = "EPERM ENOPROTOOPT ENOPROTOOPT ENOPROTOOPT";
        // A connected one hears of the first that nobody is there; only its second message would fail.
        assert_eq!(lines, [to_host, nowhere, to_host, nowhere, options], "{inside:?}");
        assert_eq!(came(), 0, "something came");
    });
}

/// B8: route netlink tells, and changes nothing: that takes a capability, which no call has. The control has it, in a network of
/// its own.
#[test]
fn b8_route_netlink_changes_nothing() {
    let script = "
import errno, socket, struct
def ask(kind, body, flags):
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); s.bind((0, 0)); s.settimeout(60)
    s.send(struct.pack('=IHHII', 16 + len(body), kind, flags | 5, 1, 0) + body)
    number = -struct.unpack_from('=i', s.recv(65536), 16)[0]
    return errno.errorcode.get(number, 'done')
lo = socket.if_nametoindex('lo')
ip = socket.inet_aton('192.0.2.9')
attribute = lambda kind: struct.pack('=HH', 8, kind) + ip
print(ask(20, struct.pack('=BBBBI', 2, 24, 0, 0, lo) + attribute(2) + attribute(1), 0x600),
      ask(19, struct.pack('=BBHiII', 0, 0, 0, lo, 0, 1), 0))
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
try: s.bind(('192.0.2.9', 0)); print('there')
except OSError as e: print(errno.errorcode[e.errno])";
    matrix(&[Host::Namespaces], |target| {
        let env = TestEnv::new(target);
        let control = env.bare().run(&["unshare", "-rn", "/usr/bin/python3", "-c", script]);
        if control.stdout == "done done\nthere\n" {
            let inside = python(&env.sandbox(), script);
            assert_eq!(inside.stdout, "EPERM EPERM\nEADDRNOTAVAIL\n", "{inside:?}");
        } else {
            assert!(control.stderr.contains("unshare"), "{control:?}");
            skip("network-namespace", format_args!("{target:?}: {}", control.stderr));
        }
    });
}

/// B17: a socket of the host's network that came as standard input is not acted on, whatever kind it is.
#[test]
fn b17_a_socket_of_another_network_is_not_bound_or_connected() {
    let script = "
import socket, sys
s = socket.socket(fileno=0)
def errno(act, *address):
    try: act(address); return 0
    except OSError as e: return e.errno
print(errno(s.connect, '127.0.0.1', int(sys.argv[1])), errno(s.bind, '127.0.0.1', 0))";
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let host = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = host.local_addr().unwrap().port().to_string();
        for (run, wanted) in [(env.bare(), format!("0 {EINVAL}\n")), (env.sandbox(), format!("{EISCONN} {EINVAL}\n"))] {
            // Bound already, as the kernel says bare when it is to be bound again.
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let mut command = run.command(&["/usr/bin/python3", "-c", script, &port]);
            let ended = command.stdin(OwnedFd::from(socket.try_clone().unwrap())).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&ended.stdout), wanted, "{ended:?}");
            assert_eq!(socket.peer_addr().is_ok(), wanted.starts_with('0'), "whether it is connected");
        }
    });
}

/// B5: a name is still looked up in vain at once, and it is said; so is an address outside that a datagram socket is connected to.
#[test]
fn b4_where_a_datagram_socket_was_to_lead_is_said() {
    matrix(&[Host::Namespaces], |target| {
        let env = TestEnv::new(target);
        let run = || env.sandbox().flag(&["--status", "status.json"]);
        run().probe(&["udp-connect", "192.0.2.1", "443"]).assert_errno(libc::ENETUNREACH);
        let status = std::fs::read(env.workspace().join("status.json")).unwrap();
        let status: serde_json::Value = serde_json::from_slice(&status).unwrap();
        let wanted = serde_json::json!([{ "address": "192.0.2.1:443", "count": 1 }]);
        assert_eq!(status["metadata"]["changes"]["not_reached"], wanted, "{status}");
        run().probe(&["udp-connect", "192.0.2.1", "53"]).assert_errno(libc::ENETUNREACH);
        let status = std::fs::read(env.workspace().join("status.json")).unwrap();
        let status: serde_json::Value = serde_json::from_slice(&status).unwrap();
        assert_eq!(status["metadata"]["changes"]["blocked"], serde_json::json!({ "name-lookup": 1 }), "{status}");
    });
}
