"use strict";
/* Amounts and times for people. Times in the data are microseconds. */
const UNITS = {
  bytes: ["B", "kB", "MB", "GB", "TB"],
  bits: ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"],
  ns: ["ns", "µs", "ms", "s"],
};

function amount(value, unit) {
  const names = UNITS[unit];
  let at = 0;
  while (value >= 1000 && at < names.length - 1) { value /= 1000; at += 1; }
  const digits = value < 10 && value % 1 > 0.001 ? 1 : 0;
  return `${value.toFixed(digits)} ${names[at]}`;
}

/* A time with as many digits as the visible span needs. */
function seconds(micros, span) {
  const digits = span === undefined || span > 3e6 ? 3 : span > 3e3 ? 4 : 6;
  return `${(micros / 1e6).toFixed(digits)} s`;
}

/* The round number at or above a value, for the top of a scale. */
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  for (const step of [1, 1.5, 2, 3, 4, 5, 8, 10]) if (step * power >= value) return step * power;
  return value;
}

/* The index of the first element that is not before `time`. */
function firstAt(times, time, of = (each) => each) {
  let low = 0, high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (of(times[middle]) < time) low = middle + 1; else high = middle;
  }
  return low;
}

function element(name, attributes, ...children) {
  const it = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === "onclick") it.onclick = value; else it.setAttribute(key, value);
  }
  it.append(...children);
  return it;
}
