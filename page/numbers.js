/* numbers.js: the ledger over time as plots, the memory, and the table of requests. */
import { get, textOf } from "./api.js";
import { fill, h } from "./dom.js";
import { count, duration, percent, short } from "./format.js";
import { memoryBar } from "./now.js";
import { plot } from "./plot.js";
import { Requests } from "./requests.js";

/** @typedef {import("./types.js").Stats} Stats */
/** @typedef {import("./types.js").Step} Step */
/** @typedef {import("./plot.js").Series} Series */

const RANGES = /** @type {const} */ ([
  ["15 min", 900], ["1 hour", 3600], ["6 hours", 21600], ["1 day", 86400], ["1 week", 604800], ["4 weeks", 2419200],
]);
const STEPS = 60;
/* Plots are drawn again once a step, so that looking at a large ledger all day costs little. */
const LEAST_PAUSE_S = 15;
const LONGEST_PAUSE_S = 600;

/** @type {Omit<Step, "at">} */
const NOTHING = {
  requests: 0, refused: 0, errors: 0, cancelled: 0, prompt_tokens: 0, cached_tokens: 0,
  output_tokens: 0, decode_ms: null, ttft_ms: [null, null, null], itl_ms: [null, null, null],
};

/**
 * The daemon sends only steps in which requests arrived.
 * @param {Stats} stats
 */
function everyStep(stats) {
  const known = new Map(stats.data.map((d) => [Math.round((d.at - stats.from) / stats.step_s), d]));
  return known.size === 0 ? [] : Array.from({ length: STEPS }, (_, i) =>
    known.get(i) ?? { ...NOTHING, at: stats.from + i * stats.step_s });
}

export class NumbersView {
  constructor() {
    this.range_s = 3600;
    this.timer = 0;
    this.notice = h("p", { class: "notice", role: "alert" });
    this.figures = h("dl", { class: "tiles" });
    this.plots = h("div", { class: "plots" });
    this.memory = h("div", { class: "cell" });
    this.requests = new Requests();
    this.element = h("div", { class: "view" },
      h("div", { class: "row" }, h("h1", { tabindex: -1 }, "Numbers"), h("span", { class: "space" }), this.ranges()),
      this.notice, this.figures, this.plots, this.requests.element);
  }

  ranges() {
    return h("fieldset", { class: "segments" }, h("legend", { class: "away" }, "Range"),
      ...RANGES.map(([name, seconds]) => {
        const input = h("input", { type: "radio", name: "range", id: "range-" + seconds, checked: seconds === this.range_s });
        input.addEventListener("change", () => {
          this.range_s = seconds;
          this.read();
          this.readRows();
        });
        return h("span", {}, input, h("label", { for: input.id }, name));
      }));
  }

  show() {
    this.read();
    this.readRows();
  }

  hide() {
    clearTimeout(this.timer);
  }

  wait() {
    clearTimeout(this.timer);
    const pause_s = Math.min(LONGEST_PAUSE_S, Math.max(LEAST_PAUSE_S, this.range_s / STEPS));
    this.timer = window.setTimeout(() => (document.hidden ? this.wait() : this.read()), pause_s * 1000);
  }

  readRows() {
    this.requests.from = Math.floor(Date.now() / 1000 - this.range_s);
    this.requests.read(false);
  }

  async read() {
    this.wait();
    const step = this.range_s / STEPS;
    /* steps begin at round times, so that they do not change from look to look */
    const to = Math.ceil(Date.now() / 1000 / step) * step;
    try {
      const [stats, status] = await Promise.all([
        get(`/v1/ingot/stats?from=${to - this.range_s}&to=${to}&step=${step}`), get("/v1/ingot/status")]);
      this.notice.textContent = "";
      this.draw(stats);
      fill(this.memory, memoryBar(status));
    } catch (error) {
      this.notice.textContent = textOf(error);
    }
  }

  /** @param {Stats} stats */
  draw(stats) {
    const { total: t } = stats;
    const data = everyStep(stats);
    const tile = (/** @type {string} */ name, /** @type {string} */ value) => h("div", {}, h("dt", {}, name), h("dd", {}, value));
    fill(this.figures, tile("requests", count(t.requests ?? 0)), tile("output tokens", short(t.output_tokens ?? 0)),
      tile("first token, median", duration(t.ttft_ms?.[0])), tile("between tokens, median", duration(t.itl_ms?.[0])),
      tile("prompt from the cache", percent((t.cached_tokens ?? 0) / (t.prompt_tokens ?? 0))),
      tile("refused or failed", count((t.refused ?? 0) + (t.errors ?? 0))));
    const base = { at: data.map((d) => d.at), from: stats.from, to: stats.to, step_s: stats.step_s };
    /** @param {string} name @param {string} color @param {Series["kind"]} kind @param {(d: Step) => number | null} of */
    const series = (name, color, kind, of) => ({ name, color, kind, values: data.map(of) });
    /* the last step is still under way */
    const speed = (/** @type {Step} */ d) => d.output_tokens / Math.max(1, Math.min(stats.step_s, Date.now() / 1000 - d.at));
    const quantiles = (/** @type {"ttft_ms" | "itl_ms"} */ of) => [
      series("p50", "c1", "line", (d) => d[of][0]), series("p95", "c2", "line", (d) => d[of][1]), series("p99", "c4", "line", (d) => d[of][2])];
    fill(this.plots,
      plot({ ...base, title: "Output tokens a second", unit: short, series: [series("output", "c1", "area", speed)] }),
      plot({ ...base, title: "Time to first token", unit: duration, series: quantiles("ttft_ms") }),
      plot({ ...base, title: "Time between tokens", unit: duration, series: quantiles("itl_ms") }),
      plot({ ...base, title: "Prompt tokens from the cache", unit: (v) => percent(v ?? NaN), most: 1,
        series: [series("cached", "c3", "area", (d) => (d.prompt_tokens ? d.cached_tokens / d.prompt_tokens : null))] }),
      plot({ ...base, title: "Requests", unit: short, series: [
        series("finished", "c1", "bar", (d) => d.requests - d.refused - d.errors - d.cancelled),
        series("cancelled", "c5", "bar", (d) => d.cancelled), series("refused or failed", "c4", "bar", (d) => d.refused + d.errors)] }),
      this.memory);
  }
}
