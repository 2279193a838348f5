// The audit: who did what, newest first, from the topic that the brokers write it to.

import { gather, get, path } from "./api.js";
import { h, replace } from "./dom.js";
import { count, time } from "./format.js";
import { prepare } from "./records.js";
import { curl, tierlog } from "./state.js";
import { badge, button, card, empty, head, problem, searchBox, table } from "./ui.js";

const TOPIC = "__audit";
const LOOK = 300;

export async function page(context) {
  const list = h("div");
  let events = [];
  let before = null;
  const draw = (search) => {
    const wanted = search.toLowerCase();
    const shown = events.filter((each) => !wanted || each.text.toLowerCase().includes(wanted));
    replace(list, table([
      { name: "Time", kind: "tight num", value: (each) => h("a", { href: context.link(`/topics/${TOPIC}/messages/${each.partition}/${each.offset}`) }, time(each.timestamp)) },
      { name: "Who", kind: "name", value: (each) => each.who },
      { name: "From", kind: "tight", value: (each) => each.from },
      { name: "Did", kind: "wrap", value: (each) => each.what },
      { name: "To", kind: "wrap", value: (each) => each.resources },
      { name: "Result", kind: "tight", value: (each) => badge(each.result, each.good ? "good" : "bad") },
    ], shown, { label: "Events", none: empty("No events", search ? "None of those read has this in it." : "Nothing was noted yet.") }));
  };
  const more = async () => {
    const { partitions } = await get(path("topics", TOPIC));
    const parts = (before ?? partitions.map((each) => ({ partition: each.partition, low: each.log_start_offset, at: each.last_stable_offset }))).filter((each) => each.at > each.low);
    const told = await gather(parts, 6, async (part) => {
      const from = Math.max(part.low, part.at - LOOK);
      const { messages } = await get(path("topics", TOPIC, "partitions", part.partition, "messages"), { offset: from, limit: part.at - from });
      part.at = from;
      return messages.map((each) => prepare(each, part.partition));
    });
    before = parts;
    events = [...events, ...told.flat().map(read)].sort((one, other) => other.timestamp - one.timestamp);
  };
  await more();
  const box = searchBox("", "Search in what was read", draw);
  draw("");
  const further = () => more().then(() => draw(box.value)).catch((error) => replace(list, problem(error)));
  return [
    head({ title: "Audit", lead: `Events of ${TOPIC}, newest first`, commands: { "Command line": tierlog("consume", TOPIC, "--json"), curl: curl("GET", `${path("topics", TOPIC, "partitions", "0", "messages")}?offset=earliest&value_encoding=text`), SQL: `SELECT timestamp, value->>'$.actor.user.name', value->>'$.api.operation' FROM ${TOPIC} ORDER BY 1 DESC LIMIT 100` } }),
    card(null, [h("div", { css: { padding: "12px 16px" } }, box), list, h("div", { class: "pager" }, h("span", { class: "grow" }, ""), button("Read older ones", further, { kind: "small" }))], { flush: true }),
  ];
}

// Events that are no calls, by OCSF's numbers: logins, and brokers that start and stop.
const OTHERS = { 3002: { other: "logged in" }, 6002: { 3: "a broker started", 4: "a broker stopped", other: "a broker" } };

function read(record) {
  const event = record.shown.json ?? {};
  const good = event.status_id === undefined || event.status_id === 1;
  const resources = (event.resources ?? []).map((each) => `${each.type} ${each.name}`).join(", ");
  return {
    partition: record.partition, offset: record.offset, timestamp: record.timestamp, text: record.shown.text ?? "",
    who: event.actor?.user?.name ?? event.user?.name ?? "–", from: event.src_endpoint?.ip ?? "–",
    what: [event.api?.operation ?? OTHERS[event.class_uid]?.[event.activity_id] ?? OTHERS[event.class_uid]?.other ?? "–", event.count > 1 ? ` × ${count(event.count)}` : ""],
    resources: resources || "–", result: event.status_code ?? (good ? "success" : event.status ?? "failed"), good,
  };
}
