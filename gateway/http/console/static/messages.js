// Messages of a topic: from a place on, or as they come. Says how far it has looked, and goes on from there.
//
// The tail is a sample: where more comes than one can read, it leaps to the newest and counts what it left out.

import { get, path, post } from "./api.js";
import { decoderOf } from "./avro.js";
import { h, replace } from "./dom.js";
import { bytes, count, duration, many } from "./format.js";
import { columns, filter, prepare } from "./records.js";
import { curl, readOnly, session, spark, sqlName, tierlog } from "./state.js";
import { commands as whereCommands, where } from "./where.js";
import { button, card, check, dialog, empty, field, head, input, linkButton, meter, notice, problem, select, table, toast } from "./ui.js";

const PAGE = 50;
const AT_ONCE = 500;
const MOST_BYTES = 1 << 20;
const MOST_SHOWN = 500;
const TAIL_MS = 1000;
const TAIL_BYTES = 128 << 10;

export async function page(context) {
  const [name] = context.params;
  const { query } = context;
  let topic = await get(path("topics", name));
  const box = {
    from: select([["latest", "Newest"], ["earliest", "Oldest"], ["time", "Time"], ["offset", "Offset"], ...(session.sql ? [["key", "Key"], ["where", "SQL where"]] : []), ["tail", "Live"]], query.from ?? "latest", { "aria-label": "From" }),
    key: input({ value: query.key ?? "", placeholder: "the whole key" }),
    where: input({ value: query.where ?? "", placeholder: "(value->>'total')::DOUBLE > 100 AND timestamp > now() - INTERVAL 1 DAY", class: "input mono" }),
    offset: input({ type: "number", min: 0, value: query.offset ?? "0" }),
    time: input({ type: "datetime-local", step: 1, value: query.time ?? hourAgo() }),
    partition: select([["", "all"], ...topic.partitions.map((each) => [each.partition, each.partition])], query.partition ?? ""),
    filter: input({ type: "search", value: query.filter ?? "", placeholder: "words, or total > 100, or customer = ada" }),
  };
  const results = h("div", { class: "stack" });
  let stop = new AbortController();
  context.onLeave(() => stop.abort());
  const offsetField = field("Offset", box.offset);
  const timeField = field("Since", box.time);
  const keyField = field("Key", box.key);
  const whereField = h("div", { class: "whole" }, field("Where", box.where));
  const filterField = field("Filter", box.filter);
  const toggle = () => {
    for (const [kind, shown] of Object.entries({ offset: offsetField, time: timeField, key: keyField, where: whereField })) shown.hidden = box.from.value !== kind;
    filterField.hidden = box.from.value === "where";
  };
  box.from.addEventListener("change", toggle);
  toggle();
  const run = async () => {
    stop.abort();
    stop = new AbortController();
    const { signal } = stop;
    context.adjust(asked());
    try {
      const test = filter(box.filter.value);
      topic = await get(path("topics", name), {}, signal);
      if (box.from.value === "tail") await tail(context, topic, test, results, signal, chosen());
      else if (box.from.value === "where") await where(name, condition(), place(context, name), results, signal);
      else if (box.from.value === "key") await find(context, name, box.key.value, test, results, signal);
      else await scan(context, topic, starts(), { test, filtered: box.filter.value !== "" }, results, signal);
    } catch (error) {
      if (error.name !== "AbortError") replace(results, problem(error));
    }
  };
  const asked = () => ({ from: box.from.value, offset: box.from.value === "offset" ? box.offset.value : "", time: box.from.value === "time" ? box.time.value : "", key: box.from.value === "key" ? box.key.value : "", where: box.from.value === "where" ? box.where.value : "", partition: box.partition.value, filter: box.filter.value });
  const condition = () => ({ condition: box.where.value, partition: box.partition.value });
  const chosen = () => topic.partitions.filter((each) => (box.partition.value === "" || each.partition === Number(box.partition.value)) && each.last_stable_offset !== null);
  // Where each partition begins and ends for this look.
  const starts = () => {
    const parts = chosen();
    const newest = Math.max(1, Math.ceil(PAGE / Math.max(1, parts.length)));
    return parts.map(({ partition, log_start_offset: low, last_stable_offset: high }) => {
      const one = { partition, end: high, from: undefined };
      if (box.from.value === "time") return { ...one, at: null, from: new Date(box.time.value).getTime(), start: low };
      const at = { latest: Math.max(low, high - (box.filter.value ? AT_ONCE : newest)), earliest: low, offset: Math.min(high, Math.max(low, Number(box.offset.value || 0))) }[box.from.value];
      return { ...one, at, start: at };
    });
  };
  const commands = () => {
    if (box.from.value === "key") return keyCommands(name, box.key.value);
    if (box.from.value === "where") return whereCommands(name, condition());
    const partition = box.partition.value === "" ? [] : ["--partition", box.partition.value];
    const start = { earliest: ["--from-beginning"], latest: ["--from", "-1h"], offset: ["--offset", box.offset.value], time: ["--from", iso(box.time.value)], tail: ["--follow"] }[box.from.value];
    const where = { earliest: "offset=earliest", latest: `from=${iso(hourAgo())}`, offset: `offset=${box.offset.value}`, time: `from=${iso(box.time.value)}`, tail: "offset=latest&wait_ms=8000" }[box.from.value];
    return {
      "Command line": tierlog("consume", name, partition, start, box.from.value === "tail" ? [] : ["--limit", PAGE], "--json"),
      curl: curl("GET", `${path("topics", name, "partitions", box.partition.value || "0", "messages")}?${where}&limit=${PAGE}&value_encoding=text`),
      SQL: `SELECT * FROM ${sqlName(name)}${box.from.value === "time" ? ` WHERE timestamp >= '${iso(box.time.value)}'` : box.partition.value === "" ? "" : ` WHERE partition = ${box.partition.value}`} ORDER BY timestamp DESC LIMIT ${PAGE}`,
      Spark: spark(name, `${box.partition.value === "" ? "" : `.where("partition = ${box.partition.value}")`}.limit(${PAGE})`),
    };
  };
  const form = h("form", { class: "form wide", onsubmit: (event) => { event.preventDefault(); run(); } },
    field("From", box.from), offsetField, timeField, keyField, field("Partition", box.partition), filterField, whereField,
    h("div", { class: "row" }, h("button", { class: "button main", type: "submit" }, "Read"), button("Stop", () => stop.abort(), {})));
  setTimeout(run);
  return [
    head({
      trail: [h("a", { href: "#/topics" }, "Topics"), " / ", h("a", { href: context.link(`/topics/${encodeURIComponent(name)}`) }, name)],
      title: "Messages",
      actions: [session.sql && linkButton("Query with SQL", context.link("/sql", { q: `SELECT * FROM ${sqlName(name)} ORDER BY timestamp DESC LIMIT 100` })), !readOnly() && !topic.internal && button("Produce", () => produce(name, topic, {}, run))],
      commands,
    }),
    h("div", { class: "stack" }, card(null, form), results),
  ];
}

const iso = (local) => new Date(local).toISOString().replace(".000Z", "Z");

function hourAgo() {
  const then = new Date(Date.now() - 3_600_000 - new Date().getTimezoneOffset() * 60_000);
  return then.toISOString().slice(0, 19);
}

const place = (context, name) => (record) => context.link(`/topics/${encodeURIComponent(name)}/messages/${record.partition}/${record.offset}`);

async function readSome(name, part, limit, most, signal) {
  const where = part.at === null ? { from: part.from } : { offset: part.at };
  const told = await get(path("topics", name, "partitions", part.partition, "messages"), { ...where, limit, max_bytes: most }, signal);
  const avro = decoderOf(name);
  return { found: told.messages.map((each) => prepare(each, part.partition, avro)), next: told.next_offset };
}

const sizeOf = (records) => records.reduce((total, each) => total + each.size, 0);

// Where the local part of each partition begins: what is before it comes from the bucket. Empty where there is none.
async function localStarts(name, signal) {
  if (!session.archive) return new Map();
  const { partitions } = await get(path("topics", name, "archive"), { limit: 0 }, signal).catch(() => ({ partitions: [] }));
  return new Map(partitions.filter((each) => each.local && each.archived).map((each) => [each.partition, each.local.start_offset]));
}

// Looks through partitions until a page is full or the end is reached; then it can go on.
async function scan(context, topic, parts, { test, filtered }, results, signal) {
  const name = topic.name;
  const local = await localStarts(name, signal);
  const all = parts.reduce((total, each) => total + Math.max(0, each.end - each.start), 0);
  const seen = { records: 0, bytes: 0, archived: 0, began: performance.now(), shown: [] };
  const shown = h("div");
  const progress = h("div");
  replace(results, progress, card(null, shown, { flush: true }));
  const open = () => parts.filter((each) => each.at === null || each.at < each.end);
  const draw = (running) => {
    const left = open().reduce((total, each) => total + each.end - (each.at ?? each.start), 0);
    const share = all ? 1 - left / all : 1;
    const words = `${many(seen.records, "record")} looked at, ${bytes(seen.bytes)} of values${seen.archived ? ` (${bytes(seen.archived)} from the bucket)` : ""}, ${count(seen.shown.length)} shown, ${duration(performance.now() - seen.began)}`;
    replace(progress, h("div", { class: "stack", css: { gap: "6px" }, role: "status" }, h("div", { class: "row" },
      h("span", { class: "grow soft num" }, running ? `Reading… ${words}` : open().length ? `${words}. More is there.` : `${words}. Up to the end.`),
      !running && open().length > 0 && button("Read on", () => go().catch(fail), { kind: "small" })), meter(share, "How far")));
    const sorted = [...seen.shown].sort((one, other) => other.timestamp - one.timestamp || other.offset - one.offset);
    replace(shown, table(columns(place(context, name)), sorted, { label: "Messages", none: running ? h("p", { class: "empty" }, "Nothing so far.") : empty(open().length ? "Nothing so far" : "No messages", open().length ? "Read on to look further." : "From here to the end there is none that fits.") }));
  };
  const fail = (error) => { if (error.name !== "AbortError") replace(progress, problem(error)); else draw(false); };
  const go = async () => {
    const until = seen.shown.length + PAGE;
    if (seen.shown.length > MOST_SHOWN) seen.shown.splice(0, seen.shown.length - MOST_SHOWN);
    for (let turn = 0; open().length && seen.shown.length < until && !signal.aborted; turn += 1) {
      const waiting = open();
      const want = Math.max(1, Math.ceil((until - seen.shown.length) / waiting.length));
      await Promise.all(waiting.slice(0, 6).map(async (part) => {
        const { found, next } = await readSome(name, part, filtered ? AT_ONCE : want, MOST_BYTES, signal);
        const within = found.filter((each) => each.offset < part.end);
        seen.records += within.length;
        seen.bytes += sizeOf(within);
        seen.archived += sizeOf(within.filter((each) => each.offset < local.get(part.partition)));
        seen.shown.push(...within.filter(test));
        part.at = next > (part.at ?? -1) ? next : part.end;
      }));
      draw(true);
      // Partitions take turns, so that one long one does not hide the others.
      parts.push(...parts.splice(0, Math.min(6, parts.length)));
    }
    draw(false);
  };
  await go().catch(fail);
}

// Records with one key, newest first: filters of keys say which archived files can have it.
async function find(context, name, key, test, results, signal) {
  if (!key) return replace(results, empty("Which key?", "Write the whole key: it is looked up, not searched for."));
  replace(results, h("p", { role: "status", class: "soft" }, "Looking in both tiers…"), h("div", { class: "meter busy" }, h("div")));
  const told = await get(path("topics", name, "keys", key), { limit: PAGE }, signal);
  const shown = told.messages.map((each) => prepare(each, each.partition, decoderOf(name))).filter(test);
  const { files, files_skipped: skipped, hot_rows: hot, bytes: size } = told.searched;
  return replace(results,
    h("p", { role: "status", class: "soft num" }, `${count(shown.length)} records in ${duration(told.elapsed_ms)}: ${count(files)} files read, ${count(skipped)} skipped, ${bytes(size)}, ${count(hot)} records from brokers. ${told.complete ? "There are no older ones." : "There are older ones."}`),
    card(null, table(columns(place(context, name)), shown, { label: "Messages", none: empty("No messages", "No record that is there has this key.") }), { flush: true }));
}

const keyCommands = (name, key) => ({
  "Command line": tierlog("find", name, "--key", key),
  curl: curl("GET", `${path("topics", name, "keys", key)}?limit=${PAGE}`),
  SQL: `SELECT * FROM ${sqlName(name)} WHERE key = '${key.replaceAll("'", "''")}' ORDER BY timestamp DESC`,
  Spark: spark(name, `.where("key = '${key.replaceAll("'", "\\'")}'")`),
});

async function tail(context, topic, test, results, signal, chosen) {
  const name = topic.name;
  const parts = chosen.map(({ partition, last_stable_offset: end }) => ({ partition, at: end }));
  const state = { shown: [], dropped: 0, came: 0, paused: false };
  const shown = h("div");
  const words = h("span", { class: "grow soft num", role: "status" });
  const pause = check("pause", { onchange: (event) => (state.paused = event.target.checked) });
  replace(results, h("div", { class: "row" }, words, pause), card(null, shown, { flush: true }));
  const draw = () => {
    replace(words, `Live: ${count(state.came)} came, `, h("strong", {}, `${count(state.dropped)} left out`), state.dropped ? " because they came faster than one can read" : "");
    replace(shown, table(columns(place(context, name)), state.shown, { label: "Messages", none: empty("Waiting for new messages", "They appear here as they are written.") }));
  };
  draw();
  const look = async (part) => {
    const { found, next } = await readSome(name, part, PAGE, TAIL_BYTES, signal);
    state.came += next - part.at;
    state.dropped += Math.max(0, next - part.at - found.length);
    part.at = next;
    return found;
  };
  const leap = async () => {
    const { partitions } = await get(path("topics", name), {}, signal);
    for (const part of parts) {
      const end = partitions[part.partition]?.last_stable_offset ?? part.at;
      const behind = end - part.at - PAGE;
      if (behind > 0) { state.dropped += behind; state.came += behind; part.at += behind; }
    }
  };
  while (!signal.aborted) {
    const began = performance.now();
    if (!state.paused && !document.hidden) {
      await leap();
      const found = (await Promise.all(parts.slice(0, 6).map(look))).flat().filter(test);
      parts.push(...parts.splice(0, Math.min(6, parts.length)));
      state.shown = [...found.sort((one, other) => other.timestamp - one.timestamp), ...state.shown].slice(0, 200);
      draw();
    }
    await new Promise((done) => setTimeout(done, Math.max(50, TAIL_MS - (performance.now() - began))));
  }
}

// Producing one message; also one that is sent again.
export function produce(name, topic, given, done) {
  const key = input({ value: given.key ?? "", placeholder: "none" });
  const value = h("textarea", { class: "input" }, given.value ?? "");
  const headers = h("textarea", { class: "input", placeholder: "name: value, one per line", rows: 3 }, (given.headers ?? []).map((each) => `${each.key}: ${each.value ?? ""}`).join("\n"));
  const partition = select([["", "by key"], ...topic.partitions.map((each) => [each.partition, each.partition])], given.partition ?? "");
  const tombstone = h("input", { type: "checkbox", onchange: () => (value.disabled = tombstone.checked) });
  const message = () => {
    const pairs = headers.value.split("\n").filter((line) => line.trim()).map((line) => { const [first, ...rest] = line.split(":"); return { key: first.trim(), value: rest.join(":").trim() }; });
    const encoded = given.encoding && value.value === given.value ? { value_encoding: given.encoding } : {};
    return { key: key.value === "" ? null : key.value, value: tombstone.checked ? null : value.value, ...encoded, ...(pairs.length ? { headers: pairs } : {}), ...(partition.value === "" ? {} : { partition: Number(partition.value) }) };
  };
  const where = path("topics", name, "messages", "batch");
  dialog({
    title: given.again ? `Send again to ${name}` : `Produce to ${name}`, wide: true, action: "Send",
    body: [h("div", { class: "form wide" }, field("Key", key), field("Partition", partition)), field("Value", value), h("label", { class: "check" }, tombstone, "No value: a tombstone"), field("Headers", headers), given.encoding && notice("", "The value is not text", "It is shown and sent as base64.")],
    commands: () => ({
      "Command line": `echo ${JSON.stringify(JSON.stringify(message()))} | ${tierlog("produce", name, "--input", "json")}`,
      curl: curl("POST", where, { messages: [message()] }),
    }),
    run: async () => {
      const { results: [stored] } = await post(where, { messages: [message()] });
      if (stored.error) throw Object.assign(new Error(stored.error.detail), stored.error);
      toast(`Stored at ${stored.partition}:${stored.offset}`);
      done?.(stored);
    },
  });
}
