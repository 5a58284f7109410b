// Destinations that frames go on to: what each takes, how far behind it is, and what keeps it.

import { $, bytes, cards, count, plural, text, time } from "./format.js";

let shown = "";

// showForward shows the destinations of a sheet; undefined: there are none.
export function showForward(all) {
  $("forward").hidden = !all;
  const news = JSON.stringify(all ?? null);
  if (news === shown) return;
  shown = news;
  if (!all) return;
  const on = all.filter((f) => f.state === "forwarding").length;
  text($("forward-much"), on === all.length ? "all take frames" : `${on} of ${plural(all.length, "destination")} take frames`);
  $("forward-list").replaceChildren(table(all));
}

function table(all) {
  const columns = ["Destination", "State", "Since", "Acknowledged", "Behind", "Why"];
  return cards("forward", "Destinations", columns, ["Acknowledged", "Behind"], all, (f, cell) => {
    const stopped = f.sources.filter((s) => s.state === "stopped");
    cell("Destination", "name", `${f.name} (${f.address})`);
    cell("State", f.state === "forwarding" && !stopped.length ? "" : "hurt", stopped.length ? `${f.state}, ${plural(stopped.length, "source")} stopped` : f.state);
    cell("Since", "", time(f.since));
    cell("Acknowledged", "n", count(f.sources.reduce((n, s) => n + s.acknowledged, 0)));
    cell("Behind", "n", f.lag_records ? `${plural(f.lag_records, "record")}, about ${bytes(f.lag_bytes)}` : "nothing");
    cell("Why", "wide", [f.why, ...stopped.map((s) => `${s.id}: ${s.why}`)].filter(Boolean).join("; ") || "–");
  });
}
