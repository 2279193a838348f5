// Parts that all pages use: heads, tables with pages, dialogs, commands to copy, notices.

import { add, h, icon, replace } from "./dom.js";
import { count } from "./format.js";

export function head({ trail, title, lead, badges = [], actions = [], commands }) {
  return h("div", { class: "head" },
    h("div", { class: "titles" }, trail && h("p", { class: "trail" }, trail), h("h1", { tabindex: "-1" }, title, " ", badges), lead && h("p", { class: "lead" }, lead)),
    h("div", { class: "actions" }, actions, commands && copyAs(commands)));
}

export const card = (title, body, { note, actions, flush } = {}) => h("section", { class: "card", "aria-label": typeof title === "string" ? title : undefined },
  title && h("header", {}, h("h2", {}, title), note && h("span", { class: "note" }, note), actions),
  flush ? body : h("div", { class: "body" }, body));

export const stats = (...items) => h("dl", { class: "stats" }, items.filter(Boolean).map(({ name, value, under, tone }) => h("div", { class: `stat ${tone ?? ""}` }, h("dt", {}, name), h("dd", {}, value), under && h("dd", { class: "under" }, under))));

export const facts = (...items) => h("dl", { class: "facts" }, items.filter(Boolean).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));

export const badge = (text, tone = "") => h("span", { class: `badge ${tone}` }, text);

export const button = (text, onclick, { kind = "", disabled, label, ...more } = {}) => h("button", { type: "button", class: `button ${kind}`, onclick, disabled, "aria-label": label, ...more }, text);

export const linkButton = (text, href, kind = "") => h("a", { class: `button ${kind}`, href }, text);

export const notice = (tone, title, text) => h("div", { class: `notice ${tone}`, role: tone === "bad" ? "alert" : "status" }, h("div", { class: "what" }, h("strong", {}, title), text));

export const empty = (title, text, command) => h("div", { class: "empty" }, h("strong", {}, title), text, command && h("div", {}, h("pre", {}, command)));

export const problem = (error) => notice("bad", error.title ?? "Something went wrong", [error.message, error.hint && h("div", { class: "soft" }, error.hint)]);

export const field = (name, input, hint) => h("label", { class: "field" }, h("span", {}, name), input, hint && h("small", {}, hint));

export const input = (properties = {}) => h("input", { class: "input", autocomplete: "off", spellcheck: "false", ...properties });

export const select = (choices, value, properties = {}) => h("select", { class: "input", ...properties },
  choices.map(([key, text]) => h("option", { value: key, selected: String(key) === String(value) }, text)));

export const check = (text, properties) => h("label", { class: "check" }, h("input", { type: "checkbox", ...properties }), text);

export const meter = (share, label, tone = "") => h("div", { class: `meter ${tone}`, role: "meter", "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": Math.round(share * 100), "aria-label": label }, h("div", { css: { width: `${Math.min(100, share * 100)}%` } }));

export const tabs = (items, current) => h("nav", { class: "tabs", "aria-label": "Parts of this page" }, items.map(([key, text, href]) => h("a", { href, "aria-current": key === current ? "page" : undefined }, text)));

export function waiting(text = "Loading…") {
  return h("p", { class: "faint", role: "status" }, text);
}

// Tables

export function table(columns, rows, { label, sort, onsort, none } = {}) {
  if (!rows.length && none) return none;
  // On a narrow screen `also` stands for a column that is left out there.
  const cell = ({ kind = "", value, also }, row) => h("td", { class: kind }, value(row), also && h("div", { class: "narrow-only faint" }, also(row)));
  return h("div", { class: "table", tabindex: "0", role: "region", "aria-label": label }, h("table", {},
    h("thead", {}, h("tr", {}, columns.map((column) => heading(column, sort, onsort)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, columns.map((column) => cell(column, row)))))));
}

function heading({ name, kind = "", key }, sort, onsort) {
  if (!key || !onsort) return h("th", { class: kind, scope: "col" }, name || h("span", { class: "hidden" }, "Actions"));
  const on = sort.key === key;
  const turn = () => onsort(key, on ? !sort.descending : kind.includes("right"));
  return h("th", { class: kind, scope: "col", "aria-sort": on ? (sort.descending ? "descending" : "ascending") : "none" },
    h("button", { onclick: turn }, name, on && h("span", { class: "arrow", "aria-hidden": "true" }, sort.descending ? "↓" : "↑")));
}

export function pager({ skip, limit, total, shown }, go) {
  return h("div", { class: "pager" },
    h("span", { class: "grow num", role: "status" }, total ? `${count(skip + 1)}–${count(skip + shown)} of ${count(total)}` : "none"),
    button("Previous", () => go(Math.max(0, skip - limit)), { kind: "small", disabled: skip === 0 }),
    button("Next", () => go(skip + limit), { kind: "small", disabled: skip + shown >= total }));
}

export function searchBox(value, label, change) {
  let timer;
  const box = input({ type: "search", placeholder: label, "aria-label": label, value, oninput: () => { clearTimeout(timer); timer = setTimeout(() => change(box.value.trim()), 220); } });
  return box;
}

// Commands to copy

export async function copy(text, said = "Copied") {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h("textarea", { class: "hidden" }, text);
    (document.querySelector("dialog[open]") ?? document.body).append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  toast(said);
}

export const commandList = (commands) => h("div", { class: "commands" }, Object.entries(commands).filter(([, text]) => text).map(([what, text]) => h("div", { class: "command" },
  h("div", { class: "what" }, what, button([icon("copy"), "Copy"], () => copy(text, `Copied for ${what}`), { kind: "plain small", label: `Copy for ${what}` })), h("pre", { tabindex: "0" }, text))));

function copyAs(commands) {
  const made = () => (typeof commands === "function" ? commands() : commands);
  return button([icon("terminal"), "Copy as"], () => dialog({ title: "The same from elsewhere", wide: true, body: commandList(made()), close: "Close" }), { title: "This page as a command" });
}

// Dialogs

export function dialog({ title, body, action, danger, run, close = "Cancel", wide, byName, commands, ready = true }) {
  const failure = h("div", { hidden: true });
  const shownCommands = h("div");
  const typed = byName && input({ "aria-label": `Type ${byName} to confirm`, oninput: () => (confirm.disabled = typed.value !== byName) });
  const confirm = action && h("button", { type: "submit", class: `button ${danger ? "danger" : "main"}`, disabled: Boolean(byName) || !ready }, action);
  const box = h("dialog", { class: wide ? "wide" : "", "aria-label": title, onclose: end },
    h("form", { method: "dialog", onsubmit: submit },
      h("header", {}, h("h2", {}, title), button(icon("close"), () => box.close(), { kind: "plain", label: "Close" })),
      h("div", { class: "body" }, body, typed && field(["Type ", h("strong", {}, byName), " to confirm"], typed), commands && h("details", {}, h("summary", {}, "The same as a command"), shownCommands), failure),
      h("footer", {}, button(close, () => box.close()), confirm)));
  function end() {
    // What was said in the dialog stays to be read.
    if (toasts && box.contains(toasts)) document.body.append(toasts);
    box.remove();
  }
  const refresh = () => { if (commands) replace(shownCommands, commandList(commands())); };
  async function submit(event) {
    event.preventDefault();
    if (!run) return box.close();
    confirm.disabled = true;
    failure.hidden = true;
    try {
      if ((await run(box)) !== false) box.close();
    } catch (error) {
      replace(failure, problem(error)).hidden = false;
    }
    confirm.disabled = false;
    return undefined;
  }
  refresh();
  // Not when a field is left: what takes the place of an element takes its click, too.
  box.addEventListener("input", refresh);
  box.addEventListener("change", (event) => { if (!event.target.matches("input, textarea")) refresh(); });
  document.body.append(box);
  box.showModal();
  (typed ?? box.querySelector(".body input, .body select, .body textarea"))?.focus();
  return { box, confirm, refresh };
}

let toasts;
export function toast(text, tone = "") {
  toasts ??= document.body.appendChild(h("div", { class: "toasts", role: "status", "aria-live": "polite" }));
  // Above an open dialog nothing else can be seen.
  (document.querySelector("dialog[open]") ?? document.body).append(toasts);
  const shown = h("div", { class: `toast fade ${tone}` }, text);
  add(toasts, [shown]);
  setTimeout(() => shown.remove(), 4500);
}
