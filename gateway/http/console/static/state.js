// What the whole console knows: who looks at it, and what this broker offers. Set once, at the start.

import { origin } from "./api.js";
import { quote } from "./format.js";

export const session = {};

export const readOnly = () => session.console === "read-only";
export const may = (what) => !readOnly() && session.may.includes(what);

const DEFAULT = ["http://127.0.0.1:8080", "http://localhost:8080"];

export function tierlog(...words) {
  const server = DEFAULT.includes(origin) ? [] : ["--server", origin];
  return ["tierlog", ...words.flat(), ...server].map((word) => quote(String(word))).join(" ");
}

const login = () => (session.can_sign_out ? (session.login === "password" ? ["-u", session.user] : ["-H", "Authorization: Bearer $TOKEN"]) : []);

export function curl(method, where, body) {
  const verb = method === "GET" ? [] : ["-X", method];
  const sent = body === undefined ? [] : ["-H", "Content-Type: application/json", "-d", typeof body === "string" ? body : JSON.stringify(body)];
  const words = [...verb, ...login(), ...sent].map((word) => (word.includes("$TOKEN") ? `"${word}"` : quote(word)));
  return ["curl", ...words, quote(where.startsWith("http") ? where : origin + where)].join(" ");
}

export const spark = (topic, more = "") => session.archive && `spark.read.format("tierlog").options(bucket="${session.bucket ?? "s3://BUCKET"}", subscribe="${topic}").load()${more}`;

export const sqlName = (topic) => (/^[a-z_][a-z0-9_]*$/i.test(topic) ? topic : `"${topic.replaceAll('"', '""')}"`);
