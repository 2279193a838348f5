// Brokers: disks, leaders, how busy each is, and what is on its way from one to another.

import { get, path, post, remove } from "./api.js";
import { chart } from "./chart.js";
import { h, replace } from "./dom.js";
import { bytes, count, duration, rate } from "./format.js";
import { curl, may, tierlog } from "./state.js";
import { badge, button, card, dialog, empty, facts, head, meter, table, toast } from "./ui.js";

export async function page(context) {
  const list = h("div", { class: "grid two" });
  const moves = h("div");
  const refresh = async () => {
    const [cluster, { brokers }, ongoing] = await Promise.all([get(path("cluster"), {}, context.signal), get(path("cluster", "figures"), {}, context.signal), get(path("cluster", "moves"), {}, context.signal)]);
    replace(list, cluster.brokers.map((broker) => one(context, cluster, broker, brokers.find((each) => each.broker === broker.id))));
    replace(moves, card("On the way", ongoing.moves.length ? table([
      { name: "Partition", kind: "name", value: (move) => `${move.topic}-${move.partition}` },
      { name: "Replicas", value: (move) => move.replicas.join(", ") },
      { name: "To", value: (move) => move.adding.join(", ") || "–" },
      { name: "From", value: (move) => move.removing.join(", ") || "–" },
      { name: "In sync", value: (move) => move.isr.join(", ") },
    ], ongoing.moves, { label: "Moves" }) : h("div", { class: "body faint" }, "Nothing moves between brokers."), { flush: true }));
  };
  await refresh();
  context.every(10_000, refresh);
  return [
    head({
      title: "Brokers", actions: may("alter") && button("Rebalance…", () => rebalance(context), { kind: "main" }),
      commands: { "Command line": tierlog("cluster", "status"), curl: curl("GET", path("cluster", "figures")) },
    }),
    h("div", { class: "stack" }, list, moves),
  ];
}

function one(context, cluster, broker, figures) {
  const badges = [broker.id === cluster.controller && badge("controller", "info"), broker.draining && badge("draining", "warn"), !figures && badge("silent", "bad")];
  const title = ["Broker ", broker.id, " ", badges];
  const actions = may("alter") && cluster.brokers.length > 1 && (broker.draining ? button("Take it back…", () => recommission(context, broker.id), { kind: "small" }) : button("Decommission…", () => decommission(context, broker.id), { kind: "small danger" }));
  if (!figures) return card(title, h("p", { class: "soft" }, `It does not answer at ${broker.http_host}:${broker.http_port}, or is too old to tell its figures.`), { actions });
  const used = figures.disk_size_bytes ? 1 - figures.disk_free_bytes / figures.disk_size_bytes : 0;
  const series = (name, text, className) => ({ name: text, className, values: figures.history[name].hour.values, end_ms: figures.history[name].hour.end_ms, step_ms: figures.history[name].hour.step_ms });
  return card(title, h("div", { class: "stack" },
    h("div", {}, h("div", { class: "row", css: { "margin-bottom": "5px" } }, h("span", { class: "grow soft" }, "Disk"), h("span", { class: "num" }, `${bytes(figures.disk_free_bytes)} free of ${bytes(figures.disk_size_bytes)}`)), meter(used, "Disk in use", used > 0.9 ? "bad" : used > 0.8 ? "warn" : "")),
    chart("Throughput", [series("in", "written", "a"), series("out", "read", "b")], rate),
    facts(
      ["Kafka", h("code", {}, `${broker.host}:${broker.port}`)],
      ["HTTP", h("code", {}, `${broker.http_host}:${broker.http_port}`)],
      broker.host_name && ["Host", broker.host_name],
      broker.rack && ["Rack", broker.rack],
      ["Leads", `${count(figures.leaders)} partitions, follows ${count(figures.followers)}`],
      ["Connections", `${count(figures.kafka_connections)} Kafka, ${count(figures.http_connections)} HTTP`],
      ["Longest wait for the loop", duration(figures.loop_delay_max_s * 1000)],
      ["Version", `${broker.version}, up ${duration(Date.now() - figures.started_ms)}`])), { actions });
}

async function rebalance(context) {
  const { moves } = await post(path("cluster", "rebalance"), { dry_run: true });
  dialog({
    title: "Rebalance", wide: true, action: `Begin ${count(moves.length)} moves`, ready: moves.length > 0,
    body: moves.length ? [h("p", {}, "Replicas are copied first and left out after that; nothing is less safe meanwhile."), table([
      { name: "Partition", kind: "name", value: (move) => `${move.topic}-${move.partition}` },
      { name: "Now", value: (move) => move.before.join(", ") },
      { name: "Then", value: (move) => move.after.join(", ") },
    ], moves.slice(0, 500), { label: "Plan" })] : empty("Everything is even", "No replica need move."),
    commands: () => ({ "Command line": tierlog("cluster", "rebalance"), curl: curl("POST", path("cluster", "rebalance"), { dry_run: false }) }),
    run: async () => { await post(path("cluster", "rebalance"), { dry_run: false }); toast("The moves have begun"); context.reload(); },
  });
}

function decommission(context, id) {
  dialog({
    title: `Decommission broker ${id}?`, danger: true, action: "Move everything off it", byName: String(id),
    body: h("p", {}, "All its replicas move to other brokers. It can be switched off for good once it holds none."),
    commands: () => ({ "Command line": tierlog("cluster", "decommission", id), curl: curl("POST", path("cluster", "brokers", id, "decommission")) }),
    run: async () => { const left = await post(path("cluster", "brokers", id, "decommission")); toast(`Broker ${id} holds ${count(left.replicas)} replicas yet`); context.reload(); },
  });
}

function recommission(context, id) {
  dialog({
    title: `Take broker ${id} back?`, action: "Take it back",
    body: h("p", {}, "It may hold replicas again. What has left it stays where it is until you rebalance."),
    commands: () => ({ "Command line": tierlog("cluster", "decommission", id, "--cancel"), curl: curl("DELETE", path("cluster", "brokers", id, "decommission")) }),
    run: async () => { await remove(path("cluster", "brokers", id, "decommission")); toast(`Broker ${id} takes replicas again`); context.reload(); },
  });
}
