// What was lost: a list, the newest first. Each entry leads to its port, and to the records around
// that time.

import { $, duration, make, plural, tableRoles, text, time, timeText } from "./format.js";

export const places = { wire: "on the wire", here: "by us", damaged: "on the wire, damaged" };

// causes says what a cause means, and what is to be done; the first that fits.
const causes = [
  [/^never seen/, "Numbers were skipped, and nothing came in their place: the device did not send those frames, or they were lost before they were read. Look at the cable, the adapter and the device, and whether the port was away, the recorder did not run or was killed, or the kernel ran over at that time."],
  [/^seen corrupt/, "Damaged bytes came in the place of those frames: noise, a wrong baud rate, or a cable that is too long."],
  [/^missing by time/, "No frame was there when one was expected, by the rhythm that the configuration names: the device sent none, or it was lost before this machine."],
  [/^unanswered/, "A request was followed by another one, or by nothing for 5 s, and by no answer: a device did not hear it or is off, or its answer was lost before this machine."],
  [/^damaged/, "Frames came and failed their check: noise, a wrong baud rate, or two devices that send at the same time."],
  [/^dropped: disk full/, "The frames were read and had no room on the disk. Make room, or bound the log with keep."],
  [/^dropped: log failed/, "The frames were read, and a write to the log failed. See to the disk: the journal names the error."],
  [/^dropped: log stalled/, "The frames were read, and the log could not write them before the recorder had stopped. The journal names the error."],
  [/^dropped: too large/, "The frames were larger than a record of the log can be: half a MiB, or an eighth of a segment where that is less."],
  [/^dropped: spill full/, "The frames were read, the log was slower than the line, and the file that they run over into had its size (spill.max), or its disk was full."],
  [/^dropped: spill slow/, "The frames were read, and the log and the file that they run over into were slower than the line. See to the disks, or give the source a larger buffer."],
  [/^dropped: spill failed/, "The frames were read, and the file that they run over into could not be written, or not be read back. The journal names the error."],
  [/^dropped: stopped/, "The frames were read, and the recorder stopped before the log had taken them: what had run over into a file was more than the log takes in ten seconds."],
  [/^dropped: overflow/, "The frames were read, and the log was slower than the line. With overflow: block they would wait."],
  [/^over-run below us/, "The UART, the tty or the socket had no room: the kernel got no turn in time, or the buffer is too small."],
  [/^unread/, "The kernel had taken these bytes, and they were thrown away before they were read."],
  [/^in no valid frame/, "Bytes come, and none of them is a frame: the framing or the baud rate is not that of the device."],
  [/^with line errors/, "Characters came with a wrong parity or without a stop bit: noise, or other settings than the device's."],
  [/^not read: the recorder was not running/, "The recorder did not run in that time. What the device sent meanwhile is lost, and shows as never seen where frames have numbers."],
  [/^not read/, "The port could not be read in that time. What the device sent meanwhile is lost, and shows as never seen where frames have numbers."],
  [/gone from the log|not synced/, "Records of an earlier start are not in the log any more: a power cut, a damaged disk, or a segment that was removed."],
];
export const meaning = (cause) => causes.find(([like]) => like.test(cause))?.[1] ?? "";

// loadLosses asks for what was lost in this start and in earlier ones, of one source or of all (""),
// and puts the outages of the status between.
export async function loadLosses({ sheet, ack }, source, limit) {
  const answer = await fetch(`api/v1/losses?limit=${limit}&source=${encodeURIComponent(source)}`, { cache: "no-store" });
  if (!answer.ok) throw new Error(`the recorder answers ${answer.status}`);
  const { losses, more } = await answer.json();
  const of = (p) => !source || p.id === source || p.id.startsWith(`${source}/`);
  const each = sheet.ports.filter(of).flatMap((p) => (p.outages || []).map((o) => ({ source: p.id, where: o.cause.startsWith("the recorder was not running") ? "here" : "wire", cause: `not read: ${o.cause}`, n: null, from: o.from, to: o.to, start: null })));
  const outages = source ? each : together(each);
  const at = (l) => Date.parse(l.to ?? sheet.at);
  const known = ack ? Date.parse(ack.at) : 0;
  const all = [...losses, ...outages].map((l) => ({ ...l, known: l.to !== null && at(l) <= known })).sort((a, b) => at(b) - at(a));
  return { losses: all.slice(0, limit), more: more + Math.max(0, all.length - limit) };
}

const fewOutages = 3; // of one cause in the same second are told one by one

// together makes one entry of the outages of many ports that ended in the same second, or have not
// ended, by one cause: after a restart they would hide what was lost before it. What is behind
// "; then" is of each port alone: why that device cannot be opened.
function together(outages) {
  const groups = new Map(), first = (o) => o.cause.split("; then")[0];
  for (const o of outages) {
    const key = `${o.to ? Math.floor(Date.parse(o.to) / 1000) : ""} ${first(o)}`;
    groups.set(key, [...(groups.get(key) ?? []), o]);
  }
  return [...groups.values()].flatMap((g) => {
    if (g.length <= fewOutages) return g;
    const from = g.map((o) => o.from).sort((a, b) => Date.parse(a) - Date.parse(b))[0];
    return [{ ...g[0], cause: first(g[0]), source: "", ports: new Set(g.map((o) => o.source)).size, from }];
  });
}

// amountOf says how much an entry is: 7 frames, or 104 frames within 58 s; of an outage, how long.
export function amountOf(l) {
  const long = l.to ? Date.parse(l.to) - Date.parse(l.from) : 0;
  if (l.n !== null) return `${plural(l.n, l.unit)}${long >= 1000 ? ` within ${duration(long)}` : ""}`;
  return l.to ? `for ${duration(long)}` : "still so";
}

// linkTo is where the records around an entry are.
export const linkTo = (l) => l.ports ? "#/" : l.source === "" || l.other_log ? "#/starts" : `#/records?${new URLSearchParams({ source: l.source, around: l.to ?? l.from, ...(l.to && l.from !== l.to ? { first: l.from, last: l.to } : {}), cause: l.cause, much: amountOf(l), where: l.where })}`;

// lossTable is a table of losses. The first cell is the link; the whole row follows it.
export function lossTable(losses, caption, withPort = true) {
  const table = make("table", "list losses");
  table.append(make("caption", "unseen", caption));
  const head = table.createTHead().insertRow();
  for (const name of ["When", ...(withPort ? ["Port"] : []), "How much", "Cause", "Where"]) {
    const th = make("th", name === "How much" ? "n" : "", name);
    th.scope = "col";
    head.append(th);
  }
  const body = table.createTBody();
  let start = null;
  for (const l of losses) {
    if (l.start !== start) body.append(startRow(l, head.cells.length));
    start = l.start;
    const row = body.insertRow(), link = make("a", "", time(l.to ?? l.from, 3));
    link.href = linkTo(l);
    if (l.n !== null) link.dataset.loss = l.where;
    const when = make("th", "", link);
    when.scope = "row";
    if (l.to && l.from !== l.to && l.n !== null) when.title = `from ${timeText(l.from, 3)} to ${timeText(l.to, 3)}`;
    row.append(when, ...(withPort ? [make("td", "of", l.ports ? plural(l.ports, "port") : l.source || "unknown")] : []), make("td", "n much", amountOf(l)), make("td", "cause", l.cause), make("td", "where", `${places[l.where]}${l.known ? ", acknowledged" : ""}`));
    if (l.known) row.classList.add("known");
    row.onclick = (e) => { if (!e.target.closest("a") && !String(getSelection())) location.hash = link.hash; };
  }
  return tableRoles(table);
}

// startRow stands above the losses of another start.
function startRow(l, columns) {
  const cell = make("td", "", l.start ? "in the start of " : "in this start");
  cell.colSpan = columns;
  if (l.start) {
    const link = make("a", "", time(l.start));
    link.href = "#/starts";
    cell.append(link, l.other_log ? ", on another log" : "");
  }
  return make("tr", "start", cell);
}

// makeLosses keeps the list on the overview up to date: it asks again when the verdict counts more,
// and once more, since the list is made a second later at most.
export function makeLosses(limit) {
  let counted = "", wanted = 0, busy = false, asked = 0, newest = null;
  const pause = 2000; // ms between two questions
  $("losses-more").onclick = () => { limit = 512; wanted = 1; asked = 0; show(newest); };
  return show;

  async function show(s) {
    newest = s;
    const now = JSON.stringify([s.ack, s.lost_wire, s.lost_here, s.damaged, s.sheet.since, s.sheet.ports.map((p) => [p.outage_count, p.state])]);
    if (now !== counted) { counted = now; wanted = 2; }
    if (!wanted || busy || Date.now() - asked < pause || $("losses-list").contains(document.activeElement)) return; // no row goes from under the focus
    busy = true;
    asked = Date.now();
    try {
      const { losses, more } = await loadLosses(s, "", limit);
      wanted--;
      $("losses-list").replaceChildren(losses.length ? lossTable(losses, "The last losses") : make("p", "none", s.sheet.ports.length ? "Nothing was lost, in this start or in earlier ones." : ""));
      $("beside").classList.toggle("calm", !losses.length);
      $("losses").hidden = !losses.length && !s.sheet.ports.length;
      $("losses-hint").hidden = !losses.length;
      $("losses-more").hidden = more === 0;
      text($("losses-more"), limit < 512 ? `Show ${plural(more, "older entry", "older entries")}` : `${plural(more, "older entry", "older entries")} not kept`);
      $("losses-more").disabled = limit === 512;
    } catch {
      // the next status asks again
    } finally {
      busy = false;
    }
  }
}
