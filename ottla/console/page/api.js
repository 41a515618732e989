// Requests to the console. The token belongs to this host and port: it is kept in localStorage, and sent by nothing else.

const TOKEN = "ottla-console-token";

export class Refused extends Error {
  constructor(status, line) { super(line); this.status = status; }
}

export const keepToken = (token) => localStorage.setItem(TOKEN, token);

const headers = (more) => ({ "X-Ottla-Token": localStorage.getItem(TOKEN) ?? "", ...more });

async function ask(path, options) {
  let response;
  try {
    response = await fetch(`/api/${path}`, { ...options, headers: headers(options?.headers) });
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw new Refused(0, "The console does not answer: does `ottla console` still run?");
  }
  if (response.ok) return response;
  const answer = await response.json().catch(() => ({}));
  throw new Refused(response.status, answer.error ?? `${response.status} ${response.statusText}`);
}

export const name = encodeURIComponent;

export const get = async (path, options) => (await ask(path, options)).json();

export async function post(path, content) {
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(content) };
  return (await ask(path, options)).json();
}

// Calls `each` with each line of a stream, until it ends or `signal` aborts it.
export async function lines(path, signal, each) {
  const reader = (await ask(path, { signal })).body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const whole = (rest + value).split("\n");
    rest = whole.pop();
    for (const line of whole) each(JSON.parse(line));
  }
}
