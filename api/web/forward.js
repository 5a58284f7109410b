// Destinations that frames go on to: what each takes, how far behind it is, and what keeps it.

import { $, bytes, count, make, plural, tableRoles, text, time } from "./format.js";

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
  const t = make("table", "list forward");
  t.append(make("caption", "unseen", "Destinations"));
  const head = t.createTHead().insertRow(), body = t.createTBody();
  for (const name of ["Destination", "State", "Since", "Acknowledged", "Behind", "Why"]) {
    const th = make("th", ["Acknowledged", "Behind"].includes(name) ? "n" : "", name);
    th.scope = "col";
    head.append(th);
  }
  for (const f of all) {
    const row = body.insertRow();
    const labelled = (tag, name, className, value) => {
      const label = make("span", "label", name);
      label.setAttribute("aria-hidden", "true"); // the head of the column says it
      return row.appendChild(make(tag, className, label, make("span", "value", value)));
    };
    const cell = (...of) => labelled("td", ...of);
    const stopped = f.sources.filter((s) => s.state === "stopped");
    labelled("th", "Destination", "name", `${f.name} (${f.address})`).scope = "row";
    cell("State", f.state === "forwarding" && !stopped.length ? "" : "hurt", stopped.length ? `${f.state}, ${plural(stopped.length, "source")} stopped` : f.state);
    cell("Since", "", time(f.since));
    cell("Acknowledged", "n", count(f.sources.reduce((n, s) => n + s.acknowledged, 0)));
    cell("Behind", "n", f.lag_records ? `${plural(f.lag_records, "record")}, about ${bytes(f.lag_bytes)}` : "nothing");
    cell("Why", "wide", [f.why, ...stopped.map((s) => `${s.id}: ${s.why}`)].filter(Boolean).join("; ") || "–");
  }
  return tableRoles(t);
}
