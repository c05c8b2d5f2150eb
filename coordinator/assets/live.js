// Keeps the page as it is now. Everything works without this: it only fetches the same page again and
// shows times in the reader's zone.
(() => {
  const mark = document.getElementById("live");
  const two = (n) => String(n).padStart(2, "0");
  const zone = new Intl.DateTimeFormat("en", { timeZoneName: "short" });

  function localTimes(root) {
    for (const el of root.querySelectorAll("time[datetime]")) {
      const at = new Date(el.dateTime);
      if (isNaN(at)) continue;
      el.title = el.dateTime;
      const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
      if (el.dataset.f === "clock") { el.textContent = clock; continue; }
      const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
      const name = zone.formatToParts(at).find((part) => part.type === "timeZoneName");
      el.textContent = `${day} ${clock} ${name ? name.value : ""}`.trim();
    }
  }

  let busy = false, again = false;
  async function refresh() {
    if (busy) { again = true; return; }
    // What a reader has selected or is reading in a closed tab is left alone.
    if (document.hidden || String(getSelection()) !== "") { again = true; return; }
    busy = true; again = false;
    try {
      const answer = await fetch(location.pathname + location.search, { headers: { accept: "text/html" } });
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
      const old = document.querySelector("main");
      if (fresh && old) {
        for (const one of old.querySelectorAll("details[id][open]")) {
          const same = fresh.querySelector("#" + CSS.escape(one.id));
          if (same) same.open = true;
        }
        const focused = document.activeElement && document.activeElement.id;
        localTimes(fresh);
        old.replaceWith(fresh);
        if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
      }
      say(answer.ok ? "live" : "the database is away");
    } catch { say("not live: no answer"); }
    busy = false;
  }

  function say(text) { if (mark && mark.textContent !== text) mark.textContent = text; }

  localTimes(document);
  if (!window.EventSource || !document.body.dataset.live) return;
  let lost = false;
  const events = new EventSource("/events");
  events.addEventListener("changed", refresh);
  events.onopen = () => { say("live"); if (lost) refresh(); lost = false; };
  events.onerror = () => { lost = true; say("not live: trying again"); };
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
  setInterval(() => { if (again) refresh(); }, 2000);
})();
