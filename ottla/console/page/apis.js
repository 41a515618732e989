// The APIs of the brokers and their versions, with a filter that is part of the address.
import { h, table } from "/dom.js";
import { plural } from "/format.js";

const span = (one) => (one.least === one.highest ? `${one.least}` : `${one.least}–${one.highest}`);

// Brokers that differ are named; those without the API have no range.
const versions = (brokers) => (api) => api.ranges
  .map((one) => (one.brokers.length === brokers.length ? span(one) : `${span(one)} (broker ${one.brokers.join(", ")})`)).join("; ");

export function apisPart(query) {
  let answer = null;
  const list = h("div");
  const summary = h("p", { class: "muted", role: "status" });
  const filter = h("input", { type: "search", value: query.get("filter") ?? "", placeholder: "part of the name, or a key", oninput: change });
  const bar = h("div", { class: "bar" }, h("label", { class: "grow" }, "Filter", filter));
  const node = h("div", null, h("h2", null, "API versions"), bar, list, summary);

  function change() {
    history.replaceState(null, "", filter.value ? `#/broker?${new URLSearchParams({ filter: filter.value })}` : "#/broker");
    draw();
  }

  function draw() {
    const text = filter.value.trim().toLowerCase();
    const chosen = answer.apis.filter((one) => (one.name ?? "").toLowerCase().includes(text) || String(one.key) === text);
    summary.textContent = `${plural(chosen.length, "API")} of ${answer.apis.length}`;
    list.replaceChildren(table([
      { title: "API", kind: "wrap", cell: (one) => (one.name === null ? h("span", { class: "muted" }, "not known to this console") : h("span", { class: "mono" }, one.name)) },
      { title: "Key", kind: "number", cell: (one) => String(one.key) },
      { title: "Versions", kind: "number", cell: versions(answer.brokers) },
    ], chosen, "No API matches."));
  }

  return { node, show: (found) => { answer = found; node.hidden = !found.apis; if (found.apis) draw(); } };
}
