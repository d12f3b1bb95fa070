// Runs a tool that knows of no tokens against a server that wants one: it forwards each request with the token. What a request says of
// its host and origin is passed on, so that the server judges it, with the port of the server for that of this forwarder.
//
// Usage: node with_token.mjs HOST:PORT TOKEN_FILE PROGRAM ARGUMENT…  ({url} is where the server is to be found)
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import http from "node:http";

const [server, tokenFile, program, ...words] = process.argv.slice(2);
const token = readFileSync(tokenFile, "utf8").trim().split("\n")[0];
const [host, port] = server.split(":");

const forwarder = http.createServer((request, response) => {
    const own = `:${forwarder.address().port}`;
    const headers = request.rawHeaders.map((text, at) => (at % 2 ? text.replace(own, `:${port}`) : text));
    headers.push("Authorization", `Bearer ${token}`);
    const forwarded = http.request({ host, port, method: request.method, path: request.url, headers, agent: false, setHost: false });
    forwarded.on("response", (answer) => {
        response.writeHead(answer.statusCode, answer.rawHeaders);
        response.flushHeaders();
        answer.pipe(response);
    });
    forwarded.on("error", () => response.destroy());
    // A client that goes is gone for the server too.
    response.on("close", () => forwarded.destroy());
    request.pipe(forwarded);
});

forwarder.listen(0, "127.0.0.1", () => {
    const url = `http://127.0.0.1:${forwarder.address().port}/mcp`;
    const tool = spawn(program, words.map((word) => word.replace("{url}", url)), { stdio: "inherit" });
    tool.on("error", (error) => {
        console.error(`${program}: ${error.message}`);
        process.exit(1);
    });
    tool.on("exit", (code) => process.exit(code ?? 1));
});
