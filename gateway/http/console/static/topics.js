// All topics: searched, sorted and cut into pages by the broker, so that ten thousand are as quick as ten.

import { get, path, post } from "./api.js";
import { h, replace } from "./dom.js";
import { bytes, count, many, rate, short } from "./format.js";
import { curl, readOnly, session, tierlog } from "./state.js";
import { badge, button, card, check, dialog, empty, field, head, input, pager, problem, searchBox, select, table, toast } from "./ui.js";

const LIMIT = 50;

export async function page(context) {
  const { query } = context;
  const asked = () => ({
    search: query.search, sort: query.sort ?? "name", descending: query.descending === "true", internal: query.internal === "true",
    skip: Number(query.skip ?? 0), limit: LIMIT, figures: true,
  });
  const list = h("div");
  const lead = h("span");
  const refresh = async () => {
    const wanted = asked();
    const { topics, total } = await get(path("topics"), wanted, context.signal);
    replace(lead, `${many(total, "topic")}${wanted.search ? ` with “${wanted.search}” in the name` : ""}`);
    const onsort = (sort, descending) => change({ sort, descending, skip: 0 });
    replace(list, topics.length ? [table(columns(context), topics, { label: "Topics", sort: { key: wanted.sort, descending: wanted.descending }, onsort }), pager({ ...wanted, total, shown: topics.length }, (skip) => change({ skip }))]
      : wanted.search ? empty("No topic has this in its name", "Capitals do not matter.") : empty("There are no topics yet", "Producers may make them, or you.", tierlog("topic", "create", "orders")));
  };
  const change = async (changed) => {
    context.adjust(changed);
    await refresh().catch((error) => error.name !== "AbortError" && replace(list, problem(error)));
  };
  await refresh();
  context.every(10_000, refresh);
  return [
    head({
      title: "Topics", lead,
      actions: !readOnly() && button("New topic", () => create(context), { kind: "main" }),
      commands: () => ({ "Command line": tierlog("topic", "list"), curl: curl("GET", `${path("topics")}?${new URLSearchParams(Object.entries(asked()).filter(([, value]) => value !== undefined && value !== false).map(([name, value]) => [name, String(value)]))}`) }),
    }),
    card(null, [
      h("div", { class: "row", css: { padding: "12px 16px" } },
        h("div", { class: "grow" }, searchBox(query.search ?? "", "Search by name", (search) => change({ search, skip: 0 }))),
        check("internal topics", { checked: query.internal === "true", onchange: (event) => change({ internal: event.target.checked, skip: 0 }) })),
      list,
    ], { flush: true }),
  ];
}

function columns(context) {
  const figure = (name, show) => (topic) => (topic.figures ? show(topic.figures[name]) : "–");
  return [
    { name: "Topic", key: "name", kind: "name", value: (topic) => [h("a", { href: context.link(`/topics/${encodeURIComponent(topic.name)}`) }, topic.name), " ", topic.internal && badge("internal"), health(topic)] },
    { name: "Partitions", key: "partitions", kind: "right wide-only", value: (topic) => `${count(topic.partitions)}${topic.replication_factor > 1 ? ` × ${topic.replication_factor}` : ""}` },
    { name: "Written", key: "in_bytes_per_s", kind: "right", value: figure("in_bytes_per_s", rate) },
    { name: "Lag", key: "lag", kind: "right", value: lag },
    { name: "Records", key: "records", kind: "right wide-only", value: figure("records", short) },
    { name: "Local", key: "size_bytes", kind: "right wide-only", value: figure("size_bytes", bytes) },
    session.archive && { name: "Bucket", key: "stored_bytes", kind: "right", value: figure("stored_bytes", bytes) },
    session.archive && { name: "Backlog", key: "backlog_bytes", kind: "right wide-only", value: figure("backlog_bytes", (value) => (value ? bytes(value) : "–")) },
  ].filter(Boolean);
}

function lag({ reads }) {
  if (!reads?.groups) return h("span", { class: "faint" }, "no groups");
  const groups = reads.groups > 1 ? h("span", { class: "faint", title: "The group that is furthest behind" }, ` · ${reads.groups} groups`) : "";
  return [reads.lag === undefined || reads.lag === null ? "?" : short(reads.lag), groups];
}

function health({ figures }) {
  if (figures?.held) return badge("archive held", "bad");
  return figures?.under_replicated ? badge("replicas missing", "warn") : null;
}

const DAYS = [["", "as the broker says"], ["86400000", "1 day"], ["604800000", "7 days"], ["2592000000", "30 days"], ["31536000000", "1 year"], ["-1", "for ever"]];

function create(context) {
  const name = input({ required: true, pattern: "[a-zA-Z0-9._\\-]{1,249}", maxlength: 249, placeholder: "orders" });
  const partitions = input({ type: "number", min: 1, max: 10_000, placeholder: "as the broker says" });
  const replicas = input({ type: "number", min: 1, max: 100, placeholder: "as the broker says" });
  const retention = select(DAYS, "");
  const cleanup = select([["", "as the broker says"], ["delete", "by age"], ["compact", "keep the newest of each key"]], "");
  const archive = h("input", { type: "checkbox", checked: session.archive });
  const config = () => Object.fromEntries([["retention.ms", retention.value], ["cleanup.policy", cleanup.value], ["remote.storage.enable", archive.checked ? "true" : ""]].filter(([, value]) => value));
  const number = (box) => (box.value ? Number(box.value) : undefined);
  const body = () => ({ name: name.value, partitions: number(partitions), replication_factor: number(replicas), config: config() });
  dialog({
    title: "New topic",
    body: [field("Name", name, "Letters, digits, dots, dashes and underscores"),
      h("div", { class: "form wide" }, field("Partitions", partitions), field("Replicas", replicas)),
      h("div", { class: "form wide" }, field("Kept", retention), field("What goes", cleanup)),
      session.archive && h("label", { class: "check" }, archive, "Archive it to the bucket")],
    action: "Make the topic",
    commands: () => ({
      "Command line": tierlog("topic", "create", name.value || "orders", number(partitions) ? ["--partitions", partitions.value] : [], number(replicas) ? ["--replication-factor", replicas.value] : [], Object.entries(config()).flatMap(([key, value]) => ["--config", `${key}=${value}`])),
      curl: curl("POST", path("topics"), body()),
    }),
    run: async () => {
      const made = await post(path("topics"), body());
      toast(`${made.name} is made`);
      location.hash = context.link(`/topics/${encodeURIComponent(made.name)}`);
    },
  });
}
