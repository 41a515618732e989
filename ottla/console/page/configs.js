// A configuration: each key, its value, and where that comes from; what is set comes first. (Kafka describes keys in
// HTML: as the tooltip, which is text, the tags are left out.)
import { badge, h, table } from "/dom.js";

export function configTable(entries, empty = "Nothing is set.") {
  if (!entries) return h("p", { class: "muted" }, "You may not see the configuration.");
  const sorted = [...entries].sort((a, b) => a.default - b.default || (a.name < b.name ? -1 : 1));
  return table([
    { title: "Key", kind: "wrap", cell: (one) => h("span", { class: "mono", title: one.about?.replace(/<[^>]*>/g, "") ?? null }, one.name) },
    { title: "Value", kind: "wrap", cell: (one) => (one.secret ? badge("secret") : h("span", { class: "mono" }, one.value === null ? "null" : one.value === "" ? "“”" : one.value)) },
    { title: "From", cell: (one) => (one.default ? h("span", { class: "muted" }, "default") : h("span", null, badge(one.source, "good"), one.from_key ? ` ${one.from_key}` : "")) },
  ], sorted, empty);
}
