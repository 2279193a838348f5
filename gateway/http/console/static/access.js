// Who may come in and who may do what: users, API keys, access rules.

import { get, path, post, put, remove } from "./api.js";
import { h } from "./dom.js";
import { time } from "./format.js";
import { curl, may, session, tierlog } from "./state.js";
import { badge, button, card, copy, dialog, empty, field, head, input, notice, select, table, tabs, toast } from "./ui.js";

export async function page(context) {
  const [tab = "users"] = context.params;
  const parts = [["users", "Users", "#/access"], ["keys", "API keys", "#/access/keys"], session.authorization && ["rules", "Access rules", "#/access/rules"]].filter(Boolean);
  const command = { users: ["user", "list"], keys: ["apikey", "list"], rules: ["acl", "list"] }[tab];
  const where = { users: path("users"), keys: path("api-keys"), rules: path("acls") }[tab];
  return [
    head({ title: "Access", lead: "Users, their keys, and what they may do", commands: { "Command line": tierlog(command), curl: curl("GET", where) } }),
    tabs(parts, tab), await { users, keys, rules }[tab](context)];
}

const withButton = (text, run, list) => [may("alter") && h("div", { class: "row end", css: { padding: "12px 16px" } }, button(text, run, { kind: "main" })), list];

async function users(context) {
  const told = await get(path("users"));
  return card(null, withButton("New user", () => password(context), table([
    { name: "User", kind: "name", value: (user) => [user.name, " ", user.name === session.user && badge("you", "info")] },
    { name: "Logs in with", kind: "wrap", value: (user) => user.mechanisms.join(", ") },
    { name: "", kind: "right tight", value: (user) => may("alter") && [button("Password…", () => password(context, user.name), { kind: "plain small", label: `Password of ${user.name}` }), button("Delete", () => drop(context, user.name), { kind: "plain small danger", label: `Delete ${user.name}` })] },
  ], told.users, { label: "Users", none: empty("There are no users", "Users log in with a password (SCRAM).", tierlog("user", "create", "ada")) })), { flush: true });
}

function password(context, name) {
  const user = input({ value: name ?? "", disabled: Boolean(name), required: true });
  const secret = input({ type: "password", autocomplete: "new-password", required: true });
  dialog({
    title: name ? `Password of ${name}` : "New user", action: name ? "Change" : "Make the user",
    body: [field("User", user), field("Password", secret, "It is not kept, only a proof of it.")],
    commands: () => ({ "Command line": tierlog("user", name ? "password" : "create", user.value || "ada") }),
    run: async () => { await put(path("users", user.value, "password"), { password: secret.value }); toast(`${user.value} can log in`); context.reload(); },
  });
}

function drop(context, name) {
  dialog({
    title: `Delete ${name}?`, danger: true, action: "Delete the user", byName: name, body: h("p", {}, "Its API keys stop working with it. Connections stay until they end or log in again."),
    commands: () => ({ "Command line": tierlog("user", "delete", name), curl: curl("DELETE", path("users", name)) }),
    run: async () => { await remove(path("users", name)); toast(`${name} is deleted`); context.reload(); },
  });
}

async function keys(context) {
  const told = await get(path("api-keys"));
  return card(null, withButton("New API key", () => newKey(context), table([
    { name: "Key", kind: "mono", value: (key) => key.id },
    { name: "Acts as", kind: "name", value: (key) => key.user },
    { name: "May", kind: "wrap", value: (key) => (key.scope ? key.scope.join(", ") : "what the user may") },
    { name: "Made", kind: "tight", value: (key) => time(key.created_ms) },
    { name: "Until", kind: "tight", value: (key) => (key.expires_ms ? time(key.expires_ms) : "for ever") },
    { name: "", kind: "right tight", value: (key) => may("alter") && button("Delete", () => dropKey(context, key), { kind: "plain small danger", label: `Delete key ${key.id}` }) },
  ], told.api_keys, { label: "API keys", none: empty("There are no API keys", "A key is a login for a program; it acts as a user.") })), { flush: true });
}

function newKey(context) {
  const user = input({ value: session.user, required: true });
  const days = select([["", "for ever"], ["1", "1 day"], ["30", "30 days"], ["365", "1 year"]], "30");
  const scope = select([["", "everything that the user may"], ["read,describe", "read and describe"], ["describe", "describe"], ["write,describe", "write and describe"]], "");
  const body = () => ({ user: user.value, ...(days.value ? { expires_ms: Date.now() + Number(days.value) * 86_400_000 } : {}), ...(scope.value ? { scope: scope.value.split(",") } : {}) });
  dialog({
    title: "New API key", action: "Make the key",
    body: [field("Acts as", user), field("Works", days), field("May", scope)],
    commands: () => ({ "Command line": tierlog("apikey", "create", user.value || "ada", days.value ? ["--expires", `${days.value}d`] : [], scope.value ? ["--scope", scope.value] : []), curl: curl("POST", path("api-keys"), body()) }),
    run: async () => {
      const made = await post(path("api-keys"), body());
      dialog({ title: "The key is shown once", body: [notice("warn", "Copy it now", "The broker keeps only a proof of it."), h("pre", { class: "mono", tabindex: "0" }, made.key), button("Copy", () => copy(made.key))], close: "Done" }).box.addEventListener("close", context.reload);
    },
  });
}

function dropKey(context, key) {
  dialog({
    title: "Delete this API key?", danger: true, action: "Delete the key", byName: key.id, body: h("p", {}, `Programs that use it as ${key.user} are refused at once.`),
    commands: () => ({ "Command line": tierlog("apikey", "delete", key.id), curl: curl("DELETE", path("api-keys", key.id)) }),
    run: async () => { await remove(path("api-keys", key.id)); toast("The key is deleted"); context.reload(); },
  });
}

async function rules(context) {
  const { acls } = await get(path("acls"));
  return card(null, withButton("New rule", () => newRule(context), table([
    { name: "Who", kind: "name", value: (rule) => rule.principal.replace("User:", "") },
    { name: "", kind: "tight", value: (rule) => badge(rule.permission === "allow" ? "may" : "may not", rule.permission === "allow" ? "good" : "bad") },
    { name: "Do", kind: "tight", value: (rule) => rule.operation.replaceAll("_", " ") },
    { name: "With", kind: "wrap", value: (rule) => `${rule.resource_type.replaceAll("_", " ")} ${rule.resource_type === "cluster" ? "" : rule.name}${rule.pattern === "prefixed" ? "…" : ""}` },
    { name: "From", kind: "tight", value: (rule) => (rule.host === "*" ? "anywhere" : rule.host) },
    { name: "", kind: "right tight", value: (rule) => may("alter") && button("Remove", () => dropRule(context, rule), { kind: "plain small danger", label: `Remove the rule of ${rule.principal} for ${rule.name}` }) },
  ], acls, { label: "Access rules", none: empty("There are no rules", "Without a rule only super users may do anything.") })), { flush: true });
}

const OPERATIONS = ["read", "write", "describe", "create", "delete", "alter", "describe_configs", "alter_configs", "all"];

function newRule(context) {
  const who = input({ required: true, placeholder: "ada, or * for everybody" });
  const permission = select([["allow", "may"], ["deny", "may not"]], "allow");
  const operation = select(OPERATIONS.map((each) => [each, each.replaceAll("_", " ")]), "read");
  const kind = select([["topic", "topic"], ["group", "group"], ["cluster", "cluster"], ["transactional_id", "transactional id"]], "topic");
  const name = input({ placeholder: "orders, or * for all" });
  const pattern = select([["literal", "of this name"], ["prefixed", "that begin so"]], "literal");
  const rule = () => ({ resource_type: kind.value, name: kind.value === "cluster" ? "kafka-cluster" : name.value, pattern: pattern.value, principal: `User:${who.value}`, operation: operation.value, permission: permission.value });
  dialog({
    title: "New rule", action: "Add the rule", wide: true,
    body: h("div", { class: "form wide" }, field("Who", who), field("Permission", permission), field("Operation", operation), field("With", kind), field("Name", name), field("Names", pattern)),
    commands: () => ({ "Command line": tierlog("acl", "add", ruleWords({ ...rule(), principal: who.value || "ada" })), curl: curl("POST", path("acls"), { acls: [rule()] }) }),
    run: async () => { await post(path("acls"), { acls: [rule()] }); toast("The rule holds"); context.reload(); },
  });
}

// What the command line calls a rule.
function ruleWords(rule) {
  const about = rule.resource_type === "cluster" ? "--cluster" : [`--${rule.resource_type.replaceAll("_", "-")}`, rule.name];
  return [rule.principal.replace("User:", ""), rule.operation, about, rule.pattern === "prefixed" ? "--prefix" : [], rule.permission === "deny" ? "--deny" : []].flat();
}

function dropRule(context, rule) {
  const who = rule.principal.replace("User:", "");
  dialog({
    title: "Remove this rule?", danger: true, action: "Remove the rule", byName: who,
    body: h("p", {}, `${rule.principal} ${rule.permission === "allow" ? "may" : "may not"} ${rule.operation} ${rule.resource_type} ${rule.name}.`),
    commands: () => ({ "Command line": tierlog("acl", "remove", ruleWords(rule), rule.host && rule.host !== "*" ? ["--host", rule.host] : []), curl: curl("DELETE", `${path("acls")}?${new URLSearchParams(rule)}`) }),
    run: async () => { await remove(path("acls"), rule); toast("The rule is gone"); context.reload(); },
  });
}
