// Makes elements. Text is always set as text, never as HTML: records may hold anything.

const SVG = "http://www.w3.org/2000/svg";

export function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "css") for (const [rule, given] of Object.entries(value)) element.style.setProperty(rule, given);
    else if (name === "value" && "value" in element) element.value = value;
    else if (name === "checked") element.checked = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  add(element, children);
  return element;
}

export function add(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

export function replace(element, ...children) {
  element.replaceChildren();
  add(element, children);
  return element;
}

const ICONS = {
  overview: "M3 12h4l3-8 4 16 3-8h4",
  topics: "M4 6h16M4 12h16M4 18h10",
  groups: "M9 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7Zm-6 9c0-3.3 2.7-6 6-6s6 2.7 6 6M16 4.5a3.5 3.5 0 0 1 0 6.5m2.5 3.5c1.6 1 2.5 3 2.5 5.5",
  archive: "M4 8h16v11a1 1 0 0 1-1 1H5a1 1 0 0 1-1-1V8Zm-1-4h18v4H3V4Zm7 8h4",
  brokers: "M4 4h16v6H4V4Zm0 10h16v6H4v-6ZM8 7h.01M8 17h.01",
  sql: "M4 6c0-1.7 3.6-3 8-3s8 1.3 8 3-3.6 3-8 3-8-1.3-8-3Zm0 0v12c0 1.7 3.6 3 8 3s8-1.3 8-3V6M4 12c0 1.7 3.6 3 8 3s8-1.3 8-3",
  security: "M12 3l8 3v6c0 5-3.5 8-8 9-4.500-1-8-4-8-9V6l8-3Z",
  audit: "M6 3h9l4 4v14H6V3Zm4 8h6m-6 4h6",
  settings: "M4 7h10m4 0h2M4 17h4m4 0h8M16 5v4M10 15v4",
  copy: "M9 9h11v11H9V9ZM5 15H4V4h11v1",
  menu: "M4 7h16M4 12h16M4 17h16",
  close: "M6 6l12 12M18 6L6 18",
  moon: "M20 14.500A8.500 8.500 0 0 1 9.500 4 8.500 8.500 0 1 0 20 14.500Z",
  sun: "M12 7.500a4.500 4.500 0 1 0 0 9 4.500 4.500 0 0 0 0-9ZM12 2v2.500M12 19.500V22M2 12h2.500M19.500 12H22M5 5l1.700 1.700M17.300 17.300L19 19M19 5l-1.700 1.700M6.700 17.300L5 19",
  terminal: "M4 5h16v14H4V5Zm3.500 4l3 3-3 3M13 15h4",
};

export function icon(name) {
  const path = svg("path", { d: ICONS[name], fill: "none", stroke: "currentColor", "stroke-width": "1.7", "stroke-linecap": "round", "stroke-linejoin": "round" });
  return svg("svg", { viewBox: "0 0 24 24", "aria-hidden": "true", focusable: "false" }, path);
}

export function logo() {
  const bar = (y, width, opacity) => svg("path", { d: `M8 ${y}h${width}`, stroke: "#fff", "stroke-opacity": opacity, "stroke-width": "4", "stroke-linecap": "round" });
  return svg("svg", { viewBox: "0 0 32 32", "aria-hidden": "true" }, svg("rect", { width: "32", height: "32", rx: "7", fill: "#0f766e" }), bar(9, 16, 1), bar(16, 12, 0.75), bar(23, 7, 0.5));
}
