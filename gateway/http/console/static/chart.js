// Values over time as one small SVG: filled lines, a zero line, and a readout under the pointer or the arrow keys.

import { h, replace, svg } from "./dom.js";
import { clock, time } from "./format.js";

const WIDTH = 600;
const HEIGHT = 120;

// series: [{name, className, values (null: not known), end_ms, step_ms}], all with the same steps.
export function chart(label, series, show) {
  const shown = series.filter((each) => each.values.some((value) => value !== null));
  if (!shown.length) return h("p", { class: "faint" }, "No measurements yet: the first comes within ten seconds.");
  const end = Math.max(...shown.map((each) => each.end_ms));
  const step = shown[0].step_ms;
  const points = Math.max(...shown.map((each) => each.values.length), 2);
  const start = end - (points - 1) * step;
  const highest = Math.max(0, ...shown.flatMap((each) => each.values.filter((value) => value !== null)));
  const most = Math.max(1, highest);
  const x = (ms) => ((ms - start) / (end - start)) * WIDTH;
  const y = (value) => HEIGHT - (value / most) * (HEIGHT - 8);
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  for (const level of [0, 0.5, 1]) drawing.append(svg("line", { class: "grid-line", x1: 0, x2: WIDTH, y1: y(most * level), y2: y(most * level) }));
  for (const each of shown) draw(drawing, each, x, y);
  const cursor = svg("line", { class: "cursor", y1: 0, y2: HEIGHT, visibility: "hidden" });
  drawing.append(cursor);
  const read = h("div", { class: "read", "aria-live": "off" });
  const newest = () => { cursor.setAttribute("visibility", "hidden"); replace(read, summary(shown, end, show)); };
  const point = (ms) => {
    cursor.setAttribute("x1", x(ms)); cursor.setAttribute("x2", x(ms)); cursor.setAttribute("visibility", "visible");
    replace(read, `${time(ms).slice(5, 16)} · `, summary(shown, ms, show));
  };
  let at = end;
  newest();
  return h("div", {
    class: "chart", tabindex: "0", role: "img", "aria-label": `${label}: ${words(shown, end, show)} now, at most ${show(highest)}, since ${clock(start)}`,
    onpointermove: (event) => {
      const box = drawing.getBoundingClientRect();
      const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
      at = start + Math.round((share * (end - start)) / step) * step;
      point(at);
    },
    onpointerleave: newest, onblur: newest,
    onkeydown: (event) => {
      const move = { ArrowLeft: -step, ArrowRight: step }[event.key];
      if (!move) return;
      event.preventDefault();
      at = Math.min(end, Math.max(start, at + move));
      point(at);
    },
  }, h("div", { class: "axis" }, h("span", {}, highest ? show(highest) : ""), read), drawing, h("div", { class: "axis" }, [start, start + (end - start) / 2, end].map((ms) => h("span", {}, end - start < 600_000 ? time(ms).slice(11) : clock(ms)))));
}

function draw(drawing, { values, end_ms, step_ms, className }, x, y) {
  const first = end_ms - (values.length - 1) * step_ms;
  const runs = [];
  values.forEach((value, index) => {
    if (value === null) return;
    const place = [x(first + index * step_ms), y(value)];
    if (index && values[index - 1] !== null && runs.length) runs.at(-1).push(place);
    else runs.push([place]);
  });
  for (const run of runs) {
    if (run.length === 1) run.push([run[0][0] + 1, run[0][1]]);
    const line = run.map(([left, top], index) => `${index ? "L" : "M"}${left.toFixed(1)} ${top.toFixed(1)}`).join("");
    drawing.append(svg("path", { class: `area ${className}`, d: `${line}L${run.at(-1)[0].toFixed(1)} ${HEIGHT}L${run[0][0].toFixed(1)} ${HEIGHT}Z` }));
    drawing.append(svg("path", { class: `line ${className}`, d: line }));
  }
}

function valueAt({ values, end_ms, step_ms }, ms) {
  return values[values.length - 1 - Math.round((end_ms - ms) / step_ms)] ?? null;
}

function words(shown, ms, show) {
  return shown.map((each) => `${each.name} ${valueAt(each, ms) === null ? "not known" : show(valueAt(each, ms))}`).join(", ");
}

function summary(shown, ms, show) {
  if (shown.length === 1) return valueAt(shown[0], ms) === null ? "not known" : show(valueAt(shown[0], ms));
  return words(shown, ms, show);
}

export function legend(...items) {
  return h("div", { class: "legend" }, items.map(([className, text]) => h("span", {}, h("i", { class: className }), text)));
}

// Adds up series of several brokers, step by step. What one does not know is left out, not made up.
export function sum(series) {
  const known = series.filter((each) => each?.values.length);
  if (!known.length) return { end_ms: 0, step_ms: 10_000, values: [] };
  const { step_ms } = known[0];
  const end_ms = Math.max(...known.map((each) => each.end_ms));
  const points = Math.max(...known.map((each) => each.values.length + (end_ms - each.end_ms) / step_ms));
  const values = Array.from({ length: Math.round(points) }, (_, index) => {
    const ms = end_ms - (Math.round(points) - 1 - index) * step_ms;
    const there = known.map((each) => (ms > each.end_ms ? null : valueAt(each, ms))).filter((value) => value !== null);
    return there.length ? there.reduce((total, value) => total + value, 0) : null;
  });
  return { end_ms, step_ms, values };
}
