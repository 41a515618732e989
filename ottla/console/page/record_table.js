// Rows of records. A row opens to the whole record.
import { h } from "/dom.js";
import { count, time } from "/format.js";
import { cell, detail } from "/values.js";

const HEADINGS = [["Part.", "c-part number"], ["Offset", "c-offset number"], ["Time", "c-time optional"], ["Key", "c-key"], ["Value", "c-value"], ["Headers", "c-headers number optional"]];

// How many columns an opened record spans: narrow windows hide some.
const columns = (row) => [...row.cells].filter((one) => one.offsetParent !== null).length;

addEventListener("resize", () => {
  for (const place of document.querySelectorAll("tr.detail > td")) place.colSpan = columns(place.parentNode.previousElementSibling);
});

export function recordTable() {
  const body = h("tbody");
  const head = h("tr", null, HEADINGS.map(([title, kind]) => h("th", { class: kind, scope: "col" }, title)));
  return { node: h("div", { class: "scroll" }, h("table", { class: "records" }, h("thead", null, head), body)), body };
}

export function recordRow(topic, record) {
  const open = h("button", { class: "link mono", type: "button", "aria-expanded": "false", title: "Show the whole record" }, count(record.offset));
  const row = h("tr", null,
    h("td", { class: "number mono" }, String(record.partition)),
    h("td", { class: "number" }, open),
    h("td", { class: "nowrap optional mono" }, time(record.time)),
    h("td", null, cell(record.key)),
    h("td", null, cell(record.value, true)),
    h("td", { class: "number optional" }, record.headers.length ? String(record.headers.length + (record.more_headers ?? 0)) : ""));
  let below = null;
  async function toggle() {
    if (below) { below.remove(); below = null; open.setAttribute("aria-expanded", "false"); return; }
    const place = h("td", { colspan: columns(row) }, "…");
    below = h("tr", { class: "detail" }, place);
    open.setAttribute("aria-expanded", "true");
    row.after(below);
    place.replaceChildren(await detail(topic, record));
  }
  open.addEventListener("click", toggle);
  row.addEventListener("click", (event) => { if (!event.target.closest("button, a") && !getSelection().toString()) toggle(); });
  return row;
}
