// Keeps the page fresh: the daemon says that something changed, the page is asked for again, and its parts are
// exchanged. Nothing here is needed for reading. Whatever comes was escaped by the server.
"use strict";

const topics = (document.body.dataset.live || "").split(" ").filter(Boolean);
const stale = document.getElementById("stale");
let isBusy = false;
let isBehind = false;

function isInUse(part) {
  const active = document.activeElement;
  const typing = active && part.contains(active) && active.matches("input, button, select, textarea");
  const selection = document.getSelection();
  return typing || (selection && !selection.isCollapsed && part.contains(selection.anchorNode));
}

function exchange(old, fresh) {
  if (isInUse(old) || old.innerHTML === fresh.innerHTML) return;
  const open = [...old.querySelectorAll("details[open][id]")].map((details) => details.id);
  old.replaceChildren(...document.adoptNode(fresh).childNodes);
  for (const id of open) document.getElementById(id)?.setAttribute("open", "");
}

async function refresh() {
  if (isBusy || document.hidden) {
    isBehind = true;
    return;
  }
  isBusy = true;
  isBehind = false;
  try {
    const answer = await fetch(location.href, { headers: { "X-Live": "1" }, credentials: "same-origin" });
    if (answer.redirected) return location.reload();
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const old of document.querySelectorAll("[data-part][id]")) {
      const part = fresh.getElementById(old.id);
      if (part) exchange(old, part);
    }
  } catch {
    isBehind = true;
  } finally {
    isBusy = false;
  }
}

if (topics.length && window.EventSource) {
  const source = new EventSource("/live");
  let wasLost = false;
  source.addEventListener("change", (event) => {
    if (event.data.split(" ").some((topic) => topics.includes(topic))) refresh();
  });
  source.addEventListener("open", () => {
    stale.hidden = true;
    if (wasLost) refresh();
    wasLost = false;
  });
  source.addEventListener("error", () => {
    stale.hidden = false;
    wasLost = true;
  });
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && isBehind) refresh();
  });
  setInterval(() => {
    if (isBehind) refresh();
  }, 10000);
}
