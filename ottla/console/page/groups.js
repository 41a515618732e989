// The list of groups; and a group: why it receives nothing, its lag, its members.
import { name } from "/api.js";
import { facts, h, notes, state, table } from "/dom.js";
import { count, plural } from "/format.js";
import { refreshed } from "/refreshed.js";

const MARKS = { cause: "Blocks the group", perhaps: "May block it", fine: "In order" };
const COMMITTED = { title: "Committed", kind: "number", cell: (one) => count(one.committed) };
const STARTS = { title: "Start offset", kind: "number", cell: (one) => count(one.start_offset) };

export async function groupsView() {
  const part = await refreshed("groups", (answer) => h("div", null, notes(answer.notes), table([
    { title: "Group", kind: "wrap", cell: (one) => h("a", { href: `#/groups/${name(one.group)}` }, one.group) },
    { title: "Type", cell: (one) => one.type || "–" },
    { title: "State", cell: (one) => state(one.state) },
    { title: "Assignor", kind: "optional", cell: (one) => one.assignor },
    { title: "Members", kind: "number", cell: (one) => count(one.members) },
  ], answer.groups, "There are no groups: no consumer has joined one, or committed an offset."),
  h("p", { class: "muted", role: "status" }, plural(answer.groups.length, "group"))));
  return { title: "Groups", node: h("section", null, h("h1", null, "Groups"), part.node), refresh: part.refresh };
}

const partitionName = ([topic, partition]) => `${topic}-${partition}`;

// topic-0, topic-1 and topic-2 as "topic 0–2".
export function byTopic(partitions) {
  const found = new Map();
  for (const [topic, partition] of partitions) found.set(topic, [...(found.get(topic) ?? []), partition]);
  return [...found].map(([topic, indexes]) => {
    const runs = [];
    for (const one of indexes.sort((a, b) => a - b)) {
      const last = runs.at(-1);
      if (last && last[1] === one - 1) last[1] = one; else runs.push([one, one]);
    }
    return `${topic} ${runs.map(([low, high]) => (low === high ? low : `${low}–${high}`)).join(", ")}`;
  }).join("; ");
}

function findings(list) {
  return h("ul", { class: "findings" }, list.map((one) => h("li", { class: one.weight },
    h("strong", null, `${MARKS[one.weight]}: `), one.text, one.remedy ? h("div", { class: "muted" }, one.remedy) : null)));
}

function members(group) {
  const isStreams = group.type === "streams";
  return table([
    { title: "Member", kind: "wrap", cell: (one) => h("span", { class: "mono" }, one.instance ?? one.member) },
    { title: "Client", cell: (one) => one.client },
    { title: "Host", kind: "optional", cell: (one) => one.host },
    { title: "Partitions", kind: "wrap", cell: (one) => byTopic(one.assignment) || "none" },
    ...(isStreams ? [
      { title: "Active tasks", cell: (one) => (one.active ?? []).join(" ") || "none" },
      { title: "Standby", kind: "optional", cell: (one) => (one.standby ?? []).join(" ") || "none" },
    ] : []),
  ], group.members, "It has no members.");
}

function partitions(group) {
  const isShare = group.type === "share";
  const owners = new Map(group.members.map((one) => [one.member, one.instance ?? one.member]));
  return table([
    { title: "Partition", kind: "wrap", cell: (one) => h("a", { href: `#/topics/${name(one.topic)}?partition=${one.partition}` }, partitionName([one.topic, one.partition])) },
    isShare ? STARTS : COMMITTED,
    { title: "End", kind: "number", cell: (one) => count(one.end) },
    { title: "Lag", kind: "number", cell: (one) => count(one.lag) },
    isShare ? { title: "Members", kind: "number", cell: (one) => count(one.members.length) }
      : { title: "Member", kind: "wrap optional", cell: (one) => (one.member ? h("span", { class: "mono" }, owners.get(one.member) ?? one.member) : "none") },
  ], group.partitions, "It has no partitions.");
}

function topology(group) {
  if (!group.topology?.subtopologies.length) return null;
  return [h("h2", null, "Topology"), table([
    { title: "Subtopology", cell: (one) => one.subtopology },
    { title: "Reads", kind: "wrap", cell: (one) => one.reads.join(", ") },
    { title: "Repartitions to", kind: "wrap", cell: (one) => one.repartitions_to.join(", ") || "–" },
    { title: "Changelogs", kind: "wrap", cell: (one) => one.changelogs.join(", ") || "–" },
  ], group.topology.subtopologies)];
}

export async function groupView(parts) {
  const group = parts[1];
  const draw = (answer) => {
    const known = answer.partitions.filter((one) => one.lag !== null);
    const unknown = answer.partitions.length - known.length;
    const lag = `${count(known.reduce((sum, one) => sum + one.lag, 0))}${unknown ? `, not known of ${plural(unknown, "partition")}` : ""}`;
    return h("div", null, facts([
      ["state", state(answer.state)], ["type", answer.type ?? "–"],
      ...(answer.assignor ? [["assignor", answer.assignor]] : []),
      ["members", count(answer.members.length)], ["lag", known.length ? lag : "–"],
      ...(answer.coordinator === undefined || answer.coordinator === null ? [] : [["coordinator", String(answer.coordinator)]]),
    ]), h("h2", null, "Diagnosis"), findings(answer.findings),
    h("h2", null, "Partitions"), partitions(answer), h("h2", null, "Members"), members(answer), topology(answer));
  };
  const part = await refreshed(`groups/${name(group)}`, draw);
  return { title: group, node: h("section", null, h("p", { class: "muted crumbs" }, h("a", { href: "#/groups" }, "Groups"), " /"), h("h1", null, group), part.node), refresh: part.refresh };
}
