// Earlier starts: how each ended, and what it had lost.

import { $, duration, make, tableRoles, time } from "./format.js";
import { amount, levelMark } from "./verdict.js";

// showStarts fills the view of earlier starts.
export async function showStarts() {
  const list = $("starts-list");
  list.replaceChildren(make("p", "none", "asking…"));
  try {
    const answer = await fetch("api/v1/starts?limit=100", { cache: "no-store" });
    if (!answer.ok) throw new Error(`the recorder answers ${answer.status}`);
    const { starts, more, error } = await answer.json();
    const parts = [starts.length ? make("div", "scroll", table(starts)) : make("p", "none", "This is the first start on this log.")];
    if (more) parts.push(make("p", "none", "There are older ones: tallywheel log sheets lists them all."));
    if (error) parts.push(make("p", "none", error));
    list.replaceChildren(...parts);
  } catch (e) {
    list.replaceChildren(make("p", "none", `The starts cannot be shown: ${e.message}.`));
  }
}

function table(starts) {
  const t = make("table", "list starts");
  t.append(make("caption", "unseen", "Earlier starts, the newest first"));
  const head = t.createTHead().insertRow();
  for (const name of ["Began", "Ended", "It ran", "Lost on the wire", "Lost by us", "Damaged", "How it ended", "Verdict"]) {
    const th = make("th", "", name);
    th.scope = "col";
    head.append(th);
  }
  const body = t.createTBody();
  for (const s of starts) {
    const row = body.insertRow(), began = make("th", "", levelMark(s.level), s.since ? time(s.since) : "not known");
    began.scope = "row";
    row.append(began);
    const cell = (name, value, className = "") => {
      const label = make("span", "label", name);
      label.setAttribute("aria-hidden", "true");
      row.append(make("td", className, label, value));
    };
    cell("Ended", s.at ? time(s.at) : "not known");
    cell("It ran", s.at && s.since ? duration(Date.parse(s.at) - Date.parse(s.since)) : "–");
    const hurt = (a) => amount(a) === "nothing" ? "" : "hurt";
    for (const [name, a] of [["Lost on the wire", s.lost_wire], ["Lost by us", s.lost_here], ["Damaged", s.damaged]]) {
      cell(name, make("span", "value", amount(a)), hurt(a));
    }
    cell("How it ended", s.other_log ? `${s.end} (on another log)` : s.end, "wide");
    const [first, ...rest] = s.verdict.split("; ");
    cell("Verdict", rest.length ? make("details", "", make("summary", "", first), rest.join("; ")) : first, "wide");
  }
  return tableRoles(t);
}

