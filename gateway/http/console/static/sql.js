// SQL over both tiers. What a query would read and cost is asked first; the query is in the address.

import { get, lines, path, post, remove, send } from "./api.js";
import { h, replace } from "./dom.js";
import { bytes, count, duration, many, money } from "./format.js";
import { curl, sqlName, tierlog } from "./state.js";
import { badge, button, card, empty, field, head, notice, problem, select, table } from "./ui.js";

const KEPT = "tierlog.queries";
const MOST_KEPT = 20;
const MOST_SHOWN = 1000;
const FORMS = [["text/csv", "CSV", "csv"], ["application/json", "JSON", "json"], ["application/vnd.apache.arrow.stream", "Arrow", "arrows"], ["application/vnd.apache.parquet", "Parquet", "parquet"]];

export async function page(context) {
  const { topics } = await get(path("topics"), { limit: 1, internal: false, figures: true, sort: "records", descending: true }).catch(() => ({ topics: [] }));
  const editor = h("textarea", { class: "input", rows: 6, spellcheck: "false", "aria-label": "Query", value: context.query.q ?? (topics.length ? `SELECT * FROM ${sqlName(topics[0].name)} ORDER BY timestamp DESC LIMIT 100` : "SELECT 1") });
  const estimate = h("div", { class: "soft num", role: "status" }, "What would it read?");
  const results = h("div", { class: "stack" });
  let stop = new AbortController();
  let running = null;
  const query = () => editor.value.trim().replace(/;$/, "");
  const look = async () => {
    try {
      replace(estimate, await estimated(query()));
    } catch (error) {
      replace(estimate, h("span", { class: "faint" }, error.message));
    }
  };
  let timer;
  editor.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(look, 500); });
  const run = async () => {
    await cancel();
    stop = new AbortController();
    running = `console-${crypto.getRandomValues(new Uint32Array(2)).join("-")}`;
    context.adjust({ q: query() });
    remember(query());
    await ask(query(), running, results, stop.signal).then((found) => show(results, found)).catch((error) => error.name !== "AbortError" && replace(results, problem(error)));
    running = null;
  };
  const cancel = async () => {
    if (!running) return;
    const id = running;
    running = null;
    stop.abort();
    replace(results, notice("", "Cancelled", "The query ends at the broker, too."));
    await remove(path("sql", "queries", id)).catch(() => {});
  };
  context.onLeave(() => stop.abort());
  editor.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); run(); } });
  const past = kept();
  const history = select([["", "Earlier queries"], ...past.map((each) => [each, each.slice(0, 80)])], "", { "aria-label": "Earlier queries", onchange: () => { if (history.value) { editor.value = history.value; look(); } history.value = ""; } });
  const form = select(FORMS.map(([key, text]) => [key, text]), "text/csv", { "aria-label": "Form" });
  look();
  return [
    head({ title: "SQL", lead: "Topics are tables: both tiers, all partitions, up to the last committed record.", commands: () => ({ "Command line": tierlog("sql", query()), curl: curl("POST", path("sql"), { query: query() }), Address: location.href }) }),
    h("div", { class: "stack" },
      card(null, h("div", { class: "stack", css: { gap: "10px" } }, field("Query", editor), estimate,
        h("div", { class: "row" }, button("Run", run, { kind: "main", title: "Ctrl+Enter" }), button("Cancel", cancel), h("span", { class: "grow" }), past.length > 0 && history, form, button("Download", () => download(query(), form.value).catch((error) => replace(results, problem(error)))))),
      ),
      topics.length > 0 && h("details", { open: !context.query.q }, h("summary", {}, "Columns and examples"), examples(sqlName(topics[0].name), (text) => { editor.value = text; look(); })),
      results),
  ];
}

function examples(topic, use) {
  const some = [
    ["The newest", `SELECT * FROM ${topic} ORDER BY timestamp DESC LIMIT 100`],
    ["The last hour, by minute", `SELECT date_trunc('minute', timestamp) AS minute, count(*) AS records FROM ${topic} WHERE timestamp > now() - INTERVAL 1 HOUR GROUP BY ALL ORDER BY 1`],
    ["A field of JSON", `SELECT value->>'$.customer' AS customer, count(*) AS records FROM ${topic} GROUP BY ALL ORDER BY 2 DESC LIMIT 20`],
    ["One key", `SELECT * FROM ${topic} WHERE key = 'ada' ORDER BY "offset"`],
  ];
  return card(null, [h("p", { class: "soft" }, "Every topic has the columns ", h("code", {}, "partition, offset, timestamp, timestampType, key, value, headers, leaderEpoch"), "."), table([
    { name: "For", kind: "name", value: ([text]) => text, also: ([, query]) => h("code", {}, query) },
    { name: "Query", kind: "wrap mono wide-only", value: ([, query]) => query },
    { name: "", kind: "right tight", value: ([text, query]) => button("Use", () => use(query), { kind: "plain small", label: `Use: ${text}` }) },
  ], some, { label: "Examples" })]);
}

// Runs a query and shows how far it is. Returns {columns, rows, summary}.
export async function ask(query, id, results, signal) {
  const state = { columns: [], rows: [], summary: null };
  const began = performance.now();
  const progress = (scanned) => replace(results, h("p", { role: "status", class: "soft num" }, `Running for ${duration(performance.now() - began)}${scanned?.requests === undefined ? "" : ` · ${read(scanned)}`}`), h("div", { class: "meter busy" }, h("div")));
  progress();
  for await (const line of lines("POST", path("sql"), { body: { query, id }, signal })) {
    if (line.type === "progress") progress(line.scanned);
    else if (line.type === "columns") state.columns = line.columns;
    else if (line.type === "rows") state.rows.push(...line.rows);
    else if (line.type === "summary") state.summary = line;
    else if (line.type === "error") throw Object.assign(new Error(line.error.detail), line.error);
  }
  if (!state.summary) throw new Error("The answer broke off before its end.");
  return state;
}

function show(results, { columns, rows, summary }) {
  const shown = rows.slice(0, MOST_SHOWN);
  replace(results,
    h("div", { class: "row", role: "status" }, h("span", { class: "grow soft num" }, `${many(summary.row_count, "row")} in ${duration(summary.elapsed_ms)} · ${read(summary.scanned)}`), summary.truncated && badge(`truncated: too many ${summary.truncated}`, "warn"), shown.length < rows.length && badge(`${count(shown.length)} shown`)),
    card(null, table(columns.map(({ name, type }, index) => ({ name: h("span", { title: type }, name), kind: /INT|DOUBLE|FLOAT|DECIMAL/.test(type) ? "right" : "wrap", value: (row) => cell(row[index]) })), shown, { label: "Result", none: empty("No rows", "The query ran to its end and found none.") }), { flush: true }));
}

export const read = ({ files, files_skipped: skipped, hot_rows: hot, bytes: size, requests }) => `${many(files, "file")} read, ${count(skipped)} skipped, ${bytes(size)} in ${many(requests, "request")}, ${many(hot, "record")} from brokers`;

async function estimated(query) {
  const { files, bytes: size, requests, cost, hot_offsets: hot } = await post(path("sql", "estimate"), { query });
  return `At most ${many(files, "file")}, ${bytes(size)}, ${many(requests, "request")} (${money(cost)}) and ${many(hot, "record")} from brokers`;
}

function cell(value) {
  if (value === null) return h("span", { class: "faint" }, "null");
  if (typeof value === "object") return h("span", { class: "value cut" }, value.base64 !== undefined ? `base64 ${value.base64}` : JSON.stringify(value));
  return typeof value === "string" ? h("span", { class: "value cut", title: value.length > 80 ? value.slice(0, 2000) : undefined }, value) : String(value);
}

async function download(query, accept) {
  const answer = await send("POST", path("sql"), { body: { query }, accept });
  const address = URL.createObjectURL(await answer.blob());
  const link = h("a", { href: address, download: `query.${FORMS.find(([key]) => key === accept)[2]}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

const kept = () => JSON.parse(localStorage.getItem(KEPT) ?? "[]");

function remember(query) {
  localStorage.setItem(KEPT, JSON.stringify([query, ...kept().filter((each) => each !== query)].slice(0, MOST_KEPT)));
}
