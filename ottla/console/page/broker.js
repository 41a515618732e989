// The cluster: its brokers, their log directories, what is configured, the levels of features, and the versions of APIs.
import { apisPart } from "/apis.js";
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

const named = (number, release) => (release ? `${number} (${release})` : number);

const features = (list) => list && [h("h2", null, "Features"), table([
  { title: "Feature", cell: (one) => h("span", { class: "mono" }, one.name) },
  { title: "Level", kind: "number", cell: (one) => named(count(one.level), one.release) },
  { title: "Supported", kind: "number", cell: (one) => (one.highest === null ? "–" : named(`${one.least}–${one.highest}`, one.highest_release)) },
], list)];

// What the brokers' metadata says: the level that is used, and the newest that they support.
function metadata(list) {
  const found = list?.find((one) => one.name === "metadata.version");
  if (!found) return [];
  const supported = found.highest_release ? ` (supported up to ${found.highest_release})` : "";
  return [["metadata", `${found.release ? `Kafka ${found.release}` : `level ${found.level}`}${supported}`]];
}

const broker = (one) => [
  h("h2", null, `Broker ${one.id} `, one.controller ? badge("controller") : null),
  facts([["clients connect to", `${one.host}:${one.port}`]]),
  directories(one),
  h("h2", null, `What is configured for broker ${one.id}`),
  configTable(one.configs),
];

export async function brokerView(parts, query) {
  const apis = apisPart(query);
  const part = await refreshed("brokers", (answer) => {
    apis.show(answer);
    return h("div", null,
      facts([["cluster", answer.cluster ?? "–"], ["brokers", count(answer.brokers.length)], ...metadata(answer.features)]), notes(answer.notes),
      answer.brokers.map(broker).flat(), features(answer.features));
  });
  return { title: "Broker", node: h("section", null, h("h1", null, "Broker"), part.node, apis.node), refresh: part.refresh };
}
