// One record, at an address that stays: its key, headers and value in every form.

import { get, path } from "./api.js";
import { decoderOf, keep, known } from "./avro.js";
import { h, replace } from "./dom.js";
import { asHex, asText, bytes, count, decode, time } from "./format.js";
import { produce } from "./messages.js";
import { prepare, whole } from "./records.js";
import { curl, readOnly, spark, sqlName, tierlog } from "./state.js";
import { badge, button, card, copy, dialog, empty, facts, field, head, linkButton, select, table } from "./ui.js";

export async function page(context) {
  const [name, partition, offset] = [context.params[0], Number(context.params[1]), Number(context.params[2])];
  const topic = await get(path("topics", name));
  const bounds = topic.partitions[partition];
  const there = bounds && offset < bounds.last_stable_offset;
  // Below the first record, the first one is shown as the next.
  const from = there ? Math.max(offset, bounds.log_start_offset) : 0;
  const told = there ? await get(path("topics", name, "partitions", partition, "messages"), { offset: from, limit: 1 }) : { messages: [] };
  const found = told.messages[0];
  const here = found && found.offset === offset ? prepare(found, partition, decoderOf(name)) : null;
  const at = (place) => context.link(`/topics/${encodeURIComponent(name)}/messages/${partition}/${place}`);
  const low = bounds?.log_start_offset ?? 0;
  const top = head({
    trail: [h("a", { href: "#/topics" }, "Topics"), " / ", h("a", { href: context.link(`/topics/${encodeURIComponent(name)}`) }, name), " / ", h("a", { href: context.link(`/topics/${encodeURIComponent(name)}/messages`, { partition, from: "offset", offset }) }, "Messages")],
    title: `Partition ${partition}, offset ${count(offset)}`,
    actions: [offset > low && linkButton("Before", at(offset - 1)), linkButton("After", at(found && found.offset > offset ? found.offset : offset + 1)), here && !readOnly() && !topic.internal && button("Send again", () => again(context, name, topic, here))],
    commands: {
      Address: location.href,
      "Command line": tierlog("consume", name, "--partition", partition, "--offset", offset, "--limit", 1, "--json"),
      curl: curl("GET", `${path("topics", name, "partitions", partition, "messages")}?offset=${offset}&limit=1`),
      SQL: `SELECT * FROM ${sqlName(name)} WHERE partition = ${partition} AND "offset" = ${offset}`,
      Spark: spark(name, `.where("partition = ${partition} AND offset = ${offset}")`),
    },
  });
  if (!here) return [top, card(null, empty("There is no record at this offset", found ? `The next one is at ${count(found.offset)}. Compaction and transactions leave such gaps.` : "It may not have been written yet."))];
  const tier = await tierOf(name, partition, offset);
  const body = h("div");
  const forms = { JSON: ["JSON", "text", "hex"], Avro: ["Avro", "hex"], text: ["text", "hex"], null: [] }[here.shown.kind] ?? ["hex"];
  const choose = h("div", { class: "row" });
  const draw = (form) => {
    replace(body, whole(here, form));
    replace(choose, forms.map((each) => button(each, () => draw(each), { kind: "small", "aria-pressed": each === form ? "true" : "false" })),
      ["Avro", "bytes"].includes(here.shown.kind) && button("Schema…", () => askForSchema(context, name), { kind: "small" }),
      here.shown.text !== null && button("Copy", () => copy(here.shown.text), { kind: "small" }));
  };
  draw(forms[0]);
  return [top, h("div", { class: "stack" },
    card("Record", facts(
      ["Key", here.key === null ? h("span", { class: "faint" }, "no key") : h("span", { class: "value" }, here.key, here.key_encoding && " (base64)")],
      ["Time", [time(here.timestamp), h("span", { class: "faint" }, `  ${new Date(here.timestamp).toISOString()}`)]],
      ["Size", `${bytes(here.size)} of value`],
      tier && ["Where", badge(tier, "info")])),
    card("Value", body, { actions: choose }),
    card("Headers", here.headers.length ? table([
      { name: "Name", kind: "name", value: (each) => each.key ?? "" },
      { name: "Value", kind: "wrap", value: (each) => h("span", { class: "value" }, headerText(each)) },
    ], here.headers, { label: "Headers" }) : h("div", { class: "body faint" }, "It has none."), { flush: true }))];
}

function headerText({ value, value_encoding: encoding }) {
  if (value === null || !encoding) return value ?? "null";
  const raw = decode(value);
  return asText(raw) ?? asHex(raw, 64);
}

async function tierOf(name, partition, offset) {
  try {
    const { partitions: [each] } = await get(path("topics", name, "archive"), { partition, limit: 0 });
    const local = each.local && offset >= each.local.start_offset && offset < each.local.end_offset;
    const archived = each.archived && offset >= each.archived.start_offset && offset < each.archived.end_offset;
    return local && archived ? "in both tiers" : archived ? "in the bucket" : "local";
  } catch {
    return null; // there is no bucket, or it may not be seen
  }
}

function askForSchema(context, name) {
  const given = known(name) ?? { schema: "", skip: 0 };
  const schema = h("textarea", { class: "input", rows: 10, spellcheck: "false", placeholder: '{"type": "record", "name": "Order", "fields": [{"name": "total", "type": "double"}]}' }, given.schema);
  const skip = select([["0", "none"], ["5", "5: a registry's number"], ["10", "10: a fingerprint"]], given.skip);
  dialog({
    title: `Avro schema of ${name}`, wide: true, action: "Use it",
    body: [h("p", { class: "soft" }, "It is kept in this browser. Without one, values are shown as bytes."), field("Schema", schema), field("Bytes before a value", skip)],
    run: () => { keep(name, schema.value.trim() ? { schema: schema.value, skip: Number(skip.value) } : null); context.reload(); },
  });
}

function again(context, name, topic, here) {
  const text = here.shown.text;
  produce(name, topic, { again: true, key: here.key_encoding ? "" : here.key, value: text ?? (here.value === null ? "" : here.value), encoding: text === null && here.value !== null ? "base64" : undefined, headers: here.headers }, (stored) => {
    location.hash = context.link(`/topics/${encodeURIComponent(name)}/messages/${stored.partition}/${stored.offset}`);
  });
}
