/* now.js: what runs now, and the memory, as the daemon tells it. */
import { remove, textOf } from "./api.js";
import { announce, fill, h, iconButton } from "./dom.js";
import { Feed } from "./events.js";
import { bytes, count, duration, percent, short } from "./format.js";
import { stack } from "./plot.js";

/** @typedef {import("./types.js").Running} Running */
/** @typedef {import("./types.js").Status} Status */

/**
 * The budget, divided; of several devices or machines what the fullest has, and then each one's part.
 * @param {Status} status
 */
export function memoryBar(status) {
  const { memory: m, kvcache: k } = status;
  const loaded = status.models.filter((x) => x.state === "ready" || x.state === "unloading");
  const named = loaded.reduce((sum, x) => sum + x.weight_bytes, 0);
  const used = m.weight_bytes + m.scratch_bytes + m.arena_bytes;
  const box = stack("Memory", [
    ...loaded.map((x, i) => ({ name: x.name, value: x.weight_bytes, color: i % 2 ? "c5" : "c1" })),
    { name: "other weights", value: m.weight_bytes - named, color: "c5" },
    { name: "scratch", value: m.scratch_bytes, color: "c4" },
    { name: "cache in use", value: k.used_bytes, color: "c2" },
    { name: "cache idle", value: k.cached_bytes, color: "c3" },
    { name: "cache free", value: m.arena_bytes - k.used_bytes - k.cached_bytes, color: "c6" },
    { name: "free", value: Math.max(0, m.budget_bytes - used), color: "c0" },
  ], m.budget_bytes, bytes);
  if (m.ranks.length) {
    box.append(h("ul", { class: "legend ranks" }, ...m.ranks.map((r, i) => h("li", {}, `rank ${i} `,
      h("b", {}, bytes(r.weight_bytes)), " weights, ", h("b", {}, bytes(r.scratch_bytes)), " scratch"))));
  }
  return box;
}

export class NowView {
  constructor() {
    /** @type {{ data: Running[], total: number } | null} */
    this.requests = null;
    /** @type {Status | null} */
    this.status = null;
    this.feed = new Feed((type, data) => this.take(type, data), (text) => { this.state.textContent = text; });
    this.state = h("p", { class: "state", role: "status" });
    /** @type {Map<string, { at: number, output: number, speed: number | null }>} */
    this.before = new Map();
    this.notice = h("p", { class: "notice", role: "alert" });
    this.figures = h("dl", { class: "tiles" });
    this.memory = h("div", {});
    this.body = h("tbody", {});
    this.none = h("p", { class: "empty-line" }, "No request is running or waiting.");
    this.table = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Requests that run or wait" },
      h("table", {}, h("thead", {}, h("tr", {},
        ...["Request", "Model", "State", "Tokens", "Tokens/s", "Prompt", "Cached", "Age", "Client"].map((n, i) =>
          h("th", { scope: "col", class: i > 2 && i < 8 && "right" }, n)), h("th", { scope: "col" }, h("span", { class: "away" }, "Cancel")))), this.body));
    this.element = h("div", { class: "view" }, h("h1", { tabindex: -1 }, "Now"), this.state, this.notice, this.figures, this.table, this.none, this.memory);
  }

  show() {
    this.feed.start();
  }

  hide() {
    this.feed.stop();
  }

  /** @param {string} type @param {any} data */
  take(type, data) {
    if (type === "status") this.status = data;
    if (type === "requests") {
      this.requests = data;
      this.measure();
    }
    if (this.status && this.requests) this.draw(this.requests.data, this.requests.total, this.status);
  }

  /**
   * Tokens a second since the last look, smoothed.
   * @param {Running} r @param {number} now
   */
  speedOf(r, now) {
    const last = this.before.get(r.id);
    if (!last || now <= last.at) return null;
    const speed = Math.max(0, (r.output_tokens - last.output) / ((now - last.at) / 1000));
    if (r.state !== "decode" && !speed) return null;
    return last.speed === null ? speed : 0.5 * last.speed + 0.5 * speed;
  }

  measure() {
    /** @type {Map<string, { at: number, output: number, speed: number | null }>} */
    const next = new Map();
    for (const r of this.requests?.data ?? [])
      next.set(r.id, { at: r.age_s * 1000, output: r.output_tokens, speed: this.speedOf(r, r.age_s * 1000) });
    this.before = next;
  }

  /** @param {Running[]} list @param {number} total @param {Status} status */
  draw(list, total, status) {
    const sum = [...this.before.values()].reduce((n, r) => n + (r.speed ?? 0), 0);
    const tile = (/** @type {string} */ name, /** @type {string} */ value) => h("div", {}, h("dt", {}, name), h("dd", {}, value));
    fill(this.figures, tile("running", count(status.requests.running)), tile("in the queue", count(status.requests.waiting)),
      tile("paused", count(status.requests.paused)), tile("tokens/s", short(sum)),
      tile("device", status.device.split(",").slice(0, 2).join(",")));
    this.table.hidden = !list.length;
    this.none.hidden = Boolean(list.length);
    this.drawRows(list);
    this.notice.textContent = total > list.length ? `${count(total - list.length)} more are not listed.` : "";
    fill(this.memory, memoryBar(status));
  }

  /**
   * Rows keep their elements, so that a button keeps the focus.
   * @param {Running[]} list
   */
  drawRows(list) {
    const rows = new Map([...this.body.children].map((row) => [row.getAttribute("data-id"), row]));
    for (const r of list) {
      let row = rows.get(r.id);
      rows.delete(r.id);
      if (!row) {
        row = h("tr", { "data-id": r.id }, ...Array.from({ length: 9 }, (_, i) => h("td", { class: i > 2 && i < 8 && "right" })),
          h("td", {}, iconButton("close", "Cancel " + r.id, () => this.cancel(r.id))));
        this.body.append(row);
      }
      const prefill = r.state === "prefill" ? ` ${percent(r.prefilled_tokens / Math.max(1, r.prompt_tokens))}` : "";
      const values = [r.id, r.model, r.state + prefill + (r.priority ? ", priority " + r.priority : ""), count(r.output_tokens), short(this.before.get(r.id)?.speed),
        count(r.prompt_tokens), r.cached_tokens === null ? "–" : percent(r.cached_tokens / Math.max(1, r.prompt_tokens)),
        duration(r.age_s * 1000), r.client];
      values.forEach((v, i) => { if (row && row.children[i].textContent !== v) row.children[i].textContent = v; });
    }
    for (const row of rows.values()) row.remove();
  }

  /** @param {string} id */
  async cancel(id) {
    try {
      await remove("/v1/ingot/requests/" + encodeURIComponent(id));
      announce("Cancelled " + id);
    } catch (error) {
      this.notice.textContent = textOf(error);
    }
  }
}
