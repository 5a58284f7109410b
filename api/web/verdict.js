// The verdict: its level in colour, sign and word, its sentence, and whether all of it is of now.

import { $, count, make, plural, text, time, timeText } from "./format.js";

const signs = { good: "✓", watch: "!", bad: "✕" };
const words = { good: "Good", watch: "Watch", bad: "Bad" };

// levelMark is a level where there is little room: its sign, and its word for who cannot see it.
export function levelMark(level) {
  const sign = make("span", "sign", signs[level]);
  sign.setAttribute("aria-hidden", "true");
  const mark = make("span", `mark-${level}`, sign, make("span", "unseen", `${words[level]}: `));
  mark.title = words[level];
  return mark;
}

// amount names the parts of an amount that are not zero.
export function amount(a) {
  const parts = Object.entries(a || {}).filter(([, n]) => n > 0).map(([unit, n]) => plural(n, unit.replace(/s$/, "")));
  return parts.join(", ") || "nothing";
}

let level = "", stale = null;

// showVerdict shows the verdict of a status.
export function showVerdict(s) {
  level = s.level;
  paint();
  const [first, ...rest] = s.verdict.split("; ");
  text($("sentence"), first);
  text($("semi"), rest.length ? "; " : "");
  text($("rest"), rest.join("; "));
  facts(s);
  const broken = s.sheet.ports.flatMap((p) => (p.unbalanced || []).map((u) => `${p.id}: ${u}`));
  text($("balance"), broken.length ? broken.join("; ") : s.sheet.ports.length ? `Every equation of ${plural(s.sheet.ports.length, "port")} balances.` : "");
}

// closedAmount is what was lost in this start by sources that have left it.
function closedAmount(closed) {
  const parts = [["on the wire", closed.lost_wire], ["by us", closed.lost_here], ["damaged", closed.damaged]];
  return parts.filter(([, a]) => amount(a) !== "nothing").map(([where, a]) => `${amount(a)} ${where}`).join(", ") || "nothing";
}

function facts(s) {
  const closed = s.past?.newest?.since === s.sheet.since ? s.past?.newest : undefined;
  const earlier = (s.past?.starts ?? 0) - (closed ? 1 : 0);
  const list = [
    ["Lost on the wire", amount(s.lost_wire)], ["Lost by us", amount(s.lost_here)], ["Damaged", amount(s.damaged)],
    ["Last loss", s.last_loss ? toLosses(s.last_loss) : s.level === "good" ? "none" : "none known"], ["Counted since", time(s.since)],
    ["Cannot prove absence", s.unknown.length ? plural(s.unknown.length, "source") : s.sheet.ports.length ? "none: each has numbers" : "–"],
    ...(s.ack ? [["Acknowledged", s.ack.note || "without a note"]] : []),
    ...(closed ? [["In closed books", closedAmount(closed)]] : []),
    ...(earlier > 0 ? [["Earlier", `${plural(earlier, "start")} with losses`]] : []),
    ...(s.past?.unreadable ? [["Earlier, too", "a history that cannot be read"]] : []),
  ];
  const shown = list.map(([k, x]) => `${k} ${x.textContent ?? x}`).join("|");
  if ($("facts").dataset.shown === shown) return;
  $("facts").dataset.shown = shown;
  $("facts").replaceChildren(...list.map(([k, x]) => make("div", "", make("dt", "", k), make("dd", "", x))));
}

// toLosses is a time that leads to the records around the last loss, or to the list of losses where
// it is not listed.
function toLosses(t) {
  const link = make("a", "", time(t));
  link.href = "#/";
  link.onclick = (e) => {
    e.preventDefault();
    const last = $("losses-list").querySelector("a[data-loss]");
    if (last) { location.hash = last.hash; return; }
    $("losses-name").scrollIntoView();
    $("losses-name").focus();
  };
  return link;
}

function paint() {
  const shown = stale ? "stale" : level || "waiting";
  $("verdict").className = `verdict ${shown}`;
  $("verdict").dataset.level = level;
  text($("sign"), stale ? "?" : signs[level] ?? "…");
  text($("level"), stale ? "Not connected" : words[level] ?? "Waiting");
  const known = stale && level ? `Not connected since ${timeText(stale.since)}. What is below was known then; it was ${words[level].toLowerCase()}.` : "";
  text($("stale"), known);
  document.body.classList.toggle("is-stale", Boolean(stale));
  document.title = `${stale ? "Not connected" : words[level] ?? "…"} · Tallywheel`;
  announce(stale ? "not connected to the recorder" : level && `level ${words[level].toLowerCase()}`);
}

// showLink shows how the connection is.
export function showLink(c, retry) {
  stale = c.live ? null : c;
  const link = $("link");
  link.className = c.live ? "link" : "link lost";
  clearInterval(showLink.ticking);
  if (c.live) text($("link-text"), "live");
  else {
    const say = () => text($("link-text"), `not connected: ${c.why}; next try ${left(c.next)}`);
    say();
    showLink.ticking = setInterval(say, 1000);
  }
  $("retry").hidden = c.live;
  $("retry").onclick = retry;
  paint();
}

const left = (next) => {
  const s = Math.ceil((next - Date.now()) / 1000);
  return s > 0 ? `in ${count(s)} s` : "now";
};

// showHeard shows the time of the newest status.
export function showHeard(at) { text($("link-text"), `live · ${timeText(at)}`); }

// announce tells a screen reader of another level or of a lost connection, once it has stayed so for
// a while: what goes to and fro is not told each time.
let said = "", saying = 0, wanted = "";
const settle = 3000; // ms
function announce(words) {
  if (!words || words === wanted) return;
  wanted = words;
  clearTimeout(saying);
  saying = setTimeout(() => {
    if (wanted === said) return;
    said = wanted;
    $("announce").textContent = `Tallywheel: ${said}`;
  }, settle);
}
