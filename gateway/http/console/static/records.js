// Records as people read them: decoded as JSON, Avro, text or bytes; filtered; shown as rows.

import { h } from "./dom.js";
import { asHex, asText, bytes, count, decode, time } from "./format.js";

// Returns {kind, text, json, raw} for the value of a message as the API tells it (base64, or null). `avro` reads those
// of a topic whose schema is known; what does not fit it is shown as it is.
function read(base64, avro) {
  const raw = decode(base64);
  if (raw === null) return { kind: "null", text: null, raw: null };
  if (avro) {
    try {
      return { kind: "Avro", text: null, json: avro(raw), raw };
    } catch { /* it is something else */ }
  }
  const text = asText(raw);
  if (text === null) return { kind: "bytes", text: null, raw };
  const first = text.trimStart()[0];
  if (first === "{" || first === "[" || first === '"') {
    try {
      return { kind: "JSON", text, json: JSON.parse(text), raw };
    } catch { /* it only looks like it */ }
  }
  // Text that a terminal would not show is better read as bytes.
  // eslint-disable-next-line no-control-regex
  if (/[\u0000-\u0008\u000e-\u001f]/.test(text)) return { kind: "bytes", text: null, raw };
  return { kind: "text", text, raw };
}

export function prepare(message, partition, avro) {
  return { ...message, partition, shown: read(message.value, avro), size: message.value === null ? 0 : Math.floor((message.value.length * 3) / 4) };
}

// A filter: words that key, value or headers contain; or `path = value`, `path > 10` for JSON. Returns a test, or throws.
export function filter(text) {
  const wanted = text.trim();
  if (!wanted) return () => true;
  const compared = /^([\w$.[\]-]+)\s*(=|!=|>=|<=|>|<|~)\s*(.+)$/.exec(wanted);
  if (!compared) {
    const words = wanted.toLowerCase();
    return ({ key, shown, headers }) => [key ?? "", shown.text ?? (shown.json === undefined ? "" : JSON.stringify(shown.json)), ...headers.flatMap((each) => [each.key ?? "", each.value ?? ""])].some((each) => each.toLowerCase().includes(words));
  }
  const [, place, sign, given] = compared;
  const steps = place.replace(/^\$\.?/, "").replace(/\[(\d+)\]/g, ".$1").split(".").filter(Boolean);
  const literal = parse(given.trim());
  return (record) => {
    const found = steps[0] === "key" && steps.length === 1 ? record.key : steps.reduce((value, step) => value?.[step], record.shown.json);
    return compare(found, sign, literal);
  };
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text.replace(/^'(.*)'$/, "$1");
  }
}

function compare(found, sign, literal) {
  if (sign === "~") return found !== undefined && String(found).toLowerCase().includes(String(literal).toLowerCase());
  if (sign === "=") return found === literal || (found !== undefined && String(found) === String(literal));
  if (sign === "!=") return found !== undefined && String(found) !== String(literal);
  if (typeof found !== typeof literal) return false;
  return { ">": found > literal, "<": found < literal, ">=": found >= literal, "<=": found <= literal }[sign];
}

export function preview({ shown }) {
  if (shown.kind === "none") return h("span", { class: "faint" }, "no text");
  if (shown.kind === "null") return h("span", { class: "faint" }, "null (a tombstone)");
  if (shown.kind === "bytes") return h("span", { class: "value cut" }, h("span", { class: "faint" }, `${bytes(shown.raw.length)} of bytes `), [...shown.raw.subarray(0, 24)].map((each) => each.toString(16).padStart(2, "0")).join(" "));
  return h("span", { class: "value cut" }, (shown.text ?? JSON.stringify(shown.json)).slice(0, 400));
}

export function keyText({ key, key_encoding: encoding }) {
  if (key === null) return h("span", { class: "faint" }, "no key");
  return encoding ? h("span", { title: "base64" }, key) : key;
}

const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(true|false|null)\b|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)/g;

// JSON with its parts marked, as text nodes.
export function pretty(json) {
  const text = JSON.stringify(json, null, 2);
  const parts = [];
  let at = 0;
  for (const match of text.matchAll(TOKEN)) {
    parts.push(text.slice(at, match.index));
    const [whole, quoted, colon, word] = match;
    const kind = quoted ? (colon ? "key" : "text") : word ? "word" : "number";
    parts.push(h("span", { class: kind }, colon ? quoted : whole), colon ?? "");
    at = match.index + whole.length;
  }
  return h("pre", { class: "json mono", tabindex: "0" }, parts, text.slice(at));
}

export function whole({ shown }, form) {
  if (shown.kind === "null") return h("p", { class: "faint" }, "null: a tombstone. A compacted topic forgets the key.");
  if (form === "hex" || shown.kind === "bytes") return h("pre", { class: "mono", tabindex: "0" }, asHex(shown.raw));
  if (form !== "text" && shown.json !== undefined) return pretty(shown.json);
  return h("pre", { class: "mono", tabindex: "0" }, shown.text);
}

export const columns = (link) => [
  { name: "Place", kind: "right tight", value: (record) => h("a", { href: link(record), title: `Partition ${record.partition}, offset ${count(record.offset)}` }, `${record.partition}:${record.offset}`), also: (record) => time(record.timestamp).slice(5) },
  { name: "Time", kind: "tight num wide-only", value: (record) => time(record.timestamp) },
  { name: "Key", kind: "key", value: (record) => h("span", { class: "value" }, keyText(record)) },
  { name: "Value", kind: "record-value", value: preview },
];
