// Consumer groups with their lag, all of them or those that read a topic: searched, sorted and cut into pages by the broker.

import { get, path } from "./api.js";
import { h, replace } from "./dom.js";
import { count, many, short } from "./format.js";
import { curl, tierlog } from "./state.js";
import { badge, card, empty, head, pager, problem, searchBox, table } from "./ui.js";

const LIMIT = 50;
export const TONES = { Stable: "good", Empty: "", PreparingRebalance: "warn", CompletingRebalance: "warn", Dead: "bad" };

export async function page(context) {
  const lead = h("span");
  const columns = [
    ...named(context),
    { name: "Topics", key: "topics", kind: "right wide-only", value: (group) => count(group.figures?.topics) },
    { name: "Lag", key: "lag", kind: "right", value: (group) => lag(group.figures?.lag) },
  ];
  const none = empty("There are no groups yet", "A group is there once a consumer joins it, or commits an offset.", tierlog("consume", "orders", "--group", "billing"));
  const list = await listed(context, path("consumer-groups"), columns, none, { figures: true, counted: (total) => replace(lead, many(total, "group")) });
  return [
    head({ title: "Consumer groups", lead, commands: { "Command line": tierlog("group", "list"), curl: curl("GET", `${path("consumer-groups")}?figures=true&sort=lag&descending=true`) } }),
    list,
  ];
}

export function ofTopic(context, { name }) {
  const columns = [...named(context), { name: "Lag in this topic", key: "lag", kind: "right", value: (group) => lag(group.lag) }];
  return listed(context, path("topics", name, "groups"), columns, empty("No group reads it", "A group is shown some seconds after it has committed an offset, or a consumer in it was given a partition.", tierlog("consume", name, "--group", "billing")));
}

async function listed(context, where, columns, none, { figures, counted } = {}) {
  const { query } = context;
  const list = h("div");
  const change = async (changed) => {
    context.adjust(changed);
    await refresh().catch((error) => error.name !== "AbortError" && replace(list, problem(error)));
  };
  const refresh = async () => {
    const wanted = { search: query.search, sort: query.sort ?? "lag", descending: (query.descending ?? "true") === "true", skip: Number(query.skip ?? 0), limit: LIMIT };
    const { groups, total } = await get(where, { ...wanted, figures }, context.signal);
    counted?.(total);
    const onsort = (sort, descending) => change({ sort, descending, skip: 0 });
    replace(list, groups.length ? [table(columns, groups, { label: "Groups", sort: { key: wanted.sort, descending: wanted.descending }, onsort }), pager({ ...wanted, total, shown: groups.length }, (skip) => change({ skip }))]
      : wanted.search ? empty("No group has this in its name", "Capitals do not matter.") : none);
  };
  await refresh();
  context.every(10_000, refresh);
  return card(null, [h("div", { css: { padding: "12px 16px" } }, searchBox(query.search ?? "", "Search by name", (search) => change({ search, skip: 0 }))), list], { flush: true });
}

const named = (context) => [
  { name: "Group", key: "group", kind: "name", value: (group) => h("a", { href: context.link(`/groups/${encodeURIComponent(group.group)}`) }, group.group) },
  { name: "State", key: "state", value: (group) => badge(words(group.state), TONES[group.state]) },
  { name: "Members", key: "members", kind: "right wide-only", value: (group) => count(group.members) },
];

const lag = (value) => (value === undefined || value === null ? h("span", { class: "faint", title: "A partition has no committed offset yet, or its leader does not answer" }, "not known") : short(value));

export const words = (state) => ({ PreparingRebalance: "rebalancing", CompletingRebalance: "rebalancing", Empty: "no members" })[state] ?? state.toLowerCase();
