// Records that a condition of SQL picks, from both tiers: the broker leaves out what cannot fit before it reads.

import { h, replace } from "./dom.js";
import { many } from "./format.js";
import { columns } from "./records.js";
import { ask, read } from "./sql.js";
import { curl, sqlName, tierlog } from "./state.js";
import { path } from "./api.js";
import { button, card, empty, table } from "./ui.js";

const PAGE = 50;

export function query(name, { condition, partition }, limit = PAGE) {
  // On lines of its own, so that a comment at its end ends there.
  const where = [condition.trim() && `(\n${condition.trim()}\n)`, partition === "" ? "" : `partition = ${partition}`].filter(Boolean);
  return `SELECT partition, "offset", epoch_ms(timestamp) AS ms, key, value FROM ${sqlName(name)}${where.length ? ` WHERE ${where.join(" AND ")}` : ""} ORDER BY timestamp DESC LIMIT ${limit}`;
}

export function commands(name, asked) {
  const text = query(name, asked).replace(/\(\n(.*)\n\)/, "($1)");
  return { "Command line": tierlog("sql", text), curl: curl("POST", path("sql"), { query: text }), SQL: text };
}

export async function where(name, asked, link, results, signal, limit = PAGE) {
  const { rows, summary } = await ask(query(name, asked, limit), undefined, results, signal);
  const found = rows.map(([partition, offset, timestamp, key, value]) => ({ partition, offset, timestamp, key, shown: shownAs(value) }));
  const more = found.length === limit;
  replace(results,
    h("div", { class: "row", role: "status" },
      h("span", { class: "grow soft num" }, `${more ? "The newest " : ""}${many(found.length, "record")} · ${read(summary.scanned)}. ${more ? "" : "There are no more."}`),
      more && button("Show more", () => where(name, asked, link, results, signal, limit * 4), { kind: "small" })),
    card(null, table(columns(link), found, { label: "Messages", none: empty("No messages", "No record of either tier fits.") }), { flush: true }));
}

// What SQL shows of a value is text, and null for a tombstone and for bytes.
const shownAs = (value) => (value === null ? { kind: "none", text: null } : { kind: "text", text: value });
