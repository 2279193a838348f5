// The frame of the console: the theme, the login, the list of pages, and which page an address shows.

import { get, login, origin, path, whenLoginIsNeeded } from "./api.js";
import { h, icon, logo, replace } from "./dom.js";
import { readOnly, session } from "./state.js";
import { badge, button, dialog, field, input, problem, toast, waiting } from "./ui.js";

const THEME = "tierlog.theme";
const PAGES = [
  { key: "overview", text: "Overview", at: /^\/?$/, load: () => import("./overview.js") },
  { key: "topics", text: "Topics", at: /^\/topics$/, load: () => import("./topics.js") },
  { key: "topics", at: /^\/topics\/([^/]+)(?:\/(groups|tiers|settings|cost))?$/, load: () => import("./topic.js") },
  { key: "topics", at: /^\/topics\/([^/]+)\/messages$/, load: () => import("./messages.js") },
  { key: "topics", at: /^\/topics\/([^/]+)\/messages\/(\d+)\/(\d+)$/, load: () => import("./message.js") },
  { key: "groups", text: "Groups", at: /^\/groups$/, load: () => import("./groups.js") },
  { key: "groups", at: /^\/groups\/([^/]+)(?:\/(dead-letters))?$/, load: () => import("./group.js") },
  { key: "archive", text: "Archive", at: /^\/archive(?:\/(verify|pins))?$/, load: () => import("./archive.js"), when: () => session.archive },
  { key: "brokers", text: "Brokers", at: /^\/brokers$/, load: () => import("./brokers.js") },
  { key: "sql", text: "SQL", at: /^\/sql$/, load: () => import("./sql.js"), when: () => session.sql },
  { key: "security", text: "Access", at: /^\/access(?:\/(users|keys|rules))?$/, load: () => import("./access.js"), when: () => session.authorization || session.can_sign_out },
  { key: "audit", text: "Audit", at: /^\/audit$/, load: () => import("./audit.js"), when: () => session.audit },
  { key: "settings", text: "This console", at: /^\/settings$/, load: () => import("./settings.js") },
];
const HOME = { overview: "#/", topics: "#/topics", groups: "#/groups", archive: "#/archive", brokers: "#/brokers", sql: "#/sql", security: "#/access", audit: "#/audit", settings: "#/settings" };

const view = h("main", { class: "view", id: "view", tabindex: "-1" });
let leave = () => {};

// Theme

export const chosenTheme = () => localStorage.getItem(THEME) ?? "auto";

export function setTheme(choice) {
  if (choice === "auto") localStorage.removeItem(THEME);
  else localStorage.setItem(THEME, choice);
  applyTheme();
}

const dark = matchMedia("(prefers-color-scheme: dark)");

function applyTheme() {
  const choice = chosenTheme();
  document.documentElement.dataset.theme = choice === "auto" ? (dark.matches ? "dark" : "light") : choice;
}

function themeSwitch() {
  const isDark = () => document.documentElement.dataset.theme === "dark";
  const shown = button("", () => { setTheme(isDark() ? "light" : "dark"); draw(); }, { kind: "plain small" });
  const draw = () => { replace(shown, icon(isDark() ? "sun" : "moon"), isDark() ? "Light" : "Dark"); shown.setAttribute("aria-label", `Use the ${isDark() ? "light" : "dark"} theme`); };
  draw();
  dark.addEventListener("change", draw);
  return shown;
}

// Login

let asking = false;

function askForLogin(refused) {
  if (asking) return;
  asking = true;
  const had = login.header() !== null;
  login.forget();
  const user = input({ name: "user", autocomplete: "username" });
  const password = input({ name: "password", type: "password", autocomplete: "current-password" });
  const token = input({ name: "token", type: "password" });
  const { box } = dialog({
    title: "Log in",
    body: [
      h("p", { class: "soft" }, `${new URL(origin).host} asks for a login. It stays in this tab and is sent with every request.`),
      had && problem({ title: "The login was refused", message: refused.detail ?? "", hint: refused.hint }),
      field("User", user), field("Password", password),
      h("details", {}, h("summary", {}, "With a token or an API key instead"), field("Token or API key", token)),
    ],
    action: "Log in",
    close: "Not now",
    run: () => { if (token.value) login.token(token.value); else login.password(user.value, password.value); setTimeout(start); },
  });
  box.addEventListener("close", () => (asking = false));
}

// Pages

function parse() {
  const [place, query = ""] = location.hash.replace(/^#/, "").split("?");
  return { place: place || "/", query: Object.fromEntries(new URLSearchParams(query)) };
}

export function link(place, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = new URLSearchParams(given).toString();
  return `#${place}${text ? `?${text}` : ""}`;
}

function context(found, query, signal) {
  const timers = [];
  const leaving = [];
  signal.addEventListener("abort", () => { timers.forEach(clearTimeout); leaving.forEach((each) => each()); });
  return {
    params: found.slice(1).map((part) => (part === undefined ? undefined : decodeURIComponent(part))),
    query, signal, link,
    // Shows the same page with other parameters, without a new entry in the history.
    adjust: (changed) => {
      history.replaceState(null, "", link(parse().place, { ...parse().query, ...changed }));
      // As they would be read from the address: as text.
      for (const [name, value] of Object.entries(changed)) query[name] = value === undefined || value === null ? undefined : String(value);
    },
    // Repeats while the page is open and can be seen.
    every: (ms, work) => {
      const turn = async () => {
        if (!document.hidden) await Promise.resolve(work()).catch((error) => error.name !== "AbortError" && console.info(error.message));
        if (!signal.aborted) timers.push(setTimeout(turn, ms));
      };
      timers.push(setTimeout(turn, ms));
    },
    onLeave: (work) => leaving.push(work),
    reload: () => show(),
  };
}

async function show() {
  leave();
  const stop = new AbortController();
  leave = () => stop.abort();
  document.querySelector(".side")?.classList.remove("open");
  const { place, query } = parse();
  const page = PAGES.find((each) => each.at.test(place) && (each.when?.() ?? true));
  for (const item of document.querySelectorAll(".side nav a")) {
    if (item.dataset.key === page?.key) item.setAttribute("aria-current", "page");
    else item.removeAttribute("aria-current");
  }
  if (!page) {
    replace(view, problem({ title: "There is no such page", message: place, hint: "The list on the left has all pages." }));
    return;
  }
  const slow = setTimeout(() => replace(view, waiting()), 250);
  try {
    const module = await page.load();
    const content = await module.page(context(page.at.exec(place), query, stop.signal));
    clearTimeout(slow);
    if (stop.signal.aborted) return;
    replace(view, h("div", { class: "fade" }, content));
  } catch (error) {
    clearTimeout(slow);
    if (stop.signal.aborted) return;
    replace(view, problem(error), h("p", {}, button("Try again", show)));
  }
  const title = view.querySelector("h1");
  document.title = title ? `${title.textContent.trim()} · tierlog` : "tierlog";
  title?.focus({ preventScroll: true });
  scrollTo(0, 0);
}

function frame() {
  const items = PAGES.filter((each) => each.text && (each.when?.() ?? true));
  const side = h("div", { class: "side", id: "side" },
    h("a", { class: "brand", href: "#/" }, logo(), "tierlog"),
    h("nav", { "aria-label": "Pages" }, h("ul", {}, items.map((each) => h("li", {}, h("a", { href: HOME[each.key], "data-key": each.key }, icon(each.key), each.text))))),
    h("div", { class: "foot" },
      readOnly() && badge("read-only", "warn"),
      session.login !== "anonymous" && h("div", { class: "who", title: `by ${session.login}` }, session.user),
      h("div", { class: "row" }, themeSwitch(), session.can_sign_out && button("Sign out", () => { login.forget(); location.hash = "#/"; start(); }, { kind: "plain small" })),
      h("div", { class: "faint" }, `broker ${session.node_id} · ${session.version}`)));
  const menu = button(icon("menu"), () => { const open = side.classList.toggle("open"); menu.setAttribute("aria-expanded", open); }, { kind: "plain", label: "Pages", "aria-controls": "side", "aria-expanded": "false" });
  const bar = h("div", { class: "bar" }, h("a", { class: "brand", href: "#/" }, logo(), "tierlog"), menu);
  const skip = h("a", { class: "skip", href: "#view", onclick: (event) => { event.preventDefault(); view.focus(); } }, "Skip to the page");
  replace(document.body, skip, h("div", { class: "shell" }, h("div", {}, bar, side), view));
}

async function start() {
  applyTheme();
  try {
    Object.assign(session, await get(path("session")));
  } catch (error) {
    replace(document.body, h("div", { class: "shell" }, h("div", {}), view));
    replace(view, h("h1", {}, "tierlog"), error.status === 401 ? h("p", {}, button("Log in", () => askForLogin({}), { kind: "main" })) : [problem(error), button("Try again", start)]);
    return;
  }
  frame();
  await show();
  // A page that is opened while the broker is gone can say so.
  for (const { load } of PAGES) load().catch(() => {});
}

whenLoginIsNeeded(askForLogin);
dark.addEventListener("change", applyTheme);
addEventListener("hashchange", show);
addEventListener("unhandledrejection", (event) => { if (event.reason?.title) { event.preventDefault(); toast(event.reason.message, "bad"); } });
start();
