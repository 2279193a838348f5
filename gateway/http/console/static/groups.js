// Consumer groups with their lag: searched, sorted and cut into pages by the broker.

import { get, path } from "./api.js";
import { h, replace } from "./dom.js";
import { count, many, short } from "./format.js";
import { curl, tierlog } from "./state.js";
import { badge, card, empty, head, pager, problem, searchBox, table } from "./ui.js";

const LIMIT = 50;
export const TONES = { Stable: "good", Empty: "", PreparingRebalance: "warn", CompletingRebalance: "warn", Dead: "bad" };

export async function page(context) {
  const { query } = context;
  const asked = () => ({ search: query.search, sort: query.sort ?? "lag", descending: (query.descending ?? "true") === "true", skip: Number(query.skip ?? 0), limit: LIMIT, figures: true });
  const list = h("div");
  const lead = h("span");
  const change = async (changed) => {
    context.adjust(changed);
    await refresh().catch((error) => error.name !== "AbortError" && replace(list, problem(error)));
  };
  const refresh = async () => {
    const wanted = asked();
    const { groups, total } = await get(path("consumer-groups"), wanted, context.signal);
    replace(lead, many(total, "group"));
    replace(list, groups.length ? [table([
      { name: "Group", key: "group", kind: "name", value: (group) => h("a", { href: context.link(`/groups/${encodeURIComponent(group.group)}`) }, group.group) },
      { name: "State", key: "state", value: (group) => badge(words(group.state), TONES[group.state]) },
      { name: "Members", key: "members", kind: "right wide-only", value: (group) => count(group.members) },
      { name: "Topics", key: "topics", kind: "right wide-only", value: (group) => count(group.figures?.topics) },
      { name: "Lag", key: "lag", kind: "right", value: (group) => (group.figures?.lag === undefined || group.figures.lag === null ? h("span", { class: "faint", title: "A partition has no committed offset yet, or its leader does not answer" }, "not known") : short(group.figures.lag)) },
    ], groups, { label: "Groups", sort: { key: wanted.sort, descending: wanted.descending }, onsort: (sort, descending) => change({ sort, descending, skip: 0 }) }), pager({ ...wanted, total, shown: groups.length }, (skip) => change({ skip }))]
      : wanted.search ? empty("No group has this in its name", "Capitals do not matter.") : empty("There are no groups yet", "A group is there once a consumer joins it, or commits an offset.", tierlog("consume", "orders", "--group", "billing")));
  };
  await refresh();
  context.every(10_000, refresh);
  return [
    head({ title: "Consumer groups", lead, commands: { "Command line": tierlog("group", "list"), curl: curl("GET", `${path("consumer-groups")}?figures=true&sort=lag&descending=true`) } }),
    card(null, [h("div", { css: { padding: "12px 16px" } }, searchBox(query.search ?? "", "Search by name", (search) => change({ search, skip: 0 }))), list], { flush: true }),
  ];
}

export const words = (state) => ({ PreparingRebalance: "rebalancing", CompletingRebalance: "rebalancing", Empty: "no members" })[state] ?? state.toLowerCase();
