// A topic, with tabs: records, live tail, partitions, groups, configuration, and writing a record.
import { get, name } from "/api.js";
import { configTable } from "/configs.js";
import { badge, facts, h, notes, state, table } from "/dom.js";
import { count, size } from "/format.js";
import { liveTab } from "/live.js";
import { status } from "/main.js";
import { produceTab } from "/produce.js";
import { recordsTab } from "/records.js";
import { refreshed } from "/refreshed.js";

const TABS = { records: "Records", live: "Live", partitions: "Partitions", groups: "Groups", config: "Configuration", produce: "Produce" };

function partitionsTab(topic) {
  return table([
    { title: "Partition", kind: "number", about: "Each leads to its records", cell: (one) => h("a", { href: `#/topics/${name(topic.name)}?partition=${one.partition}` }, count(one.partition)) },
    { title: "Start", kind: "number", cell: (one) => count(one.start) },
    { title: "End", kind: "number", cell: (one) => count(one.end) },
    { title: "Size", kind: "number", cell: (one) => size(one.bytes) },
    { title: "Leader", kind: "number", cell: (one) => (one.leader < 0 ? badge("none", "bad") : String(one.leader)) },
    { title: "Replicas", kind: "optional", cell: (one) => one.replicas.join(", ") },
    { title: "In sync", kind: "optional", cell: (one) => one.in_sync.join(", ") },
  ], topic.partitions);
}

async function groupsTab(topic) {
  return refreshed(`topics/${name(topic.name)}/groups`, (answer) => h("div", null, notes(answer.notes), table([
    { title: "Group", kind: "wrap", cell: (one) => h("a", { href: `#/groups/${name(one.group)}` }, one.group) },
    { title: "Type", cell: (one) => one.type },
    { title: "State", cell: (one) => state(one.state) },
    { title: "Partitions", kind: "number optional", about: "Partitions of this topic in which it has an offset", cell: (one) => count(one.partitions) },
    { title: "Lag", kind: "number", cell: (one) => count(one.lag) },
  ], answer.groups, "No group has committed an offset of this topic.")));
}

export async function topicView(parts, query) {
  const topicName = parts[1];
  const topic = await get(`topics/${name(topicName)}`);
  const chosen = TABS[query.get("tab")] ? query.get("tab") : "records";
  const tabs = h("nav", { class: "tabs", "aria-label": "Parts of the topic" }, Object.entries(TABS)
    .filter(([id]) => id !== "produce" || !status.read_only)
    .map(([id, title]) => h("a", { href: `#/topics/${name(topicName)}${id === "records" ? "" : `?tab=${id}`}`, "aria-current": id === chosen ? "page" : null }, title)));
  const known = topic.partitions.every((one) => one.end !== null);
  const policy = topic.configs?.find((one) => one.name === "cleanup.policy")?.value;
  const about = facts([
    ["partitions", count(topic.partitions.length)],
    ["records", known ? count(topic.partitions.reduce((sum, one) => sum + one.end - one.start, 0)) : "–"],
    ["size", size(topic.partitions.some((one) => one.bytes === null) ? null : topic.partitions.reduce((sum, one) => sum + one.bytes, 0))],
    ...(policy ? [["cleanup", policy]] : []),
  ]);
  const content = {
    records: () => recordsTab(topic, query),
    live: () => liveTab(topic, query),
    partitions: () => ({ node: partitionsTab(topic) }),
    groups: () => groupsTab(topic),
    config: () => ({ node: configTable(topic.configs) }),
    produce: () => produceTab(topic),
  };
  const tab = await content[chosen]();
  const title = h("h1", null, topicName, topic.internal ? [" ", badge("internal")] : null);
  return {
    title: topicName,
    node: h("section", null, h("p", { class: "muted crumbs" }, h("a", { href: "#/topics" }, "Topics"), " /"), title, about, notes(topic.notes), tabs, tab.node),
    refresh: tab.refresh,
    close: tab.close,
  };
}
