//! The endpoint of an agent that is a program, as a host serves it: bytes come by it, and nothing else (X0-24).

use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex};

use callgate::{AgentEndpoint, AgentService};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::task::{ALL, answer, in_each_strength, spec, supervisor, task};

/// Reads what comes, with room for descriptors, until the program closes; then answers in upper case.
#[derive(Debug, Default, Clone)]
struct Collects(Arc<Mutex<(Vec<u8>, usize)>>);

impl AgentEndpoint for Collects {
    fn service(&self) -> AgentService {
        let this = self.clone();
        Box::new(move |_session, mut connection| {
            let this = this.clone();
            Box::pin(async move {
                let mut all = Vec::new();
                loop {
                    connection.readable().await.unwrap();
                    let mut bytes = [0; 256];
                    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
                    let mut control = RecvAncillaryBuffer::new(&mut space);
                    let read = connection.try_io(tokio::io::Interest::READABLE, || {
                        let mut into = [std::io::IoSliceMut::new(&mut bytes)];
                        let flags = RecvFlags::CMSG_CLOEXEC;
                        Ok(rustix::net::recvmsg(connection.as_fd(), &mut into, &mut control, flags)?)
                    });
                    let read = match read {
                        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
                        read => read.unwrap().bytes,
                    };
                    let rights = control.drain().map(|message| match message {
                        RecvAncillaryMessage::ScmRights(rights) => rights.count(),
                        RecvAncillaryMessage::ScmCredentials(_) | _ => 0,
                    });
                    this.0.lock().unwrap().1 += rights.sum::<usize>();
                    if read == 0 {
                        break;
                    }
                    all.extend(&bytes[..read]);
                }
                this.0.lock().unwrap().0.extend(&all);
                connection.write_all(&all.to_ascii_uppercase()).await.unwrap();
                // What comes after the program's own end is nothing.
                assert_eq!(connection.read(&mut [0]).await.unwrap(), 0);
            })
        })
    }
}

/// D11, X0-24: a program that sends descriptors to the process that serves it makes that process their last holder, and have it
/// wait while it closes them. Bytes go both ways, and each side sees that the other has ended.
#[test]
fn d11_x0_24_no_descriptor_reaches_whoever_serves_an_agents_program() {
    let program = r#"
import array, os, socket
ends = socket.socketpair()
def pass_to(to):
    held = socket.socket(socket.AF_INET)
    rights = array.array('i', [os.pipe()[1], held.fileno()])
    to.sendmsg([b'taken'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
pass_to(ends[0])
print('control', len(socket.recv_fds(ends[1], 9, 9)[1]))
to = socket.socket(socket.AF_UNIX)
to.connect(os.environ['CALLGATE_MCP'])
pass_to(to)
to.sendall(b' and ' + b'x' * 300000)
to.shutdown(socket.SHUT_WR)
heard = b''
while piece := to.recv(65536): heard += piece
print(heard[:12].decode(), len(heard))
"#;
    let text = format!(
        "{ALL}\n[agents.program]\ndescription = \"x\"\nrequires.fs.read = [\"{{workspace}}/**\"]\n\
         runner = [\"/usr/bin/python3\", \"-c\", '''{program}''']\n"
    );
    in_each_strength(async |workspace, strength| {
        let collects = Collects::default();
        let spec = spec(workspace, strength, &text).agent_endpoint(Arc::new(collects.clone()));
        let session = supervisor(None).open(spec).await.unwrap();
        let done = task(&session, "program", "x").await;
        assert_eq!(answer(&done), "control 2\nTAKEN AND XX 300010\n", "{done:?}");
        let (bytes, descriptors) = &*collects.0.lock().unwrap();
        assert!(bytes.starts_with(b"taken and xxx") && bytes.len() == 300_010, "{}", bytes.len());
        assert_eq!(*descriptors, 0);
    });
}
