// The cluster: its brokers, their log directories, what is configured, and the levels of features.
import { configTable } from "/configs.js";
import { badge, facts, h, notes, table } from "/dom.js";
import { count, size } from "/format.js";
import { refreshed } from "/refreshed.js";

const directoryState = (one) => (one.error ? badge(one.error, "bad") : one.cordoned ? badge("cordoned", "warn") : badge("online", "good"));

const directories = (broker) => broker.directories && table([
  { title: "Log directory", kind: "wrap", cell: (one) => h("span", { class: "mono" }, one.path) },
  { title: "State", cell: directoryState },
  { title: "Partitions", kind: "number", cell: (one) => count(one.partitions) },
  { title: "Logs", kind: "number", cell: (one) => size(one.used) },
  { title: "Free", kind: "number", cell: (one) => size(one.free) },
  { title: "Volume", kind: "number optional", cell: (one) => size(one.total) },
], broker.directories);

const features = (list) => list && [h("h2", null, "Features"), table([
  { title: "Feature", cell: (one) => h("span", { class: "mono" }, one.name) },
  { title: "Level", kind: "number", cell: (one) => count(one.level) },
  { title: "Supported", kind: "number", cell: (one) => (one.highest === null ? "–" : `${one.least}–${one.highest}`) },
], list)];

const broker = (one) => [
  h("h2", null, `Broker ${one.id} `, one.controller ? badge("controller") : null),
  facts([["clients connect to", `${one.host}:${one.port}`]]),
  directories(one),
  h("h2", null, `What is configured for broker ${one.id}`),
  configTable(one.configs),
];

export async function brokerView() {
  const part = await refreshed("brokers", (answer) => h("div", null,
    facts([["cluster", answer.cluster ?? "–"], ["brokers", count(answer.brokers.length)]]), notes(answer.notes),
    answer.brokers.map(broker).flat(), features(answer.features)));
  return { title: "Broker", node: h("section", null, h("h1", null, "Broker"), part.node), refresh: part.refresh };
}
