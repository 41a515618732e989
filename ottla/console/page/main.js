// The page: which view an address shows, and whether a broker answers. A view is a function of the parts of the address
// and its query that returns {title, node, refresh?, close?}; `refresh` is called every few seconds.
import { get, keepToken } from "/api.js";
import { brokerView } from "/broker.js";
import { error, h } from "/dom.js";
import { groupView, groupsView } from "/groups.js";
import { topicView } from "/topic.js";
import { topicsView } from "/topics.js";

const POLL_MS = 4000;
const main = document.getElementById("main");
const banner = document.getElementById("banner");
const cluster = document.getElementById("cluster");
const views = document.getElementById("views");

let shown = null;
let turn = 0;
let shownPath = null;
let isFailed = false;
export let status = { read_only: false };

function viewOf(parts) {
  if (parts[0] === "groups") return parts[1] ? groupView : groupsView;
  if (parts[0] === "broker") return brokerView;
  return parts[0] === "topics" && parts[1] ? topicView : topicsView;
}

function address() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map((part) => {
    try { return decodeURIComponent(part); } catch { return part; }
  });
  return { parts: parts.length ? parts : ["topics"], query: new URLSearchParams(query ?? "") };
}

async function show() {
  const { parts, query } = address();
  const mine = ++turn;
  main.setAttribute("aria-busy", "true");
  for (const link of views.querySelectorAll("a")) {
    if (link.getAttribute("href") === `#/${parts[0]}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  let next;
  try {
    next = await viewOf(parts)(parts, query);
    isFailed = false;
  } catch (problem) {
    isFailed = ![400, 403, 404].includes(problem.status);  // those are refused again, too
    next = { title: "Ottla console", node: problem.status === 401 ? tokenForm(problem.message) : error(problem.message) };
  }
  if (mine !== turn) { next.close?.(); return; }
  shown?.close?.();
  shown = next;
  document.title = next.title === "Ottla console" ? next.title : `${next.title} – Ottla console`;
  main.replaceChildren(next.node);
  main.removeAttribute("aria-busy");
  if (shownPath !== parts.join("/")) scrollTo(0, 0);
  shownPath = parts.join("/");
}

function tokenForm(line) {
  const input = h("input", { class: "grow", name: "token", autocomplete: "off", required: true, "aria-label": "URL or token" });
  const enter = (event) => {
    event.preventDefault();
    keepToken(input.value.trim().replace(/^.*#token=/, ""));
    poll();
    show();
  };
  return h("section", null, h("h1", null, "Which console is this?"), h("p", null, line),
    h("form", { class: "bar", onsubmit: enter }, h("label", { class: "grow" }, "the URL, or its token", input), h("button", { class: "main" }, "Open")));
}

async function poll() {
  try {
    status = await get("status");
    cluster.replaceChildren(`${status.servers}${status.read_only ? " · read-only" : ""}`);
    cluster.title = `cluster ${status.cluster}, Ottla ${status.console}`;
    banner.hidden = true;
    main.classList.remove("stale");
    if (isFailed) await show();
    else await shown?.refresh?.();
  } catch (problem) {
    if (problem.status === 401) return;
    banner.textContent = `${problem.message} – trying again every ${POLL_MS / 1000} s`;
    banner.hidden = false;
    main.classList.add("stale");
  }
}

// Where an answer takes long, because there is much to ask for, it is asked for less often: a quarter of the time at most.
async function pollForever() {
  let pause = POLL_MS;
  for (;;) {
    await new Promise((resume) => setTimeout(resume, pause));
    if (document.hidden) continue;
    const began = performance.now();
    await poll();
    pause = banner.hidden ? Math.max(POLL_MS, 3 * (performance.now() - began)) : POLL_MS;
  }
}

function takeToken() {
  const found = /^#token=([A-Za-z0-9_-]+)(.*)$/.exec(location.hash);
  if (found) {
    keepToken(found[1]);
    history.replaceState(null, "", `/#${found[2] || "/topics"}`);
  }
}

addEventListener("hashchange", () => { takeToken(); show(); });
document.getElementById("skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
takeToken();
poll().then(show).then(pollForever);  // the status first: it says whether the page may write
