// Keeps the page as the run is. Parts come as HTML that the server escaped; a part is put in only when it changed.
// Tabs share one connection: a browser opens only six to one server, and each tab would hold one for good.
"use strict";
const name = `veilsum ${location.pathname}`;
const link = document.getElementById("link");

function show(parts) {
  for (const [id, html] of Object.entries(parts)) {
    const place = document.getElementById(id);
    if (place) place.innerHTML = html;
  }
}

function tell(text) {
  if (link && link.textContent !== text) link.textContent = text;
}

function follow(pass) {
  const events = new EventSource("events");
  events.addEventListener("parts", (event) => {
    const parts = JSON.parse(event.data);
    tell("This page follows the run.");
    show(parts);
    pass(parts);
  });
  events.onerror = () => tell(events.readyState === EventSource.CLOSED
    ? "This page does not follow the run any more: load it again."
    : "The page's server is not heard: veilsum page may have ended.");
}

if (window.BroadcastChannel && navigator.locks) {
  const channel = new BroadcastChannel(name);
  channel.onmessage = (event) => { tell("This page follows the run."); show(event.data); };
  navigator.locks.request(name, () => {
    follow((parts) => channel.postMessage(parts));
    return new Promise(() => {});
  });
} else {
  follow(() => {});
}
