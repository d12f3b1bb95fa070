// A server that somebody has taken over: `taken_over.cjs ATTEMPTS PROGRAM ARGUMENT…`. See taken_over.py.

const { spawn } = require("node:child_process");
const fs = require("node:fs");
const net = require("node:net");
const { pathToFileURL } = require("node:url");

const acts = {
  read: (path) => fs.readFileSync(path, "utf8"),
  write: (path) => {
    fs.writeFileSync(path, "taken over");
    return "done";
  },
  connect: (port) =>
    new Promise((done, failed) => {
      const connection = net.connect(port, "127.0.0.1", () => {
        connection.destroy();
        done("done");
      });
      connection.on("error", failed);
    }),
  environment: (value) => {
    const has = (name) => {
      try {
        return fs.readFileSync(`/proc/${name}/environ`, "latin1").includes(value);
      } catch {
        return false;
      }
    };
    const all = () => {
      try {
        return fs.readdirSync("/proc");
      } catch {
        return [];
      }
    };
    return ["self", process.ppid, ...all()].some(has) ? "done" : "none";
  },
  stay: (seconds) => {
    spawn("sleep", [seconds], { stdio: "ignore", detached: true }).unref();
    return "done";
  },
};

async function tried(act, what) {
  try {
    return await act(what);
  } catch (error) {
    return error.code ?? String(error);
  }
}

(async () => {
  const attempts = JSON.parse(process.argv[2]);
  const came = {};
  for (const name of Object.keys(acts)) came[name] = await tried(acts[name], attempts[name]);
  fs.writeSync(2, `taken over: ${JSON.stringify(came)}\n`);
  process.argv.splice(1, 2);
  await import(pathToFileURL(process.argv[1]));
})();
