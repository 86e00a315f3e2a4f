/* turns.js: draws the turns of a chat.  A running turn is drawn again as it grows, by its parts. */
import { codeNode, Markdown } from "./markdown.js";
import { copy, h, icon, iconButton } from "./dom.js";
import { count, duration, short } from "./format.js";
import { textOfTurn } from "./store.js";

/** @typedef {import("./types.js").Turn} Turn */
/** @typedef {import("./types.js").Part} Part */
/** @typedef {import("./types.js").Result} Result */

/**
 * What can be done with a turn.
 * @typedef {{
 *   retry: (turn: Turn) => void, edit: (turn: Turn, text: string) => void,
 *   show: (turn: Turn) => void, answer: (turn: Turn, results: Result[]) => void
 * }} Actions
 */

/** @param {string} text  the arguments of a call, maybe not complete */
function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

class PartView {
  /** @param {Part} part */
  constructor(part) {
    this.part = part;
    this.shown = "";
    this.markdown = new Markdown();
    this.body = h("div", { class: "part-body" });
    /** @type {HTMLElement} */
    this.element = this.markdown.element;
    if (part.kind === "reasoning") {
      this.label = h("span", {}, "Reasoning");
      this.element = h("details", { class: "reasoning" }, h("summary", {}, this.label), this.markdown.element);
    } else if (part.kind === "call") {
      this.element = h("details", { class: "call", open: true },
        h("summary", {}, "Tool call ", h("code", {}, part.name || "…")), this.body);
    }
  }

  /** @param {boolean} running */
  update(running) {
    if (this.label) this.label.textContent = running ? "Reasoning …" : "Reasoning";
    if (this.shown === this.part.text && this.shown) return;
    this.shown = this.part.text;
    if (this.part.kind === "call") this.body.replaceChildren(codeNode(pretty(this.part.text), "json"));
    else this.markdown.show(this.part.text);
  }
}

/** @param {Turn} turn */
function figuresText(turn) {
  const f = turn.figures;
  if (!f) return "";
  /* of a reply that came at once nothing can be said */
  const speed = f.decode_ms && f.decode_ms > 20 && f.output > 1 ? short(((f.output - 1) * 1000) / f.decode_ms) + " tok/s" : "";
  return [
    `${count(f.output)} tokens`, speed, f.first_ms !== null && `first after ${duration(f.first_ms)}`,
    `prompt ${count(f.prompt)}` + (f.cached ? `, ${count(f.cached)} cached` : ""),
  ].filter(Boolean).join(" · ");
}

/** @type {Record<string, string>} */
const ENDS = {
  stopped: "Stopped.",
  cut: "The connection was lost before the reply ended.",
};

export class TurnView {
  /** @param {Turn} turn @param {Actions} actions */
  constructor(turn, actions) {
    this.turn = turn;
    this.actions = actions;
    /** @type {PartView[]} */
    this.parts = [];
    this.drawn = "";
    this.content = h("div", { class: "content" });
    this.end = h("p", { class: "end" });
    this.figures = h("p", { class: "figures" });
    this.tools = h("div", { class: "tools" });
    this.choose = h("div", { class: "choose" });
    const who = turn.role === "assistant" ? turn.model || "Model" : turn.role === "tool" ? "Results" : "You";
    this.who = h("h2", { class: "who" }, who);
    this.element = h("article", { class: "turn " + turn.role, "data-id": turn.id },
      this.who, this.content, this.end, h("div", { class: "row foot" }, this.choose, this.tools, this.figures));
    if (turn.role === "user") this.content.append(h("div", { class: "said" }, turn.text));
    if (turn.role === "tool")
      this.content.append(...turn.results.map((r) => codeNode(r.output, "result")));
    this.update();
  }

  update() {
    const { turn } = this;
    const running = turn.state === "running";
    for (let i = 0; i < turn.parts.length; i++) {
      if (!this.parts[i]) {
        this.parts[i] = new PartView(turn.parts[i]);
        this.content.append(this.parts[i].element);
      }
      this.parts[i].update(running && i === turn.parts.length - 1);
    }
    if (turn.role === "assistant") this.who.textContent = turn.model || "Model";
    this.element.classList.toggle("running", running);
    this.end.textContent = turn.state === "failed" ? turn.error : ENDS[turn.state] ?? "";
    this.end.classList.toggle("bad", turn.state === "failed");
    this.figures.textContent = figuresText(turn);
    if (this.drawn !== turn.state) this.drawTools();
    this.drawn = turn.state;
  }

  drawTools() {
    const { turn, actions } = this;
    const running = turn.state === "running";
    this.tools.replaceChildren();
    if (running) return;
    if (turn.role !== "tool") {
      const button = iconButton("copy", "Copy this message", () => copy(textOfTurn(turn), button));
      this.tools.append(button);
    }
    if (turn.role === "user")
      this.tools.append(iconButton("edit", "Edit, and go on from there", () => this.beginEdit()));
    if (turn.role === "assistant")
      this.tools.append(iconButton("retry", "Ask again", () => actions.retry(turn)));
  }

  /**
   * Which of the turns with the same parent this is.
   * @param {Turn[]} siblings
   */
  setSiblings(siblings) {
    const at = siblings.indexOf(this.turn);
    this.choose.replaceChildren();
    if (siblings.length < 2) return;
    this.choose.append(
      iconButton("before", "The version before", () => this.actions.show(siblings[at - 1]), { disabled: at === 0 }),
      h("span", { "aria-label": `version ${at + 1} of ${siblings.length}` }, `${at + 1}/${siblings.length}`),
      iconButton("after", "The next version", () => this.actions.show(siblings[at + 1]),
        { disabled: at === siblings.length - 1 }));
  }

  beginEdit() {
    const area = h("textarea", { rows: 4, "aria-label": "Your message" });
    area.value = this.turn.text;
    const before = [...this.content.childNodes];
    const back = () => {
      this.content.replaceChildren(...before);
      this.tools.hidden = false;
    };
    const send = () => area.value.trim() && this.actions.edit(this.turn, area.value.trim());
    area.addEventListener("keydown", (e) => {
      if (e.key === "Escape") back();
      if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) send();
    });
    this.tools.hidden = true;
    this.content.replaceChildren(area, h("div", { class: "row end" },
      h("button", { type: "button", onclick: back }, "Cancel"),
      h("button", { type: "button", class: "primary", onclick: send }, "Send")));
    area.focus();
  }

  /** The last turn has calls that wait for their results. */
  askForResults() {
    const calls = this.turn.parts.filter((p) => p.kind === "call" && p.call_id);
    if (!calls.length || this.turn.state !== "done") return;
    const areas = calls.map((p) => h("textarea", { rows: 2, id: "result-" + p.call_id }));
    const send = () => this.actions.answer(this.turn, calls.map((p, i) =>
      ({ call_id: p.call_id ?? "", output: areas[i].value, custom: p.custom ?? false })));
    this.element.append(h("form", { class: "results", onsubmit: (e) => { e.preventDefault(); send(); } },
      ...calls.flatMap((p, i) => [h("label", { for: areas[i].id }, `Result of ${p.name}`), areas[i]]),
      h("button", { type: "submit" }, icon("send"), "Send results")));
  }
}
