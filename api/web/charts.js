// The charts: lines over the last ten minutes, one sample a second.

import { $, axisTime, bytes, micros, zone } from "./format.js";

const keep = 600; // samples shown
const each = 8;   // so many ports have a line each; of more, the sum and the extremes say more

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// chart draws lines over time; data is one array of times (s) and one array for each line. null is a
// gap.
function chart(host, format) {
  const axis = { stroke: () => css("--soft"), grid: { stroke: () => css("--line"), width: 1 }, ticks: { show: false }, font: "11.5px system-ui, sans-serif" };
  const size = () => ({ width: Math.max(200, host.clientWidth), height: 132 });
  let plot = null, shape = "";
  const build = (data, lines) => {
    plot?.destroy();
    plot = new uPlot({
      ...size(), cursor: { y: false }, legend: { show: lines.length > 1, live: false },
      scales: { y: { range: (_, __, max) => [0, max > 0 ? max * 1.1 : 1] } },
      axes: [
        { ...axis, space: 80, size: 26, values: (_, at, __, ___, step) => at.map((s) => axisTime(s, step)) },
        { ...axis, space: 24, size: 62, values: (_, vs) => vs.map(format) },
      ],
      series: [{}, ...lines.map((l, i) => ({ label: l, stroke: () => css(`--s${i}`), width: 1.6, points: { show: false } }))],
    }, data, host);
  };
  new ResizeObserver(() => host.clientWidth && plot && plot.width !== size().width && plot.setSize(size())).observe(host);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plot?.redraw());
  return (data, lines) => {
    if (!host.clientWidth) return; // not shown
    if (!plot || shape !== lines.join("|")) { shape = lines.join("|"); build(data, lines); return; }
    plot.setData(data);
  };
}

const percentiles = ["p50", "p99", "max"];

// makeCharts returns add, for the next sample, and reset, for those of a new connection.
export function makeCharts() {
  const drawRate = chart($("chart-rate"), (v) => bytes(v));
  const drawLatency = chart($("chart-latency"), micros), drawSync = chart($("chart-sync"), micros);
  let samples = [];
  for (const e of document.querySelectorAll("#charts .zone")) e.textContent = `, time of day ${zone()}`;

  function rates() {
    const ids = [...new Set(samples.flatMap((s) => (s.ports || []).map((p) => p.id)))];
    const by = samples.map((s) => new Map((s.ports || []).map((p) => [p.id, p.bytes_per_s])));
    $("rate-of").textContent = ids.length > each ? `of ${ids.length} ports` : "by port";
    if (ids.length <= each) return [ids, ids.map((id) => by.map((m) => m.get(id) ?? null))];
    const of = (f) => by.map((m) => m.size ? f([...m.values()]) : null);
    return [["fastest port", "mean", "slowest port"],
      [of((v) => Math.max(...v)), of((v) => v.reduce((a, b) => a + b, 0) / v.length), of((v) => Math.min(...v))]];
  }

  function draw() {
    const at = samples.map((s) => s.at_ms / 1000);
    const [ids, lines] = rates();
    drawRate([at, ...lines], ids);
    drawLatency([at, ...percentiles.map((k) => samples.map((s) => worst(s, `${k}_us`)))], percentiles);
    drawSync([at, ...percentiles.map((k) => samples.map((s) => s.sync.n ? s.sync[`${k}_us`] : null))], percentiles);
    $("charts").dataset.samples = samples.length;
  }

  return {
    draw: () => samples.length && draw(),
    reset: (history) => { samples = (history || []).slice(-keep); if (samples.length) draw(); },
    add: (sample) => {
      if (!sample.at_ms || sample.at_ms === samples.at(-1)?.at_ms) return;
      samples = [...samples, sample].slice(-keep);
      draw();
    },
  };
}

// worst is a latency of the worst port that has measured any; null: none has.
export function worst(sample, key) {
  const all = (sample.ports || []).filter((p) => p.latency.n).map((p) => p.latency[key]);
  return all.length ? Math.max(...all) : null;
}
