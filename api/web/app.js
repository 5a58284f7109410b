// The page: one status a second from the recorder, drawn as it is. Nothing is decided here that the
// API does not say. This file ties the parts together and knows which view is shown.

import { $, bytes, count, micros, none, text } from "./format.js";
import { makeAck, showAck } from "./ack.js";
import { connect } from "./link.js";
import { makeCharts, worst } from "./charts.js";
import { showDamage } from "./damage.js";
import { showForward } from "./forward.js";
import { makeLosses } from "./losses.js";
import { makePorts } from "./ports.js";
import { makeRecords, openRecords } from "./records.js";
import { showStarts } from "./starts.js";
import { showHeard, showLink, showVerdict } from "./verdict.js";

const charts = makeCharts(), ports = makePorts(), losses = makeLosses(16);
let since = "", sources = "", infos = [], newest = null, view = "";

// show draws a status.
function show(s) {
  showVerdict(s);
  showAck(s);
  showDamage(s.sheet.log_damage);
  showForward(s.sheet.forward);
  ports.show(s);
  losses(s);
  tiles(s.sample);
  newest = s;
  const ids = s.sheet.ports.map((p) => p.id).join("|");
  if (since !== s.sheet.since || sources !== ids) {
    since = s.sheet.since;
    sources = ids;
    describe().then(() => view || route());
  }
}

// describe asks what the sources are, when there are others.
async function describe() {
  const answer = await fetch("api/v1/ports", { cache: "no-store" }).catch(() => null);
  if (answer?.ok) ports.infos(infos = (await answer.json()).ports);
}

// route shows the view that the address names: #/, #/records?… or #/starts.
function route() {
  if (!newest) return; // the first status comes back to this
  const [path, parameters] = location.hash.replace(/^#\/?/, "").split("?");
  const was = view;
  view = ["records", "starts"].includes(path) ? path : "overview";
  document.body.dataset.view = view;
  for (const name of ["overview", "records", "starts"]) $(`view-${name}`).hidden = name !== view;
  for (const a of document.querySelectorAll("nav a")) {
    if (a.dataset.view === view) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  if (view === "overview") charts.draw();
  if (view === "starts") showStarts();
  if (view === "records") openRecords(new URLSearchParams(parameters), newest, infos);
  if (was && was !== view) { scrollTo(0, 0); $(`view-${view}`).querySelector("h2:not(.unseen)")?.focus(); }
}

function tiles(sample) {
  const log = sample.log, latency = worst(sample, "p99_us");
  text($("stored"), log ? count(log.stored) : none);
  if (!log || !sample.at_ms) return;
  text($("lag"), log.error || (log.full ? "the disk is full" : log.stalled ? `waits: ${log.stalled}` : `${count(log.stored - log.durable)} not durable yet`));
  text($("sync"), sample.sync.n ? micros(sample.sync.p99_us) : none);
  text($("sync-max"), sample.sync.n ? `max ${micros(sample.sync.max_us)}, ${sample.sync.n} a second` : "no sync in the last second");
  text($("latency"), latency === null ? none : micros(latency));
  text($("latency-of"), latency === null ? "nothing stored in the last second" : "read to stored, worst port");
  text($("disk"), log.disk_free_bytes < 0 ? none : bytes(log.disk_free_bytes));
  const hours = log.hours_until_full;
  text($("hours"), hours === null ? "it does not fill" : `full in ${hours >= 48 ? `${Math.round(hours / 24)} days` : `${hours.toFixed(1)} hours`}`);
}

makeRecords();
makeAck();
addEventListener("hashchange", route);
document.querySelector(".skip").addEventListener("click", (e) => { e.preventDefault(); $("content").focus(); });
const link = connect({
  history: (s) => { charts.reset(s.history); show(s); },
  status: (s) => { showHeard(s.sheet.at); show(s); charts.add(s.sample); },
  state: (c) => showLink(c, () => link.retry()),
});
