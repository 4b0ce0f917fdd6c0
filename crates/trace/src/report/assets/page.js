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

function showTabs() {
  const button = (each, i) => element("button", { role: "tab", "aria-selected": i === page.at, title: each.headline || "", class: each.open === false ? "ended" : "", onclick: () => show(i) }, each.title);
  document.getElementById("tabs").replaceChildren(...page.panels.map(button));
}

function show(at) {
  const count = page.panels.length;
  if (!count) { document.getElementById("headline").textContent = page.live ? "No connections yet." : "Drop a trace here: qlog, also .gz or .zst."; return; }
  page.at = (at + count) % count; page.chosen = -1;
  const panel = page.panels[page.at];
  showTabs();
  /* Known from the list only: it is drawn once it has been fetched. */
  if (!panel.lanes) { follow(panel); return; }
  document.getElementById("difference").hidden = true;
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
  t: toggleTheme, d: compareNext,
};

/* Draws the next trace's lines too, and says where the two part; once more ends it. */
function compareNext() {
  const { panels, lanes, at } = page, said = document.getElementById("difference");
  if (lanes.other || panels.length < 2) { lanes.compare(null); said.hidden = true; return; }
  const other = panels[(at + 1) % panels.length];
  if (!other.lanes) return;
  const found = lanes.compare(other);
  said.textContent = `Compared with ${other.title}: ${found ? `differs from ${seconds(found.since)} on: ${found.name} ${found.here} against ${found.there}` : "takes the same course"}.`;
  said.hidden = false;
}


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

/* Fetches a panel that is new or has changed, and keeps what is looked at. */
async function follow(panel) {
  if (panel.fetching) return;
  panel.fetching = true;
  try {
    const wanted = panel.wanted, answer = await fetch(`connections/${panel.id}`);
    if (!answer.ok) { if (!panel.lanes) { panel.failed = await answer.text(); panel.revision = wanted; } return; }
    const { title } = panel, first = !panel.lanes, end = panel.end;
    Object.assign(panel, await answer.json(), { title, revision: wanted });
    if (page.panels[page.at] !== panel) return;
    const { lanes } = page, whole = first || !lanes || (lanes.from === 0 && lanes.to >= end), scroll = document.getElementById("events").scrollTop, searched = document.getElementById("search").value;
    const range = lanes && [lanes.from, lanes.to];
    show(page.at);
    if (!whole) page.lanes.show(...range);
    document.getElementById("search").value = searched; document.getElementById("search").oninput();
    document.getElementById("events").scrollTop = scroll;
    page.updates = (page.updates || 0) + 1;
  } finally { panel.fetching = false; }
}

/* The list of traces, whenever it has changed. */
function listed(list) {
  const before = page.panels.length;
  for (const each of list) {
    let panel = page.panels.find((known) => known.id === each.id);
    if (!panel) { panel = { ...each, revision: null }; page.panels.push(panel); }
    panel.wanted = each.revision; panel.open = each.open; panel.title = each.title;
    if (each.headline) panel.headline = each.headline;
  }
  if (!before) show(0); else showTabs();
  const shown = page.panels[page.at];
  if (shown && shown.id !== undefined && shown.wanted !== shown.revision) follow(shown);
}

function listen() {
  page.live = new EventSource("live");
  page.live.onmessage = ({ data }) => listed(JSON.parse(data));
  page.live.onerror = () => document.body.classList.add("offline");
  page.live.onopen = () => document.body.classList.remove("offline");
}

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
  if (data.served) {
    data.served.forEach(([id, revision], at) => Object.assign(page.panels[at], { id, revision, wanted: revision }));
    const over = (on) => (event) => { event.preventDefault(); document.body.classList.toggle("over", on); };
    document.addEventListener("dragover", over(true));
    document.addEventListener("dragleave", over(false));
    document.addEventListener("drop", async (event) => { over(false)(event); for (const file of event.dataTransfer.files) await examine(file); });
  }
  show(0);
  if (data.served) listen();
}
begin();
