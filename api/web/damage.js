// Damage to what is stored: where it is, what of it cannot be read, and since when that is known.

import { $, bytes, cards, count, make, plural, text, time } from "./format.js";

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
  const columns = ["Found", "Segment", "At byte", "Damaged", "Records", "What", "Before it"];
  return cards("damage", "Damaged places, in the order of the log", columns, ["At byte", "Damaged"], places, (p, cell) => {
    cell("Found", "", time(p.found));
    cell("Segment", "name", p.segment);
    cell("At byte", "n", count(p.offset));
    cell("Damaged", "n", p.bytes ? bytes(p.bytes) : "not known");
    cell("Records", "hurt", p.to ? `${p.from === p.to ? count(p.from) : `${count(p.from)} to ${count(p.to)}`}${p.at_most ? ", at most" : ""}` : "all can be read");
    cell("What", "wide", p.what);
    cell("Before it", "", p.to && p.from > 1 ? before(p) : "–");
  });
}

// before leads to the records before the damage: they can be read.
function before(p) {
  const link = make("a", "", "records");
  link.href = `#/records?${new URLSearchParams({ seq: p.from - 1, order: "newest" })}`;
  link.setAttribute("aria-label", `the records before record ${p.from}`);
  return link;
}
