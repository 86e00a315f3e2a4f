/* models.js: the configured models: load, unload, pin; and downloads. */
import { get, lines, post, textOf } from "./api.js";
import { announce, fill, h } from "./dom.js";
import { Feed } from "./events.js";
import { bytes, count, duration } from "./format.js";

/** @typedef {import("./types.js").Model} Model */

const EVERY_MS = 10000; /* for what changes with the time alone */

/** @param {Model} m */
function fitText(m) {
  if (m.state === "ready" || m.state === "loading") return "";
  return { yes: "enough", instead: "enough when idle models are unloaded", no: "not enough", unknown: "not known yet" }[
    m.fits ?? "unknown"];
}

/** @param {Model} m */
function stayText(m) {
  if (m.state !== "ready") return "";
  if (m.active_requests) return `${count(m.active_requests)} active`;
  if (m.expires_s === null || m.expires_s === undefined) return "stays loaded";
  return `unloaded in ${duration(m.expires_s * 1000)}`;
}

export class ModelsView {
  constructor() {
    this.timer = 0;
    this.feed = new Feed((type) => { if (type === "models") this.read(); }, () => {});
    this.notice = h("p", { class: "notice", role: "alert" });
    this.list = h("ul", { class: "cards" });
    this.name = h("input", { id: "pull-name", type: "text", required: true, maxlength: 200, autocomplete: "off", spellcheck: "false",
      placeholder: "qwen3-4b", "aria-describedby": "pull-hint" });
    this.progress = h("progress", { max: 1, value: 0, hidden: true, "aria-label": "Download" });
    this.progressText = h("p", { class: "note", role: "status" });
    this.pullButton = h("button", { type: "submit" }, "Download");
    this.element = h("div", { class: "view" }, h("h1", { tabindex: -1 }, "Models"), this.notice, this.list,
      h("section", { "aria-labelledby": "pull-title" }, h("h2", { id: "pull-title" }, "Download a model"),
        h("form", { class: "row", onsubmit: (e) => { e.preventDefault(); this.pull(); } },
          h("label", { for: "pull-name", class: "away" }, "Name of the model"), this.name, this.pullButton),
        h("p", { id: "pull-hint", class: "note" }, "A name that ", h("code", {}, "ingot models"), " lists, or OWNER/REPO:QUANT of the Hugging Face Hub."),
        this.progress, this.progressText));
  }

  show() {
    this.feed.start();
    this.timer = window.setInterval(() => document.hidden || this.read(), EVERY_MS);
  }

  hide() {
    this.feed.stop();
    clearInterval(this.timer);
  }

  async read() {
    try {
      this.draw((await get("/v1/ingot/models")).data);
    } catch (error) {
      this.notice.textContent = textOf(error);
    }
  }

  /**
   * Cards that did not change keep their elements, so that a button keeps the focus.
   * @param {Model[]} models
   */
  draw(models) {
    const old = new Map([...this.list.children].map((c) => [c.getAttribute("data-id"), c]));
    const focused = document.activeElement?.id;
    for (const m of models) {
      const card = this.card(m);
      const before = old.get(m.id);
      old.delete(m.id);
      if (!before) this.list.append(card);
      else if (before.textContent !== card.textContent) before.replaceWith(card);
    }
    for (const gone of old.values()) gone.remove();
    if (focused && document.activeElement?.id !== focused) document.getElementById(focused)?.focus();
  }

  /** @param {Model} m */
  card(m) {
    const loaded = m.state === "ready";
    const busy = m.state === "loading" || m.state === "unloading";
    // a busy button is not `disabled`: that would take the focus from who has just pressed it
    const act = (/** @type {string} */ what, /** @type {string} */ label, /** @type {() => void} */ onclick, busy = false) =>
      h("button", { type: "button", id: `${what}-${m.id}`, onclick: () => busy || onclick(), "aria-disabled": busy ? "true" : undefined,
        "aria-label": `${label} ${m.id}` }, label);
    const facts = /** @type {[string, string][]} */ ([
      ...(m.task && m.task !== "generate" ? [["Task", m.task + (m.dimensions ? `, ${m.dimensions} dimensions` : "")]] : []),
      ["File", `${bytes(m.file_bytes)}${m.quantization ? ", " + m.quantization : ""}`],
      ["Memory", `${bytes((m.weight_bytes ?? 0) + (m.scratch_bytes ?? 0))}`],
      ["Context", m.max_input_tokens ? count(m.max_input_tokens) + " tokens" : "–"],
      loaded ? ["Loaded", `in ${duration((m.load_s ?? 0) * 1000)}, ${stayText(m)}`] : ["Space", fitText(m) || "–"],
    ]);
    return h("li", { class: "card", "data-id": m.id },
      h("div", { class: "row" }, h("h2", {}, m.id), h("span", { class: "badge " + m.state }, m.state),
        m.default && h("span", { class: "badge" }, "default"), m.pinned && h("span", { class: "badge" }, "pinned")),
      h("dl", { class: "facts" }, ...facts.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
      m.error && h("p", { class: "bad" }, m.error), h("p", { class: "path" }, m.file ?? ""),
      h("div", { class: "row" },
        loaded ? act("switch", "Unload", () => this.run("/v1/ingot/models/unload", { model: m.id }, `${m.id} is unloaded`)) :
          act("switch", "Load", () => this.run("/v1/ingot/models/load", { model: m.id }, `${m.id} is loading`), busy),
        act("pin", m.pinned ? "Unpin" : "Pin", () => this.run("/v1/ingot/models/pin", { model: m.id, pinned: !m.pinned },
          m.pinned ? `${m.id} may be unloaded` : `${m.id} stays loaded`))));
  }

  /** @param {string} path @param {unknown} body @param {string} said */
  async run(path, body, said) {
    try {
      await post(path, body);
      this.notice.textContent = "";
      announce(said);
    } catch (error) {
      this.notice.textContent = textOf(error);
    }
    this.read();
  }

  async pull() {
    if (this.pullButton.ariaDisabled === "true") return;
    this.pullButton.ariaDisabled = "true";
    this.progress.hidden = false;
    this.progress.removeAttribute("value");
    fill(this.progressText, "Asking …");
    try {
      await lines("/api/pull", { model: this.name.value.trim() }, (line) => {
        if (line.error) throw new Error(line.error);
        if (line.total) {
          this.progress.value = (line.completed ?? 0) / line.total;
          fill(this.progressText, `${line.status}: ${bytes(line.completed ?? 0)} of ${bytes(line.total)}`);
        } else fill(this.progressText, line.status === "success" ? "Downloaded: it is in the list above." : line.status ?? "");
      });
    } catch (error) {
      fill(this.progressText, textOf(error));
    }
    this.progress.hidden = true;
    this.pullButton.ariaDisabled = "false";
    this.read();
  }
}
