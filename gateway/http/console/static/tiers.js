// Which tier holds what of a partition: a map by offset or by time, made of what the archive's status says.

import { h, svg } from "./dom.js";
import { bytes, count, time } from "./format.js";
import { legend } from "./chart.js";

export const KINDS = {
  archived: "in the bucket",
  both: "in both tiers",
  pending: "local, waits to be archived",
  local: "local",
  held: "open transaction",
  damaged: "damaged",
  lost: "given up",
};

// Returns [{kind, start, end}] in offset order. `status` is one partition of the archive's answer, `bounds` of the topic's.
// What is committed and not stable belongs to an open transaction, or is behind one.
export function ranges(status, bounds) {
  const local = status.local;
  const archived = status.archived;
  const from = local?.start_offset ?? Infinity;
  const to = local?.end_offset ?? -Infinity;
  const first = archived?.start_offset ?? Infinity;
  const last = archived?.end_offset ?? -Infinity;
  const found = [
    { kind: "archived", start: first, end: Math.min(last, from) },
    { kind: "both", start: Math.max(first, from), end: Math.min(last, to) },
  ];
  const alone = Math.max(from, archived ? Math.min(last, to) : from);
  const pending = Math.min(to, Math.max(alone, status.pending_end_offset ?? alone));
  found.push({ kind: "pending", start: alone, end: pending });
  const within = (offset) => Math.min(to, Math.max(pending, offset ?? to));
  const held = within(bounds?.last_stable_offset);
  const committed = Math.max(held, within(bounds?.high_watermark));
  found.push({ kind: "local", start: pending, end: held }, { kind: "held", start: held, end: committed }, { kind: "local", start: committed, end: to });
  const whole = found.filter(({ start, end }) => start < end);
  const over = [...(archived?.lost ?? []).map((each) => ({ kind: "lost", start: each.start_offset, end: each.end_offset }))];
  if (status.held) over.push({ kind: "damaged", start: status.held.base_offset, end: status.held.end_offset });
  return over.reduce(lay, whole);
}

// Lays a range over others, which keep what it does not cover.
function lay(below, { kind, start, end }) {
  const cut = below.flatMap((each) => [{ ...each, end: Math.min(each.end, start) }, { ...each, start: Math.max(each.start, end) }]).filter((each) => each.start < each.end);
  return [...cut, { kind, start, end }].sort((one, other) => one.start - other.start);
}

// Maps an offset to a time between known places, for the map by time. `places` is [[offset, ms]] in order.
export function timeOf(offset, places) {
  if (!places.length) return null;
  const next = places.findIndex(([at]) => at >= offset);
  if (next === -1) return places.at(-1)[1];
  if (next === 0) return places[0][1];
  const [[low, early], [high, late]] = [places[next - 1], places[next]];
  return high === low ? late : early + ((offset - low) / (high - low)) * (late - early);
}

const WIDTH = 1000;

export function tierBar({ parts, start, end, cuts = [], label, place = (offset) => offset, show = count }) {
  const span = Math.max(1, end - start);
  const x = (offset) => Math.min(WIDTH, Math.max(0, ((place(offset) - start) / span) * WIDTH));
  const drawing = svg("svg", { class: "tier-bar", viewBox: `0 0 ${WIDTH} 24`, preserveAspectRatio: "none", role: "img", "aria-label": `${label}: ${parts.map(words).join("; ") || "nothing"}` });
  drawing.append(svg("rect", { class: "tier-none", x: 0, y: 0, width: WIDTH, height: 24 }));
  for (const part of parts) {
    const left = x(part.start);
    // What is there can be seen, however little it is.
    const width = Math.max(3, x(part.end) - left);
    drawing.append(svg("rect", { class: `tier ${part.kind}`, x: Math.min(left, WIDTH - width), y: 0, width, height: 24 }, svg("title", {}, `${words(part)}${place(part.start) === part.start ? "" : `, ${show(place(part.start))} to ${show(place(part.end))}`}`)));
  }
  for (const cut of cuts) drawing.append(svg("line", { class: "tier-cut", x1: x(cut), x2: x(cut), y1: 0, y2: 24 }));
  return drawing;
}

const words = ({ kind, start, end }) => `${count(start)} to ${count(end - 1)} ${KINDS[kind]}`;

export const tierLegend = (kinds) => legend(...Object.entries(KINDS).filter(([kind]) => kinds.has(kind)).map(([kind, text]) => [`tier-${kind}`, text]));

export function segmentRow(segment) {
  return [count(segment.base_offset), count(segment.end_offset - 1), count(segment.rows), bytes(segment.rows_bytes), time(segment.min_timestamp), time(segment.max_timestamp)];
}

export const segmentNames = ["First offset", "Last offset", "Rows", "Parquet", "From", "To"];

export const objectName = (bucket, segment) => h("code", { title: `${bucket.replace(/\/$/, "")}/${segment.rows_object}` }, segment.rows_object.slice(segment.rows_object.lastIndexOf("/") + 1));
