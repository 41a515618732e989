// How values are written: numbers, sizes, times, bytes, and JSON with line breaks. Pure.

export const count = (number) => (number === null || number === undefined ? "–" : number.toLocaleString("en"));

export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let value = bytes, unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return unit === 0 ? plural(bytes, "byte") : `${value.toFixed(1)} ${units[unit]}`;
}

const two = (number) => String(number).padStart(2, "0");

// Local time, in the order of ISO 8601, with milliseconds.
export function time(ms) {
  const date = new Date(ms);
  if (ms === null || Number.isNaN(date.getTime())) return ms === null ? "–" : String(ms);
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const clock = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  return `${day} ${clock}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

// JSON with line breaks. The text is not parsed and written again: that would round large numbers.
export function indentJson(text) {
  let out = "", depth = 0, inString = false;
  // Deeper is not indented: a record nested a thousand times would become a text of a gigabyte.
  const line = () => "\n" + "  ".repeat(Math.min(depth, 40));
  for (let at = 0; at < text.length; at += 1) {
    const one = text[at];
    if (inString) {
      out += one;
      if (one === "\\") { at += 1; out += text[at] ?? ""; }
      else if (one === '"') inString = false;
    } else if (one === '"') { inString = true; out += one; }
    else if (one === "{" || one === "[") {
      const rest = /^\s*[}\]]/.exec(text.slice(at + 1, at + 200));
      if (rest) { out += one + rest[0].trim(); at += rest[0].length; }
      else { depth += 1; out += one + line(); }
    } else if (one === "}" || one === "]") { depth -= 1; out += line() + one; }
    else if (one === ",") out += "," + line();
    else if (one === ":") out += ": ";
    else if (!/\s/.test(one)) out += one;
  }
  return out;
}

export function bytesOf(shown) {
  if (shown.text !== undefined) return new TextEncoder().encode(shown.text);
  return Uint8Array.from(atob(shown.base64), (one) => one.charCodeAt(0));
}

const hexOf = (byte) => byte.toString(16).padStart(2, "0");

export const hex = (bytes, most) => [...bytes.slice(0, most)].map(hexOf).join(" ");

// Offset, 16 bytes, and their ASCII characters, line by line.
export function hexDump(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const some = bytes.slice(at, at + 16);
    const ascii = [...some].map((one) => (one >= 32 && one < 127 ? String.fromCharCode(one) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex(some, 16).padEnd(47)}  ${ascii}`);
  }
  return lines.join("\n");
}

export function base64(bytes) {
  let text = "";
  for (const one of bytes) text += String.fromCharCode(one);
  return btoa(text);
}
