// Writing a record: key, value and headers as text, base64 or null.
import { name, post } from "/api.js";
import { error, h, select } from "/dom.js";
import { count } from "/format.js";
import { partitionInput } from "/records.js";

const KINDS = [["text", "text"], ["base64", "base64"], ["null", "null"]];

function entry(title, input, first) {
  const kind = select(title.toLowerCase(), KINDS, first, { "aria-label": `${title} is`, onchange: choose });
  function choose() { input.style.display = kind.value === "null" ? "none" : ""; }
  choose();
  return {
    node: h("div", { class: "field" }, h("div", { class: "head" }, title, kind), input),
    read: () => (kind.value === "null" ? null : { [kind.value]: kind.value === "base64" ? input.value.trim() : input.value }),
  };
}

export function produceTab(topic) {
  const key = entry("Key", h("input", { class: "text mono", "aria-label": "Key" }), "null");
  const value = entry("Value", h("textarea", { "aria-label": "Value", spellcheck: "false" }), "text");
  const partition = partitionInput(topic, "by the key", "");
  const headers = h("div");
  const answer = h("div", { role: "status" });
  const addHeader = () => {
    const row = h("div", { class: "headers-row" }, h("input", { placeholder: "name", "aria-label": "Name of the header" }),
      h("input", { placeholder: "value", "aria-label": "Value of the header" }),
      h("button", { type: "button", "aria-label": "Remove the header", onclick: () => row.remove() }, "×"));
    headers.append(row);
  };

  async function submit(event) {
    event.preventDefault();
    const button = event.submitter;
    button.disabled = true;
    const pairs = [...headers.children].map((row) => [...row.querySelectorAll("input")].map((one) => one.value)).filter(([title]) => title);
    try {
      const placed = await post(`topics/${name(topic.name)}/records`, {
        key: key.read(), value: value.read(), headers: pairs.map(([title, text]) => [title, { text }]),
        partition: partition.value ? Number(partition.value) : null,
      });
      const link = `#/topics/${name(topic.name)}?from=offset&offset=${placed.offset}&partition=${placed.partition}`;
      answer.replaceChildren(h("p", { class: "ok" }, "Written to ", h("a", { href: link }, `partition ${placed.partition}, offset ${count(placed.offset)}`)));
    } catch (problem) {
      answer.replaceChildren(error(problem.message));
    }
    button.disabled = false;
  }

  return { node: h("form", { class: "form", onsubmit: submit }, key.node, value.node,
    h("div", { class: "field" }, h("div", { class: "head" }, "Headers", h("button", { type: "button", onclick: addHeader }, "Add")), headers),
    h("div", { class: "bar" }, h("label", null, "Partition", partition), h("button", { class: "main" }, "Write the record")), answer) };
}
