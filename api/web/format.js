// How figures, times and elements are shown, in one place, so that each looks the same everywhere.

export const $ = (id) => document.getElementById(id);

// none stands where nothing was measured: never a zero.
export const none = "–";

const units = (n, names, step) => {
  let i = 0;
  while (Math.abs(n) >= step && i < names.length - 1) { n /= step; i++; }
  return `${n >= 100 || i === 0 || n === 0 ? Math.round(n) : n.toFixed(1)} ${names[i]}`;
};
export const bytes = (n) => units(n, ["B", "KB", "MB", "GB", "TB"], 1000);
export const micros = (n) => units(n, ["µs", "ms", "s"], 1000);
export const count = (n) => (typeof n === "bigint" ? n : Math.round(n)).toLocaleString("en");
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

// duration says how long it was, for people: 3.2 s, 4 min 10 s, 2 h 5 min. What ends before it
// begins went over a step of the clock.
export function duration(ms) {
  if (ms < 0) return "an unknown time: the clock was set back";
  const s = ms / 1000;
  if (s < 1) return `${Math.max(0, Math.round(ms))} ms`;
  if (s < 60) return `${s.toFixed(1)} s`;
  const two = (a, au, b, bu) => `${a} ${au}${b ? ` ${b} ${bu}` : ""}`;
  if (s < 3600) return two(Math.floor(s / 60), "min", Math.floor(s % 60), "s");
  if (s < 172800) return two(Math.floor(s / 3600), "h", Math.floor((s % 3600) / 60), "min");
  return two(Math.floor(s / 86400), "days", Math.floor((s % 86400) / 3600), "h");
}

const pad = (n, to = 2) => String(n).padStart(to, "0");

// zone is the offset of the browser's time zone at that moment: +01:00.
export function zone(date = new Date()) {
  const m = -date.getTimezoneOffset(), a = Math.abs(m);
  return `${m < 0 ? "−" : "+"}${pad(Math.floor(a / 60))}:${pad(a % 60)}`;
}

export const day = (d) => `${d.getFullYear()}-${pad(d.getMonth() + 1)}-${pad(d.getDate())}`;
const clock = (d) => `${pad(d.getHours())}:${pad(d.getMinutes())}:${pad(d.getSeconds())}`;

// timeText is the one style of a time: 11:03:02 +01:00, after its date if that is not today's. t is
// RFC 3339 or ms since 1970. digits are those behind the second; RFC 3339 has up to nine.
export function timeText(t, digits = 0) {
  const d = new Date(t);
  const fraction = typeof t === "string" ? (/\.(\d+)/.exec(t)?.[1] ?? "") : pad(d.getMilliseconds(), 3);
  return `${day(d) === day(new Date()) ? "" : `${day(d)} `}${clock(d)}${digits ? `.${fraction.padEnd(digits, "0").slice(0, digits)}` : ""} ${zone(d)}`;
}

// time is timeText as an element that programs can read, too.
export function time(t, digits = 0) {
  const e = make("time", "", timeText(t, digits));
  e.dateTime = typeof t === "string" ? t : new Date(t).toISOString();
  e.title = `${day(new Date(t))} ${e.dateTime}`;
  return e;
}

// moment reads a time as it is shown: a time of day of today, or one with its date; without a zone it
// is of the browser's. It returns RFC 3339, or "" where that is no time.
export function moment(words) {
  const m = /^(?:(\d{4}-\d\d-\d\d)[ T])?(\d\d?:\d\d)(:\d\d(?:\.\d{1,9})?)? ?(Z|[+−-]\d\d:\d\d)?$/.exec(words.trim());
  if (!m) return "";
  const [, date, minutes, rest, offset] = m, [seconds, fraction] = (rest ?? ":00").split(".");
  const at = new Date(`${date ?? day(new Date())}T${minutes.padStart(5, "0")}${seconds}${(offset ?? "").replace("−", "-")}`);
  return Number.isNaN(at.getTime()) ? "" : at.toISOString().replace(".000Z", `${fraction ? `.${fraction}` : ""}Z`);
}

// axisTime labels a time axis: hours and minutes, and seconds where the marks are closer.
export const axisTime = (seconds, step) => {
  const text = clock(new Date(seconds * 1000));
  return step < 60 ? text : text.slice(0, 5);
};

// make is a new element with children: strings or nodes.
export function make(tag, className, ...children) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  e.append(...children);
  return e;
}

// tableRoles names the parts of a table as what they are: cards on a phone are laid out otherwise, and
// some browsers take a table that is for none.
export function tableRoles(e) {
  const roles = { table: "table", "thead, tbody": "rowgroup", tr: "row", td: "cell", "th[scope=row]": "rowheader", "th[scope=col], th[scope=colgroup]": "columnheader" };
  for (const [selector, role] of Object.entries(roles)) {
    for (const part of [e, ...e.querySelectorAll(selector)]) if (part.matches(selector)) part.setAttribute("role", role);
  }
  return e;
}

// cards is a table whose rows are cards on a phone, where each cell says what it is: columns are the
// names, and numeric are those of figures. fill gets each item, and how to append a cell of a column;
// the first is the head of its row.
export function cards(className, caption, columns, numeric, items, fill) {
  const t = make("table", `list ${className}`);
  t.append(make("caption", "unseen", caption));
  const head = t.createTHead().insertRow(), body = t.createTBody();
  for (const name of columns) {
    const th = make("th", numeric.includes(name) ? "n" : "", name);
    th.scope = "col";
    head.append(th);
  }
  for (const item of items) {
    const row = body.insertRow();
    fill(item, (name, className, value) => {
      const label = make("span", "label", name);
      label.setAttribute("aria-hidden", "true"); // the head of the column says it
      const first = !row.cells.length;
      const cell = row.appendChild(make(first ? "th" : "td", className, label, make("span", "value", value)));
      if (first) cell.scope = "row";
    });
  }
  return tableRoles(t);
}

// text sets what an element says, if that is news: an untouched element keeps focus and selection.
export function text(e, s) {
  if (e.textContent !== s) e.textContent = s;
}
