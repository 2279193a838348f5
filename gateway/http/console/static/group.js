// One consumer group: its lag over time, offsets, members, and the records it could not handle.

import { get, path, post, remove } from "./api.js";
import { chart } from "./chart.js";
import { h, replace } from "./dom.js";
import { ago, count, short, time } from "./format.js";
import { TONES, words } from "./groups.js";
import { columns, prepare } from "./records.js";
import { curl, readOnly, tierlog } from "./state.js";
import { badge, button, card, dialog, empty, field, head, input, meter, notice, problem, select, stats, table, tabs, toast } from "./ui.js";

export async function page(context) {
  const [name, tab = "offsets"] = context.params;
  const group = await get(path("consumer-groups", name));
  const at = (part) => context.link(`/groups/${encodeURIComponent(name)}${part}`);
  const idle = group.members.length === 0;
  return [
    head({
      trail: h("a", { href: "#/groups" }, "Consumer groups"), title: name,
      badges: badge(words(group.state), TONES[group.state]),
      actions: !readOnly() && [button("Reset offsets", () => reset(context, name, idle), { kind: "main" }), button("Delete", () => drop(name), { kind: "danger", disabled: !idle })],
      commands: { "Command line": tierlog("group", "describe", name), curl: curl("GET", path("consumer-groups", name, "offsets")) },
    }),
    tabs([["offsets", "Offsets and members", at("")], ["dead-letters", "Dead letters", at("/dead-letters")]], tab),
    tab === "offsets" ? await offsets(context, name) : await deadLetters(context, name),
  ];
}

async function offsets(context, name) {
  const top = h("div");
  const lag = h("div");
  const list = h("div");
  const members = h("div");
  let span = "hour";
  const refresh = async () => {
    const [group, told, history] = await Promise.all([get(path("consumer-groups", name), {}, context.signal), get(path("consumer-groups", name, "offsets"), {}, context.signal), get(path("consumer-groups", name, "lag"), {}, context.signal)]);
    const assigned = new Map(group.members.flatMap((member) => (member.assignment ?? []).flatMap((each) => each.partitions.map((number) => [`${each.topic}-${number}`, member]))));
    const topics = new Set(told.offsets.map((each) => each.topic));
    const unknown = told.offsets.filter((each) => each.lag === null).length;
    replace(top, stats(
      { name: "Lag", value: told.lag === null ? "not known" : short(told.lag), under: unknown ? `not known for ${unknown} partitions` : "records not read yet" },
      { name: "Topics", value: count(topics.size), under: `${count(told.offsets.length)} partitions` },
      { name: "Members", value: count(group.members.length), under: group.protocol || "none joined through Kafka" }));
    const choose = (which) => { span = which; draw(); };
    const draw = () => {
      const series = history.lag?.[span];
      replace(lag, card("Lag over time", series ? chart("Lag", [{ name: "records", className: "c", ...series }], short) : h("p", { class: "faint" }, "No measurements yet: the first comes within ten seconds."),
        { actions: h("div", { class: "row", role: "group", "aria-label": "Span" }, [["hour", "Hour"], ["day", "Day"]].map(([key, text]) => button(text, () => choose(key), { kind: "small", "aria-pressed": String(span === key) }))) }));
    };
    draw();
    replace(list, card("Offsets", told.offsets.length ? table([
      { name: "Topic", kind: "name", value: (each) => h("a", { href: context.link(`/topics/${encodeURIComponent(each.topic)}`) }, each.topic) },
      { name: "Partition", kind: "right", value: (each) => each.partition },
      { name: "Next to read", kind: "right", value: (each) => (each.offset === null ? "–" : h("a", { href: context.link(`/topics/${encodeURIComponent(each.topic)}/messages`, { partition: each.partition, from: "offset", offset: each.offset }) }, count(each.offset))) },
      { name: "End", kind: "right wide-only", value: (each) => count(each.high_watermark) },
      { name: "Lag", kind: "right", value: (each) => (each.lag === null ? h("span", { class: "faint" }, "not known") : short(each.lag)) },
      { name: "Member", kind: "wrap wide-only", value: (each) => assigned.get(`${each.topic}-${each.partition}`)?.client_id ?? h("span", { class: "faint" }, "nobody") },
    ], told.offsets, { label: "Offsets" }) : empty("It has committed nothing", ""), { flush: true }));
    replace(members, card("Members", group.members.length ? table([
      { name: "Client", kind: "name", value: (each) => each.client_id || "–" },
      { name: "Host", value: (each) => each.host },
      { name: "Partitions", kind: "right", value: (each) => count((each.assignment ?? []).reduce((total, one) => total + one.partitions.length, 0)) },
      { name: "Reads", kind: "wrap", value: (each) => (each.assignment ?? []).map((one) => `${one.topic}: ${one.partitions.join(", ")}`).join("; ") || "–" },
      { name: "Member id", kind: "wrap wide-only", value: (each) => h("code", { class: "faint" }, each.instance_id ?? each.member_id) },
    ], group.members, { label: "Members" }) : h("div", { class: "body faint" }, "No member has joined through Kafka. Offsets can be reset now."), { flush: true }));
  };
  await refresh();
  context.every(10_000, refresh);
  return h("div", { class: "stack" }, top, lag, list, members);
}

// Reset: what would be is shown first, as the broker works it out.

async function reset(context, name, idle) {
  const told = await get(path("consumer-groups", name, "offsets"));
  const known = [...new Set(told.offsets.map((each) => each.topic))];
  const topic = input({ value: known[0] ?? "", list: "reset-topics" });
  const to = select([["earliest", "the oldest record"], ["latest", "the newest record"], ["time", "a time"]], "earliest");
  const when = input({ type: "datetime-local", step: 1, value: new Date(Date.now() - 3_600_000 - new Date().getTimezoneOffset() * 60_000).toISOString().slice(0, 19) });
  const partition = input({ type: "number", min: 0, placeholder: "all" });
  const whenField = field("Time", when);
  const preview = h("div");
  const body = (dry) => ({ topic: topic.value, to: to.value === "time" ? new Date(when.value).toISOString() : to.value, ...(partition.value === "" ? {} : { partition: Number(partition.value) }), ...(dry ? { dry_run: true } : {}) });
  const where = path("consumer-groups", name, "offsets", "reset");
  const { confirm } = dialog({
    title: `Reset ${name}`, wide: true, danger: true, action: "Reset the offsets", ready: false,
    body: [
      !idle && notice("warn", "The group has members", "Only they change its offsets. Stop its consumers first."),
      h("datalist", { id: "reset-topics" }, known.map((each) => h("option", { value: each }))),
      h("div", { class: "form wide" }, field("Topic", topic), field("To", to), whenField, field("Partition", partition)), preview],
    commands: () => ({ "Command line": tierlog("group", "reset", name, "--topic", topic.value, "--to", body().to, partition.value === "" ? [] : ["--partition", partition.value]), curl: curl("POST", where, body()) }),
    run: async () => { await post(where, body()); toast(`${name} is moved`); context.reload(); },
  });
  const look = async () => {
    whenField.hidden = to.value !== "time";
    confirm.disabled = true;
    if (!topic.value) return;
    try {
      const then = await post(where, body(true));
      const now = new Map(told.offsets.filter((each) => each.topic === topic.value).map((each) => [each.partition, each]));
      const moved = (each) => each.offset - (now.get(each.partition)?.offset ?? each.offset);
      replace(preview, h("h3", { css: { "margin-bottom": "6px" } }, `Then ${short(then.lag)} records are to be read`), table([
        { name: "Partition", kind: "right", value: (each) => each.partition },
        { name: "Now", kind: "right", value: (each) => count(now.get(each.partition)?.offset) },
        { name: "Then", kind: "right", value: (each) => h("strong", {}, count(each.offset)) },
        { name: "Moves by", kind: "right", value: (each) => `${moved(each) > 0 ? "+" : ""}${count(moved(each))}` },
        { name: "Lag then", kind: "right", value: (each) => short(each.lag) },
      ], then.offsets, { label: "Preview" }));
      confirm.disabled = !idle;
    } catch (error) {
      replace(preview, problem(error));
    }
  };
  for (const each of [topic, to, when, partition]) each.addEventListener("change", look);
  await look();
}

function drop(name) {
  dialog({
    title: `Delete ${name}?`, danger: true, action: "Delete the group", byName: name,
    body: h("p", {}, "Its offsets go. Consumers that come back begin as their settings say."),
    commands: () => ({ "Command line": tierlog("group", "delete", name), curl: curl("DELETE", path("consumer-groups", name)) }),
    run: async () => { await remove(path("consumer-groups", name)); toast(`${name} is deleted`); location.hash = "#/groups"; },
  });
}

// Dead letters

async function deadLetters(context, name) {
  const told = await get(path("consumer-groups", name, "dead-letters"));
  return h("div", { class: "stack" },
    card("Set aside", told.topics.length ? table([
      { name: "Set aside in", kind: "name", value: (each) => h("a", { href: context.link(`/topics/${encodeURIComponent(each.dead_letter_topic)}/messages`, { from: "earliest" }) }, each.dead_letter_topic) },
      { name: "Of topic", kind: "wrap wide-only", value: (each) => each.topic },
      { name: "Records", kind: "right", value: (each) => count(each.count) },
      { name: "", kind: "right tight", value: (each) => !readOnly() && each.count > 0 && button("Redrive…", () => redrive(context, name, each), { kind: "small" }) },
    ], told.topics, { label: "Set aside" }) : empty("Nothing was set aside", "A record that fails too often is copied to the topic’s dead letters, and the group goes on."), { flush: true }),
    card("Failing now", told.failing.length ? table([
      { name: "Place", kind: "tight", value: (each) => h("a", { href: context.link(`/topics/${encodeURIComponent(each.topic)}/messages/${each.partition}/${each.offset}`) }, `${each.topic} ${each.partition}:${each.offset}`) },
      { name: "Failures", kind: "right tight", value: (each) => count(each.failures) },
      { name: "Reason", kind: "wrap", value: (each) => each.reason },
      { name: "Last", kind: "right tight", value: (each) => h("span", { title: time(each.last_failure_ms) }, ago(each.last_failure_ms)) },
    ], told.failing, { label: "Failing" }) : h("div", { class: "body faint" }, "No record is failing."), { flush: true }));
}

const ADDED = /^tierlog\.dlq\./;
const BATCH = 200;

// Sends what was set aside to its topic once more. How far it came is committed for a group of its own, so that it goes
// on where it stopped: no record is sent twice unless the last batch's answer was lost.
async function redrive(context, name, letters) {
  const keeper = `${name}.redrive`;
  const from = letters.dead_letter_topic;
  const source = await get(path("topics", from));
  const done = (await get(path("consumer-groups", keeper, "offsets"), { topic: from })).offsets;
  const parts = source.partitions.map((each) => ({ partition: each.partition, at: Math.max(each.log_start_offset ?? 0, done.find((one) => one.partition === each.partition)?.offset ?? 0), end: each.last_stable_offset ?? 0 })).filter((each) => each.at < each.end);
  const all = parts.reduce((total, each) => total + each.end - each.at, 0);
  const progress = h("div");
  const samples = h("div");
  let stopped = false;
  const { box } = dialog({
    title: `Redrive to ${letters.topic}`, wide: true, action: `Send ${count(all)} records again`, close: "Close", ready: all > 0,
    body: [
      h("p", {}, all ? `${count(all)} of ${count(letters.count)} records were not redriven yet. Each goes to the end of ${letters.topic}, with its key, value and own headers. They stay in ${from} too.` : `All records of ${from} were redriven before.`),
      samples, progress],
    commands: () => ({ "Command line": `${tierlog("consume", from, "--group", keeper, "--json")} | ${tierlog("produce", letters.topic, "--input", "json")}` }),
    run: async (shown) => {
      let sent = 0;
      for (const part of parts) {
        while (part.at < part.end && !stopped) {
          const told = await get(path("topics", from, "partitions", part.partition, "messages"), { offset: part.at, limit: BATCH });
          const some = told.messages.filter((each) => each.offset < part.end);
          if (some.length) {
            const { results } = await post(path("topics", letters.topic, "messages", "batch"), { messages: some.map(copyOf) });
            const failed = results.find((each) => each.error);
            if (failed) throw Object.assign(new Error(failed.error.detail), failed.error);
          }
          part.at = Math.min(part.end, Math.max(told.next_offset, part.at + 1));
          await post(path("consumer-groups", keeper, "offsets"), { topic: from, partition: part.partition, offset: part.at });
          sent += some.length;
          replace(progress, h("p", { role: "status" }, `${count(sent)} of ${count(all)} sent`), meter(sent / all, "How far"));
        }
      }
      toast(`${count(sent)} records were sent again`);
      return shown.isConnected;
    },
  });
  box.addEventListener("close", () => (stopped = true));
  const first = parts[0];
  if (first) {
    const { messages } = await get(path("topics", from, "partitions", first.partition, "messages"), { offset: first.at, limit: 3 });
    replace(samples, table(columns((each) => context.link(`/topics/${encodeURIComponent(from)}/messages/${first.partition}/${each.offset}`)), messages.map((each) => prepare(each, first.partition)), { label: "The first of them" }));
  }
}

function copyOf({ key, key_encoding: keyEncoding, value, headers }) {
  const own = headers.filter((each) => !ADDED.test(each.key ?? ""));
  return {
    key, ...(keyEncoding ? { key_encoding: keyEncoding } : {}), value, ...(value === null ? {} : { value_encoding: "base64" }),
    headers: own.map((each) => ({ key: each.key ?? "", value: each.value, ...(each.value_encoding ? { value_encoding: each.value_encoding } : {}) })),
  };
}
