/* main.js: finds out who asks, and shows one view at a time by the address's fragment. */
import { ApiError, get, setKey, textOf, whenKeyIsWanted } from "./api.js";
import { byId, h } from "./dom.js";
import { ChatView } from "./chat.js";
import { KeysView } from "./keys.js";
import { ModelsView } from "./models.js";
import { NowView } from "./now.js";
import { NumbersView } from "./numbers.js";

/** @typedef {{ element: HTMLElement, show: (id?: string) => void, hide: () => void }} View */

/** @type {Record<string, [string, () => View]>} */
const ADMINISTRATORS = {
  now: ["Now", () => new NowView()],
  numbers: ["Numbers", () => new NumbersView()],
  models: ["Models", () => new ModelsView()],
  keys: ["Keys", () => new KeysView()],
};

/** @type {Record<string, View>} */
const views = {};
/** @type {View | null} */
let shown = null;
let administrator = false;
let signing = false;

/** @param {string} name @returns {View} */
function viewOf(name) {
  views[name] ??= name === "chat" ? new ChatView(administrator) : ADMINISTRATORS[name][1]();
  return views[name];
}

/** @param {boolean} focus  on the view's heading, as a change of page would */
function route(focus) {
  if (location.hash === "#main") return; /* the link that skips to the content */
  const [, wanted = "chat", id] = /^#\/(\w+)(?:\/([\w-]+))?/.exec(location.hash) ?? [];
  const name = wanted in ADMINISTRATORS && administrator ? wanted : "chat";
  const view = viewOf(name);
  for (const link of byId("views").querySelectorAll("a"))
    if (link.getAttribute("href") === "#/" + name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  document.title = (name === "chat" ? "Chat" : ADMINISTRATORS[name][0]) + " – Ingot";
  if (view !== shown) {
    shown?.hide();
    byId("main").replaceChildren(view.element);
    shown = view;
    view.show(id);
    if (focus) view.element.querySelector("h1")?.focus();
  } else if (id) view.show(id);
  if (name === "chat" && focus && !matchMedia("(pointer: coarse)").matches) byId("message").focus();
}

/** Ask for a key until the daemon takes one. */
function signIn() {
  if (signing) return;
  signing = true;
  const input = h("input", { id: "sign-in-key", type: "password", autocomplete: "off", required: true, "aria-describedby": "sign-in-note" });
  const bad = h("p", { class: "bad", role: "alert" });
  /** @type {HTMLDialogElement} */
  const dialog = h("dialog", { class: "sign-in", "aria-labelledby": "sign-in-title" },
    h("form", { onsubmit: async (e) => {
      e.preventDefault();
      setKey(input.value.trim());
      try {
        await get("/v1/models");
        dialog.close();
        dialog.remove();
        signing = false;
        start();
      } catch (error) {
        setKey("");
        bad.textContent = error instanceof ApiError && error.status === 401 ? "The daemon does not know this key." : textOf(error);
        input.select();
      }
    } }, h("h2", { id: "sign-in-title" }, "Sign in"), h("label", { for: input.id }, "API key"), input,
      h("p", { id: "sign-in-note", class: "note" }, "The page keeps the key in its memory only: a reload forgets it."), bad,
      h("div", { class: "row end" }, h("button", { type: "submit", class: "primary" }, "Sign in"))));
  dialog.addEventListener("cancel", (e) => e.preventDefault());
  document.body.append(dialog);
  dialog.showModal();
}

async function readRole() {
  try {
    await get("/v1/ingot/status");
    return true;
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) return null;
    if (error instanceof ApiError && error.status === 403) return false;
    throw error;
  }
}

async function start() {
  try {
    const role = await readRole();
    if (role === null) return;
    administrator = role;
  } catch (error) {
    byId("main").replaceChildren(h("p", { class: "notice", role: "alert" }, textOf(error)));
    setTimeout(start, 2000);
    return;
  }
  for (const link of byId("views").querySelectorAll("li")) link.hidden = link.dataset.for === "administrator" && !administrator;
  shown?.hide();
  shown = null;
  /** @type {ChatView | undefined} */ (views.chat)?.reconnect();
  route(true);
}

whenKeyIsWanted(signIn);
addEventListener("hashchange", () => route(true));
start();
