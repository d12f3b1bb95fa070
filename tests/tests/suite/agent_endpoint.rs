//! An agent that is a program makes the calls of its own session, at a socket in its sandbox that nobody else reaches: they pass
//! all layers, and whoever is asked is never the program itself.

use std::fs;

use callgate_tests::{Binaries, Host, ProgramOutcome, TestEnv, eventually, matrix};
use libc::{EACCES, ENOENT};
use serde_json::{Value, json};

use super::mcp::{PersonAnswer, StdioClient, text, user, wrong};

/// Functions that all of these programs have in common: `request` sends and waits for the answer, whatever comes in
/// between.
const PROGRAM: &str = r#"
import json, os, socket, sys

heard = []

def connect():
    connection = socket.socket(socket.AF_UNIX)
    # So that what never comes fails the test.
    connection.settimeout(30)
    connection.connect(os.environ["CALLGATE_MCP"])
    return connection.makefile("rw")

def send(stream, number, method, params):
    print(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}), file=stream, flush=True)

def request(stream, number, method, **params):
    send(stream, number, method, params)
    while True:
        message = json.loads(stream.readline())
        if message.get("id") == number and "method" not in message:
            return message
        heard.append(message.get("method"))
        if message.get("method") == "elicitation/create":
            result = {"action": "accept", "content": {"answer": "once"}}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), file=stream, flush=True)

def begin():
    stream = connect()
    about = {"name": "agent", "version": "1"}
    # It says that it can answer questions, and would. It is not to be asked any.
    request(stream, 0, "initialize", protocolVersion="2025-06-18", capabilities={"elicitation": {}}, clientInfo=about)
    print(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}), file=stream, flush=True)
    return stream

def call(stream, tool, **arguments):
    return request(stream, 1, "tools/call", name=tool, arguments=arguments)["result"]

def said(result):
    return [result["isError"], result["content"][0]["text"]]

def tell(**what):
    print(json.dumps(what))
"#;

/// A manifest with agents that are such programs. What each has besides its program stands in its text before that.
fn manifest(top: &str, agents: &[(&str, &str, &str)]) -> String {
    let agents: String = agents
        .iter()
        .map(|(name, keys, program)| {
            format!(
                "[agents.{name}]\ndescription = \"x\"\ninspectable = true\n{keys}\n\
                 runner = [\"/usr/bin/python3\", \"-c\", '''{PROGRAM}{program}''']\n"
            )
        })
        .collect();
    let fs = "requires.fs.read = [\"{workspace}/**\"]\nrequires.fs.write = [\"{workspace}/**\"]";
    format!("{top}\n{fs}\n[[requires.shell]]\ncmd = \"*\"\n{agents}")
}

fn callgate(env: &TestEnv, words: &[&str]) -> ProgramOutcome {
    let binary = Binaries::of_this_build().callgate().display().to_string();
    user(env).run(&[&[binary.as_str()], words].concat())
}

fn shown(env: &TestEnv, id: &str) -> Value {
    serde_json::from_str(&callgate(env, &["session", "show", id, "--json"]).stdout).unwrap()
}

/// Facts that the program of an agent told, by a result of `task`.
#[track_caller]
fn told(data: &Value) -> Value {
    let output = data["output"].as_str().unwrap_or_else(|| panic!("{data}"));
    serde_json::from_str(output).unwrap_or_else(|error| panic!("{error}: {output}"))
}

/// X0-24, X0-25, X0-21: the calls of an agent's program pass the three layers of its own session: it does what that may, is denied what
/// its parent may and it may not, and all of that is in its session's record.
#[test]
fn x0_24_x0_25_x0_21_an_agents_program_makes_the_calls_of_its_session() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for name in ["own", "other"] {
            fs::create_dir(env.workspace().join(name)).unwrap();
            env.give(&env.workspace().join(name));
        }
        let kept = env.workspace_file("other/kept", "as it was");
        let ceiling = "tools = [\"read\", \"write\", \"bash\"]\nceiling.fs.write = [\"{workspace}/own/**\"]";
        let program = r#"
stream = begin()
tell(
    tools=[tool["name"] for tool in request(stream, 1, "tools/list")["result"]["tools"]],
    wrote=said(call(stream, "write", path="own/a", content=sys.stdin.read())),
    read=said(call(stream, "read", path="own/a")),
    ran=said(call(stream, "bash", command="cat own/a > own/b")),
    denied=said(call(stream, "write", path="other/kept", content="x")),
    kept=said(call(stream, "bash", command="echo x > other/kept")),
    absent=request(stream, 1, "tools/call", name="edit", arguments={})["error"]["code"],
)
"#;
        env.workspace_file("m.toml", &manifest("mode = \"yolo\"", &[("child", ceiling, program)]));
        let id = callgate(&env, &["session", "new", "--manifest", "m.toml"]).stdout.trim().to_owned();
        let arguments = json!({ "subagent_type": "child", "prompt": "hello" }).to_string();
        let ended = callgate(&env, &["call", "--session", &id, "task", &arguments]);
        let done: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
        let told = told(&done["data"]);
        assert_eq!(told["tools"], json!(["read", "write", "bash"]), "{told}");
        for (what, word) in [("wrote", "own/a"), ("read", "hello")] {
            assert_eq!(told[what][0], false, "{told}");
            assert!(told[what][1].as_str().unwrap().contains(word), "{told}");
        }
        assert_eq!(fs::read_to_string(env.workspace().join("own/b")).unwrap(), "hello");
        assert_eq!(told["denied"][0], true, "{told}");
        assert!(told["denied"][1].as_str().unwrap().contains("other/kept is denied"), "{told}");
        assert!(!told["kept"][1].as_str().unwrap().contains("exit_code: 0"), "{told}");
        assert_eq!(told["absent"], -32602, "{told}");
        kept.assert_contents("as it was");

        let parent = shown(&env, &id);
        let tools = |record: &Value| -> Vec<String> {
            let calls = record["calls"].as_array().unwrap().iter();
            calls.map(|call| call["tool"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(tools(&parent), ["task"], "{parent}");
        let child = shown(&env, parent["subagents"][0]["id"].as_str().unwrap());
        assert_eq!(tools(&child), ["run", "write", "read", "bash", "write", "bash"], "{child}");
        // The control: its parent may.
        let write = json!({ "path": "other/kept", "content": "x" }).to_string();
        assert_eq!(callgate(&env, &["call", "--session", &id, "write", &write]).status.code(), Some(0));
        kept.assert_contents("x");
    });
}

/// The trace of a call is in its result and so in the record, and in those of the calls that an agent makes for it. One that is
/// malformed is none.
#[test]
fn a_trace_is_passed_on_to_the_calls_of_an_agent() {
    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let program = "result = call(begin(), \"bash\", command=\"true\")\n\
                       tell(trace=result[\"_meta\"][\"callgate/envelope\"][\"metadata\"].get(\"traceparent\"))\n";
        env.workspace_file("m.toml", &manifest("mode = \"yolo\"", &[("child", "", program)]));
        let mut client = StdioClient::stateful(&env, &["--manifest", "m.toml"], PersonAnswer::Nobody);
        for (said, passed_on) in [(TRACE, json!(TRACE)), ("00-x", Value::Null)] {
            let mut params = task("child", false);
            params["_meta"] = json!({ "traceparent": said });
            let done = client.request("tools/call", params, PersonAnswer::Nobody);
            assert_eq!(done["result"]["_meta"]["callgate/envelope"]["metadata"]["traceparent"], passed_on, "{done}");
            assert_eq!(told(&done["result"]["structuredContent"])["trace"], passed_on, "{done}");
        }
        client.close();
    });
}

/// F17: nobody but an agent's program reaches its endpoint: neither another call of its session, nor its parent's, nor anybody
/// outside. A sibling by the same name reaches its own session.
#[test]
fn f17_nobody_else_reaches_the_endpoint_of_an_agent() {
    const TRY: &str = "import os, socket, sys
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[1])
    print(0)
except OSError as error:
    print(error.errno)";
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        env.workspace_file("try.py", TRY);
        // It holds its own endpoint open until it is let go.
        let first = r#"
import time
stream = begin()
where = os.environ["CALLGATE_MCP"]
tried = call(stream, "bash", command="/usr/bin/python3 try.py " + where)
mine = call(stream, "bash", command="env")["content"][0]["text"]
call(stream, "write", path="where", content=where)
while not os.path.exists("go"):
    time.sleep(0.01)
tell(tried=said(tried), told="CALLGATE_MCP" in mine, where=where)
"#;
        let second = "stream = begin()\ntell(wrote=said(call(stream, \"write\", path=\"b\", content=\"x\")))\n";
        let agents = [("first", "", first), ("second", "ceiling.fs.write = []", second)];
        env.workspace_file("m.toml", &manifest("mode = \"yolo\"", &agents));
        let mut client = StdioClient::stateful(&env, &["--manifest", "m.toml"], PersonAnswer::Nobody);
        let first = client.send("tools/call", task("first", false));
        eventually("it is there", || env.workspace().join("where").exists());
        let second = client.request("tools/call", task("second", false), PersonAnswer::Nobody);
        let second = told(&second["result"]["structuredContent"]);
        assert_eq!(second["wrote"][0], true, "by its own session, which may not: {second}");
        assert!(!env.workspace().join("b").exists());

        let place = fs::read_to_string(env.workspace().join("where")).unwrap();
        let outside = env.bare().run(&["/usr/bin/python3", "-c", TRY, &place]);
        assert_eq!(outside.stdout.trim(), ENOENT.to_string(), "{outside:?}");
        env.workspace_file("go", "");
        let first = client.answer(first, PersonAnswer::Nobody);
        let first = told(&first["result"]["structuredContent"]);
        let hidden = |text: &str| [ENOENT, EACCES].iter().any(|errno| text.starts_with(&format!("{errno}\n")));
        assert!(hidden(first["tried"][1].as_str().unwrap()), "another call of its session: {first}");
        assert_eq!(first["told"], false, "{first}");
        let of_parent =
            client.call("bash", json!({ "command": format!("/usr/bin/python3 try.py {place}") }), PersonAnswer::Nobody);
        assert!(hidden(text(&of_parent)), "{of_parent}");
        client.close();
    });
}

fn task(agent: &str, background: bool) -> Value {
    let arguments = json!({ "subagent_type": agent, "prompt": "x", "background": background });
    json!({ "name": "task", "arguments": arguments })
}

/// S0-57: whoever a call of an agent's program has to ask is the person who is asked about its parent's; never the program, though it
/// says that it could be. With nobody there, the answer is no.
#[test]
fn s0_57_an_agents_program_answers_no_question_of_its_own() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let program = r#"
stream = begin()
done = call(stream, "bash", command="echo x >> asked")
tell(done=said(done), heard=heard)
"#;
        let rules = "[[rules]]\npermission = \"task\"\npattern = \"*\"\naction = \"allow\"";
        env.workspace_file("m.toml", &format!("{}{rules}\n", manifest("mode = \"ask\"", &[("child", "", program)])));
        let asked = env.workspace().join("asked");
        for (person, text) in [
            (PersonAnswer::Nobody, "there is nobody to ask"),
            (PersonAnswer::Says("no"), "a person said no"),
            (PersonAnswer::Says("once"), "exit_code: 0"),
        ] {
            let mut client = StdioClient::stateful(&env, &["--manifest", "m.toml"], person);
            let before = client.asked.len();
            let done = client.request("tools/call", task("child", false), person);
            let told = told(&done["result"]["structuredContent"]);
            assert!(told["done"][1].as_str().unwrap().contains(text), "{told}");
            assert_eq!(told["heard"], json!([]), "the program was asked: {told}");
            let is_yes = text == "exit_code: 0";
            assert_eq!((asked.exists(), told["done"][0] == false), (is_yes, is_yes), "{told}");
            let questions = client.asked.len() - before;
            assert_eq!(questions, if matches!(person, PersonAnswer::Nobody) { 0 } else { 1 }, "{:?}", client.asked);
            if questions == 1 {
                assert!(client.asked[before].contains("echo x >> asked"), "{:?}", client.asked);
            }
            client.close();
        }
        assert_eq!(fs::read_to_string(asked).unwrap(), "x\n");
    });
}

/// X0-23: with an agent's program ends what its calls have started, however it ended: of its own, or with its parent.
#[test]
fn x0_23_with_an_agents_program_end_its_calls() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let marker = env.workspace().join("marker").display().to_string();
        let runs = || {
            let all = fs::read_dir("/proc").unwrap().flatten();
            let lines = all.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
            lines.filter(|line| line.starts_with(b"tail\0") && String::from_utf8_lossy(line).contains(&marker)).count()
        };
        let program = format!(
            r#"
import time
stream = begin()
send(stream, 7, "tools/call", {{"name": "bash", "arguments": {{"command": "touch {marker}; exec tail -f {marker}"}}}})
while not os.path.exists("go"):
    time.sleep(0.01)
"#
        );
        env.workspace_file("m.toml", &manifest("mode = \"yolo\"", &[("child", "", &program)]));
        let mut client = StdioClient::stateful(&env, &["--manifest", "m.toml"], PersonAnswer::Nobody);
        let id = client.send("tools/call", task("child", false));
        eventually("its call runs", || runs() == 1);
        env.workspace_file("go", "");
        let done = client.answer(id, PersonAnswer::Nobody);
        assert_eq!(done["result"]["isError"], false, "{done}");
        assert_eq!(runs(), 0);
        // The control: the session goes on.
        text(&client.call("bash", json!({ "command": "rm go" }), PersonAnswer::Nobody));
        client.send("tools/call", task("child", false));
        eventually("its call runs again", || runs() == 1);
        client.close();
        assert_eq!(runs(), 0);
    });
}

/// D11: a program that sends what it may not is served no more on that connection, and nothing else suffers: not its other
/// connections, and not its parent.
#[test]
fn d11_a_program_that_floods_its_endpoint_ends_alone() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let program = r#"
def is_ended(stream, text):
    try:
        stream.write(text)
        stream.flush()
        while stream.readline():
            pass
        return True
    except (BrokenPipeError, ConnectionResetError):
        return True

good = begin()
dense = '{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"x": [' + '{"":0},' * 100000 + "0]}}\n"
ended = [is_ended(begin(), text) for text in ("no JSON\n", "x" * (3 << 20), dense)]
# As many as there may be, and one more.
others = [begin() for _ in range(3)]
ended.append(is_ended(connect(), ""))
served = [said(call(stream, "bash", command="echo on"))[0] for stream in [good, *others]]
# Those that it lets go make room, once that was noticed.
good.close()
others.clear()
again = None
while again is None:
    try:
        again = said(call(begin(), "bash", command="echo again"))
    except (BrokenPipeError, ConnectionResetError, json.JSONDecodeError):
        pass
tell(ended=ended, served=served, again=again[0])
"#;
        env.workspace_file("m.toml", &manifest("mode = \"yolo\"", &[("child", "", program)]));
        let mut client = StdioClient::stateful(&env, &["--manifest", "m.toml"], PersonAnswer::Nobody);
        let done = client.request("tools/call", task("child", false), PersonAnswer::Nobody);
        let told = told(&done["result"]["structuredContent"]);
        assert_eq!(told, json!({ "ended": vec![true; 4], "served": vec![false; 4], "again": false }));
        text(&client.call("bash", json!({ "command": "true" }), PersonAnswer::Nobody));
        client.close();
    });
}

/// D11: a program that asks and does not read is not read either: it costs no memory and nobody's time.
#[test]
fn d11_a_program_that_reads_no_answers_is_not_read() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let program = r#"
import select
connection = socket.socket(socket.AF_UNIX)
connection.settimeout(30)
connection.connect(os.environ["CALLGATE_MCP"])
about = {"name": "agent", "version": "1"}
stream = connection.makefile("rw")
request(stream, 0, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=about)
connection.setblocking(False)
asked = 0
taken_back = json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}}) + "\n"
lines = "".join(
    json.dumps({"jsonrpc": "2.0", "id": ident, "method": "tools/list", "params": {}}) + "\n" for ident in [9, 9, *range(10, 20)]
)
rest = b""
while asked < 30000:
    if not rest:
        rest, asked = (lines + taken_back).encode(), asked + 12
    # Longer than what is read too fast is left to wait.
    if not select.select([], [connection], [], 12)[1]:
        break
    rest = rest[connection.send(rest):]
tell(asked=asked)
"#;
        env.workspace_file("m.toml", &manifest("mode = \"yolo\"", &[("child", "", program)]));
        let mut client = StdioClient::stateful(&env, &["--manifest", "m.toml"], PersonAnswer::Nobody);
        let done = client.request("tools/call", task("child", false), PersonAnswer::Nobody);
        let asked = told(&done["result"]["structuredContent"])["asked"].as_u64().unwrap();
        assert!(asked < 10_000, "{asked}");
        text(&client.call("bash", json!({ "command": "true" }), PersonAnswer::Nobody));
        let status = fs::read_to_string(format!("/proc/{}/status", client.server.id())).unwrap();
        let held = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
        let held: u64 = held.unwrap().trim().parse().unwrap();
        assert!(held < 256 * 1024, "{held} KiB");
        client.close();
    });
}

/// The program in the manual works as it stands there.
#[test]
fn the_manuals_program_of_an_agent_works() {
    let manual = include_str!("../../../docs/manifest.md");
    let (_, rest) = manual.split_once("```python\n").unwrap();
    let (program, _) = rest.split_once("```").unwrap();
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        env.file("agent.py", program);
        let agent = env.outside().join("agent.py").display().to_string();
        let manifest = format!(
            "mode = \"yolo\"\nrequires.fs.read = [\"{{workspace}}/**\", {agent:?}]\nrequires.fs.write = [\"{{workspace}}/**\"]\n\
             [[requires.shell]]\ncmd = \"*\"\n\
             [agents.fixer]\ndescription = \"x\"\nrequires.fs.read = [{agent:?}]\nrunner = [\"/usr/bin/python3\", {agent:?}]\n"
        );
        env.workspace_file("m.toml", &manifest);
        let mut client = StdioClient::stateful(&env, &["--manifest", "m.toml"], PersonAnswer::Nobody);
        let done = client.request("tools/call", task("fixer", false), PersonAnswer::Nobody);
        assert!(text(&done).contains("note"), "{done}");
        assert_eq!(fs::read_to_string(env.workspace().join("note")).unwrap(), "x");
        let unknown = client.request("tools/call", task("absent", false), PersonAnswer::Nobody);
        assert!(wrong(&unknown).contains("no subagent"), "{unknown}");
        client.close();
    });
}
