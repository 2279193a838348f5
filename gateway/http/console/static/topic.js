// One topic: its partitions, which tier holds what, its settings, and what its archive costs.

import { gather, get, patch, path, remove } from "./api.js";
import { h, replace } from "./dom.js";
import { bytes, count, duration, many, money, rate, retention, short, time } from "./format.js";
import { ofTopic } from "./groups.js";
import { curl, readOnly, session, spark, sqlName, tierlog } from "./state.js";
import { badge, button, card, dialog, empty, facts, field, head, input, linkButton, notice, problem, searchBox, select, stats, table, tabs, toast } from "./ui.js";
import { KINDS, objectName, ranges, segmentNames, segmentRow, tierBar, tierLegend, timeOf } from "./tiers.js";

export async function page(context) {
  const [name, tab = "partitions"] = context.params;
  const topic = await get(path("topics", name));
  const at = (part) => context.link(`/topics/${encodeURIComponent(name)}${part}`);
  const figures = (await get(path("topics"), { search: name, figures: true, limit: 1000 }).catch(() => ({ topics: [] }))).topics.find((each) => each.name === name);
  const show = { partitions, groups: ofTopic, tiers, settings, cost }[tab];
  return [
    head({
      trail: h("a", { href: "#/topics" }, "Topics"),
      title: name,
      badges: [topic.internal && badge("internal"), topic.config["remote.storage.enable"]?.value === "true" && badge("archived", "info"), topic.config["cleanup.policy"]?.value.includes("compact") && badge("compacted")],
      actions: [linkButton("Messages", at("/messages"), "main"), !readOnly() && !topic.internal && button("Delete", () => drop(context, name), { kind: "danger" })],
      commands: {
        "Command line": tab === "groups" ? tierlog("group", "list", "--topic", name) : tierlog("topic", "describe", name),
        curl: curl("GET", tab === "groups" ? path("topics", name, "groups") : path("topics", name)),
        SQL: `SELECT count(*) FROM ${sqlName(name)}`,
        Spark: spark(name),
      },
    }),
    summary(topic, figures),
    h("div", { css: { height: "18px" } }),
    tabs([["partitions", "Partitions", at("")], ["groups", "Groups", at("/groups")], session.archive && ["tiers", "Tier map", at("/tiers")], ["settings", "Settings", at("/settings")], session.archive && ["cost", "Cost", at("/cost")]].filter(Boolean), tab),
    await show(context, topic),
  ];
}

function summary(topic, row) {
  const seen = row?.figures;
  const records = topic.partitions.reduce((total, each) => total + (each.high_watermark === null ? 0 : each.high_watermark - each.log_start_offset), 0);
  const missing = topic.partitions.filter((each) => each.isr.length < each.replicas.length).length;
  return stats(
    { name: "Records", value: short(records), under: many(topic.partitions.length, "partition") },
    { name: "Written", value: rate(seen?.in_bytes_per_s), under: `read ${rate(seen?.out_bytes_per_s)}` },
    { name: "Kept for", value: topic.config["retention.ms"] ? retention(topic.config["retention.ms"].value) : "–", under: topic.config["local.retention.ms"] && session.archive ? `local ${retention(topic.config["local.retention.ms"].value)}` : "" },
    { name: "Groups", value: count(row?.reads?.groups ?? 0), under: row?.reads?.groups ? `lag ${row.reads.lag === undefined ? "not known" : short(row.reads.lag)}` : "none has read it" },
    { name: "Local", value: bytes(seen?.size_bytes), under: missing ? `replicas missing: ${many(missing, "partition")}` : `${many(topic.replication_factor, "replica")}, in sync`, tone: missing ? "warn" : "" },
    session.archive && { name: "In the bucket", value: bytes(seen?.stored_bytes), under: seen?.backlog_bytes ? `${bytes(seen.backlog_bytes)} wait` : "nothing waits" });
}

// Partitions

async function partitions(context, topic) {
  const link = (number, offset) => context.link(`/topics/${encodeURIComponent(topic.name)}/messages`, { partition: number, from: "offset", offset });
  const place = (value, number) => (value === null ? "–" : h("a", { href: link(number, value) }, count(value)));
  return card(null, table([
    { name: "Partition", kind: "right tight", value: (each) => each.partition },
    { name: "Leader", kind: "right tight", value: (each) => each.leader ?? badge("none", "bad") },
    { name: "Replicas", kind: "tight wide-only", value: (each) => each.replicas.map((id) => [each.isr.includes(id) ? id : h("span", { class: "badge bad", title: "not in sync" }, id), " "]) },
    { name: "First offset", kind: "right wide-only", value: (each) => place(each.log_start_offset, each.partition) },
    { name: "Next offset", kind: "right", value: (each) => count(each.high_watermark) },
    { name: "Records", kind: "right", value: (each) => (each.high_watermark === null ? "–" : short(each.high_watermark - each.log_start_offset)) },
    { name: "Local", kind: "right", value: (each) => bytes(each.size_bytes) },
    { name: "Segments", kind: "right wide-only", value: (each) => count(each.segments) },
    { name: "Epoch", kind: "right wide-only", value: (each) => each.leader_epoch },
  ], topic.partitions, { label: "Partitions" }), { flush: true });
}

// The tier map

async function tiers(context, topic) {
  const where = path("topics", topic.name, "archive");
  const [described, held] = await Promise.all([get(where, { limit: 300 }), get(path("archive", "pins"), { topic: topic.name }).catch(() => ({ pins: [] }))]);
  const drawn = h("div");
  const below = h("div", { class: "stack" });
  const troubled = described.partitions.filter((each) => each.held || each.stopped || each.last_failure);
  const draw = async () => replace(drawn, await map(context, topic, described, context.query.by === "time"));
  const choose = (by) => async () => { context.adjust({ by }); mode.replaceChildren(...switches()); await draw(); };
  const switches = () => [["", "By offset"], ["time", "By time"]].map(([by, text]) => button(text, choose(by), { kind: "small", "aria-pressed": (context.query.by ?? "") === by ? "true" : "false" }));
  const mode = h("div", { class: "row", role: "group", "aria-label": "Axis" }, switches());
  await draw();
  if (context.query.partition !== undefined) replace(below, await segments(context, topic, Number(context.query.partition)));
  return h("div", { class: "stack" },
    held.pins.map((pin) => notice("", `Pinned by ${pin.name}`, `Nothing of the archive expires before ${time(pin.expires_ms)}, or until the job takes its pin away.`)),
    troubled.map((each) => notice("bad", `Partition ${each.partition}: ${each.stopped ? "the archive is stopped" : each.held ? "a local segment is damaged, or its copy is gone" : "archiving fails"}`, each.stopped || each.held?.why || each.last_failure)),
    described.partitions.filter((each) => each.held_by).map(({ partition, held_by: by }) => notice("warn", `Partition ${partition}: the archive waits for a transaction`, `${by.what}; ${by.hint}`)),
    card("Which tier holds what", drawn, { actions: mode, note: described.bucket }), below);

  async function segmentsOf(number) {
    context.adjust({ partition: number, offset: undefined });
    replace(below, await segments(context, topic, number));
    below.scrollIntoView({ block: "nearest" });
  }

  async function map(_context, _topic, { partitions: all }, timed) {
    const rows = all.map((status) => ({ status, parts: ranges(status, topic.partitions[status.partition]) })).filter(({ status }) => status.local || status.archived);
    if (!rows.length) return empty("Nothing to show", "No leader tells what it holds.");
    const places = timed ? await gather(rows.slice(0, 64), 6, ({ status }) => placesOf(topic, status)) : [];
    const shown = timed ? rows.slice(0, 64) : rows;
    const place = (index) => (timed ? (offset) => timeOf(offset, places[index]) ?? low : (offset) => offset);
    const known = timed ? places.flat().map(([, ms]) => ms) : rows.flatMap(({ parts }) => parts.flatMap((part) => [part.start, part.end]));
    const low = Math.min(...known);
    const high = Math.max(...known);
    const say = timed ? (ms) => time(ms).slice(0, 16) : (offset) => count(Math.round(offset));
    const kinds = new Set(rows.flatMap(({ parts }) => parts.map((part) => part.kind)));
    return h("div", { class: "stack" },
      h("div", { class: "tier-map" },
        shown.map(({ status, parts }, index) => [
          button(`${status.partition}`, () => segmentsOf(status.partition), { kind: "plain small", label: `Archived segments of partition ${status.partition}` }),
          tierBar({ parts, start: low, end: high, cuts: status.segments.map((each) => each.base_offset), label: `Partition ${status.partition}`, place: place(index), show: say }),
          h("span", { class: "side-text end" }, `${short(parts.reduce((total, part) => total + part.end - part.start, 0))}${status.backlog_bytes ? ` · ${bytes(status.backlog_bytes)} wait` : ""}`),
        ]),
        h("div", { class: "axis" }, h("span", {}, say(low)), h("span", { class: "wide-only" }, say(low + (high - low) / 2)), h("span", {}, say(high)))),
      tierLegend(kinds),
      h("details", {}, h("summary", {}, "The same as a table"), table([
        { name: "Partition", kind: "right tight", value: (row) => row.partition },
        { name: "Where", value: (row) => KINDS[row.kind] },
        { name: "First offset", kind: "right", value: (row) => count(row.start) },
        { name: "Last offset", kind: "right", value: (row) => count(row.end - 1) },
        { name: "Offsets", kind: "right", value: (row) => short(row.end - row.start) },
      ], rows.flatMap(({ status, parts }) => parts.map((part) => ({ ...part, partition: status.partition }))), { label: "Which tier holds what" })));
  }
}

// Known times of a partition: of its archived segments, and of its first and last local record.
async function placesOf(topic, status) {
  const found = status.segments.filter((each) => each.min_timestamp !== null).flatMap((each) => [[each.base_offset, each.min_timestamp], [each.end_offset - 1, each.max_timestamp]]);
  if (status.local && status.local.end_offset > status.local.start_offset) {
    const at = async (offset) => {
      const { messages } = await get(path("topics", topic.name, "partitions", status.partition, "messages"), { offset, limit: 1, max_bytes: 1 }).catch(() => ({ messages: [] }));
      return messages.length ? [[messages[0].offset, messages[0].timestamp]] : [];
    };
    found.push(...(await at(status.local.start_offset)), ...(await at(Math.max(status.local.start_offset, status.local.end_offset - 1))));
  }
  found.sort(([one], [other]) => one - other);
  let latest = -Infinity;
  // Producers choose timestamps; the map runs forward all the same.
  return found.map(([offset, ms]) => [offset, (latest = Math.max(latest, ms))]);
}

async function segments(context, topic, number) {
  const box = h("div");
  const go = async (offset) => { context.adjust({ offset, partition: number }); replace(box, await segmentPage(context, topic, number, go)); };
  return replace(box, await segmentPage(context, topic, number, go));
}

async function segmentPage(context, topic, number, go) {
  const skip = Number(context.query.offset ?? 0);
  const { bucket, partitions: [status] } = await get(path("topics", topic.name, "archive"), { partition: number, offset: skip, limit: 50 });
  return card(`Archived segments of partition ${number}`, status.segments.length ? [
    table([...segmentNames.map((name, index) => ({ name, kind: index < 4 ? "right" : "tight", value: (row) => segmentRow(row)[index] })), { name: "Object", kind: "wrap wide-only", value: (row) => objectName(bucket, row) }], status.segments, { label: "Archived segments" }),
    h("div", { class: "pager" }, h("span", { class: "grow" }, status.archived ? `${count(status.archived.segments)} segments, ${bytes(status.archived.rows_bytes)} of Parquet made of ${bytes(status.archived.log_bytes)} of log; manifest ${status.archived.leader_epoch}.${status.archived.sequence}` : ""),
      skip > 0 && button("From the start", () => go(0), { kind: "small" }), status.next_offset !== null && button("Further", () => go(status.next_offset), { kind: "small" })),
  ] : empty("Nothing of it is archived", "Segments go to the bucket once they are sealed."), { flush: true });
}

// Settings

const ASKED_FIRST = ["retention.ms", "retention.bytes", "local.retention.ms", "remote.storage.enable", "cleanup.policy", "min.insync.replicas", "segment.bytes", "segment.ms", "max.message.bytes", "compression.type"];

async function settings(context, topic) {
  const names = Object.keys(topic.config);
  if (!names.length) return empty("You may not see the settings", "This needs the permission “describe configs” of the topic.");
  const order = (name) => (ASKED_FIRST.includes(name) ? ASKED_FIRST.indexOf(name) : 100);
  const rows = names.map((name) => ({ name, ...topic.config[name] })).sort((one, other) => (one.source === other.source ? order(one.name) - order(other.name) || one.name.localeCompare(other.name) : one.source === "topic" ? -1 : 1));
  const list = h("div");
  const draw = (search) => replace(list, table([
    { name: "Setting", kind: "name", value: (row) => row.name },
    { name: "Value", kind: "wrap mono", value: (row) => [row.value || "–", row.name.endsWith(".ms") && Number(row.value) > 999 && h("span", { class: "faint" }, ` ${duration(Number(row.value))}`), row.name.endsWith(".bytes") && Number(row.value) > 999 && h("span", { class: "faint" }, ` ${bytes(Number(row.value))}`)] },
    { name: "From", kind: "tight", value: (row) => (row.source === "topic" ? badge("this topic", "info") : h("span", { class: "faint" }, "default")) },
    { name: "", kind: "right tight", value: (row) => !readOnly() && button("Change", () => change(context, topic, row), { kind: "plain small", label: `Change ${row.name}` }) },
  ], rows.filter((row) => row.name.includes(search.toLowerCase())), { label: "Settings", none: empty("No setting has this in its name", "") }));
  draw("");
  return h("div", { class: "stack" },
    card(null, [h("div", { class: "row", css: { padding: "12px 16px" } }, h("div", { class: "grow" }, searchBox("", "Search settings", draw)), !readOnly() && !topic.internal && button("Add partitions", () => grow(context, topic))), list], { flush: true }),
    card("This topic", facts(["Id", h("code", {}, topic.id)], ["Made", time(topic.created_ms)], ["Replicas", topic.replication_factor])));
}

function change(context, topic, row) {
  const choices = { "cleanup.policy": ["delete", "compact", "compact,delete"], "compression.type": ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"], "message.timestamp.type": ["CreateTime", "LogAppendTime"] }[row.name] ?? (["true", "false"].includes(row.value) ? ["true", "false"] : null);
  const box = choices ? select([...new Set([...choices, row.value])].map((each) => [each, each]), row.value) : input({ value: row.value });
  const meaning = h("small", { class: "faint" });
  const say = () => replace(meaning, row.name.endsWith(".ms") && box.value !== "" ? retention(box.value) : row.name.endsWith(".bytes") && Number(box.value) > 0 ? bytes(Number(box.value)) : "");
  box.addEventListener("input", say);
  say();
  const reset = h("input", { type: "checkbox", onchange: () => (box.disabled = reset.checked) });
  const config = () => ({ [row.name]: reset.checked ? null : box.value });
  dialog({
    title: `Change ${row.name}`,
    body: [field("Value", box), meaning, row.source === "topic" && h("label", { class: "check" }, reset, "Back to the broker's default")],
    action: "Change",
    commands: () => ({ "Command line": tierlog("topic", "alter", topic.name, reset.checked ? ["--unset", row.name] : ["--config", `${row.name}=${box.value}`]), curl: curl("PATCH", path("topics", topic.name), { config: config() }) }),
    run: async () => { await patch(path("topics", topic.name), { config: config() }); toast(`${row.name} is changed`); context.reload(); },
  });
}

function grow(context, topic) {
  const box = input({ type: "number", min: topic.partitions.length + 1, max: 10_000, value: topic.partitions.length + 1 });
  dialog({
    title: "Add partitions",
    body: [field("Partitions", box), h("p", { class: "soft" }, "Keys may go to other partitions than before, and there is no way back.")],
    action: "Add",
    commands: () => ({ "Command line": tierlog("topic", "alter", topic.name, "--partitions", box.value), curl: curl("PATCH", path("topics", topic.name), { partitions: Number(box.value) }) }),
    run: async () => { await patch(path("topics", topic.name), { partitions: Number(box.value) }); toast("Partitions are added"); context.reload(); },
  });
}

function drop(context, name) {
  dialog({
    title: `Delete ${name}?`, danger: true, action: "Delete the topic", byName: name,
    body: h("p", {}, "All its records go, in both tiers. What is in the bucket stays for a while before it is collected."),
    commands: () => ({ "Command line": tierlog("topic", "delete", name), curl: curl("DELETE", path("topics", name)) }),
    run: async () => { await remove(path("topics", name)); toast(`${name} is deleted`); location.hash = "#/topics"; },
  });
}

// Cost

const PLANS = [["", "as it is"], ["604800000", "7 days"], ["2592000000", "30 days"], ["7776000000", "90 days"], ["31536000000", "1 year"], ["157680000000", "5 years"]];

async function cost(context, topic) {
  const shown = h("div");
  const plan = select(PLANS, context.query.retention ?? "");
  const replays = input({ type: "number", min: 0, max: 1_000_000, value: context.query.replays ?? 1 });
  const draw = async () => {
    context.adjust({ retention: plan.value, replays: replays.value });
    const found = await get(path("topics", topic.name, "archive", "cost"), { retention_ms: plan.value, replays: Number(replays.value || 0) });
    replace(shown, found.span_ms ? estimate(found, plan.value) : empty("Nothing of it is archived yet", "So there is no rate to reckon with."));
  };
  const again = () => draw().catch((error) => replace(shown, problem(error)));
  plan.addEventListener("change", again);
  replays.addEventListener("change", again);
  await draw();
  const words = () => ["cost", topic.name, plan.value ? ["--retention", `${Number(plan.value) / 86_400_000}d`] : [], ["--replays", replays.value]];
  return card("What if", [
    h("div", { class: "form wide", css: { "margin-bottom": "16px" } }, field("Kept for", plan), field("Full replays per month", replays)),
    shown, h("details", { css: { "margin-top": "14px" } }, h("summary", {}, "The same as a command"), h("pre", { class: "mono" }, tierlog(words())))]);
}

const amountOf = (line) => (line.unit === "1,000" ? many(Math.round(line.amount * 1000), "request") : `${line.amount.toLocaleString("en-US", { maximumFractionDigits: 3 })} ${line.unit}`);

function estimate(found, planned) {
  const lines = [...found.bucket, ...found.local];
  const saved = found.monthly_local_disks_alone - found.monthly_with_archive;
  return [
    stats(
      { name: "Per month, with the archive", value: money(found.monthly_with_archive), under: `${money(found.monthly_with_archive / 30.4)} per day` },
      { name: "Per month, on local disks alone", value: money(found.monthly_local_disks_alone) },
      { name: "Saved", value: saved > 0 && found.monthly_local_disks_alone ? `${Math.round((saved / found.monthly_local_disks_alone) * 100)} %` : "–", under: saved <= 0 ? "so little costs more in requests" : planned ? "once that much is there" : "of what is there now" },
      { name: "Held", value: bytes(found.held_log_bytes), under: `${bytes(found.log_bytes_per_month)} come per month` }),
    h("div", { css: { height: "12px" } }),
    table([
      { name: "For", kind: "wrap", value: (line) => line.what, also: amountOf },
      { name: "Amount", kind: "right wide-only", value: amountOf },
      { name: "Price", kind: "right wide-only", value: (line) => `$${line.price} per ${line.unit}` },
      { name: "Per month", kind: "right", value: (line) => money(line.cost) },
    ], lines, { label: "Costs" }),
    found.span_ms < 3_600_000 && notice("warn", "A short history", `The rate is taken from ${duration(found.span_ms)}; wait for more to trust it.`)];
}

