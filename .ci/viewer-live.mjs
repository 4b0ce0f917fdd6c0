// A page of two traces, a trace that grows, and a running server. See .ci/viewer.
import { spawn } from "node:child_process";
import { copyFileSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { join } from "node:path";
import assert from "node:assert/strict";
import { open } from "./chromium.mjs";

const [chromium, clearway, scratch] = process.argv.slice(2);
const children = [];
process.on("exit", () => children.forEach((child) => child.kill("SIGKILL")));

// Starts clearway; returns its lines on standard output as they come.
function start(...options) {
  const child = spawn(clearway, options, { stdio: ["ignore", "pipe", "ignore"] });
  children.push(child);
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  return async () => (await lines.next()).value;
}

async function compares() {
  const { run, key, drawn, close } = await open(chromium, `file://${join(scratch, "two.html")}`);
  assert.equal(await run("page.panels.length"), 2);
  assert.equal(await run("document.querySelectorAll('#tabs button').length"), 2);
  const lane = Object.keys(await drawn())[0];
  const alone = (await drawn())[lane].points;
  await key("d");
  assert.ok((await drawn())[lane].points > alone);
  const said = await run("document.getElementById('difference').textContent");
  assert.match(said, /^Compared with .*: (differs from [\d.]+ s on: .+ against .+|takes the same course)\.$/);
  const since = await run("page.lanes.since");
  if (since !== null) assert.ok(since >= 0 && since < await run("page.panels[0].end"), `${since}`);
  await key("d");
  assert.equal(await run("document.getElementById('difference').hidden"), true);
  assert.equal((await drawn())[lane].points, alone);
  await key("]");
  assert.equal(await run("page.at"), 1);
  console.log(`viewer: ${said}`);
  close();
}

async function followsFiles() {
  const whole = readFileSync(join(scratch, "traces", readdirSync(join(scratch, "traces")).find((name) => name.endsWith("_server.sqlog"))));
  const half = whole.lastIndexOf(0x1e, whole.length / 2), dir = join(scratch, "growing");
  mkdirSync(dir);
  writeFileSync(join(dir, "a.sqlog"), whole.subarray(0, half));
  const url = await start("view", "--no-open", dir)();
  const { run, until, drawn, close } = await open(chromium, url.trim());
  await until("page.panels.length === 1 && page.lanes");
  const before = await run("page.panels[0].end");
  writeFileSync(join(dir, "a.sqlog"), whole);
  await until(`page.panels[0].end > ${before}`);
  // Everything was shown, so everything is.
  assert.equal(await run("page.lanes.to"), await run("page.panels[0].end"));
  // A part was looked at, so it still is.
  await run("page.lanes.show(1000, 5000)");
  const updates = await run("page.updates");
  writeFileSync(join(dir, "a.sqlog"), whole.subarray(0, half));
  await until(`page.updates > ${updates}`);
  assert.deepEqual(await run("[page.lanes.from, page.lanes.to]"), [1000, 5000]);
  copyFileSync(join(dir, "a.sqlog"), join(dir, "b.sqlog"));
  await until("document.querySelectorAll('#tabs button').length === 2");
  assert.ok(Object.values(await drawn())[0].points > 0);
  close();
}

async function followsServer() {
  const site = join(scratch, "site");
  mkdirSync(site);
  writeFileSync(join(site, "a"), Buffer.alloc(2_000_000, 7));
  const serving = start("serve", site, "--listen", "127.0.0.1:0", "--json", "--observe");
  const { address } = JSON.parse(await serving()), observing = JSON.parse(await serving());
  assert.equal(observing.event, "observing");
  const url = await start("view", "--no-open", observing.url)();
  const { run, until, drawn, close } = await open(chromium, url.trim());
  await until("document.getElementById('headline').textContent === 'No connections yet.'");
  const get = spawn(clearway, ["get", "--insecure", "-o", join(scratch, "got"), `https://${address.replace("127.0.0.1", "localhost")}/a`], { stdio: "ignore" });
  assert.equal(await new Promise((done) => get.on("exit", done)), 0);
  await until("page.panels.length === 1 && page.lanes && page.panels[0].open === false && page.panels[0].wanted === page.panels[0].revision");
  assert.equal(await run("document.getElementById('headline').textContent"), await run("page.panels[0].headline"));
  const shown = await drawn();
  assert.ok(shown["Window and bytes in flight"].points > 10, JSON.stringify(shown));
  assert.ok(await run("page.panels[0].breakdown.length") > 0);
  close();
}

await compares();
await followsFiles();
await followsServer();
console.log("viewer: compares two traces, follows a file that grows and a running server");
process.exit(0);
