// Damage to what is stored: where it is, what of it cannot be read, and since when that is known.

import { $, bytes, count, make, plural, tableRoles, text, time } from "./format.js";

let shown = "";

// showDamage shows the damage of a sheet; undefined: none is known.
export function showDamage(damage) {
  $("damage").hidden = !damage;
  const news = JSON.stringify(damage ?? null);
  if (news === shown) return;
  shown = news;
  if (!damage) return;
  const more = damage.places - damage.first.length;
  text($("damage-much"), `${plural(damage.places, "place")}, ${damage.at_most ? "at most " : ""}${plural(damage.records, "record")} that cannot be read${more ? `; the first ${plural(damage.first.length, "place")} of the log` : ""}`);
  $("damage-list").replaceChildren(table(damage.first));
}

function table(places) {
  const t = make("table", "list damage");
  t.append(make("caption", "unseen", "Damaged places, in the order of the log"));
  const head = t.createTHead().insertRow(), body = t.createTBody();
  for (const name of ["Found", "Segment", "At byte", "Damaged", "Records", "What", "Before it"]) {
    const th = make("th", ["At byte", "Damaged"].includes(name) ? "n" : "", name);
    th.scope = "col";
    head.append(th);
  }
  for (const p of places) {
    const row = body.insertRow();
    const labelled = (tag, name, className, value) => {
      const label = make("span", "label", name);
      label.setAttribute("aria-hidden", "true"); // the head of the column says it
      return row.appendChild(make(tag, className, label, make("span", "value", value)));
    };
    const cell = (...of) => labelled("td", ...of);
    labelled("th", "Found", "", time(p.found)).scope = "row";
    cell("Segment", "name", p.segment);
    cell("At byte", "n", count(p.offset));
    cell("Damaged", "n", p.bytes ? bytes(p.bytes) : "not known");
    cell("Records", "hurt", p.to ? `${p.from === p.to ? count(p.from) : `${count(p.from)} to ${count(p.to)}`}${p.at_most ? ", at most" : ""}` : "all can be read");
    cell("What", "wide", p.what);
    cell("Before it", "", p.to && p.from > 1 ? before(p) : "–");
  }
  return tableRoles(t);
}

// before leads to the records before the damage: they can be read.
function before(p) {
  const link = make("a", "", "records");
  link.href = `#/records?${new URLSearchParams({ seq: p.from - 1, order: "newest" })}`;
  link.setAttribute("aria-label", `the records before record ${p.from}`);
  return link;
}
