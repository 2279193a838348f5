// What belongs to this browser, and what it talks to.

import { chosenTheme, setTheme } from "./app.js";
import { origin } from "./api.js";
import { h } from "./dom.js";
import { session, tierlog } from "./state.js";
import { card, facts, field, head, select } from "./ui.js";

export async function page() {
  const theme = select([["auto", "as the system"], ["light", "light"], ["dark", "dark"]], chosenTheme(), { onchange: () => setTheme(theme.value) });
  const mode = { full: "everything that you may do", "read-only": "looking only: http.console is “read-only” at this broker" }[session.console];
  const may = session.may.length ? session.may.join(", ") : "nothing of the cluster as a whole";
  return [
    head({ title: "This console", lead: "It acts as you do, through the HTTP API, and knows nothing more.", commands: { "Command line": tierlog("cluster", "status"), OpenAPI: `${origin}/openapi.json` } }),
    h("div", { class: "grid two" },
      card("Looks", h("div", { class: "form" }, field("Theme", theme))),
      card("You", facts(["User", session.user], ["Known by", { anonymous: "nothing: this broker asks for no login", certificate: "a certificate", password: "a password", token: "a token", "api-key": "an API key" }[session.login] ?? session.login], ["You may, with the cluster", session.authorization ? may : "everything: access rules are off"], ["The console offers", mode])),
      card("The broker", facts(["Address", h("code", {}, origin)], ["Broker", session.node_id], ["Cluster", h("code", {}, session.cluster_id)], ["Version", session.version], ["Archive", session.archive ? "has a bucket" : "has none"], ["Audit", session.audit ? "is written" : "is off"])),
      card("Keys", facts(["Tab", "moves through everything that can be used"], ["Enter, Space", "use it"], ["← →", "read a chart value by value"], ["Esc", "closes a dialog"], ["Ctrl+Enter", "runs a query"]))),
  ];
}
