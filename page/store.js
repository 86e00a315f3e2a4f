/* store.js: chats, saved in this browser alone (localStorage).  Where that is full or forbidden, chats
 * last as long as the page. */

/** @typedef {import("./types.js").Chat} Chat */
/** @typedef {import("./types.js").Settings} Settings */
/** @typedef {import("./types.js").Turn} Turn */

const PREFIX = "ingot.chat.";
const LAST = "ingot.settings";

/** @type {Map<string, Chat>} */
const chats = new Map();
/** @type {(text: string) => void} */
let onTrouble = () => {};

/** @param {(text: string) => void} fn */
export function whenNotSaved(fn) {
  onTrouble = fn;
}

function newId() {
  return crypto.getRandomValues(new Uint32Array(2)).reduce((text, n) => text + n.toString(36), "");
}

/** @returns {Settings} */
function noSettings() {
  return {
    model: "", instructions: "", temperature: "", top_p: "", top_k: "", min_p: "",
    repetition_penalty: "", max_output_tokens: "", seed: "", stop: "", effort: "", tools: "",
  };
}

/** @param {any} value @returns {value is Chat} */
function isChat(value) {
  return value && typeof value.id === "string" && typeof value.title === "string" &&
    typeof value.updated === "number" && value.turns && typeof value.turns === "object";
}

/** Read all chats. */
export function load() {
  try {
    for (let i = 0; i < localStorage.length; i++) {
      const name = localStorage.key(i) ?? "";
      if (!name.startsWith(PREFIX)) continue;
      const chat = JSON.parse(localStorage.getItem(name) ?? "null");
      if (!isChat(chat)) continue;
      chat.settings = { ...noSettings(), ...chat.settings };
      for (const turn of Object.values(chat.turns)) if (turn.state === "running") turn.state = "cut";
      chats.set(chat.id, chat);
    }
  } catch {
    onTrouble("This browser keeps no chats for this page.");
  }
}

/** The latest first. */
export function all() {
  return [...chats.values()].sort((a, b) => b.updated - a.updated);
}

/** @param {string} id */
export function find(id) {
  return chats.get(id);
}

/** @param {Chat} chat */
export function save(chat) {
  chats.set(chat.id, chat);
  try {
    localStorage.setItem(PREFIX + chat.id, JSON.stringify(chat));
    localStorage.setItem(LAST, JSON.stringify({ ...chat.settings, instructions: "", tools: "", seed: "" }));
  } catch {
    onTrouble("This browser's space for the page is full: the chat is not saved. Export or delete some.");
  }
}

/** @param {string} id */
export function forget(id) {
  chats.delete(id);
  try {
    localStorage.removeItem(PREFIX + id);
  } catch {
    /* it was never saved */
  }
}

/** @returns {Chat} */
export function create() {
  let last = {};
  try {
    last = JSON.parse(localStorage.getItem(LAST) ?? "{}");
  } catch {
    /* none are known */
  }
  return {
    id: newId(), title: "", updated: Date.now(), settings: { ...noSettings(), ...last }, turns: {},
    leaf: null,
  };
}

/* ---- the tree of turns ---- */

/** @param {Chat} chat @param {string | null} parent */
export function children(chat, parent) {
  return Object.values(chat.turns).filter((t) => t.parent === parent).sort((a, b) => a.at - b.at);
}

/**
 * From the first turn to one.
 * @param {Chat} chat @param {string | null} leaf
 */
export function path(chat, leaf) {
  const turns = [];
  for (let at = leaf; at && chat.turns[at]; at = chat.turns[at].parent) turns.unshift(chat.turns[at]);
  return turns;
}

/**
 * The latest end below a turn.
 * @param {Chat} chat @param {string} id
 */
export function deepest(chat, id) {
  for (;;) {
    const below = children(chat, id);
    if (!below.length) return id;
    id = below[below.length - 1].id;
  }
}

/**
 * @param {Chat} chat @param {Turn["role"]} role @param {string | null} parent @param {string} text
 * @returns {Turn}
 */
export function addTurn(chat, role, parent, text) {
  /** @type {Turn} */
  const turn = {
    id: newId(), parent, role, text, parts: [], results: [], state: "done", error: "", response: "",
    model: "", figures: null, at: Date.now() + Object.keys(chat.turns).length / 1000,
  };
  chat.turns[turn.id] = turn;
  chat.leaf = turn.id;
  chat.updated = Date.now();
  return turn;
}

/** @param {Turn} turn */
export function textOfTurn(turn) {
  if (turn.role !== "assistant") return turn.text;
  return turn.parts.filter((p) => p.kind === "text").map((p) => p.text).join("\n\n");
}

/**
 * The shown branch as Markdown.
 * @param {Chat} chat
 */
export function asMarkdown(chat) {
  const out = ["# " + (chat.title || "Chat"), ""];
  if (chat.settings.instructions) out.push("> " + chat.settings.instructions.replaceAll("\n", "\n> "), "");
  for (const turn of path(chat, chat.leaf)) {
    out.push(turn.role === "assistant" ? `## ${turn.model || "Model"}` : turn.role === "user" ? "## You" : "## Results", "");
    for (const part of turn.parts) {
      if (part.kind === "text") out.push(part.text, "");
      else if (part.kind === "reasoning") out.push("<details><summary>Reasoning</summary>", "", part.text, "", "</details>", "");
      else out.push("```json", `${part.name}(${part.text})`, "```", "");
    }
    if (turn.text) out.push(turn.text, "");
    for (const result of turn.results) out.push("```", result.output, "```", "");
  }
  return out.join("\n");
}
