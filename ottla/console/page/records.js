// Pages of a topic's records. The choice is part of the address; "more" appends the next page.
import { get, name } from "/api.js";
import { error, field, h, select } from "/dom.js";
import { count, plural } from "/format.js";
import { recordRow, recordTable } from "/record_table.js";

const MOST_ROWS = 2000;
const BEGINNINGS = [["newest", "newest first"], ["beginning", "from the beginning"], ["offset", "from an offset"], ["time", "from a time"]];

// Which partition: a list, with `none` first; or a number where the list would have thousands of lines.
export function partitionInput(topic, none, chosen) {
  if (!topic.can_merge) return h("input", { type: "number", name: "partition", min: 0, max: topic.partitions.length - 1, value: chosen, placeholder: none });
  const options = [["", none], ...topic.partitions.map((one) => [String(one.partition), String(one.partition)])];
  return select("partition", options, chosen);
}

// The same for reading: where there are too many partitions to merge, it is one of them, at first partition 0.
export function partitionToRead(topic, query) {
  const input = partitionInput(topic, "all", query.get("partition") || (topic.can_merge ? "" : "0"));
  input.required = !topic.can_merge;
  const title = topic.can_merge ? "Partition" : `Partition, of ${count(topic.partitions.length)}`;
  return { node: field(title, input), input, value: () => input.value || (topic.can_merge ? "" : "0") };
}

// The value of an input of type datetime-local, which is local time without a zone.
function localTime(ms) {
  const date = new Date(Number(ms));
  return Number.isNaN(date.getTime()) ? "" : new Date(date - date.getTimezoneOffset() * 60000).toISOString().slice(0, 19);
}

export async function recordsTab(topic, query) {
  const base = `topics/${name(topic.name)}/records`;
  const from = select("from", BEGINNINGS, query.get("from") ?? "newest", { onchange: choose });
  const offset = h("input", { type: "number", name: "offset", min: 0, value: query.get("offset") ?? "0" });
  const at = h("input", { type: "datetime-local", step: 1, name: "time", value: query.get("time") ? localTime(query.get("time")) : localTime(Date.now() - 3600000) });
  const partition = partitionToRead(topic, query);
  const search = h("input", { type: "search", name: "search", value: query.get("search") ?? "", placeholder: "text in key, value or headers" });
  const committed = h("input", { type: "checkbox", name: "isolation" });
  committed.checked = query.get("isolation") === "read_committed";
  const offsetField = field("Offset", offset), timeField = field("Time (local)", at);

  function choose() {
    offsetField.hidden = from.value !== "offset";
    timeField.hidden = from.value !== "time";
    offsetField.style.display = offsetField.hidden ? "none" : "";
    timeField.style.display = timeField.hidden ? "none" : "";
  }

  function chosen() {
    const now = new URLSearchParams();
    if (from.value !== "newest") now.set("from", from.value);
    if (from.value === "offset") now.set("offset", offset.value || "0");
    if (from.value === "time") now.set("time", String(new Date(at.value).getTime() || 0));
    if (partition.value()) now.set("partition", partition.value());
    if (search.value) now.set("search", search.value);
    if (committed.checked) now.set("isolation", "read_committed");
    return now;
  }

  const { node, body } = recordTable();
  const summary = h("p", { class: "muted", role: "status" });
  const more = h("button", { type: "button", onclick: () => load(asked, true) });
  let asked = chosen(), places = "", scanned = 0, found = 0;

  async function load(fields, isMore) {
    const wanted = new URLSearchParams(fields);
    if (isMore) wanted.set("at", places);
    more.disabled = true;
    summary.replaceChildren("Reading …");
    let page;
    try {
      page = await get(`${base}?${wanted}`);
    } catch (problem) {
      more.disabled = false;
      more.hidden = !isMore;
      summary.replaceChildren(error(problem.message));
      return;
    }
    asked = fields;
    if (!isMore) { body.replaceChildren(); scanned = found = 0; }
    if (body.rows.length > MOST_ROWS) body.replaceChildren();
    body.append(...page.records.map((record) => recordRow(topic.name, record)));
    places = page.places;
    scanned += page.scanned;
    found += page.records.length;
    const isSearch = fields.has("search");
    const read = isSearch ? ` in ${plural(scanned, "record")} read` : "";
    const why = page.stopped === "time" ? " · stopped after 8 s" : "";
    const nothing = fields.has("partition") ? `: nothing is in partition ${count(Number(fields.get("partition")))}` : ": nothing is there";
    const rest = page.more ? "" : found ? " · no more" : isSearch ? "" : nothing;
    summary.replaceChildren(`${count(found)} ${isSearch ? "found" : found === 1 ? "record" : "records"}${read}${why}${rest}`);
    more.textContent = isSearch ? "Search on" : fields.get("from") ? "Later records" : "Older records";
    more.hidden = !page.more;
    more.disabled = false;
  }

  function submit(event) {
    event.preventDefault();
    const now = chosen();
    history.replaceState(null, "", `#/topics/${name(topic.name)}${now.size ? `?${now}` : ""}`);
    load(now, false);
  }

  choose();
  const form = h("form", { class: "bar", onsubmit: submit },
    field("Show", from), offsetField, timeField, partition.node, field("Search", search, "grow"),
    h("label", { class: "check", title: "Without records of open and aborted transactions" }, committed, "committed only"),
    h("button", { class: "main" }, "Show"));
  await load(asked, false);
  return { node: h("div", null, form, node, h("div", { class: "bar" }, more, summary)) };
}
