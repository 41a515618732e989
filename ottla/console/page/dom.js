// Elements. What comes from the cluster becomes text here, and never HTML: nothing else in this page makes elements.

export function h(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value") node.value = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

// `columns`: {title, cell(row), kind?}; a kind is a class of the cells, such as "number".
export function table(columns, rows, empty = "There is nothing.") {
  if (!rows.length) return h("div", { class: "scroll" }, h("p", { class: "empty" }, empty));
  const cells = (row) => columns.map((column) => h("td", { class: column.kind }, column.cell(row) ?? "–"));
  return h("div", { class: "scroll" }, h("table", null,
    h("thead", null, h("tr", null, columns.map((one) => h("th", { class: one.kind, scope: "col", title: one.about }, one.title)))),
    h("tbody", null, rows.map((row) => h("tr", null, cells(row))))));
}

export const facts = (pairs) =>
  h("dl", { class: "facts" }, pairs.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));

export const notes = (lines) => (lines?.length ? h("ul", { class: "notes" }, lines.map((line) => h("li", null, line))) : null);

export const error = (line) => h("p", { class: "error", role: "alert" }, line);

export const badge = (text, kind = "") => h("span", { class: `badge ${kind}` }, text);

export const field = (title, input, kind) => h("label", { class: kind }, title, input);

export function select(name, options, chosen, attributes) {
  const node = h("select", { name, ...attributes }, options.map(([value, title]) => h("option", { value }, title)));
  node.value = chosen;
  return node;
}

const STATES = { Stable: "good", Empty: "", Dead: "bad", NotReady: "bad" };

export const state = (name) => (name ? badge(name, STATES[name] ?? "warn") : "–");
