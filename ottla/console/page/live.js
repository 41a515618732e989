// The live tail: records as they are written, the newest at the top. While it is paused, records wait to be shown. If it
// ends, it begins again by itself, unless the next one would be refused, too.
import { lines, name } from "/api.js";
import { error, field, h } from "/dom.js";
import { count, plural } from "/format.js";
import { recordRow, recordTable } from "/record_table.js";
import { partitionToRead } from "/records.js";

const MOST_ROWS = 300;
const AGAIN_MS = 2000;

export async function liveTab(topic, query) {
  const partition = partitionToRead(topic, query);
  const search = h("input", { type: "search", name: "search", value: query.get("search") ?? "", placeholder: "text in key, value or headers" });
  const { node, body } = recordTable();
  const summary = h("p", { class: "muted", role: "status" }, "Connecting …");
  const pause = h("button", { type: "button", class: "main", "aria-pressed": "false", onclick: () => { isPaused = !isPaused; draw([]); } }, "Pause");
  let isPaused = false, waiting = [], seen = 0, skipped = 0, ending = null, isClosed = false, isRefused = false;

  function draw(records) {
    waiting = [...records].reverse().concat(waiting).slice(0, MOST_ROWS);
    seen += records.length;
    if (!isPaused && waiting.length) {
      body.prepend(...waiting.map((record) => recordRow(topic.name, record)));
      waiting = [];
      const rows = [...body.children];
      for (const row of rows.slice(MOST_ROWS)) row.remove();
    }
    pause.textContent = isPaused ? (waiting.length ? `Resume (${count(waiting.length)} new)` : "Resume") : "Pause";
    pause.setAttribute("aria-pressed", String(isPaused));
    if (isRefused) return;
    const left = skipped ? ` · ${count(skipped)} left out, they came faster than the page shows them` : "";
    summary.textContent = `${isPaused ? "Paused" : "Waiting for records"} · ${plural(seen, "record")} since this page was opened${left}`;
  }

  async function follow() {
    ending?.abort();
    isRefused = false;
    summary.textContent = "Connecting …";
    const mine = (ending = new AbortController());
    const wanted = new URLSearchParams();
    if (partition.value()) wanted.set("partition", partition.value());
    if (search.value) wanted.set("search", search.value);
    history.replaceState(null, "", `#/topics/${name(topic.name)}?tab=live${wanted.size ? `&${wanted}` : ""}`);
    while (!isClosed && ending === mine) {
      let problem = "the console has ended";
      try {
        await lines(`topics/${name(topic.name)}/tail?${wanted}`, mine.signal, (line) => {
          if (line.error) { problem = line.error; isRefused = line.final; return; }
          skipped += line.skipped;
          draw(line.records);
        });
      } catch (failure) {
        problem = failure.message;
        if (ending === mine) isRefused = failure.status >= 400 && failure.status < 500;
      }
      if (isClosed || ending !== mine) return;
      if (isRefused) {
        summary.replaceChildren(error(`${problem} – the live tail has ended; Apply begins it again`));
        return;
      }
      summary.textContent = `${problem} – trying again`;
      await new Promise((resume) => setTimeout(resume, AGAIN_MS));
    }
  }

  const submit = (event) => { event.preventDefault(); body.replaceChildren(); waiting = []; seen = skipped = 0; follow(); };
  partition.input.addEventListener("change", submit);
  const form = h("form", { class: "bar", onsubmit: submit },
    partition.node, field("Search", search, "grow"), h("button", null, "Apply"), pause);
  follow();
  return { node: h("div", null, form, summary, node), close: () => { isClosed = true; ending?.abort(); } };
}
