/* requests.js: the rows of the ledger: filters, the latest first, and as CSV. */
import { get, request, textOf } from "./api.js";
import { download, fill, h } from "./dom.js";
import { count, duration, time } from "./format.js";

/** @typedef {import("./types.js").Row} Row */

const PAGE = 100;
const FILTERS = ["model", "finish", "endpoint", "key", "client"];
const FINISHES = ["", "stop", "length", "cancelled", "error", "refused"];

export class Requests {
  constructor() {
    this.from = 0;
    this.last = 0;
    /** @type {Record<string, HTMLInputElement | HTMLSelectElement>} */
    this.fields = {};
    this.notice = h("p", { class: "notice", role: "alert" });
    this.body = h("tbody", {});
    this.more = h("button", { type: "button", onclick: () => this.read(true) }, "Show more");
    this.none = h("p", { class: "empty-line" }, "No request matches.");
    const heads = ["Time", "Model", "Endpoint", "Status", "Finish", "Prompt", "Cached", "Output", "First token", "In all", "Key", "Client"];
    this.element = h("section", { "aria-labelledby": "requests-title" }, h("h2", { id: "requests-title" }, "Requests"),
      h("form", { class: "row filters", onsubmit: (e) => { e.preventDefault(); this.read(false); } },
        ...FILTERS.map((name) => this.field(name)),
        h("button", { type: "submit" }, "Filter"), h("button", { type: "button", onclick: () => this.save() }, "CSV")),
      this.notice,
      h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Requests" }, h("table", { class: "rows" },
        h("thead", {}, h("tr", {}, ...heads.map((n, i) => h("th", { scope: "col", class: i > 4 && i < 10 && "right" }, n)))), this.body)),
      this.none, this.more);
  }

  /** @param {string} name */
  field(name) {
    const field = name === "finish" ? h("select", { id: "filter-finish" }, ...FINISHES.map((f) => h("option", { value: f }, f || "any"))) :
      h("input", { id: "filter-" + name, type: "text", placeholder: "any", autocomplete: "off", spellcheck: "false" });
    this.fields[name] = field;
    return h("div", { class: "field" }, h("label", { for: field.id }, name[0].toUpperCase() + name.slice(1)), field);
  }

  /** @param {Record<string, string>} extra */
  query(extra) {
    const q = new URLSearchParams({ from: String(this.from), ...extra });
    for (const name of FILTERS) if (this.fields[name].value.trim()) q.set(name, this.fields[name].value.trim());
    return "/v1/ingot/ledger?" + q.toString().replaceAll("+", "%20");
  }

  /** @param {boolean} more  after those that are shown */
  async read(more) {
    try {
      /** @type {Record<string, string>} */
      const extra = { limit: String(PAGE) };
      if (more) extra.before = String(this.last);
      const list = await get(this.query(extra));
      /** @type {Row[]} */
      const rows = list.data;
      this.notice.textContent = "";
      if (!more) fill(this.body);
      this.body.append(...rows.map((r) => this.row(r)));
      if (rows.length) this.last = rows[rows.length - 1].row;
      this.more.hidden = !list.has_more;
      this.none.hidden = this.body.childElementCount > 0;
    } catch (error) {
      this.notice.textContent = textOf(error);
    }
  }

  /** @param {Row} r */
  row(r) {
    const why = [r.cancel_reason, r.error, r.ignored && "left out: " + r.ignored, r.priority && "priority " + r.priority].filter(Boolean).join("; ");
    const values = [time(r.received_ns / 1e9), r.model, r.endpoint, String(r.status), r.finish, count(r.prompt_tokens),
      count(r.cached_tokens), count(r.output_tokens), duration(r.ttft_ms), duration(r.total_ms), r.key, r.client];
    return h("tr", {}, ...values.map((v, i) =>
      h("td", { class: i > 4 && i < 10 && "right" }, v, i === 4 && why && h("span", { class: "why" }, why))));
  }

  async save() {
    try {
      download("ingot-requests.csv", "text/csv", await (await request("GET", this.query({ format: "csv" }))).text());
    } catch (error) {
      this.notice.textContent = textOf(error);
    }
  }
}
