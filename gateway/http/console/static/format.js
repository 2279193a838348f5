// Numbers, sizes and times as people read them. Pure functions.

const UNITS = ["B", "KB", "MB", "GB", "TB", "PB"];

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let unit = 0;
  let size = value;
  while (size >= 999.5 && unit < UNITS.length - 1) { size /= 1000; unit += 1; }
  return `${unit === 0 || size >= 99.95 ? Math.round(size) : size.toFixed(1)} ${UNITS[unit]}`;
}

export const rate = (value) => (value === null || value === undefined ? "–" : `${bytes(value)}/s`);

export function count(value) {
  return value === null || value === undefined ? "–" : Number(value).toLocaleString("en-US");
}

// One thing, or several.
export const many = (value, thing) => `${count(value)} ${thing}${value === 1 ? "" : "s"}`;

export function short(value) {
  if (value === null || value === undefined) return "–";
  if (value < 10_000) return count(value);
  const [size, unit] = value < 1e6 ? [value / 1e3, "k"] : value < 1e9 ? [value / 1e6, "M"] : [value / 1e9, "G"];
  return `${size >= 99.95 ? Math.round(size) : size.toFixed(1)}${unit}`;
}

export function money(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "$0";
  if (value < 0.0001) return "< $0.0001";
  return `$${value.toLocaleString("en-US", value < 1 ? { minimumSignificantDigits: 2, maximumSignificantDigits: 2 } : { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
}

const SPANS = [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1000]];

export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const at = SPANS.findIndex(([, size]) => ms >= size);
  const [unit, size] = SPANS[at];
  const whole = Math.floor(ms / size);
  const next = SPANS[at + 1];
  const rest = next && whole < 10 ? Math.floor((ms % size) / next[1]) : 0;
  return rest ? `${whole} ${unit} ${rest} ${next[0]}` : `${whole} ${unit}`;
}

export function time(ms) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  const local = new Date(ms);
  const two = (value) => String(value).padStart(2, "0");
  return `${local.getFullYear()}-${two(local.getMonth() + 1)}-${two(local.getDate())} ${two(local.getHours())}:${two(local.getMinutes())}:${two(local.getSeconds())}`;
}

export const clock = (ms) => time(ms).slice(11, 16);
export const ago = (ms) => (ms ? `${duration(Math.max(0, Date.now() - ms))} ago` : "–");

export function retention(text) {
  const ms = Number(text);
  if (ms === -1) return "for ever";
  if (ms === -2) return "as retention.ms";
  return duration(ms);
}

export function quote(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${String(text).replaceAll("'", "'\\''")}'`;
}

export function decode(base64) {
  if (base64 === null) return null;
  const raw = atob(base64);
  const found = new Uint8Array(raw.length);
  for (let at = 0; at < raw.length; at += 1) found[at] = raw.charCodeAt(at);
  return found;
}

export function asText(found) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(found);
  } catch {
    return null;
  }
}

export function asHex(found, most = 4096) {
  const lines = [];
  for (let at = 0; at < Math.min(found.length, most); at += 16) {
    const part = [...found.subarray(at, at + 16)];
    const hex = part.map((each) => each.toString(16).padStart(2, "0")).join(" ");
    const text = part.map((each) => (each >= 32 && each < 127 ? String.fromCharCode(each) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex.padEnd(47)}  ${text}`);
  }
  if (found.length > most) lines.push(`… ${found.length - most} more bytes`);
  return lines.join("\n");
}
