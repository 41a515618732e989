// The list of topics, with a filter that is part of the address.
import { name } from "/api.js";
import { badge, h, notes, table } from "/dom.js";
import { count, plural, size } from "/format.js";
import { refreshed } from "/refreshed.js";

const columns = [
  { title: "Topic", kind: "wrap", cell: (one) => [h("a", { href: `#/topics/${name(one.name)}` }, one.name), one.internal ? [" ", badge("internal")] : null].flat() },
  { title: "Partitions", kind: "number", cell: (one) => count(one.partitions) },
  { title: "Records", kind: "number", about: "Offsets from the start to the end: more than there are records if the topic is compacted or has transactions", cell: (one) => count(one.records) },
  { title: "Size", kind: "number", cell: (one) => size(one.bytes) },
  { title: "Cleanup", kind: "optional nowrap", cell: (one) => one.policy },
].map((column) => ({ ...column, cell: (one) => { const made = column.cell(one); return Array.isArray(made) ? h("span", null, made) : made; } }));

export async function topicsView(parts, query) {
  let answer = null;
  const list = h("div");
  const summary = h("p", { class: "muted", role: "status" });
  const filter = h("input", { type: "search", value: query.get("filter") ?? "", placeholder: "part of the name", oninput: change });
  const internal = h("input", { type: "checkbox", onchange: change });
  internal.checked = query.get("internal") === "1";

  function change() {
    const now = new URLSearchParams();
    if (filter.value) now.set("filter", filter.value);
    if (internal.checked) now.set("internal", "1");
    history.replaceState(null, "", `#/topics${now.size ? `?${now}` : ""}`);
    draw();
  }

  function draw() {
    const text = filter.value.toLowerCase();
    const chosen = answer.topics.filter((one) => (internal.checked || !one.internal) && one.name.toLowerCase().includes(text));
    summary.textContent = `${plural(chosen.length, "topic")} of ${count(answer.topics.length)}`;
    const empty = answer.topics.some((one) => !one.internal) ? "No topic matches." : "There are no topics yet: ottla topics create orders";
    list.replaceChildren(...[notes(answer.notes), table(columns, chosen, empty)].filter(Boolean));
  }

  const part = await refreshed("topics", (found) => { answer = found; draw(); return list; });
  const bar = h("div", { class: "bar" }, h("label", { class: "grow" }, "Filter", filter), h("label", { class: "check" }, internal, "internal topics"));
  return { title: "Topics", node: h("section", null, h("h1", null, "Topics"), bar, part.node, summary), refresh: part.refresh };
}
