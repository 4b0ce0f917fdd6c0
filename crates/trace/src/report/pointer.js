"use strict";
// Shows the values under the pointer, in every picture at once.
const units = {
  bytes: ["B", "kB", "MB", "GB", "TB"],
  ns: ["ns", "µs", "ms", "s"],
  bits: ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"],
};
const amount = (value, unit) => {
  const steps = units[unit];
  let step = 0;
  while (value >= 1000 && step + 1 < steps.length) {
    value /= 1000;
    step += 1;
  }
  return value.toFixed(step > 0 && value < 100 ? 2 : 0) + " " + steps[step];
};
const LEFT = 64, WIDTH = 960;
const figures = [...document.querySelectorAll("figure")].map((figure) => ({
  svg: figure.querySelector("svg"),
  cursor: figure.querySelector(".cursor"),
  output: figure.querySelector("output"),
  data: JSON.parse(figure.querySelector("script").textContent),
}));
const show = (part) => {
  for (const { svg, cursor, output, data } of figures) {
    if (part === null) {
      cursor.style.visibility = "hidden";
      output.textContent = "";
      continue;
    }
    const x = LEFT + (WIDTH - LEFT) * part;
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    cursor.style.visibility = "visible";
    const said = [(Number(svg.dataset.end) * part / 1e9).toFixed(3) + " s"];
    for (const { name, values } of data.lines) {
      const value = values[Math.min(values.length - 1, Math.floor(part * values.length))];
      if (value !== null && value !== undefined) said.push(name + " " + amount(value, data.unit));
    }
    output.textContent = said.join(" · ");
  }
};
for (const { svg } of figures) {
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * WIDTH;
    show(Math.max(0, Math.min(1, (x - LEFT) / (WIDTH - LEFT))));
  });
  svg.addEventListener("pointerleave", () => show(null));
}
