// A part of a view that is asked for again, and drawn again only if the answer is another one.
import { get } from "/api.js";

export async function refreshed(path, draw) {
  let before = null;
  const node = document.createElement("div");
  const refresh = async () => {
    const answer = await get(path);
    const text = JSON.stringify(answer);
    if (text !== before) { before = text; node.replaceChildren(draw(answer)); }
  };
  await refresh();
  return { node, refresh };
}
