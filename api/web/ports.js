// The ports: the worst first, what is lost before all else. A row is an account of the sheet.

import { $, bytes, count, make, micros, none, plural, tableRoles, text, timeText } from "./format.js";
import { hint } from "./tips.js";
import { levelMark } from "./verdict.js";

const sum = (by) => Object.values(by || {}).reduce((a, b) => a + (b || 0), 0);
const causes = (by) => Object.entries(by || {}).map(([k, n]) => `${k.replaceAll("_", " ")}: ${count(n)}`).join(", ");
const kernel = (p, ...names) => {
  const counted = names.map((n) => p.kernel?.[n]).filter((n) => n !== null && n !== undefined);
  return counted.length ? counted.reduce((a, b) => a + b, 0) : null;
};

// Each column: a name, what it means, its figure of an account (null: not known), whether a figure
// above zero hurts (2: lost or damaged, 1: look at it), and how it is written.
const columns = [
  { group: "Lost on the wire" },
  { name: "Never seen", about: "Frames whose numbers never came: lost before this machine. A dash: its frames have no numbers, so nobody can know.", of: (p) => p.proof === "numbered" ? p.frames.missing_unseen : null, hurts: 2 },
  { name: "Damaged", about: "Frames that came and failed their check, so that what they held is lost.", of: (p) => p.proof === "counted" ? null : Math.max(p.frames.corrupt, p.frames.missing_corrupt), hurts: 2 },
  { name: "By time", about: "Frames that were not there when one was expected, by the rhythm that the configuration names (expect). A dash: none is missing so.", of: (p) => p.frames.missing_by_time || null, hurts: 2 },
  { name: "Unanswered", about: "Requests that another request followed, or nothing for 5 s, and no answer: a device did not hear it or is off, or its answer was lost. A dash: no request was heard, or its framing has none.", of: (p) => p.frames.requests ? p.frames.unanswered : null, hurts: 2, more: (p) => `${count(p.frames.answered)} of ${plural(p.frames.requests, "request")} answered` },
  { name: "Outages", about: "Times the port could not be read. What the device sent meanwhile is lost, and never seen.", of: (p) => p.outage_count, hurts: 1 },
  { group: "Lost by us" },
  { name: "Dropped", about: "Valid frames given up after they were read, because the log was full, failed or too slow.", of: (p) => sum(p.frames.dropped), hurts: 2, more: (p) => causes(p.frames.dropped) },
  { name: "Overrun", about: "Lost below the recorder: characters that the UART or the tty, datagrams that the socket had no room for. A dash: the driver does not count them.", of: (p) => kernel(p, "overrun", "buffer_overrun"), hurts: 2 },
  { name: "Unread", about: "Bytes that the kernel had taken from the sender and that nobody read.", of: (p) => unread(p), hurts: 2, more: (p) => causes(p.unread), show: bytes },
  { group: "Look at" },
  { name: "No frame", about: "Bytes that belong to no valid frame: noise, cut or damaged frames (resync).", of: (p) => p.bytes.resync, hurts: 1, show: bytes },
  { name: "Line errors", about: "Characters with a wrong parity or without a stop bit, and breaks. A dash: the driver does not count them.", of: (p) => kernel(p, "framing", "parity", "break"), hurts: 1 },
  { name: "Twice", about: "Frames whose number had come before (duplicate). They are recorded, too.", of: (p) => p.frames.duplicate },
  { name: "Late", about: "Frames that came after one with a higher number (reordered). Nothing is lost by it.", of: (p) => p.frames.reordered },
  { group: "Recorded" },
  { name: "Stored", about: "Frames in the log, visible to its readers.", of: (p) => p.frames.stored },
  { name: "In flight", about: "Valid frames that are held and not in the log yet.", of: (p) => p.frames.in_flight },
  { name: "Rate", about: "Bytes a second, of the last second.", of: (p, s) => s?.bytes_per_s ?? null, show: (n) => `${bytes(n)}/s` },
  { name: "Latency", about: "From read to stored, 99 of 100 frames of the last second. A dash: none was stored in it.", of: (p, s) => s?.latency.n ? s.latency.p99_us : null, show: micros },
];
const figures = columns.filter((c) => c.name);
const idOf = (c) => `about-${c.name.toLowerCase().replaceAll(" ", "-")}`;

export const proofs = { numbered: "Its frames have numbers: a frame that never arrives is missed.", checked: "Its frames have a check: damage is seen, absence is not.", counted: "Its frames are counted: neither damage nor absence shows." };

// makePorts builds the table; the returned function shows a status in it.
export function makePorts() {
  head();
  const rows = new Map();
  let infos = new Map(), status = null;

  function show() {
    if (!status) return;
    const { sheet, sample } = status, levels = levelsOf(status);
    const samples = new Map((sample.ports || []).map((p) => [p.id, p]));
    const filter = $("find-port").value.trim().toLowerCase();
    for (const p of sheet.ports) {
      if (!rows.has(p.id)) rows.set(p.id, makeRow(p.id));
      fill(rows.get(p.id), p, samples.get(p.id), levels.get(p.id), infos.get(p.id));
      rows.get(p.id).row.hidden = Boolean(filter) && !p.id.toLowerCase().includes(filter);
    }
    const there = new Set(sheet.ports.map((p) => p.id));
    for (const [id, r] of rows) if (!there.has(id)) { r.row.remove(); rows.delete(id); }
    order(sheet.ports, levels, status.reasons);
    $("ports").hidden = $("charts").hidden = sheet.ports.length === 0;
    $("no-ports").hidden = sheet.ports.length > 0;
    const worse = [...levels.values()].filter((l) => l !== "good").length;
    text($("ports-count"), `${plural(sheet.ports.length, "port")}, ${worse ? `${count(worse)} with something to look at` : "nothing to look at"}${sheet.ports.length > 1 ? "; the worst first" : ""}`);
    $("find").hidden = sheet.ports.length < 9;
  }

  // order puts the worst first, but never moves rows under a pointer or a focus.
  function order(ports, levels, reasons) {
    const body = $("rows");
    if (body.childElementCount === ports.length && (body.matches(":hover") || body.contains(document.activeElement))) return;
    const found = (id) => reasons.filter((r) => r.source === id && r.kind !== "unknown").length; // that it cannot know is no news
    const key = new Map(ports.map((p) => [p.id, [rank[levels.get(p.id)], lost(p), found(p.id)]]));
    const sorted = [...ports].sort((a, b) => {
      const [al, an, af] = key.get(a.id), [bl, bn, bf] = key.get(b.id);
      return bl - al || bn - an || bf - af || a.id.localeCompare(b.id, "en", { numeric: true });
    });
    sorted.forEach((p, i) => {
      const row = rows.get(p.id).row;
      if (body.children[i] !== row) body.insertBefore(row, body.children[i] ?? null);
    });
  }

  $("find-port").addEventListener("input", show);
  return { show: (s) => { status = s; show(); }, infos: (list) => { infos = new Map(list.map((i) => [i.id, i])); show(); } };
}

const rank = { good: 0, watch: 1, bad: 2 };
// unread is without what a killed reader may have taken, or not.
const unread = (p) => sum(p.unread) - (p.unread.reader_killed ?? 0);
const lost = (p) => p.frames.missing_unseen + p.frames.missing_by_time + p.frames.unanswered + Math.max(p.frames.missing_corrupt, p.frames.corrupt) + sum(p.frames.dropped) + unread(p) + (kernel(p, "overrun", "buffer_overrun") ?? 0);

// news is an account without what of it was acknowledged.
function news(p) {
  if (!p.known) return p;
  const less = (of, known) => Object.fromEntries(Object.entries(of || {}).map(([k, n]) => [k, typeof n === "number" ? n - Math.min(n, known?.[k] ?? 0) : n]));
  const k = p.known;
  return { ...p, frames: { ...less(p.frames, k), dropped: less(p.frames.dropped, k.dropped) }, bytes: less(p.bytes, k), unread: less(p.unread, k.unread), kernel: p.kernel && less(p.kernel, k.kernel) };
}

// levelsOf is the level of each port: the worst of the reasons that the verdict names for it.
function levelsOf({ sheet, reasons }) {
  const levels = new Map(sheet.ports.map((p) => [p.id, "good"]));
  for (const r of reasons) if (levels.has(r.source) && rank[r.level] > rank[levels.get(r.source)]) levels.set(r.source, r.level);
  return levels;
}

function head() {
  const groups = $("groups"), names = $("names"), glossary = $("glossary");
  for (const c of columns) {
    if (c.group) {
      const cell = make("th", "group", c.group);
      cell.scope = "colgroup";
      const inside = columns.slice(columns.indexOf(c) + 1), end = inside.findIndex((x) => x.group);
      cell.colSpan = end < 0 ? inside.length : end;
      groups.append(cell);
      continue;
    }
    const th = make("th", "n", hint(c.name, idOf(c)));
    th.scope = "col";
    if (c === figures[0] || columns[columns.indexOf(c) - 1].group) th.classList.add("first");
    names.append(th);
    const dd = make("dd", "", c.about);
    dd.id = idOf(c);
    glossary.append(make("div", "", make("dt", "", c.name), dd));
  }
  tableRoles(groups.closest("table"));
}

function makeRow(id) {
  const row = make("tr"), link = make("a", "", id), name = make("th", "port");
  row.dataset.port = id;
  link.href = `#/records?source=${encodeURIComponent(id)}`;
  name.scope = "row";
  const mark = make("span", "mark"), what = make("small");
  name.append(mark, link, what);
  const state = make("span", "state");
  row.append(name, make("td", "state-cell", state));
  const cells = figures.map((c, i) => {
    const td = make("td", "n"), label = make("span", "label", c.name), value = make("span", "value");
    label.setAttribute("aria-hidden", "true"); // the head of the column says it
    if (columns[columns.indexOf(c) - 1].group) td.classList.add("first");
    if (!c.hurts && c.name !== "Rate" && c.name !== "Stored") td.classList.add("extra");
    td.append(label, value);
    row.append(td);
    return { td, value, c, base: td.className };
  });
  tableRoles(row);
  return { row, mark, what, state, cells, level: "" };
}

function fill(r, p, sample, level, info) {
  if (r.level !== level) {
    r.level = level;
    r.row.dataset.level = level;
    r.mark.replaceChildren(levelMark(level));
  }
  const fresh = news(p), silent = p.state === "open" && p.silent_since;
  text(r.what, `${info ? ` ${info.frame}` : ""}${figures.some((c) => c.hurts === 2 && c.of(p) && c.of(p) !== c.of(fresh)) ? " · acknowledged" : ""}`);
  r.what.title = [info && `${info.kind} ${info.address}`, info?.device, proofs[p.proof]].filter(Boolean).join("\n");
  const state = silent ? "silent" : p.state, why = silent ? `open, and no frame since ${timeText(p.silent_since)}` : p.why;
  text(r.state, state);
  if (r.state.title !== why) r.state.title = why;
  r.state.className = `state ${state}`;
  for (const { td, value, c, base } of r.cells) {
    const n = c.of(p, sample);
    text(value, n === null ? none : (c.show ?? count)(n));
    const left = c.hurts ? c.of(fresh, sample) : n; // what was not acknowledged
    const className = `${base}${left ? c.hurts === 2 ? " hurt" : c.hurts ? " look" : "" : n ? " known" : " zero"}`;
    if (td.className !== className) td.className = className;
    const more = [n && c.more ? c.more(p) : "", n && left !== n ? left ? `${(c.show ?? count)(left)} of it since the acknowledgement` : "all of it is acknowledged" : ""].filter(Boolean).join("; ");
    if (td.title !== more) td.title = more;
  }
}
