/* keys.js: API keys: list, add, remove. */
import { get, post, remove, setKey, textOf } from "./api.js";
import { confirm, copy, fill, h, icon, iconButton } from "./dom.js";
import { count } from "./format.js";

/** @typedef {import("./types.js").Key} Key */

const LIMITS = /** @type {const} */ ([
  ["max_concurrent", "At once"], ["requests_per_minute", "Requests a minute"], ["tokens_per_minute", "Tokens a minute"],
]);

const SHARES = /** @type {const} */ ([["weight", "Weight", 1, 100, "1"], ["priority", "Priority", -100, 100, "0"]]);

/** @param {number | null} limit */
function limitText(limit) {
  return limit === null ? "default" : limit === 0 ? "none" : count(limit);
}

export class KeysView {
  constructor() {
    this.required = false;
    this.notice = h("p", { class: "notice", role: "alert" });
    this.note = h("p", { class: "note" });
    this.made = h("div", { role: "status" });
    this.body = h("tbody", {});
    this.table = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Keys" }, h("table", {},
      h("thead", {}, h("tr", {}, ...["Id", "Role", "Added", ...LIMITS.map(([, n]) => n), ...SHARES.map(([, n]) => n), "Note"].map((n) => h("th", { scope: "col" }, n)),
        h("th", { scope: "col" }, h("span", { class: "away" }, "Remove")))), this.body));
    this.id = h("input", { id: "key-id", type: "text", pattern: "[a-z0-9_\\-]{1,39}", autocomplete: "off", spellcheck: "false", placeholder: "made up if empty" });
    this.role = h("select", { id: "key-role" }, ...["user", "administrator", "monitor"].map((r) => h("option", {}, r)));
    this.text = h("input", { id: "key-note", type: "text", maxlength: 120, autocomplete: "off" });
    this.limits = LIMITS.map(([name]) => h("input", { id: "key-" + name, type: "number", min: 0, max: 1000000000, step: 1, placeholder: "default" }));
    this.shares = SHARES.map(([name, , min, max, usual]) => h("input", { id: "key-" + name, type: "number", min, max, step: 1, placeholder: usual }));
    const field = (/** @type {string} */ label, /** @type {HTMLElement} */ input) => h("div", { class: "field" }, h("label", { for: input.id }, label), input);
    this.element = h("div", { class: "view" }, h("h1", { tabindex: -1 }, "Keys"), this.note, this.notice, this.table,
      h("section", { "aria-labelledby": "add-title" }, h("h2", { id: "add-title" }, "Add a key"),
        h("form", { class: "filters row", onsubmit: (e) => { e.preventDefault(); this.add(); } },
          field("Id", this.id), field("Role", this.role), ...LIMITS.map(([, label], i) => field(label, this.limits[i])),
          ...SHARES.map(([, label], i) => field(label, this.shares[i])),
          field("Note", this.text), h("button", { type: "submit", class: "primary" }, "Add")),
        h("p", { class: "note" }, "A limit of 0 is none; without one the configuration's applies. Requests of a key with a smaller priority come first; of equal ones a key with twice the weight gets twice as much."), this.made));
  }

  show() {
    this.read();
  }

  hide() {
    fill(this.made);
  }

  async read() {
    try {
      const list = await get("/v1/ingot/keys");
      this.required = list.required;
      this.note.textContent = list.required ? "Every request needs one of these keys." :
        "There are no keys: every program on this machine may use the daemon. With the first key, which must be an administrator's, every request needs one.";
      if (!list.required) this.role.value = "administrator";
      this.table.hidden = !list.data.length;
      fill(this.body, ...list.data.map((/** @type {Key} */ k) => this.row(k)));
    } catch (error) {
      this.notice.textContent = textOf(error);
    }
  }

  /** @param {Key} k */
  row(k) {
    return h("tr", {}, ...[k.id, k.role, k.created.slice(0, 10), ...LIMITS.map(([name]) => limitText(k[name])), ...SHARES.map(([name]) => String(k[name])), k.note].map((v) => h("td", {}, v)),
      h("td", {}, iconButton("remove", "Remove " + k.id, () => this.remove(k))));
  }

  async add() {
    /** @type {Record<string, unknown>} */
    const body = { role: this.role.value };
    if (this.id.value) body.id = this.id.value;
    if (this.text.value.trim()) body.note = this.text.value.trim();
    LIMITS.forEach(([name], i) => { if (this.limits[i].value !== "") body[name] = Number(this.limits[i].value); });
    SHARES.forEach(([name], i) => { if (this.shares[i].value !== "") body[name] = Number(this.shares[i].value); });
    try {
      const made = await post("/v1/ingot/keys", body);
      this.notice.textContent = "";
      if (!this.required) setKey(made.key);
      const button = h("button", { type: "button", "aria-label": "Copy the key" }, icon("copy"));
      button.addEventListener("click", () => copy(made.key, button));
      fill(this.made, h("div", { class: "made" }, h("p", {}, `The key ${made.id}. It is shown only this once.`),
        h("div", { class: "row" }, h("code", {}, made.key), button)));
      for (const input of [this.id, this.text, ...this.limits, ...this.shares]) input.value = "";
      button.focus();
    } catch (error) {
      this.notice.textContent = textOf(error);
    }
    this.read();
  }

  /** @param {Key} k */
  async remove(k) {
    if (!(await confirm(`Remove the key ${k.id}? Programs that use it are refused from now on.`, "Remove"))) return;
    try {
      await remove("/v1/ingot/keys/" + encodeURIComponent(k.id));
      this.notice.textContent = "";
    } catch (error) {
      this.notice.textContent = textOf(error);
    }
    this.read();
  }
}
