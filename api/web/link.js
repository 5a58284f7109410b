// The connection to the recorder. It opens itself again after whatever ended it: an answer of a
// proxy, a restart, a laptop that slept, a silence. Nothing here draws.
//
// A try asks for the status first, which brings the history and, where it fails, the reason; then it
// opens the event stream. It is live from the first event on: a proxy may answer the one and cut the
// other. opening is the request in progress, events the stream that is open; at most one of both is.

const wait = [1000, 2000, 4000, 8000, 15000]; // before the next try, in ms; the last one again and again
const silence = 6000; // ms without a status, of which there is one a second, until the connection counts as lost

// connect follows the recorder for ever. on.history gets the first answer of each connection,
// on.status each status, on.state {live, since, why, next}: since is when the last status came, next
// when it is tried again, both in ms since 1970.
export function connect(on) {
  let events = null, timer = 0, tries = 0, last = Date.now(), live = false, opening = null;

  const tell = (why, next) => on.state({ live, since: last, why, next });

  async function open() {
    shut();
    const mine = opening = new AbortController();
    const limit = setTimeout(() => mine.abort(), silence);
    let first;
    try {
      const answer = await fetch("api/v1/status", { cache: "no-store", signal: mine.signal });
      if (!answer.ok) return lost(why(answer.status));
      first = await answer.json();
    } catch {
      if (mine === opening) lost("it does not answer");
      return;
    } finally {
      clearTimeout(limit);
    }
    if (mine !== opening) return;
    opening = null;
    follow();
    on.history(first); // last: what fails there is told by the console, and keeps nobody from following
  }

  function follow() {
    const mine = events = new EventSource("api/v1/events");
    mine.addEventListener("status", (e) => {
      if (mine !== events) return;
      heard();
      on.status(JSON.parse(e.data));
    });
    // The browser gives up for good after any answer but 200, so it is never left to it.
    mine.onerror = () => { if (mine === events) lost("the connection was cut"); };
    timer = setTimeout(() => lost("nothing was heard"), silence);
  }

  function heard() {
    last = Date.now();
    tries = 0;
    if (!live) { live = true; tell("", 0); }
    clearTimeout(timer);
    timer = setTimeout(() => lost("nothing was heard"), silence);
  }

  function lost(reason) {
    shut();
    live = false;
    const pause = wait[Math.min(tries++, wait.length - 1)] * (0.8 + 0.4 * Math.random()); // not all pages at once
    tell(reason, Date.now() + pause);
    timer = setTimeout(open, pause);
  }

  function shut() {
    clearTimeout(timer);
    opening?.abort();
    opening = null;
    events?.close();
    events = null;
  }

  // look is for moments at which timers may have slept, or waiting makes no sense any more.
  function look() {
    if (document.visibilityState === "hidden" || opening) return;
    if (!events || live && Date.now() - last > silence) { live = false; tries = 0; open(); }
  }
  for (const [target, name] of [[document, "visibilitychange"], [window, "online"], [window, "focus"], [window, "pageshow"]]) {
    target.addEventListener(name, look);
  }
  addEventListener("pagehide", shut);
  open();
  return { retry: () => { tries = 0; open(); } };
}

function why(code) {
  switch (code) {
    case 401: return "it wants the token: reload this page and give it as the password";
    case 403: return "it refuses this page's name: use the address that it printed at its start";
    case 502: case 503: case 504: return `a proxy answers ${code}: the recorder behind it is not there`;
  }
  return `it answers ${code}`;
}
