// The records of a port: by time, by sequence, by contents, or around a loss. What is missing stands
// between them.

import { $, count, make, moment, plural, tableRoles, text, time, timeText, zone } from "./format.js";
import { decode, dump, line, wanted } from "./bytes.js";
import { amountOf, loadLosses, lossTable, meaning, places } from "./losses.js";
import { proofs } from "./ports.js";
import { key, makeWalk } from "./walk.js";

const around = 25; // records shown on each side of a loss at first

let walk = null, shown = [], query = {}, infos = [], status = null;
let known = []; // what the port has lost, by its list

// openRecords shows what the address asks for.
export async function openRecords(parameters, s, ports) {
  status = s;
  infos = ports;
  query = Object.fromEntries(parameters);
  fillForm();
  query.order ??= asksFor(query) ? "oldest" : "newest";
  port();
  const mine = walk = makeWalk(query);
  shown = [];
  for (const side of sides) $(`records-${side}`).hidden = true;
  $("records-list").replaceChildren();
  await step(mine, () => mine.begin(around));
  if (mine === walk && query.around) document.querySelector("#records-list .here")?.scrollIntoView({ block: "center" });
}

const sides = ["older", "newer"];

// step has the walk go on, and shows what it has then.
async function step(mine, go) {
  text($("records-state"), "looking…");
  try {
    await go();
    if (mine !== walk) return;
    shown = mine.records;
    draw();
    text($("records-state"), found());
  } catch (e) {
    if (mine === walk) text($("records-state"), `The records cannot be shown: ${e.message}.`);
  }
  if (mine !== walk) return;
  $("records-older").hidden = !mine.begun || mine.ended.older;
  $("records-newer").hidden = !mine.begun || !shown.length && mine.ended.newer;
  text($("records-newer"), mine.ended.newer ? "Look for newer records" : "Newer records");
}

// further asks for more records of a side. What is looked at stays where it is.
function further(side) {
  const mine = walk, below = document.documentElement.scrollHeight - scrollY;
  if (!mine || mine.busy) return;
  mine.busy = true;
  step(mine, () => mine.more(side)).finally(() => {
    mine.busy = false;
    if (mine === walk && side === "older") scrollTo(0, document.documentElement.scrollHeight - below);
  });
}

// found says what is shown, and how far was looked.
function found() {
  if (shown.length && query.order === "newest" && !asksFor(query) && !walk.ended.older && !walk.looked.newer) return `the newest ${plural(shown.length, "record")}`;
  const parts = [shown.length ? `${plural(shown.length, "record")}${query.around ? ` around ${query.cause ? "the loss" : "that time"}` : ""}` : "No record was found"];
  if (walk.gone) parts.push(`${plural(walk.gone, "record")} asked for are not in the log any more`);
  if (walk.ended.older) parts.push("the log begins here");
  else if (walk.looked.older) parts.push(`looked back as far as record ${count(walk.looked.older)}`);
  if (walk.ended.newer) parts.push("the log ends here");
  else if (walk.looked.newer) parts.push(`looked at as far as record ${count(walk.looked.newer)}`);
  return parts.join("; ");
}

function fillForm() {
  const form = $("records-form"), source = form.elements.source;
  const ids = [...new Set([...status.sheet.ports.map((p) => p.id), ...(query.source ? [query.source] : [])])];
  source.replaceChildren(make("option", "", "all ports"), ...ids.map((id) => make("option", "", id)));
  source.options[0].value = "";
  source.value = query.source ?? "";
  for (const name of ["from", "to", "seq", "contains"]) form.elements[name].value = query[name] ?? "";
  if (query.around) form.elements.from.value = timeText(new Date(Date.parse(query.around) - 1000).toISOString(), 3);
  form.elements.order.value = query.order ?? "oldest";
  form.elements.quarantine.checked = query.quarantine === "true";
  form.elements.as.value = query.as ?? (infoOf(query.source)?.frame === "line" ? "text" : "hex");
  for (const e of document.querySelectorAll("#records-form .zone")) text(e, ` (${zone()})`);
}

// asksFor reports whether a query names a place, or what to look for: else the newest are shown.
const asksFor = (q) => ["from", "to", "seq", "contains"].some((name) => q[name]);

const infoOf = (source) => infos.find((i) => i.id === source || source?.startsWith(`${i.id}/`));

// port shows what the port is, and what it has lost.
async function port() {
  const card = $("port"), account = status.sheet.ports.find((p) => p.id === query.source), info = infoOf(query.source);
  card.hidden = !query.source;
  text($("port-name"), query.source ?? "");
  $("port-loss").hidden = !query.cause;
  if (query.cause) {
    text($("port-loss-what"), `${query.much} ${query.cause}, ${places[query.where] ?? ""}`);
    $("port-loss-when").replaceChildren(...(query.first ? ["first at ", placeOf(query.first), ", last at ", placeOf(query.last)] : [time(query.around, 3)]));
    text($("port-loss-why"), meaning(query.cause));
  }
  const facts = [["State", account?.why ? `${account.state}: ${account.why}` : account?.state], ["Framing", info?.frame], ["Proves", proofs[account?.proof]], [info?.kind ?? "Address", info?.address], ["Device", info?.device], ...Object.entries(info?.settings || {})];
  $("port-facts").replaceChildren(...facts.filter(([, v]) => v).map(([k, v]) => make("div", "", make("dt", "", k), make("dd", "", v))));
  const said = status.reasons.filter((r) => r.source === query.source);
  text($("port-reasons"), said.length ? `Of it is said: ${said.map((r) => r.text).join("; ")}.` : "");
  $("port-losses").replaceChildren();
  known = [];
  if (!query.source) return;
  const source = query.source;
  const { losses } = await loadLosses(status, source, 512).catch(() => ({ losses: [] }));
  if (source !== query.source) return;
  known = losses.filter((l) => /^(never seen|seen corrupt)/.test(l.cause));
  if (query.around && known.some((l) => l.cause !== query.cause)) draw();
  $("port-losses").replaceChildren(losses.length ? make("div", "scroll", lossTable(losses.slice(0, 6), `The last losses of ${source}`, losses.some((l) => l.source !== source))) : make("p", "none", "Nothing was lost here, in this start or in earlier ones."));
}

// placeOf is a moment of a loss that lasted: it leads to the records around it, where they are not
// shown.
function placeOf(at) {
  if (at === query.around) return time(at, 3);
  const link = make("a", "", time(at, 3));
  link.href = `#/records?${new URLSearchParams({ ...query, around: at })}`;
  return link;
}

// causesAt is what was lost by its numbers in front of a record: the gap may have more than one cause.
function causesAt(r) {
  const since = key(r.time), until = key(new Date(Date.parse(r.time) + 1100).toISOString());
  return known.filter((l) => l.source === r.source && key(l.from) <= until && key(l.to) >= since);
}

// gaps finds the numbers that are missing between records of one device: by the record behind them.
function gaps(records) {
  const there = new Map(), last = new Map(), missing = new Map();
  const device = (r) => `${r.source} ${r.device} ${r.epoch}`;
  for (const r of records) {
    if (r.number === undefined) continue;
    if (!there.has(device(r))) there.set(device(r), new Set());
    there.get(device(r)).add(r.number);
  }
  for (const r of records) {
    if (r.number === undefined) continue;
    const before = last.get(device(r));
    const one = typeof r.number === "bigint" ? 1n : 1;
    if (before !== undefined && r.number > before + one) {
      const ranges = [];
      for (let n = before + one, seen = there.get(device(r)); n < r.number && ranges.length < 20; n++) {
        if (seen.has(n)) continue;
        if (ranges.at(-1)?.[1] === n - one) ranges.at(-1)[1] = n;
        else ranges.push([n, n]);
        if (r.number - n > 1e5) { ranges.at(-1)[1] = r.number - one; break; } // a jump: no single frame of it is here
      }
      if (ranges.length) missing.set(r, ranges);
    }
    last.set(device(r), before > r.number ? before : r.number);
  }
  return missing;
}

const rangeText = ([a, b]) => a === b ? count(a) : `${count(a)} to ${count(b)}`;

// draw makes the table of what was found.
function draw() {
  const asText = $("records-form").elements.as.value === "text", want = wanted(query.contains);
  if (!shown.length) { $("records-list").replaceChildren(); return; }
  const many = !query.source || shown.some((r) => r.source !== query.source), missing = query.contains ? new Map() : gaps(shown);
  const numbered = shown.some((r) => r.number !== undefined);
  const columns = ["Time", ...(many ? ["Port"] : []), "Sequence", ...(numbered ? ["Number"] : []), "Length", "Data"];
  const table = make("table", "list records");
  table.append(make("caption", "unseen", "Records"));
  const head = table.createTHead().insertRow();
  for (const name of columns) {
    const th = make("th", ["Sequence", "Number", "Length"].includes(name) ? "n" : "", name);
    th.scope = "col";
    head.append(th);
  }
  const body = table.createTBody(), here = lossRow(missing), between = outages();
  const note = (className, ...what) => {
    const td = make("td", "", ...what);
    td.colSpan = columns.length;
    body.append(make("tr", `note ${className}`, td));
  };
  for (const r of shown) {
    while (between.length && key(between[0].from) < key(r.time)) outage(between.shift(), note);
    const ranges = missing.get(r);
    const causes = ranges ? causesAt(r) : [], all = new Set(r === here && query.cause ? [query.cause, ...causes.map((l) => l.cause)] : []);
    const why = [...all].map((cause) => make("p", "why", `${all.size > 1 ? `${cause}: ` : ""}${meaning(cause)}`));
    const lost = (ranges ?? []).reduce((n, [a, b]) => n + Number(b - a) + 1, 0), isAll = causes.reduce((n, l) => n + l.n, 0) === lost; // else they are of other gaps, too
    const each = causes.length > 1 ? ` (${causes.map((l) => `${isAll ? `${amountOf(l)} ` : ""}${l.cause}`).join(", ")})` : "";
    if (ranges) note(r === here ? "here" : "", `✕ missing: ${plural(lost, "frame")}, number ${ranges.map(rangeText).join(", ")}${each}`, ...why);
    else if (r === here) note("here", query.cause ? `✕ here: ${query.much} ${query.cause}` : "that time", ...why);
    body.append(row(r, many, numbered, asText, want));
  }
  for (const o of between) outage(o, note);
  $("records-list").replaceChildren(make("div", "scroll", tableRoles(table)));
}

const outage = (o, note) => note("", `✕ not read from `, time(o.from, 3), o.to ? " to " : " on", o.to ? time(o.to, 3) : "", `: ${o.cause}`);

// outages are those of the port in the time that is shown.
function outages() {
  const first = key(shown[0].time), last = key(shown.at(-1).time);
  return status.sheet.ports.filter((p) => p.id === query.source).flatMap((p) => p.outages || []).filter((o) => o.from && key(o.from) >= first && key(o.from) <= last);
}

// lossRow is the record behind the loss that was asked for: behind the gap of that moment, or the
// first one from then on.
function lossRow(missing) {
  if (!query.around) return null;
  const until = key(query.around), since = key(new Date(Date.parse(query.around) - 1100).toISOString());
  const behind = [...missing.keys()].filter((r) => key(r.time) <= until && key(r.time) >= since);
  return behind.at(-1) ?? shown.find((r) => key(r.time) >= until) ?? null;
}

function row(r, many, numbered, asText, want) {
  const tr = make("tr"), data = decode(r.data), when = make("th", "", time(r.time, 6));
  when.scope = "row";
  tr.append(when);
  if (many) tr.append(make("td", "", r.source));
  const cell = (name, words) => {
    const label = make("span", "label", `${name} `);
    label.setAttribute("aria-hidden", "true"); // the head of the column says it
    tr.append(make("td", "n", label, words));
  };
  cell("record", count(r.seq));
  if (numbered) cell("number", r.number === undefined ? "–" : count(r.number));
  tr.append(make("td", "n", plural(r.len, "byte")));
  const all = make("details", "", make("summary", "", line(data, asText, want)));
  all.addEventListener("toggle", () => {
    if (all.childElementCount > 1) return;
    const pre = make("pre", "", dump(data));
    pre.tabIndex = 0;
    pre.setAttribute("aria-label", `all bytes of record ${r.seq}`);
    all.append(pre);
  });
  tr.append(make("td", "data", all));
  return tr;
}

// makeRecords listens to the form: what it asks for goes into the address, so that it can be kept.
export function makeRecords() {
  const form = $("records-form");
  for (const name of ["from", "to"]) {
    form.elements[name].addEventListener("input", (e) => {
      const wrong = e.target.value && !moment(e.target.value);
      e.target.setCustomValidity(wrong ? "want a time as 11:03:02.5, or 2026-11-20 11:03:02 +01:00" : "");
    });
  }
  form.addEventListener("submit", (e) => {
    e.preventDefault();
    const q = new URLSearchParams();
    for (const name of ["source", "from", "to", "seq", "contains"]) if (form.elements[name].value) q.set(name, form.elements[name].value);
    if (form.elements.quarantine.checked) q.set("quarantine", "true");
    q.set("order", form.elements.order.value);
    q.set("as", form.elements.as.value);
    const hash = `#/records?${q}`;
    if (location.hash === hash) dispatchEvent(new HashChangeEvent("hashchange"));
    else location.hash = hash;
  });
  for (const radio of form.elements.as) radio.addEventListener("change", draw);
  for (const side of sides) $(`records-${side}`).onclick = () => further(side);
}
