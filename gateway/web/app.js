"use strict";
// The page: one event a second from /api/v1/events, drawn as it is. Nothing is computed here that the API does not say.

const $ = (id) => document.getElementById(id);
const keep = 600; // seconds shown
const palette = ["#0f8a6c", "#1e6fc8", "#c2571a", "#8a4fc0", "#b0892a", "#c23a6b", "#3a8fa3", "#6b7a2a"];

const units = (n, names, step) => {
  let i = 0;
  while (Math.abs(n) >= step && i < names.length - 1) { n /= step; i++; }
  return `${n >= 100 || i === 0 ? Math.round(n) : n.toFixed(1)} ${names[i]}`;
};
const bytes = (n) => units(n, ["B", "KB", "MB", "GB", "TB"], 1000);
const micros = (n) => units(n, ["µs", "ms", "s"], 1000);
const count = (n) => Math.round(n).toLocaleString("en");

// chart draws lines over time; data is one array of times (s) and one array for each series.
function chart(host, format, series) {
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const axis = { stroke: () => css("--soft"), grid: { stroke: () => css("--line"), width: 1 }, ticks: { show: false } };
  const size = () => ({ width: Math.max(200, host.clientWidth), height: 190 });
  let plot = null, shape = "";
  const build = (data, lines) => {
    if (plot) plot.destroy();
    plot = new uPlot({
      ...size(), cursor: { y: false }, legend: { show: lines.length > 1 && lines.length <= 8, live: false },
      scales: { y: { range: (_, __, max) => [0, max > 0 ? max * 1.1 : 1] } },
      axes: [{ ...axis, space: 70 }, { ...axis, size: 64, values: (_, vs) => vs.map(format) }],
      series: [{}, ...lines.map((l, i) => ({ label: l, stroke: palette[i % palette.length], width: 1.6, points: { show: false } }))],
    }, data, host);
  };
  addEventListener("resize", () => plot && plot.setSize(size()));
  return (data, lines = series) => {
    if (shape !== lines.join("|")) { shape = lines.join("|"); build(data, lines); } else plot.setData(data);
  };
}

const drawRate = chart($("chart-rate"), (v) => bytes(v), []);
const drawLatency = chart($("chart-latency"), micros, ["p50", "p99", "max"]);
const drawSync = chart($("chart-sync"), micros, ["p50", "p99", "max"]);

let samples = [];

function draw() {
  const at = samples.map((s) => s.at_ms / 1000);
  const ids = [...new Set(samples.flatMap((s) => (s.ports || []).map((p) => p.id)))];
  const of = (s, id) => (s.ports || []).find((p) => p.id === id);
  drawRate([at, ...ids.map((id) => samples.map((s) => of(s, id)?.bytes_per_s ?? null))], ids);
  const worst = (s, key) => Math.max(0, ...(s.ports || []).map((p) => p.latency[key]));
  const keys = ["p50_us", "p99_us", "max_us"];
  drawLatency([at, ...keys.map((k) => samples.map((s) => worst(s, k)))]);
  drawSync([at, ...keys.map((k) => samples.map((s) => s.sync[k]))]);
}

function cell(row, text, className) {
  const td = row.insertCell();
  td.textContent = text;
  if (className) td.className = className;
  return td;
}

function rows(ports, sample) {
  const body = $("rows");
  body.replaceChildren();
  for (const p of ports) {
    const f = p.frames, row = body.insertRow();
    const dropped = Object.values(f.dropped).reduce((a, b) => a + b, 0);
    const rate = (sample.ports || []).find((x) => x.id === p.id)?.bytes_per_s ?? 0;
    const line = p.kernel ? Object.values(p.kernel).reduce((a, b) => a + (b || 0), 0) : null;
    row.dataset.port = p.id;
    cell(row, p.id);
    const state = document.createElement("span");
    state.className = `state ${p.state}`;
    state.textContent = p.state;
    row.insertCell().append(state);
    cell(row, `${bytes(rate)}/s`, "n");
    cell(row, count(f.ok), "n");
    cell(row, count(f.stored), "n");
    cell(row, count(f.in_flight), "n");
    cell(row, count(f.missing), f.missing ? "n hurt" : "n");
    cell(row, count(f.corrupt), "n");
    cell(row, count(f.duplicate), "n");
    cell(row, count(f.reordered), "n");
    const d = cell(row, count(dropped), dropped ? "n hurt" : "n");
    d.title = Object.entries(f.dropped).map(([k, v]) => `${k}: ${v}`).join(", ");
    const o = cell(row, count(p.outage_count), "n");
    o.title = (p.outages || []).slice(-5).map((x) => `${x.from} – ${x.to || "now"}: ${x.cause}`).join("\n");
    cell(row, line === null ? "n/a" : count(line), "n");
  }
}

function show(s) {
  const v = $("verdict"), log = s.sample.log, sheet = s.sheet;
  v.className = `verdict ${s.good ? "good" : "bad"}`;
  $("verdict-text").textContent = s.verdict;
  const wrong = sheet.ports.flatMap((p) => (p.unbalanced || []).map((u) => `${p.id}: ${u}`));
  $("balance").textContent = sheet.balanced ? `every equation of ${sheet.ports.length} ${sheet.ports.length === 1 ? "port" : "ports"} balances` : wrong.join("; ");
  rows(sheet.ports, s.sample);
  if (!log) return;
  $("stored").textContent = count(log.stored);
  $("lag").textContent = log.error ? log.error : log.full ? "the disk is full" : `${count(log.stored - log.durable)} not durable yet`;
  $("sync").textContent = s.sample.sync.n ? micros(s.sample.sync.p99_us) : "–";
  $("sync-max").textContent = s.sample.sync.n ? `max ${micros(s.sample.sync.max_us)}, ${s.sample.sync.n} a second` : "no sync";
  $("latency").textContent = micros(Math.max(0, ...(s.sample.ports || []).map((p) => p.latency.p99_us)));
  $("disk").textContent = log.disk_free_bytes < 0 ? "–" : bytes(log.disk_free_bytes);
  $("hours").textContent = log.hours_until_full === null ? "kept within its limit" : `full in ${log.hours_until_full >= 48 ? `${Math.round(log.hours_until_full / 24)} days` : `${log.hours_until_full.toFixed(1)} hours`}`;
}

function follow() {
  const events = new EventSource("api/v1/events");
  events.addEventListener("status", (e) => {
    const s = JSON.parse(e.data);
    $("link").className = "link";
    $("link").textContent = `live · ${new Date(s.sheet.at).toLocaleTimeString()}`;
    show(s);
    if (s.sample.at_ms && s.sample.at_ms !== samples.at(-1)?.at_ms) {
      samples.push(s.sample);
      samples = samples.slice(-keep);
      draw();
    }
  });
  events.onerror = () => {
    $("link").className = "link lost";
    $("link").textContent = "no connection to the recorder";
  };
}

fetch("api/v1/status").then((r) => r.json()).then((s) => {
  samples = s.history.slice(-keep);
  if (samples.length) draw();
  show(s);
}).catch(() => {}).finally(follow);
