// Debian's Chromium and Firefox against `clearway serve --writable --early-data` behind `clearway relay`, which
// moves the browser to another port in the middle of a download. Each browser loads 100 objects at once,
// downloads 8 MB, uploads three files, waits until the server has closed the connection, and begins anew
// in 0-RTT. Every object has to have come over HTTP/3 (`nextHopProtocol`), with every byte.
//
//   node --experimental-websocket browsers.mjs [CLEARWAY]     (Node 20.10 or newer, openssl, certutil)
//
// The page is driven over Chromium's debugging protocol and Firefox's WebDriver BiDi: no packages needed.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const target = process.env.CARGO_TARGET_DIR ?? join(import.meta.dirname, "../target");
const clearway = process.argv[2] ?? join(target, "release/clearway");
const OBJECTS = 100;
const BIG = 8_000_000;
const UPLOADS = 3;
const UPLOAD = 1_000_000;
// 8 MB take 6.5 s at this rate.
const NETWORK = ["--rate", "10M", "--delay", "15ms", "--queue", "100", "--rebind", "2s,4s,6s"];
// The server closes a connection that is unused for this long.
const UNUSED = "3s";
const PATIENCE = 120_000;

let failed = false;

const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
const pattern = (length, seed) => Uint8Array.from({ length }, (_, at) => (at * 31 + seed) ^ (at >> 8) ^ (at >> 16));
const hash = (bytes) => createHash("sha256").update(bytes).digest("hex");

async function eventually(what, found) {
  for (const begun = Date.now(); Date.now() - begun < 20_000; await pause(50)) {
    const value = await found();
    if (value) return value;
  }
  throw new Error(`no ${what} in 20 s`);
}

// Starts a program; the returned process has `said`, what it printed so far.
function start(program, options, environment = {}) {
  const child = spawn(program, options, { env: { ...process.env, ...environment } });
  child.said = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => { child.said += data; });
  child.ended = new Promise((done) => child.once("exit", done));
  return child;
}

// Runs in the page; `work` is what it is told. It is passed as text.
async function visit(work) {
  const same = async (url, sum) => {
    const content = await (await fetch(url)).arrayBuffer();
    const found = new Uint8Array(await crypto.subtle.digest("SHA-256", content));
    const hex = [...found].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    return hex === sum ? 0 : 1;
  };
  const begun = performance.now();
  const wrong = await Promise.all(work.objects.map(({ url, sum }) => same(url, sum)));
  const afterObjects = performance.now();
  if (work.big) wrong.push(await same(work.big.url, work.big.sum));
  const afterBig = performance.now();
  for (let at = 0; at < work.uploads; at++) {
    const body = Uint8Array.from({ length: work.upload }, (_, byte) => (byte * 31 + at) ^ (byte >> 8) ^ (byte >> 16));
    const answer = await fetch(`/upload${at}.bin`, { method: "PUT", body });
    if (!answer.ok) wrong.push(1);
  }
  // The browser adds an entry after the promise of `fetch` is resolved.
  const wanted = work.objects.length + (work.big ? 1 : 0) + work.uploads;
  let entries = [];
  for (let tries = 0; tries < 100; tries++) {
    entries = performance.getEntriesByType("resource").filter((each) => !each.name.endsWith("favicon.ico"));
    if (entries.length >= wanted) break;
    await new Promise((done) => setTimeout(done, 20));
  }
  const all = [...performance.getEntriesByType("navigation"), ...entries];
  return JSON.stringify({
    wrong: wrong.reduce((sum, each) => sum + each, 0),
    objects: entries.length,
    protocols: [...new Set(all.map((entry) => entry.nextHopProtocol))],
    begun, afterObjects, afterBig,
  });
}

// A connection to a browser's driver.
async function driver(url) {
  const socket = new WebSocket(url);
  await new Promise((done, failed) => { socket.onopen = done; socket.onerror = () => failed(new Error(`no answer at ${url}`)); });
  const waiting = new Map();
  socket.onmessage = ({ data }) => { const message = JSON.parse(data); waiting.get(message.id)?.(message); };
  let next = 1;
  const send = async (method, params = {}) => {
    const id = next++;
    socket.send(JSON.stringify({ id, method, params }));
    const message = await new Promise((done) => waiting.set(id, done));
    assert.ok(!message.error, `${method}: ${JSON.stringify(message)}`);
    return message.result;
  };
  return { send, close: () => socket.close() };
}

const call = (work) => `(${visit})(${JSON.stringify(work)})`;

const browsers = {
  chromium: {
    program: "/usr/bin/chromium",
    start: (program, { profile, port, spki }) => start(program, [
      "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync", "--remote-debugging-port=0", `--user-data-dir=${profile}`,
      "--host-resolver-rules=MAP localhost 127.0.0.1", `--origin-to-force-quic-on=localhost:${port}`,
      `--ignore-certificate-errors-spki-list=${spki}`, "about:blank",
    ]),
    async open(said) {
      const port = await eventually("debugging port", () => said().match(/ws:\/\/127\.0\.0\.1:(\d+)\//)?.[1]);
      const pages = async () => (await (await fetch(`http://127.0.0.1:${port}/json`)).json()).find((each) => each.type === "page");
      const { send, close } = await driver((await eventually("page", pages)).webSocketDebuggerUrl);
      await send("Page.enable");
      const run = async (expression) => {
        const { result, exceptionDetails } = await send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
        assert.ok(!exceptionDetails, JSON.stringify(exceptionDetails));
        return result.value;
      };
      const load = async (url) => {
        const { errorText } = await send("Page.navigate", { url });
        assert.ok(!errorText, `${url}: ${errorText}`);
        await eventually("page", () => run(`location.href === ${JSON.stringify(url)} && document.readyState === "complete"`));
      };
      return { load, run, close };
    },
  },
  firefox: {
    program: "/usr/bin/firefox-esr",
    start(program, { profile, port, folder }) {
      mkdirSync(profile);
      execFileSync("certutil", ["-N", "-d", `sql:${profile}`, "--empty-password"]);
      execFileSync("certutil", ["-A", "-n", "test", "-t", "CT,,", "-i", `${folder}/ca.pem`, "-d", `sql:${profile}`]);
      const settings = {
        "network.http.http3.alt-svc-mapping-for-testing": `localhost;h3=:${port}`,
        "network.http.http3.force-use-alt-svc-mapping-for-testing": true,
        "network.http.http3.disable_when_third_party_roots_found": false,
        "network.dns.disableIPv6": true,
        "remote.active-protocols": 1,
        "browser.shell.checkDefaultBrowser": false,
        "datareporting.policy.dataSubmissionEnabled": false,
      };
      const lines = Object.entries(settings).map(([name, value]) => `user_pref(${JSON.stringify(name)}, ${JSON.stringify(value)});`);
      writeFileSync(join(profile, "user.js"), lines.join("\n"));
      return start(program, ["--headless", "--no-remote", "--profile", profile, "--remote-debugging-port=0", "about:blank"], { HOME: folder });
    },
    async open(said) {
      const address = await eventually("debugging port", () => said().match(/WebDriver BiDi listening on (ws:\S+)/)?.[1]);
      const { send, close } = await driver(`${address}/session`);
      await send("session.new", { capabilities: {} });
      const { contexts: [{ context }] } = await send("browsingContext.getTree");
      const run = async (expression) => {
        const { type, result, exceptionDetails } = await send("script.evaluate", { expression, awaitPromise: true, target: { context } });
        assert.equal(type, "success", JSON.stringify(exceptionDetails));
        return result.value;
      };
      const load = (url) => send("browsingContext.navigate", { context, url, wait: "complete" });
      return { load, run, close };
    },
  },
};

// A certificate of an authority of its own: Firefox does not accept one that signed itself.
function certify(folder) {
  const openssl = (...options) => execFileSync("openssl", options, { stdio: ["ignore", "pipe", "ignore"] });
  const curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
  openssl("req", "-x509", ...curve, "-days", "10", "-subj", "/CN=test", "-keyout", `${folder}/ca.key`, "-out", `${folder}/ca.pem`);
  openssl("req", ...curve, "-subj", "/CN=localhost", "-keyout", `${folder}/key.pem`, "-out", `${folder}/csr.pem`);
  writeFileSync(`${folder}/extensions`, "subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n");
  openssl("x509", "-req", "-in", `${folder}/csr.pem`, "-CA", `${folder}/ca.pem`, "-CAkey", `${folder}/ca.key`, "-CAcreateserial",
    "-days", "10", "-extfile", `${folder}/extensions`, "-out", `${folder}/cert.pem`);
  const key = openssl("x509", "-in", `${folder}/cert.pem`, "-pubkey", "-noout");
  const der = Buffer.from(key.toString().replace(/-----.*-----|\s/g, ""), "base64");
  return createHash("sha256").update(der).digest("base64");
}

// Writes the site. Returns what the page is told.
function site(folder) {
  mkdirSync(folder);
  writeFileSync(join(folder, "start.txt"), "start\n");
  const file = (name, length, seed) => {
    const content = pattern(length, seed);
    writeFileSync(join(folder, name), content);
    return { url: `/${name}`, sum: hash(content) };
  };
  const objects = Array.from({ length: OBJECTS }, (_, at) => file(`${at}.bin`, 1_000 + 100 * at, at));
  return { objects, big: file("big.bin", BIG, 7), uploads: UPLOADS, upload: UPLOAD };
}

// Connections of a server, by its traces: which of them got 0-RTT packets and changed their path.
function traces(folder) {
  const texts = readdirSync(folder).map((name) => readFileSync(join(folder, name), "utf8"));
  const early = texts.filter((text) => /"packet_type":\s*"0RTT"/.test(text)).length;
  const moved = texts.filter((text) => /path_response/.test(text)).length;
  return { connections: texts.length, early, moved };
}

async function check(name, browser) {
  const folder = mkdtempSync(join(tmpdir(), "clearway-browsers-"));
  const children = [];
  const watchdog = setTimeout(() => { console.log(`${name}: FAIL (no result in ${PATIENCE / 1000} s)`); for (const child of children) child.kill("SIGKILL"); process.exit(1); }, PATIENCE);
  try {
    const spki = certify(folder);
    const work = site(join(folder, "site"));
    const server = start(clearway, ["serve", join(folder, "site"), "--listen", "127.0.0.1:0", "--writable", "--early-data", "--keepalive-timeout", UNUSED,
      "--cert", join(folder, "cert.pem"), "--key", join(folder, "key.pem"), "--qlog", join(folder, "qlog")]);
    children.push(server);
    const address = await eventually("server", () => server.said.match(/listening on (\S+)/)?.[1]);
    const relay = start(clearway, ["relay", "--listen", "127.0.0.1:0", "--to", address, "--json", ...NETWORK]);
    children.push(relay);
    const port = await eventually("relay", () => relay.said.match(/127\.0\.0\.1:(\d+)/)?.[1]);
    const running = browser.start(browser.program, { profile: join(folder, "profile"), port, spki, folder });
    children.push(running);
    const page = await browser.open(() => running.said);
    const url = `https://localhost:${port}/start.txt`;
    const begun = Date.now();
    await page.load(url);
    const first = JSON.parse(await page.run(call(work)));
    const took = { objects: first.afterObjects - first.begun, download: first.afterBig - first.afterObjects, all: Date.now() - begun };
    for (let at = 0; at < UPLOADS; at++) {
      assert.equal(hash(readFileSync(join(folder, "site", `upload${at}.bin`))), hash(pattern(UPLOAD, at)), `upload ${at}`);
    }
    const connections = () => traces(join(folder, "qlog")).connections;
    const before = connections();
    await pause(5_000);
    await page.load(`${url}?again`);
    const second = JSON.parse(await page.run(call({ ...work, big: null, uploads: 0 })));
    page.close();
    running.kill();
    await running.ended;
    relay.kill("SIGINT");
    await relay.ended;
    server.kill("SIGINT");
    await server.ended;
    const { rebinds } = JSON.parse(relay.said.slice(relay.said.indexOf("{"), relay.said.lastIndexOf("}") + 1));
    const seen = traces(join(folder, "qlog"));
    const summary = { first, second, rebinds, before, seen, took };
    for (const [visit, objects] of [[first, OBJECTS + 1 + UPLOADS], [second, OBJECTS]]) {
      assert.deepEqual([visit.wrong, visit.objects, visit.protocols], [0, objects, ["h3"]], JSON.stringify(summary));
    }
    assert.ok(rebinds >= 3 && took.download > 4_000 && seen.moved >= 1, `no rebinding in the download: ${JSON.stringify(summary)}`);
    assert.ok(seen.connections > before && seen.early >= 1, `no 0-RTT: ${JSON.stringify(summary)}`);
    console.log(`${name}: pass (${first.objects} and ${second.objects} objects, all h3; download of ${BIG} bytes in ${Math.round(took.download)} ms `
      + `with ${rebinds} rebindings; ${seen.connections} connections, ${seen.early} with 0-RTT)`);
  } catch (error) {
    console.log(`${name}: FAIL\n${error.stack}`);
    for (const child of children) console.log(child.said.slice(-2_000));
    failed = true;
  } finally {
    clearTimeout(watchdog);
    for (const child of children) if (child.exitCode === null) { child.kill("SIGKILL"); await child.ended; }
    if (failed && process.env.KEEP) execFileSync("cp", ["-r", folder, process.env.KEEP]);
    rmSync(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  }
}

for (const [name, browser] of Object.entries(browsers)) {
  if (process.env.BROWSER && process.env.BROWSER !== name) continue;
  if (existsSync(browser.program)) await check(name, browser);
  else console.log(`${name}: not run (${browser.program} is not installed)`);
}
process.exit(failed ? 1 : 0);
