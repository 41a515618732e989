// Keys, values and headers of records: short in a cell, in full below a row.
import { get, name } from "/api.js";
import { badge, error, h } from "/dom.js";
import { base64, bytesOf, hex, hexDump, indentJson, plural, size } from "/format.js";

const IN_A_CELL = 300;
const HEX_IN_A_CELL = 16;

export function cell(shown, isValue = false) {
  if (shown === null) return badge("null", isValue ? "warn" : "");
  if (shown.bytes === 0) return badge("empty");
  if (shown.text !== undefined) return h("span", { class: "cell mono" }, shown.text.slice(0, IN_A_CELL));
  const more = shown.bytes > HEX_IN_A_CELL ? " …" : "";
  return h("span", { class: "cell mono" }, badge(plural(shown.bytes, "byte")), ` ${hex(bytesOf(shown), HEX_IN_A_CELL)}${more}`);
}

const FORMATS = {
  json: ["JSON", (shown) => indentJson(shown.text)],
  text: ["Text", (shown) => shown.text ?? new TextDecoder().decode(bytesOf(shown))],
  hex: ["Hex", (shown) => hexDump(bytesOf(shown))],
  base64: ["Base64", (shown) => base64(bytesOf(shown))],
};

export function fullValue(title, shown) {
  if (shown === null) return h("div", null, h("h3", null, title, badge("null"), title === "Value" ? "a tombstone, if the topic is compacted" : null));
  const isText = shown.text !== undefined;
  const ids = [...(shown.json ? ["json"] : []), "text", "hex", "base64"];
  const pre = h("pre", { tabindex: "0", "aria-label": title });
  const buttons = ids.map((id) => h("button", { type: "button", onclick: () => draw(id) }, FORMATS[id][0]));
  function draw(id) {
    buttons.forEach((button, at) => button.setAttribute("aria-pressed", String(ids[at] === id)));
    pre.classList.toggle("dump", id === "hex");
    pre.textContent = FORMATS[id][1](shown);
  }
  const copy = h("button", { type: "button", onclick: async () => {
    await navigator.clipboard.writeText(pre.textContent);
    copy.textContent = "Copied";
  } }, "Copy");
  draw(shown.json ? "json" : isText ? "text" : "hex");
  const length = `${size(shown.bytes)}${shown.cut ? ", of which this is the beginning" : ""}`;
  return h("div", null, h("h3", null, title, h("span", { class: "muted" }, length), buttons, copy), shown.bytes ? pre : badge("empty"));
}

const isCut = (record) => [record.key, record.value, ...record.headers.map(([, value]) => value)].some((one) => one?.cut);

export async function detail(topic, record) {
  let whole = record;
  if (isCut(record)) {
    try {
      whole = await get(`topics/${name(topic)}/records/${record.partition}/${record.offset}`);
    } catch (problem) {
      return h("div", null, error(problem.message), fullValue("Value", record.value));
    }
  }
  const link = `#/topics/${name(topic)}?from=offset&offset=${record.offset}&partition=${record.partition}`;
  return h("div", null,
    h("p", { class: "muted" }, `partition ${record.partition}, offset ${record.offset} · `, h("a", { href: link }, "link to this record")),
    fullValue("Key", whole.key), fullValue("Value", whole.value),
    whole.headers.map(([key, value]) => fullValue(`Header ${key}`, value)),
    whole.more_headers ? h("p", { class: "muted" }, `and ${plural(whole.more_headers, "header")} more`) : null);
}
