/* chat.js: the chats.  A reply streams over the WebSocket and continues the response before it by its
 * id; where the daemon does not have that any more, the whole conversation is sent instead. */
import { ApiError, get, textOf } from "./api.js";
import { announce, confirm, download, fill, h, iconButton } from "./dom.js";
import { count } from "./format.js";
import { Connection } from "./stream.js";
import * as store from "./store.js";
import { TurnView } from "./turns.js";

/** @typedef {import("./types.js").Chat} Chat */
/** @typedef {import("./types.js").Turn} Turn */
/** @typedef {import("./types.js").Part} Part */
/** @typedef {import("./types.js").Model} Model */
/** @typedef {import("./types.js").Settings} Settings */
/** @typedef {import("./types.js").Result} Result */

const SAVE_MS = 500;
const MODELS_MS = 4000;

/** @typedef {{ turn: Turn, chat: Chat, lane: string, began: number, first: number, stopping: boolean }} Run */

/* ---- requests ---- */

/** @param {Turn} turn @returns {unknown[]} */
function itemsOf(turn) {
  if (turn.role === "user") return [{ type: "message", role: "user", content: turn.text }];
  if (turn.role === "tool")
    return turn.results.map((r) =>
      ({ type: r.custom ? "custom_tool_call_output" : "function_call_output", call_id: r.call_id, output: r.output }));
  return turn.parts.map((p) => {
    if (p.kind === "text")
      return { type: "message", role: "assistant", content: [{ type: "output_text", text: p.text }] };
    if (p.kind === "reasoning")
      return { type: "reasoning", summary: [], content: [{ type: "reasoning_text", text: p.text }] };
    if (p.custom) return { type: "custom_tool_call", call_id: p.call_id, name: p.name, input: p.text };
    return { type: "function_call", call_id: p.call_id, name: p.name, arguments: p.text };
  });
}

/** @param {Settings} s @returns {Record<string, unknown>} */
function parametersOf(s) {
  /** @type {Record<string, unknown>} */
  const out = {};
  for (const name of /** @type {const} */ (["temperature", "top_p", "top_k", "min_p", "repetition_penalty",
    "max_output_tokens", "seed"]))
    if (s[name].trim() !== "") out[name] = Number(s[name]);
  if (s.instructions.trim()) out.instructions = s.instructions;
  if (s.stop) out.stop = s.stop.split("\n").filter(Boolean);
  if (s.effort) out.reasoning = { effort: s.effort };
  if (s.tools.trim()) out.tools = JSON.parse(s.tools);
  return out;
}

/**
 * @param {Chat} chat @param {Turn} turn  the one to be written @param {boolean} whole  the conversation
 * is sent, although a response could be continued
 */
function requestOf(chat, turn, whole) {
  const before = store.path(chat, turn.parent);
  let from = 0;
  let previous;
  for (let i = before.length - 1; i >= 0 && !whole; i--)
    if (before[i].role === "assistant" && before[i].response && before[i].state !== "failed" && before[i].state !== "cut") {
      previous = before[i].response;
      from = i + 1;
      break;
    }
  return {
    model: chat.settings.model || undefined, input: before.slice(from).flatMap(itemsOf),
    previous_response_id: previous, ...parametersOf(chat.settings),
  };
}

/* ---- events ---- */

/** @param {Turn} turn @param {any} event */
function addItem(turn, event) {
  const item = event.item;
  if (item.type === "function_call" || item.type === "custom_tool_call")
    turn.parts[event.output_index] = {
      kind: "call", text: "", name: (item.namespace ? item.namespace + "." : "") + item.name,
      call_id: item.call_id, custom: item.type === "custom_tool_call",
    };
  else turn.parts[event.output_index] = { kind: item.type === "reasoning" ? "reasoning" : "text", text: "" };
}

/** @type {Set<string>} */
const DELTAS = new Set(["response.output_text.delta", "response.reasoning_text.delta",
  "response.function_call_arguments.delta", "response.custom_tool_call_input.delta"]);

/** @param {Run} run @param {any} response */
function finish(run, response) {
  const usage = response.usage;
  const reason = response.incomplete_details?.reason;
  run.turn.state = response.status === "failed" ? "failed" : response.status === "cancelled" || reason === "cancelled" || run.stopping ? "stopped" : "done";
  run.turn.error = response.error?.message ?? "";
  if (response.status === "incomplete" && reason === "max_output_tokens")
    run.turn.error = "";
  if (!usage) return;
  run.turn.figures = {
    prompt: usage.input_tokens, cached: usage.input_tokens_details?.cached_tokens ?? 0,
    output: usage.output_tokens, first_ms: run.first ? run.first - run.began : null,
    decode_ms: run.first ? performance.now() - run.first : null,
  };
}

/* ---- the view ---- */

export class ChatView {
  /** @param {boolean} administrator */
  constructor(administrator) {
    this.administrator = administrator;
    this.connection = new Connection((state) => this.showState(state));
    /** @type {Run[]} */
    this.runs = [];
    /** @type {Map<string, TurnView>} */
    this.views = new Map();
    /** @type {Model[]} */
    this.models = [];
    this.modelsKnown = false;
    this.frame = 0;
    this.saved = 0;
    this.timer = 0;
    store.load();
    store.whenNotSaved((text) => this.say(text));
    this.chat = store.all()[0] ?? store.create();
    this.list = h("ul", { class: "chats" });
    this.state = h("p", { class: "state", role: "status" });
    this.notice = h("p", { class: "notice", role: "alert" });
    this.model = h("select", { id: "model", "aria-describedby": "model-note", onchange: () => this.chooseModel() });
    this.modelNote = h("span", { id: "model-note", class: "note" });
    this.log = h("div", { class: "log", role: "log", "aria-label": "Conversation", "aria-live": "off" });
    this.area = h("textarea", { id: "message", rows: 1, placeholder: "Write a message", "aria-label": "Message",
      oninput: () => this.grow(), onkeydown: /** @type {EventListener} */ ((e) => this.key(/** @type {KeyboardEvent} */ (e))) });
    this.sendButton = iconButton("send", "Send", () => this.send(), { class: "primary round" });
    this.stopButton = iconButton("stop", "Stop the reply", () => this.stop(), { class: "primary round", hidden: true });
    this.settings = h("section", { id: "settings", class: "settings", hidden: true, "aria-label": "Settings of this chat" });
    this.tune = iconButton("tune", "Settings of this chat", () => this.toggleSettings(),
      { "aria-expanded": "false", "aria-controls": "settings" });
    this.aside = h("nav", { id: "chats", class: "side", "aria-label": "Chats" },
      h("button", { type: "button", class: "wide", onclick: () => this.begin() }, "New chat"), this.list);
    this.aside.addEventListener("keydown", (e) => {
      if (e.key !== "Escape" || !this.aside.classList.contains("open")) return;
      this.closeSide();
      this.menu.focus();
    });
    this.menu = iconButton("menu", "Chats", () => this.toggleSide(),
      { "aria-expanded": "false", "aria-controls": "chats", class: "quiet only-small" });
    this.scroll = h("div", { class: "scroller", tabindex: -1, onscroll: () => this.noteScroll() }, this.log);
    this.following = true;
    this.element = h("div", { class: "chat" }, this.aside,
      h("div", { class: "talk" },
        h("div", { class: "row bar" }, this.menu, h("label", { for: "model", class: "away" }, "Model"), this.model,
          this.modelNote, h("span", { class: "space" }), this.state, this.tune, this.exportMenu()),
        this.settings, this.notice, this.scroll,
        h("form", { class: "composer", onsubmit: (e) => { e.preventDefault(); this.send(); } },
          this.area, this.sendButton, this.stopButton)));
    addEventListener("resize", () => this.follow());
    addEventListener("pagehide", () => this.saveRuns());
  }

  exportMenu() {
    const name = () => (this.chat.title || "chat").replaceAll(/[^\w-]+/g, "-").slice(0, 40);
    const close = () => menu.removeAttribute("open");
    const menu = h("details", { class: "menu" }, h("summary", { "aria-label": "Export this chat", title: "Export this chat" }, "Export"),
      h("div", { class: "sheet" },
        h("button", { type: "button", onclick: () => { close(); download(name() + ".md", "text/markdown", store.asMarkdown(this.chat)); } }, "As Markdown"),
        h("button", { type: "button", onclick: () => { close(); download(name() + ".json", "application/json", JSON.stringify(this.chat, null, 2)); } }, "As JSON")));
    menu.addEventListener("keydown", (e) => { if (e.key === "Escape") { close(); menu.querySelector("summary")?.focus(); } });
    menu.addEventListener("focusout", (e) => { if (!menu.contains(/** @type {Node | null} */ (e.relatedTarget))) close(); });
    return menu;
  }

  /** @param {string} [id] */
  show(id) {
    const chat = id ? store.find(id) : undefined;
    if (chat && chat !== this.chat) {
      this.chat = chat;
      this.drawChat();
    } else if (!this.views.size) this.drawChat();
    this.connection.open();
    this.readModels();
    this.timer = window.setInterval(() => document.hidden || this.readModels(), MODELS_MS);
  }

  hide() {
    clearInterval(this.timer);
  }

  /** The key has changed. */
  reconnect() {
    this.connection.close();
    this.connection.open();
  }

  /** @param {string} text */
  say(text) {
    this.notice.textContent = text;
  }

  /** @param {import("./stream.js").State} state */
  showState(state) {
    if (!this.state) return;
    this.state.textContent = state === "waiting" ? "Connection lost, trying again" : "";
  }

  /* ---- models ---- */

  async readModels() {
    try {
      const list = await get(this.administrator ? "/v1/ingot/models" : "/v1/models");
      // models of embeddings and rerankers can't chat
      const models = list.data.filter((/** @type {Model} */ m) => !m.alias_of && (m.task ?? "generate") === "generate");
      const changed = !this.modelsKnown || !models.length !== !this.models.length;
      this.models = models;
      this.modelsKnown = true;
      this.drawModels();
      if (changed) this.drawWelcome();
    } catch (error) {
      if (!(error instanceof ApiError) || error.status === 0) return;
      this.say(textOf(error));
    }
  }

  drawModels() {
    const chosen = this.models.find((m) => m.id === this.chat.settings.model) ?? this.models.find((m) => m.default);
    const labels = this.models.map((m) => m.id + (m.state === "ready" ? "" : m.fits === "no" ? " – does not fit" : " – " + m.state));
    if (labels.join("\n") !== this.labels)
      fill(this.model, ...this.models.map((m, i) => h("option", { value: m.id }, labels[i])));
    this.labels = labels.join("\n");
    this.model.hidden = !labels.length;
    if (!chosen) {
      this.modelNote.textContent = "";
      return;
    }
    this.model.value = chosen.id;
    /** @type {Record<string, string>} */
    const states = { ready: "loaded", loading: "loading …", unloaded: "loads with the first message", unloading: "being unloaded", failed: "failed to load" };
    const fits = chosen.state === "unloaded" && chosen.fits === "instead" ? ", unloads another" :
      chosen.state === "unloaded" && chosen.fits === "no" ? ", but does not fit the memory" : "";
    const context = chosen.max_input_tokens ? ` · ${count(chosen.max_input_tokens)} tokens` : "";
    this.modelNote.textContent = (states[chosen.state] ?? chosen.state) + fits + context;
  }

  chooseModel() {
    this.chat.settings.model = this.model.value;
    if (this.chat.leaf) store.save(this.chat);
    this.drawModels();
  }

  /* ---- chats ---- */

  drawList() {
    const chats = store.all();
    fill(this.list, ...chats.map((c) => h("li", { class: c === this.chat && "current" },
      h("a", { href: "#/chat/" + c.id, "aria-current": c === this.chat && "page", onclick: () => this.closeSide() }, c.title || "New chat"),
      iconButton("remove", "Delete " + (c.title || "this chat"), () => this.forget(c)))));
  }

  /** @param {Chat} chat */
  async forget(chat) {
    if (!(await confirm(`Delete “${chat.title || "New chat"}”? It is saved in this browser alone.`, "Delete"))) return;
    store.forget(chat.id);
    if (chat === this.chat) {
      this.chat = store.all()[0] ?? store.create();
      this.drawChat();
    } else this.drawList();
  }

  begin() {
    if (this.chat.leaf) this.chat = store.create();
    history.replaceState(null, "", "#/chat");
    this.closeSide();
    this.drawChat();
    this.area.focus();
  }

  toggleSide() {
    const open = this.aside.classList.toggle("open");
    this.menu.setAttribute("aria-expanded", String(open));
    if (open) this.aside.querySelector("button")?.focus();
  }

  closeSide() {
    this.aside.classList.remove("open");
    this.menu.setAttribute("aria-expanded", "false");
  }

  drawChat() {
    const turns = store.path(this.chat, this.chat.leaf);
    /** @type {import("./turns.js").Actions} */
    const actions = {
      retry: (turn) => this.ask(turn.parent),
      edit: (turn, text) => { this.ask(store.addTurn(this.chat, "user", turn.parent, text).id); },
      show: (turn) => { this.chat.leaf = store.deepest(this.chat, turn.id); store.save(this.chat); this.drawChat(); },
      answer: (turn, results) => {
        const next = store.addTurn(this.chat, "tool", turn.id, "");
        next.results = results;
        this.ask(next.id);
      },
    };
    this.views.clear();
    for (const turn of turns) {
      const view = new TurnView(turn, actions);
      view.setSiblings(store.children(this.chat, turn.parent));
      this.views.set(turn.id, view);
    }
    const last = turns[turns.length - 1];
    if (last?.role === "assistant") this.views.get(last.id)?.askForResults();
    fill(this.log, ...[...this.views.values()].map((v) => v.element));
    this.drawWelcome();
    this.settings.hidden = true;
    this.tune.setAttribute("aria-expanded", "false");
    this.drawList();
    this.drawModels();
    this.drawButtons();
    this.following = true;
    this.follow();
  }

  /** What a chat without a turn shows. */
  drawWelcome() {
    if (this.chat.leaf) return;
    const none = this.modelsKnown && !this.models.length;
    fill(this.log, h("div", { class: "empty" }, ...(none ? this.withoutModel() : [
      h("h1", {}, "What would you like to know?"),
      h("p", {}, "Chats run on this machine and are saved in this browser alone.")])));
  }

  withoutModel() {
    const title = h("h1", {}, "There is no model yet");
    if (!this.administrator) return [title, h("p", {}, "An administrator can download one.")];
    return [title, h("p", {}, h("a", { href: "#/models" }, "Download one"), ", here or with ", h("code", {}, "ingot pull qwen3-4b"),
      " on the daemon's machine.")];
  }

  /* ---- asking ---- */

  /** @returns {Run | undefined} */
  current() {
    return this.runs.find((r) => r.chat === this.chat && store.path(this.chat, this.chat.leaf).includes(r.turn));
  }

  drawButtons() {
    const running = Boolean(this.current());
    const focused = document.activeElement === this.sendButton || document.activeElement === this.stopButton;
    this.sendButton.hidden = running;
    this.stopButton.hidden = !running;
    if (focused) this.area.focus();
  }

  grow() {
    this.area.style.height = "auto";
    this.area.style.height = Math.min(this.area.scrollHeight + 2, innerHeight * 0.4) + "px";
  }

  /** @param {KeyboardEvent} e */
  key(e) {
    if (e.key === "Escape") this.stop();
    if (e.key !== "Enter" || e.shiftKey || e.isComposing) return;
    e.preventDefault();
    this.send();
  }

  send() {
    const text = this.area.value.trim();
    if (!text || this.current()) return;
    const turn = store.addTurn(this.chat, "user", this.chat.leaf, text);
    if (!this.chat.title) this.chat.title = text.slice(0, 60);
    this.area.value = "";
    this.grow();
    this.ask(turn.id);
  }

  /**
   * Have the model write a turn behind this one.
   * @param {string | null} parent
   */
  ask(parent) {
    const chat = this.chat;
    this.say("");
    const turn = store.addTurn(chat, "assistant", parent, "");
    turn.state = "running";
    turn.model = chat.settings.model || this.model.value;
    const run = { turn, chat, lane: "", began: 0, first: 0, stopping: false };
    this.runs.push(run);
    store.save(chat);
    if (location.hash !== "#/chat/" + chat.id) history.replaceState(null, "", "#/chat/" + chat.id);
    this.drawChat();
    this.start(run, false);
  }

  /** @param {Run} run @param {boolean} whole */
  start(run, whole) {
    let request;
    try {
      request = requestOf(run.chat, run.turn, whole);
    } catch (error) {
      this.fail(run, "The tools are not JSON: " + textOf(error));
      return;
    }
    run.began = performance.now();
    run.lane = this.connection.run(request, {
      event: (event) => this.take(run, event, whole),
      lost: () => {
        run.turn.state = run.stopping ? "stopped" : "cut";
        this.ended(run);
      },
    });
    if (!run.lane) this.fail(run, "Too many replies run at once.");
  }

  /** @param {Run} run @param {string} text */
  fail(run, text) {
    run.turn.state = "failed";
    run.turn.error = text;
    this.ended(run);
  }

  /** @param {Run} run @param {any} event @param {boolean} whole */
  take(run, event, whole) {
    const { turn } = run;
    if (event.type === "response.created") {
      turn.response = event.response.id;
      turn.model = event.response.model ?? turn.model;
    } else if (event.type === "response.output_item.added") addItem(turn, event);
    else if (DELTAS.has(event.type)) {
      run.first ||= performance.now();
      turn.parts[event.output_index].text += event.delta;
    } else if (event.type === "response.output_item.done" && event.item.type === "function_call")
      turn.parts[event.output_index].text = event.item.arguments;
    else if (event.type === "error") {
      if (event.error.code === "previous_response_not_found" && !whole) {
        this.start(run, true);
        return;
      }
      this.fail(run, event.error.message);
      return;
    } else if (event.response?.status && event.response.status !== "in_progress" && event.response.status !== "queued") {
      finish(run, event.response);
      this.ended(run);
      return;
    }
    if (!this.frame) this.frame = requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.frame = 0;
    for (const run of this.runs) if (run.chat === this.chat) this.views.get(run.turn.id)?.update();
    this.follow();
    if (performance.now() - this.saved > SAVE_MS) this.saveRuns();
  }

  saveRuns() {
    this.saved = performance.now();
    for (const run of this.runs) store.save(run.chat);
  }

  /** @param {Run} run */
  ended(run) {
    this.runs = this.runs.filter((r) => r !== run);
    run.turn.parts = run.turn.parts.filter(Boolean);
    run.chat.updated = Date.now();
    store.save(run.chat);
    if (run.chat === this.chat) {
      const view = this.views.get(run.turn.id);
      view?.update();
      if (this.chat.leaf === run.turn.id) view?.askForResults();
      this.drawButtons();
      this.follow();
    }
    this.readModels(); /* the request may have loaded one */
    announce(run.turn.state === "failed" ? "The reply failed: " + run.turn.error : "The reply has ended");
    this.drawList();
  }

  stop() {
    const run = this.current();
    if (!run) return;
    run.stopping = true;
    this.connection.cancel(run.lane);
    if (this.connection.state !== "open") {
      this.connection.running.delete(run.lane);
      run.turn.state = "stopped";
      this.ended(run);
    }
  }

  /* ---- scrolling ---- */

  noteScroll() {
    const s = this.scroll;
    this.following = s.scrollHeight - s.scrollTop - s.clientHeight < 60;
  }

  follow() {
    if (this.following) this.scroll.scrollTop = this.scroll.scrollHeight;
  }

  /* ---- settings ---- */

  toggleSettings() {
    const open = this.settings.hidden;
    this.settings.hidden = !open;
    this.tune.setAttribute("aria-expanded", String(open));
    if (!open) return;
    this.drawSettings();
    this.settings.querySelector("textarea")?.focus();
  }

  drawSettings() {
    const { settings } = this.chat;
    const keep = () => { if (this.chat.leaf) store.save(this.chat); };
    const text = (/** @type {keyof Settings} */ name, /** @type {string} */ label, /** @type {string} */ hint, rows = 3) => {
      const area = h("textarea", { id: "set-" + name, rows, placeholder: hint });
      area.value = settings[name];
      area.addEventListener("input", () => { settings[name] = area.value; keep(); });
      return h("div", { class: "field" }, h("label", { for: area.id }, label), area);
    };
    const number = (/** @type {keyof Settings} */ name, /** @type {string} */ label, /** @type {string} */ hint,
      /** @type {number} */ min, /** @type {number} */ max, /** @type {number | string} */ step) => {
      const input = h("input", { id: "set-" + name, type: "number", min, max, step, placeholder: hint, inputmode: "decimal" });
      input.value = settings[name];
      input.addEventListener("input", () => {
        if (input.checkValidity()) { settings[name] = input.value; keep(); }
      });
      return h("div", { class: "field" }, h("label", { for: input.id }, label), input);
    };
    const effort = h("select", { id: "set-effort" }, ...["", "none", "low", "medium", "high"].map((v) => h("option", { value: v }, v || "default")));
    effort.value = settings.effort;
    effort.addEventListener("change", () => { settings.effort = effort.value; keep(); });
    const close = iconButton("close", "Close the settings", () => { this.toggleSettings(); this.tune.focus(); });
    fill(this.settings, h("div", { class: "row" }, h("h2", {}, "Settings of this chat"), h("span", { class: "space" }), close),
      text("instructions", "System prompt", "None"),
      h("div", { class: "fields" },
        number("temperature", "Temperature", "1", 0, 2, "any"), number("top_p", "Top p", "1", 0, 1, "any"),
        number("top_k", "Top k", "off", 0, 100000, 1), number("min_p", "Min p", "0", 0, 1, "any"),
        number("repetition_penalty", "Repetition penalty", "1", 0.01, 2, "any"),
        number("max_output_tokens", "Most tokens", "no limit", 1, 10000000, 1), number("seed", "Seed", "random", 0, 9007199254740991, 1),
        h("div", { class: "field" }, h("label", { for: "set-effort" }, "Reasoning"), effort)),
      text("stop", "Stop texts, one a line", "None", 2), text("tools", "Tools, a list in JSON", "None", 3));
  }
}
