// How the cluster is doing: health in words first, then figures, then their last day.

import { get, path } from "./api.js";
import { chart, legend, sum } from "./chart.js";
import { h, replace } from "./dom.js";
import { ago, bytes, count, duration, many, money, rate, short } from "./format.js";
import { curl, session, tierlog } from "./state.js";
import { badge, card, head, linkButton, notice, stats, table } from "./ui.js";

const total = (brokers, name) => brokers.reduce((found, each) => found + each[name], 0);
const lagOf = (brokers) => (brokers.some((each) => each.lag === null) ? null : total(brokers, "lag"));

// What is wrong, worst first, with what to do about it.
export function troubles(cluster, figures) {
  const { brokers, silent } = figures;
  const found = [];
  const say = (tone, title, text) => found.push({ tone, title, text });
  const all = (name) => total(brokers, name);
  if (cluster.metadata_error) say("bad", "The metadata store does not answer", cluster.metadata_error);
  if (cluster.controller === null) say("bad", "The cluster has no controller", "Leaders cannot change until a broker takes the part. Look at the brokers' logs.");
  if (all("failed_logs")) say("bad", `No more writes: ${many(all("failed_logs"), "log")}`, "A disk failed or files are gone. /readyz names them.");
  for (const each of brokers.filter((broker) => broker.disk_full)) say("bad", `The disk of broker ${each.broker} is full`, "Writes are refused until there is room: lower retention or add disk.");
  if (all("damaged_segments")) say("bad", many(all("damaged_segments"), "damaged segment"), "Readers of them get an error. They are mended from other replicas where there are some.");
  if (all("under_min_in_sync")) say("bad", `Writes with acks=all are refused: ${many(all("under_min_in_sync"), "partition")}`, "Fewer replicas are in sync than min.insync.replicas asks for.");
  if (all("held")) say("bad", `The archive waits for a decision: ${many(all("held"), "partition")}`, "The archive page says why, and what can be done.");
  if (silent.length) say("warn", `Broker ${silent.join(", ")} does not tell its figures`, "It is down, cannot be reached, or is of an older version. Sums are without it.");
  if (all("under_replicated")) say("warn", `Replicas are missing: ${many(all("under_replicated"), "partition")}`, "A broker is down or behind. They are safe as long as one in-sync replica is.");
  const late = Math.max(0, ...brokers.map((each) => each.archive_lag_ms));
  if (late > 900_000) say("warn", `Archiving is ${duration(late)} behind`, "Does the bucket answer? The archive page says why it fails.");
  return found;
}

export async function page(context) {
  const cluster = await get(path("cluster"));
  const health = h("div", { class: "stack" });
  const numbers = h("div");
  const charts = h("div", { class: "grid" });
  const hot = h("div");
  const brokersCard = h("div");
  const behind = h("div");

  const refresh = async () => {
    const [now, figures, late] = await Promise.all([
      get(path("cluster"), {}, context.signal), get(path("cluster", "figures"), {}, context.signal),
      get(path("consumer-groups"), { figures: true, sort: "lag", descending: true, limit: 4 }, context.signal).catch(() => ({ groups: [] }))]);
    const { brokers } = figures;
    const wrong = troubles(now, figures);
    replace(health, wrong.length ? wrong.map(({ tone, title, text }) => notice(tone, title, text)) : notice("good", "Everything is in order", `${now.brokers.length === 1 ? "The broker answers" : `${count(brokers.length)} of ${count(now.brokers.length)} brokers answer`}, every replica is in sync, nothing is damaged.`));
    const measured = brokers.some((each) => each.at_ms);
    const known = (name, show) => (measured ? show(total(brokers, name)) : "–");
    replace(numbers, stats(
      { name: "Written", value: known("in_bytes_per_s", rate), under: `${many(now.topics, "topic")}, ${many(now.partitions, "partition")}` },
      { name: "Read", value: known("out_bytes_per_s", rate), under: `${count(total(brokers, "kafka_connections"))} Kafka, ${count(total(brokers, "http_connections"))} HTTP connections` },
      { name: "Lag of all groups", value: measured ? short(lagOf(brokers)) : "–", under: measured ? `${many(total(brokers, "groups"), "group")}, in records` : "in records" },
      { name: "On local disks", value: bytes(total(brokers, "size_bytes")), under: `${bytes(total(brokers, "disk_free_bytes"))} free` },
      session.archive && { name: "In the bucket", value: known("stored_bytes", bytes), under: total(brokers, "backlog_bytes") ? `${bytes(total(brokers, "backlog_bytes"))} wait to be archived` : "nothing waits to be archived" },
      session.archive && { name: "Bucket, per day", value: known("cost_per_day", money), under: "storage and requests, list prices" },
    ));
    const series = (name, text, className) => ({ name: text, className, ...sum(brokers.map((each) => each.history[name]?.hour)) });
    replace(charts,
      card("Throughput", chart("Throughput", [series("in", "written", "a"), series("out", "read", "b")], rate), { actions: legend(["a", "written"], ["b", "read"]) }),
      card("Lag", chart("Lag", [series("lag", "records", "c")], short), { note: "records, all groups" }),
      session.archive && card("Archive backlog", chart("Archive backlog", [series("backlog", "bytes", "d")], bytes), { note: "not in the bucket yet" }));
    const busiest = brokers.flatMap((each) => each.hot.map((one) => ({ ...one, broker: each.broker }))).sort((one, other) => other.in_bytes_per_s + other.out_bytes_per_s - one.in_bytes_per_s - one.out_bytes_per_s).slice(0, 6);
    replace(hot, card("Busiest partitions", busiest.length ? table([
      { name: "Partition", kind: "name", value: (each) => h("a", { href: context.link(`/topics/${encodeURIComponent(each.topic)}`) }, `${each.topic}-${each.partition}`) },
      { name: "Broker", kind: "right", value: (each) => each.broker },
      { name: "Written", kind: "right", value: (each) => rate(each.in_bytes_per_s) },
      { name: "Read", kind: "right", value: (each) => rate(each.out_bytes_per_s) },
    ], busiest, { label: "Busiest partitions" }) : h("div", { class: "body faint" }, "Nothing was written or read in the last seconds."), { flush: true }));
    replace(brokersCard, card("Brokers", table([
      { name: "Broker", kind: "name", value: (each) => [`${each.id} `, each.id === now.controller && badge("controller", "info")] },
      { name: "Address", kind: "wide-only", value: (each) => `${each.host}:${each.port}` },
      { name: "Leads", kind: "right", value: (each) => count(of(brokers, each.id)?.leaders) },
      { name: "Free", kind: "right", value: (each) => bytes(of(brokers, each.id)?.disk_free_bytes) },
      { name: "Up", kind: "right", value: (each) => (of(brokers, each.id) ? ago(of(brokers, each.id).started_ms).split(" ").slice(0, 2).join(" ") : "silent") },
    ], now.brokers, { label: "Brokers" }), { flush: true, actions: linkButton("All figures", "#/brokers", "small") }));
    const measuredGroups = late.groups.filter((each) => each.figures?.lag !== undefined && each.figures.lag !== null);
    replace(behind, card("Furthest behind", measuredGroups.length ? table([
      { name: "Group", kind: "name", value: (each) => h("a", { href: context.link(`/groups/${encodeURIComponent(each.group)}`) }, each.group) },
      { name: "Members", kind: "right", value: (each) => count(each.members) },
      { name: "Lag", kind: "right", value: (each) => short(each.figures.lag) },
    ], measuredGroups, { label: "Furthest behind" }) : h("div", { class: "body faint" }, "No group has read anything yet."), { flush: true, actions: linkButton("All groups", "#/groups", "small") }));
  };
  await refresh();
  context.every(10_000, refresh);
  return [
    head({
      title: "Overview",
      lead: ["Cluster ", h("span", { class: "mono" }, cluster.cluster_id)],
      commands: { "Command line": tierlog("cluster", "status"), curl: curl("GET", path("cluster", "figures")), Prometheus: curl("GET", "/metrics") },
    }),
    h("div", { class: "stack" }, health, numbers, charts, h("div", { class: "grid two" }, hot, h("div", { class: "stack" }, brokersCard, behind))),
  ];
}

const of = (brokers, id) => brokers.find((each) => each.broker === id);
