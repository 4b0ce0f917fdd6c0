/* The page: which trace is shown, keys, theme, files dropped on it. */
const page = { panels: [], at: 0, lanes: null };

function zoomTo(from, to, problem, cursor) {
  page.lanes.cursor = cursor === undefined ? null : cursor;
  page.lanes.show(from, to);
  if (problem) choose(problem, false);
  document.getElementById("lanes").scrollIntoView({ block: "nearest" });
}

function choose(problem, scroll) {
  const at = page.panels[page.at].problems.indexOf(problem);
  for (const card of document.querySelectorAll(".problem")) card.classList.toggle("chosen", card.id === `problem-${at}`);
  page.chosen = at;
  const card = document.getElementById(`problem-${at}`);
  if (scroll && card) card.scrollIntoView({ block: "nearest" });
}

function show(at) {
  const count = page.panels.length;
  if (!count) { document.getElementById("headline").textContent = "Drop a trace here: qlog, also .gz or .zst."; return; }
  page.at = (at + count) % count; page.chosen = -1;
  const panel = page.panels[page.at], tabs = document.getElementById("tabs");
  tabs.replaceChildren(...page.panels.map((each, i) => element("button", { role: "tab", "aria-selected": i === page.at, onclick: () => show(i) }, each.title)));
  showWords(panel, zoomTo);
  page.lanes = new Lanes(document.getElementById("lanes"), panel, (problem) => choose(problem, true));
}

function step(by) {
  const { problems } = page.panels[page.at];
  if (!problems.length) return;
  const problem = problems[((page.chosen === -1 && by < 0 ? 0 : page.chosen) + by + problems.length) % problems.length];
  const t0 = problem.t0 / 1e3, t1 = problem.t1 / 1e3, room = Math.max((t1 - t0) * .1, 5e3);
  zoomTo(t0 - room, t1 + room, problem);
}

function nextFlip() {
  const { flips } = page.panels[page.at], { lanes } = page;
  if (!flips.length) return;
  const now = lanes.cursor === null ? lanes.from : lanes.cursor, found = firstAt(flips, now + 1) % flips.length;
  const period = flips.length > found + 1 ? flips[found + 1] - flips[found] : 2e4;
  zoomTo(flips[found] - period, flips[found] + 2 * period, null, flips[found]);
}

const KEYS = {
  "+": () => page.lanes.zoom(.6), "=": () => page.lanes.zoom(.6), "-": () => page.lanes.zoom(1 / .6),
  ArrowLeft: () => page.lanes.move(-.25), ArrowRight: () => page.lanes.move(.25),
  0: () => page.lanes.show(0, page.panels[page.at].end),
  n: () => step(1), p: () => step(-1), f: nextFlip,
  "/": () => document.getElementById("search").focus(),
  "[": () => show(page.at - 1), "]": () => show(page.at + 1),
  "?": () => document.getElementById("keys").showModal(),
  t: toggleTheme,
};

function toggleTheme() {
  document.documentElement.classList.toggle("dark");
  if (page.lanes) page.lanes.draw();
}

document.addEventListener("keydown", (event) => {
  if (event.target.tagName === "INPUT") { if (event.key === "Escape") event.target.blur(); return; }
  const act = KEYS[event.key];
  if (!act || event.ctrlKey || event.metaKey || event.altKey || (!page.lanes && event.key !== "?" && event.key !== "t")) return;
  event.preventDefault(); act();
});
document.getElementById("theme").onclick = toggleTheme;
document.getElementById("help").onclick = KEYS["?"];
window.addEventListener("resize", () => page.lanes && page.lanes.draw());

/* Adds what the server says about a file. */
async function examine(file) {
  const headline = document.getElementById("headline");
  headline.textContent = `Reading ${file.name} …`;
  const answer = await fetch(`examine?name=${encodeURIComponent(file.name)}`, { method: "POST", body: file });
  const text = await answer.text();
  if (!answer.ok) { headline.className = "error"; headline.textContent = text; return; }
  page.panels.push(JSON.parse(text));
  show(page.panels.length - 1);
}

function begin() {
  if (matchMedia("(prefers-color-scheme: dark)").matches) document.documentElement.classList.add("dark");
  const data = JSON.parse(document.getElementById("data").textContent);
  page.panels = data.panels;
  if (data.drop) {
    const over = (on) => (event) => { event.preventDefault(); document.body.classList.toggle("over", on); };
    document.addEventListener("dragover", over(true));
    document.addEventListener("dragleave", over(false));
    document.addEventListener("drop", async (event) => { over(false)(event); for (const file of event.dataTransfer.files) await examine(file); });
  }
  show(0);
}
begin();
