/* The parts of the page in words: headline, facts, breakdown, problems, events. */
function showWords(panel, zoomTo) {
  const headline = document.getElementById("headline");
  headline.textContent = panel.headline;
  headline.className = panel.severity || "fine";
  document.getElementById("facts").replaceChildren(...panel.facts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
  const shares = panel.breakdown.map(([name, permille]) => [name, permille, `${(permille / 10).toFixed(1)} %`]);
  const bar = document.getElementById("breakdown");
  /* A receiver's own packets are acknowledgements and requests. */
  const limited = panel.receiver ? "What little this end sent was limited by:" : "Limited by:";
  bar.setAttribute("aria-label", `${limited} ${shares.map(([name, , text]) => `${name} ${text}`).join(", ")}`);
  const shade = (name) => `background:var(--${name.replaceAll(" ", "-")})`;
  bar.replaceChildren(...shares.map(([name, permille, text]) => element("div", { style: `flex:${permille};${shade(name)}`, title: `${name}: ${text}` }, permille > 80 ? `${name} ${text}` : "")));
  document.getElementById("legend").replaceChildren(limited, ...shares.map(([name, , text]) => element("span", {}, element("i", { style: shade(name) }), `${name} ${text}`)));
  showProblems(panel, zoomTo);
  showEvents(panel, zoomTo);
}

function showProblems(panel, zoomTo) {
  const cards = panel.problems.map((problem, at) => {
    const t0 = problem.t0 / 1e3, t1 = problem.t1 / 1e3, room = Math.max((t1 - t0) * .1, 5e3);
    const paragraph = (name, text) => element("p", {}, element("b", {}, `${name}: `), text);
    const card = element("article", { class: `problem ${problem.severity}`, id: `problem-${at}` },
      element("h3", {}, `${at + 1}. ${problem.summary}`),
      element("p", { class: "faint" }, `${problem.detector}, ${problem.severity}, ${seconds(t0)} to ${seconds(t1)}${problem.occurrences > 1 ? `, found ${problem.occurrences} times` : ""} `,
        element("button", { onclick: () => zoomTo(t0 - room, t1 + room, problem) }, "Show")));
    if (problem.cause) card.append(paragraph("Cause", `${problem.cause.summary}. ${problem.cause.mechanism}`));
    card.append(paragraph("How it comes about", problem.mechanism), paragraph("Longest", problem.longest), paragraph("Try", problem.remedy));
    if (problem.evidence.length) {
      card.append(element("b", {}, "One such round trip:"), element("ol", {}, ...problem.evidence.map((moment) => {
        const time = moment.time / 1e3, first = problem.evidence[0].time / 1e3, last = problem.evidence.at(-1).time / 1e3;
        const kind = /^(congestion state|idle adjustment)/.test(moment.text) ? "flip" : "";
        return element("li", { class: kind, onclick: () => zoomTo(first - 2e3, last + 2e3, problem, time) }, `${(time / 1e6).toFixed(6)} s  ${moment.text}`);
      })));
    }
    return card;
  });
  document.getElementById("problems").replaceChildren(...(cards.length ? cards : [element("p", {}, "None.")]));
}

/* A list of which only the visible rows exist. */
function showEvents(panel, zoomTo) {
  const all = [
    ...panel.states.map(([time, name]) => [time, `congestion state ${name}`]),
    ...panel.limits.map(([time, name]) => [time, name ? `limited by ${name.replaceAll("_", " ")}` : "limit no longer recorded"]),
    ...panel.losses.map((time) => [time, "packet lost"]),
    ...panel.probes.map((time) => [time, "probe timeout"]),
    ...panel.flips.map((time) => [time, "flip: recovery without a loss, or idle adjustment while data waits"]),
    ...panel.markers,
  ].sort((a, b) => a[0] - b[0]);
  const list = document.getElementById("events"), search = document.getElementById("search"), ROW = 22;
  let shown = all;
  const rows = () => {
    const first = Math.max(Math.floor(list.scrollTop / ROW) - 5, 0);
    const visible = shown.slice(first, first + 30).map(([time, text], at) => element("div", { class: "row", style: `top:${(first + at) * ROW}px`, onclick: () => zoomTo(time - 5e4, time + 5e4, null, time) }, `${(time / 1e6).toFixed(6)} s  ${text}`));
    list.replaceChildren(element("div", { style: `height:${shown.length * ROW}px` }), ...visible);
  };
  search.oninput = () => {
    const words = search.value.toLowerCase().split(" ").filter(Boolean);
    shown = all.filter(([time, text]) => words.every((word) => text.toLowerCase().includes(word) || (time / 1e6).toFixed(6).startsWith(word)));
    list.scrollTop = 0; list.dataset.count = shown.length;
    rows();
  };
  list.onscroll = rows;
  search.oninput();
}
