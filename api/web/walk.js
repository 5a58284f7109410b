// A walk through the records: from where it began, towards the newer ones and towards the older
// ones. What is shown is always in the order of the log.

import { moment } from "./format.js";

export const page = 100; // records asked for at a time
const most = 2000; // records kept: beyond, those of the other side go
const patience = 5; // pages that may be asked for, where those before have found too little

// key makes times that are strings comparable, to the nanosecond.
export const key = (t) => t.slice(0, 19) + (/\.(\d+)/.exec(t)?.[1] ?? "").padEnd(9, "0");

// exact keeps the numbers of frames as they are sent, beyond 2^53, too, where the browser can.
const exact = (key, value, from) => key === "number" && from?.source ? BigInt(from.source) : value;

async function ask(parameters) {
  const q = new URLSearchParams(Object.entries(parameters).filter(([, v]) => v !== "" && v !== undefined && v !== null));
  const answer = await fetch(`api/v1/records?${q}`, { cache: "no-store" });
  const body = JSON.parse(await answer.text(), exact);
  if (!answer.ok) throw new Error(body.error ?? `the recorder answers ${answer.status}`);
  return body;
}

// makeWalk is a walk through the records that a query names, before its first one. records is what
// was found, begun whether it has come so far, ended which side has no more, looked up to which record
// each side was looked at, and gone how many of those asked for are not in the log any more.
export function makeWalk(query) {
  const filter = { source: query.source, quarantine: query.quarantine, contains: query.contains };
  const w = { records: [], gone: 0, begun: false, ended: { older: false, newer: false }, looked: {}, more, begin };
  const places = {}; // of each side: where to go on
  let log = "";

  const before = (r) => ({ cursor: `${log}-${r.seq}` }); // or behind it, towards the newer ones

  // more asks for so many more records of one side.
  async function more(side, many = page, pages = 1) {
    const order = side === "older" ? "newest" : "oldest", found = [];
    for (let n = 0; n < pages && found.length < many && (n === 0 || !w.ended[side]); n++) {
      const p = await ask({ ...filter, ...places[side], order, limit: many - found.length });
      log = p.log;
      found.push(...p.records);
      places[side] = { ...places[side], from_seq: "", cursor: p.cursor };
      w.ended[side] = p.end;
      w.looked[side] = Number(p.cursor.split("-")[1]);
      w.gone += p.gone;
    }
    if (side === "older") w.records.unshift(...found.reverse());
    else w.records.push(...found);
    bound(side);
  }

  // bound forgets what is farthest from the side that has just grown.
  function bound(side) {
    if (w.records.length <= most) return;
    w.records = side === "older" ? w.records.slice(0, most) : w.records.slice(-most);
    const other = side === "older" ? "newer" : "older";
    places[other] = before(side === "older" ? w.records.at(-1) : w.records[0]);
    w.ended[other] = false;
  }

  // turn makes the other side begin where this one did.
  function turn(other) {
    const first = other === "older" ? w.records[0] : w.records.at(-1);
    places[other] = first ? before(first) : places[other === "older" ? "newer" : "older"];
  }

  // begin finds the first records: around a moment, so many on each side; or from where the query
  // begins, forward or back.
  async function begin(around) {
    if (query.around) {
      places.newer = { from_time: query.around };
      await more("newer", around, patience);
      turn("older");
      // One read may bring hundreds of records: the loss is among those of its moment, wherever.
      const until = key(query.around);
      for (let n = 0; n < patience && !w.ended.newer && w.records.length && key(w.records.at(-1).time) <= until; n++) await more("newer");
      places.newer = { cursor: places.newer.cursor }; // a time is no bound for what comes next
      await more("older", around, patience);
      w.begun = true;
      return;
    }
    const from_time = moment(query.from ?? ""), to_time = moment(query.to ?? "");
    if (query.order === "newest") {
      places.older = { from_time, to_time, ...(query.seq ? { from_seq: query.seq } : await nearTo(to_time)) };
      await more("older");
      turn("newer");
    } else {
      places.newer = { from_time, to_time, from_seq: query.seq };
      await more("newer");
      turn("older");
    }
    w.begun = true;
  }

  // nearTo is where to begin on the way back from a time: at the first record that is later. The
  // log finds it at once; to look for it from the newest record down takes as long as there are
  // records between.
  async function nearTo(time) {
    if (!time) return {};
    const p = await ask({ from_time: time, limit: 1 });
    return p.records.length ? { from_seq: p.records[0].seq } : {};
  }

  return w;
}
