// A whole session with the TypeScript clients of the Model Context Protocol, over standard input and output: version 1 (npm:
// @modelcontextprotocol/sdk), which speaks 2025-11-25, and version 2 (@modelcontextprotocol/client), which speaks 2026-07-28.
//
// Usage: node session.mjs PACKAGES v1|v2 SECRET PROGRAM ARGUMENT…
//
// PACKAGES is where npm has installed them. PROGRAM is the server, started in this directory, which is its workspace. SECRET is a file
// that it may not read. What the person answers: "no" to whatever has `never` in it, otherwise "once".
import assert from "node:assert/strict";
import { existsSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { resolve } from "node:path";
import { setTimeout as pause } from "node:timers/promises";

const [packages, version, secret, program, ...words] = process.argv.slice(2);
const load = (name) => import(createRequire(`${packages}/`).resolve(name));
const asked = [];

function answer({ params }) {
    asked.push(params.message);
    const choice = params.requestedSchema.properties.answer_1;
    if (choice) return { action: "accept", content: { answer_1: choice.enum[1] } };
    return { action: "accept", content: { answer: params.message.includes("never") ? "no" : "once" } };
}

async function connect() {
    const server = { command: program, args: words, env: process.env, cwd: process.cwd() };
    const about = { name: "callgate-tests", version: "1" };
    const capabilities = { elicitation: {} };
    if (version === "v1") {
        const { Client } = await load("@modelcontextprotocol/sdk/client/index.js");
        const { StdioClientTransport } = await load("@modelcontextprotocol/sdk/client/stdio.js");
        const { ElicitRequestSchema } = await load("@modelcontextprotocol/sdk/types.js");
        const client = new Client(about, { capabilities });
        client.setRequestHandler(ElicitRequestSchema, answer);
        const transport = new StdioClientTransport(server);
        await client.connect(transport);
        const call = (params, options) => client.callTool(params, undefined, options);
        return { client, call };
    }
    const { Client } = await load("@modelcontextprotocol/client");
    const { StdioClientTransport } = await load("@modelcontextprotocol/client/stdio");
    const client = new Client(about, { capabilities, versionNegotiation: { mode: "auto" } });
    client.setRequestHandler("elicitation/create", answer);
    await client.connect(new StdioClientTransport(server));
    assert.equal(client.getNegotiatedProtocolVersion(), "2026-07-28");
    return { client, call: (params, options) => client.callTool(params, options) };
}

async function eventually(what, holds) {
    for (let looks = 0; looks < 3000; looks += 1) {
        if (holds()) return;
        await pause(20);
    }
    assert.fail(`not within a minute: ${what}`);
}

// How many programs were started with this word.
function runs(marker) {
    const words = (pid) => {
        try {
            return readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
        } catch {
            return [];
        }
    };
    const all = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
    return all.map(words).filter((line) => line[0] === "tail" && line.includes(marker)).length;
}

const { client, call } = await connect();
assert.equal(client.getServerVersion().name, "callgate");
const tool = (name, arguments_, options) => call({ name, arguments: arguments_ }, options);
const bash = (command, options) => tool("bash", { command }, options);
const text = (result) => result.content[0].text;

const { tools } = await client.listTools();
const named = new Map(tools.map((tool) => [tool.name, tool]));
for (const name of ["read", "edit", "bash", "question"]) assert.equal(named.get(name)?.inputSchema.type, "object", name);
assert.equal(named.get("read").annotations.readOnlyHint, true);
assert.equal(named.get("bash").annotations.readOnlyHint, false);

let result = await tool("read", { path: "a" });
assert.equal(result.structuredContent.content, "hello\n", JSON.stringify(result));
assert.equal(asked.length, 0, "reading needs no approval");
result = await tool("edit", { path: "a", old_string: "hello", new_string: "changed" });
assert.ok(!result.isError, JSON.stringify(result));
assert.equal(readFileSync("a", "utf8"), "changed\n");

// What is outside: neither a tool nor a program reads it, whatever the person says.
result = await tool("read", { path: secret });
assert.ok(result.isError && text(result).includes("is denied"), JSON.stringify(result));
assert.ok(!JSON.stringify(result).includes("a secret"));
result = await bash(`cat ${secret}`);
assert.ok(result.structuredContent.exit_code !== 0, JSON.stringify(result));
assert.ok(!JSON.stringify(result).includes("a secret"));

// Output comes while the program runs: it waits for what is done here when its first line has come.
const pieces = [];
const onprogress = ({ message }) => {
    pieces.push(message);
    if (pieces.join("").includes("one\n")) writeFileSync("seen", "");
};
result = await bash("echo one; until [ -e seen ]; do sleep 0.02; done; cat a", { onprogress });
assert.ok(text(result).startsWith("one\nchanged\n"), JSON.stringify(result));

const before = asked.length;
result = await bash("echo x > never");
assert.ok(result.isError && text(result) === "bash is denied: a person said no", JSON.stringify(result));
result = await bash("echo x > once");
assert.equal(result.structuredContent.exit_code, 0, JSON.stringify(result));
assert.equal(asked.length, before + 2);
assert.ok(asked.at(-1).includes("echo x > once"), asked.at(-1));
assert.ok(!existsSync("never"));
assert.equal(readFileSync("once", "utf8"), "x\n");

result = await tool("question", { questions: [{ question: "Which?", options: [{ label: "A" }, { label: "B" }] }] });
assert.deepEqual(result.structuredContent, { answers: [["B"]] });

// What is cancelled ends.
const marker = resolve("marker");
const cancel = new AbortController();
const running = bash(`touch ${marker}; exec tail -f ${marker}`, { signal: cancel.signal });
running.catch(() => {});
await eventually("the call runs", () => runs(marker) === 1);
cancel.abort();
await assert.rejects(running);
await eventually("the call has ended", () => runs(marker) === 0);
result = await tool("read", { path: "once" });
assert.equal(result.structuredContent.content, "x\n");

await client.close();
console.log("the whole session");
