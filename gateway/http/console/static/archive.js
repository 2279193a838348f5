// The archive as a whole: what each topic has in the bucket, what waits, who holds it, and whether it is sound.

import { get, lines, path, post } from "./api.js";
import { h, replace } from "./dom.js";
import { bytes, count, duration, money, time } from "./format.js";
import { curl, may, tierlog } from "./state.js";
import { badge, button, card, dialog, empty, field, head, input, meter, notice, pager, problem, stats, table, tabs, toast } from "./ui.js";

const LIMIT = 50;

export async function page(context) {
  const [tab = "status"] = context.params;
  const [bucket, figures] = await Promise.all([get(path("archive")), get(path("cluster", "figures"))]);
  const sum = (name) => figures.brokers.reduce((total, each) => total + each[name], 0);
  const late = Math.max(0, ...figures.brokers.map((each) => each.archive_lag_ms));
  return [
    head({
      title: "Archive", lead: h("span", { class: "mono" }, bucket.bucket),
      badges: bucket.works ? badge("the bucket works", "good") : badge("the bucket fails", "bad"),
      actions: may("alter") && [button("Restore…", () => restore(context)), button("Collect garbage", () => collect())],
      commands: { "Command line": tierlog("archive", "status"), curl: curl("GET", path("archive")), Spark: `spark.read.parquet("${bucket.bucket.replace(/\/$/, "")}")` },
    }),
    !bucket.works && h("div", { css: { "margin-bottom": "16px" } }, notice("bad", "The bucket does not answer", bucket.failure)),
    stats(
      { name: "In the bucket", value: bytes(sum("stored_bytes")) },
      { name: "Waits to be archived", value: bytes(sum("backlog_bytes")), tone: late > 900_000 ? "warn" : "" },
      { name: "Behind by", value: late ? duration(late) : "nothing", under: "the oldest sealed segment that waits" },
      { name: "Needs a decision", value: count(sum("held")), under: "partitions", tone: sum("held") ? "bad" : "" },
      { name: "Per day", value: money(sum("cost_per_day")), under: "storage and requests" }),
    h("div", { css: { height: "18px" } }),
    tabs([["status", "Topics", "#/archive"], ["verify", "Verify", "#/archive/verify"], ["pins", "Pins", "#/archive/pins"]], tab),
    await { status, verify, pins }[tab](context),
  ];
}

async function status(context) {
  const list = h("div");
  const asked = () => ({ sort: context.query.sort ?? "stored_bytes", descending: (context.query.descending ?? "true") === "true", skip: Number(context.query.skip ?? 0), limit: LIMIT, internal: false, figures: true });
  const change = (changed) => { context.adjust(changed); return refresh().catch((error) => replace(list, problem(error))); };
  const refresh = async () => {
    const wanted = asked();
    const { topics, total } = await get(path("topics"), wanted, context.signal);
    const at = (topic, part) => context.link(`/topics/${encodeURIComponent(topic.name)}/${part}`);
    replace(list, topics.length ? [table([
      { name: "Topic", key: "name", kind: "name", value: (topic) => [h("a", { href: at(topic, "tiers") }, topic.name), " ", topic.figures?.held ? badge("held", "bad") : null] },
      { name: "In the bucket", key: "stored_bytes", kind: "right", value: (topic) => bytes(topic.figures?.stored_bytes) },
      { name: "Local", key: "size_bytes", kind: "right wide-only", value: (topic) => bytes(topic.figures?.size_bytes) },
      { name: "Waits", key: "backlog_bytes", kind: "right", value: (topic) => (topic.figures?.backlog_bytes ? bytes(topic.figures.backlog_bytes) : "–") },
      { name: "For", kind: "right wide-only", value: (topic) => (topic.figures?.archive_lag_ms ? duration(topic.figures.archive_lag_ms) : "–") },
      { name: "", kind: "right tight", value: (topic) => topic.figures?.stored_bytes > 0 && h("a", { href: at(topic, "cost") }, "What if…") },
    ], topics, { label: "Archived topics", sort: { key: wanted.sort, descending: wanted.descending }, onsort: (sort, descending) => change({ sort, descending, skip: 0 }) }), pager({ ...wanted, total, shown: topics.length }, (skip) => change({ skip }))]
      : empty("There are no topics yet", "A topic is archived with remote.storage.enable=true."));
  };
  await refresh();
  context.every(10_000, refresh);
  return card(null, list, { flush: true });
}

// Verify reads every object; it tells what it finds while it runs.

async function verify(context) {
  if (!may("alter")) return empty("You may not verify the archive", "It reads everything there is, so it needs the permission to alter the cluster.");
  const topics = input({ placeholder: "all, or names with commas", value: context.query.topics ?? "" });
  const shown = h("div", { class: "stack" });
  let stop = new AbortController();
  context.onLeave(() => stop.abort());
  const names = () => topics.value.split(",").map((each) => each.trim()).filter(Boolean);
  const run = async () => {
    stop.abort();
    stop = new AbortController();
    start.disabled = true;
    const state = { planned: 0, segments: 0, bytes: 0, findings: [], summary: null };
    const draw = () => replace(shown,
      h("p", { role: "status", class: "num" }, state.summary ? `${count(state.summary.segments)} segments of ${count(state.summary.partitions)} partitions, ${bytes(state.summary.bytes)} read and compared.` : `${count(state.segments)} of ${count(state.planned)} segments, ${bytes(state.bytes)}…`),
      meter(state.summary ? 1 : state.planned ? state.segments / state.planned : 0, "How far"),
      state.summary && (state.summary.problems ? notice("bad", `${count(state.summary.problems)} problems`, "docs/ARCHIVE_REPAIR.md says what to do.") : notice("good", "Everything is as the manifests say", state.summary.orphans ? `${count(state.summary.orphans)} orphans wait for their collection.` : "")),
      state.findings.length > 0 && table([
        { name: "Kind", kind: "tight", value: (each) => badge(each.kind, each.problem ? "bad" : "") },
        { name: "Where", kind: "wrap mono", value: (each) => each.where },
        { name: "What", kind: "wrap", value: (each) => each.what },
      ], state.findings, { label: "Findings" }));
    draw();
    try {
      for await (const line of lines("POST", path("archive", "verify"), { body: { topics: names() }, signal: stop.signal })) {
        if (line.type === "planned") state.planned += line.segments;
        else if (line.type === "progress") Object.assign(state, { segments: line.segments, bytes: line.bytes });
        else if (line.type === "finding" && state.findings.length < 1000) state.findings.push(line);
        else if (line.type === "summary") state.summary = line;
        else if (line.type === "error") throw Object.assign(new Error(line.error.detail), line.error);
        if (line.type !== "planned") draw();
      }
      if (!state.summary) throw new Error("The answer broke off: the verification did not finish.");
    } catch (error) {
      if (error.name !== "AbortError") replace(shown, problem(error));
    }
    start.disabled = false;
  };
  const start = button("Verify", run, { kind: "main" });
  return h("div", { class: "stack" }, card("Compare every object with its manifest", [
    h("p", { class: "soft", css: { "margin-bottom": "12px" } }, "It reads all archived objects. Over a real bucket that takes time, and costs requests."),
    h("div", { class: "form wide" }, field("Topics", topics), h("div", { class: "row" }, start, button("Stop", () => stop.abort(), {}))),
    h("details", { css: { "margin-top": "12px" } }, h("summary", {}, "The same as a command"), h("pre", {}, tierlog("archive", "verify", names())))]), shown);
}

async function pins() {
  const { pins: held } = await get(path("archive", "pins"));
  return card("Jobs that hold topics’ retention", held.length ? table([
    { name: "Topic", kind: "name", value: (pin) => h("a", { href: `#/topics/${encodeURIComponent(pin.topic)}/tiers` }, pin.topic) },
    { name: "Held by", kind: "wrap", value: (pin) => pin.name },
    { name: "Since", kind: "tight", value: (pin) => time(pin.created_ms) },
    { name: "At the longest until", kind: "tight", value: (pin) => time(pin.expires_ms) },
  ], held, { label: "Pins" }) : empty("No job holds a topic", "A Spark job pins what it reads, so that nothing expires under it.", tierlog("archive", "pins")), { flush: true });
}

function restore(context) {
  const topics = input({ placeholder: "all, or names with commas" });
  const found = h("div");
  const names = () => topics.value.split(",").map((each) => each.trim()).filter(Boolean);
  dialog({
    title: "Restore topics from the bucket", action: "Restore", close: "Close",
    body: [h("p", {}, "Topics that are in the bucket and not in this cluster are made anew, with their settings and all archived records. One that is here stays as it is."), field("Topics", topics), found],
    commands: () => ({ "Command line": tierlog("archive", "restore", names().flatMap((name) => ["--topic", name])), curl: curl("POST", path("archive", "restore"), { topics: names() }) }),
    run: async () => {
      const told = await post(path("archive", "restore"), { topics: names() });
      const came = told.topics.filter((each) => each.restored);
      replace(found, table([
        { name: "Topic", kind: "name", value: (each) => each.name },
        { name: "Records", kind: "right", value: (each) => count(each.partitions.reduce((total, one) => total + one.rows, 0)) },
        { name: "What became of it", kind: "wrap", value: (each) => each.failure || (each.restored ? ["restored", ...each.warnings].join("; ") : "is here already") },
      ], told.topics, { label: "What became of each", none: empty("The bucket has no topics", "") }));
      toast(`${count(came.length)} of ${count(told.topics.length)} topics are restored`);
      context.reload();
      return false;
    },
  });
}

function collect() {
  dialog({
    title: "Collect garbage now?", action: "Collect",
    body: h("p", {}, "Brokers do this by themselves in time. What is within its grace period stays."),
    commands: () => ({ "Command line": tierlog("archive", "gc"), curl: curl("POST", path("archive", "gc")) }),
    run: async () => {
      const found = await post(path("archive", "gc"));
      toast(`${count(found.removed + found.orphans + found.of_deleted_topics)} objects went`);
      if (found.failed.length) throw Object.assign(new Error(found.failed.join("; ")), { title: "Not everything could be collected" });
    },
  });
}
