// Calls to the HTTP API of the broker that served this page, as the user who looks at it.
//
// A login is a header that each request carries. It stays in this tab and goes when the tab closes; there is no
// cookie, so no other page can act with it.

const ROOT = new URL("../", import.meta.url);
const KEPT = "tierlog.login";

export const origin = ROOT.href.replace(/\/$/, "");

export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail ?? problem.title ?? `The broker answered ${status}.`);
    this.status = status;
    this.title = problem.title ?? "The broker refused";
    this.hint = problem.hint ?? "";
    this.kind = (problem.type ?? "").replace("urn:tierlog:problem:", "");
    this.problem = problem;
  }
}

export const login = {
  header: () => sessionStorage.getItem(KEPT),
  password(user, password) {
    const both = new TextEncoder().encode(`${user}:${password}`);
    sessionStorage.setItem(KEPT, `Basic ${btoa(String.fromCharCode(...both))}`);
  },
  token: (token) => sessionStorage.setItem(KEPT, `Bearer ${token.trim()}`),
  forget: () => sessionStorage.removeItem(KEPT),
};

let askForLogin = () => {};
export function whenLoginIsNeeded(ask) {
  askForLogin = ask;
}

export function path(...parts) {
  return `/api/v1/${parts.map((part) => encodeURIComponent(part)).join("/")}`;
}

export function address(where, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return origin + where + (text ? `?${text}` : "");
}

export async function send(method, where, { query, body, raw, headers = {}, signal, accept = "application/json" } = {}) {
  const shown = login.header();
  const all = { Accept: accept, "X-Tierlog-Console": "1", ...headers };
  if (shown) all.Authorization = shown;
  if (body !== undefined) all["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(address(where, query), {
      method, headers: all, signal, credentials: "same-origin", redirect: "error", cache: "no-store",
      body: body !== undefined ? JSON.stringify(body) : raw,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, { title: "The broker does not answer", detail: `${origin} cannot be reached.`, hint: "Is it running? This page tries again." });
  }
  if (answer.ok) return answer;
  const problem = await answer.json().catch(() => ({}));
  // Whoever asked tells first what went wrong; then the login is asked for on top of that.
  if (answer.status === 401) setTimeout(askForLogin, 0, problem);
  throw new Refused(answer.status, problem);
}

async function json(answer) {
  return answer.status === 204 ? null : answer.json();
}

export const get = async (where, query, signal) => json(await send("GET", where, { query, signal }));
export const post = async (where, body) => json(await send("POST", where, { body }));
export const patch = async (where, body) => json(await send("PATCH", where, { body }));
export const put = async (where, body) => json(await send("PUT", where, { body }));
export const remove = async (where, query) => json(await send("DELETE", where, { query }));

// Yields the objects of an NDJSON answer as they come.
export async function* lines(method, where, options) {
  const answer = await send(method, where, { ...options, accept: "application/x-ndjson" });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) if (part) yield JSON.parse(part);
  }
  if (rest) yield JSON.parse(rest);
}

// Whole numbers beyond 2^53 would be rounded as JSON numbers; offsets never come near.
export async function gather(items, most, work) {
  const waiting = [...items.entries()];
  const found = new Array(items.length);
  const worker = async () => {
    for (let next = waiting.shift(); next; next = waiting.shift()) found[next[0]] = await work(next[1]);
  };
  await Promise.all(Array.from({ length: Math.min(most, items.length) }, worker));
  return found;
}
