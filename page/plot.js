/* plot.js: series over time as SVG.  A plot is a figure with a name and a summary for screen readers; the
 * arrow keys or the pointer move a cursor, whose values are shown below it. */
import { fill, h, s } from "./dom.js";
import { moment, time } from "./format.js";

/* Narrower on a phone, where the drawing is scaled less and its text stays readable. */
const WIDTH = innerWidth < 560 ? 330 : 560;
const HEIGHT = 180;
const LEFT = 48;
const BOTTOM = 22;
const TOP = 10;
const RIGHT = 6;

/**
 * color: a class c1 to c5.  kind: a line, an area below it, or bars on top of each other.
 * @typedef {{ name: string, color: string, kind: "line" | "area" | "bar", values: (number | null)[] }} Series
 * @typedef {{
 *   title: string, unit: (value: number | null) => string, at: number[], from: number, to: number,
 *   step_s: number, series: Series[], most?: number
 * }} Plot
 */

/**
 * A round number that is not below one.
 * @param {number} value
 */
function roundUp(value) {
  if (!(value > 0)) return 1;
  const size = 10 ** Math.floor(Math.log10(value));
  return /** @type {number} */ ([1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((n) => n * size >= value * 0.9999)) * size;
}

/** @param {Plot} p */
function topOf(p) {
  let top = 0;
  for (let i = 0; i < p.at.length; i++) {
    let sum = 0;
    for (const one of p.series) {
      const v = one.values[i] ?? 0;
      if (one.kind === "bar") sum += v;
      top = Math.max(top, v, sum);
    }
  }
  return p.most ?? roundUp(top);
}

/** @param {Plot} p */
export function plot(p) {
  const top = topOf(p);
  const x = (/** @type {number} */ at) => LEFT + ((at - p.from) / (p.to - p.from)) * (WIDTH - LEFT - RIGHT);
  const y = (/** @type {number} */ v) => HEIGHT - BOTTOM - (Math.min(v, top) / top) * (HEIGHT - BOTTOM - TOP);
  const marks = s("g", {});
  const readout = h("p", { class: "readout", "aria-live": "polite" });
  const drawing = s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", tabindex: 0,
    "aria-label": p.title + ". " + summary(p) }, ...axes(p, top, x, y), ...p.series.flatMap((one, i) => shapes(p, one, i, x, y)), marks);
  let at = p.at.length - 1;
  const show = (/** @type {number} */ i) => {
    at = Math.max(0, Math.min(p.at.length - 1, i));
    if (!p.at.length) return;
    const middle = x(p.at[at] + p.step_s / 2);
    marks.replaceChildren(s("line", { class: "cursor", x1: middle, x2: middle, y1: TOP, y2: HEIGHT - BOTTOM }));
    readout.textContent = time(p.at[at]).slice(0, 16) + "  " +
      p.series.map((one) => `${one.name} ${p.unit(one.values[at] ?? null)}`).join("  ");
  };
  const clear = () => {
    marks.replaceChildren();
    readout.textContent = lastText(p);
  };
  drawing.addEventListener("keydown", (e) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[/** @type {KeyboardEvent} */ (e).key];
    if (step === undefined) return;
    e.preventDefault();
    show(at + step);
  });
  drawing.addEventListener("pointermove", (e) => {
    const box = drawing.getBoundingClientRect();
    const t = p.from + (((/** @type {PointerEvent} */ (e).clientX - box.left) / box.width) * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT) * (p.to - p.from);
    let best = 0;
    for (let i = 1; i < p.at.length; i++)
      if (Math.abs(p.at[i] + p.step_s / 2 - t) < Math.abs(p.at[best] + p.step_s / 2 - t)) best = i;
    show(best);
  });
  drawing.addEventListener("pointerleave", clear);
  drawing.addEventListener("blur", clear);
  readout.textContent = lastText(p);
  return h("figure", { class: "plot" },
    h("figcaption", {}, h("h3", {}, p.title), h("span", { class: "legend" },
      ...(p.series.length > 1 ? p.series.map((one) => h("span", { class: "key " + one.color }, one.name)) : []))),
    drawing, readout);
}

/** @param {Plot} p */
function lastText(p) {
  return p.at.length ? "" : "Nothing in this time.";
}

/** @param {Plot} p */
function summary(p) {
  if (!p.at.length) return "Nothing in this time.";
  return p.series.map((one) => {
    const known = one.values.filter((v) => v !== null);
    const most = Math.max(...(/** @type {number[]} */ (known)));
    return known.length ? `${one.name}: last ${p.unit(one.values[p.at.length - 1] ?? null)}, highest ${p.unit(most)}` : `${one.name}: none`;
  }).join("; ") + ". The arrow keys read single values.";
}

/**
 * @param {Plot} p @param {number} top @param {(at: number) => number} x @param {(v: number) => number} y
 */
function axes(p, top, x, y) {
  const out = [];
  for (const share of [0, 0.5, 1]) {
    out.push(s("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(top * share), y2: y(top * share) }));
    out.push(s("text", { class: "tick", x: LEFT - 6, y: y(top * share) + 4, "text-anchor": "end" }, p.unit(top * share)));
  }
  for (let i = 0; i <= 4; i++) {
    const at = p.from + ((p.to - p.from) * i) / 4;
    out.push(s("text", { class: "tick", x: x(at), y: HEIGHT - 6, "text-anchor": i === 0 ? "start" : i === 4 ? "end" : "middle" },
      moment(at, p.to - p.from)));
  }
  return out;
}

/**
 * Runs of neighbouring steps that have values.
 * @param {Plot} p @param {Series} one
 */
function runsOf(p, one) {
  /** @type {number[][]} */
  const runs = [];
  for (let i = 0; i < p.at.length; i++) {
    if (one.values[i] === null) continue;
    const last = runs[runs.length - 1];
    if (last && p.at[i] - p.at[last[last.length - 1]] < 1.5 * p.step_s) last.push(i);
    else runs.push([i]);
  }
  return runs;
}

/**
 * @param {Plot} p @param {Series} one @param {number} index @param {(at: number) => number} x
 * @param {(v: number) => number} y @returns {SVGElement[]}
 */
function shapes(p, one, index, x, y) {
  const value = (/** @type {number} */ i) => one.values[i] ?? 0;
  const point = (/** @type {number} */ i) => `${x(p.at[i] + p.step_s / 2).toFixed(1)},${y(value(i)).toFixed(1)}`;
  if (one.kind === "bar") {
    const wide = Math.max(1.5, x(p.from + p.step_s) - x(p.from) - 1.5);
    return p.at.flatMap((at, i) => {
      if (!value(i)) return [];
      const below = p.series.slice(0, index).reduce((sum, other) => sum + (other.kind === "bar" ? other.values[i] ?? 0 : 0), 0);
      return [s("rect", { class: "bar " + one.color, x: x(at) + 0.75, width: wide, y: y(below + value(i)), height: y(below) - y(below + value(i)) })];
    });
  }
  return runsOf(p, one).flatMap((run) => {
    if (run.length === 1) {
      const [cx, cy] = point(run[0]).split(",");
      return [s("circle", { class: "dot " + one.color, cx, cy, r: 2.5 })];
    }
    const line = s("polyline", { class: "line " + one.color, points: run.map(point).join(" ") });
    if (one.kind === "line") return [line];
    const base = y(0);
    const ends = [run[run.length - 1], run[0]].map((i) => `${x(p.at[i] + p.step_s / 2).toFixed(1)},${base}`);
    return [s("polygon", { class: "area " + one.color, points: [...run.map(point), ...ends].join(" ") }), line];
  });
}

/**
 * Parts of a whole in one bar.
 * @param {string} label @param {{ name: string, value: number, color: string }[]} parts @param {number} whole
 * @param {(n: number) => string} unit
 */
export function stack(label, parts, whole, unit) {
  let from = 0;
  const shown = parts.filter((p) => p.value > 0);
  const bar = s("svg", { viewBox: "0 0 1000 28", preserveAspectRatio: "none", role: "img", class: "stack",
    "aria-label": label + ": " + shown.map((p) => `${p.name} ${unit(p.value)}`).join(", ") });
  for (const part of shown) {
    const wide = Math.min(1000 - from, (part.value / Math.max(1, whole)) * 1000);
    bar.append(s("rect", { class: "bar " + part.color, x: from, y: 0, width: Math.max(0, wide - 1.5), height: 28 }));
    from += wide;
  }
  const box = h("figure", { class: "memory" });
  fill(box, h("figcaption", {}, h("h3", {}, label), h("span", { class: "note" }, unit(whole) + " in all")), bar,
    h("ul", { class: "legend" }, ...shown.map((p) => h("li", { class: "key " + p.color }, p.name + " ", h("b", {}, unit(p.value))))));
  return box;
}
