/* dom.js: makes elements.  Text becomes text nodes, never HTML; the page's policy forbids the rest. */

/** @typedef {Node | string | number | null | undefined | false} Child */
/** @typedef {Record<string, string | number | boolean | null | undefined | EventListener>} Attributes */

/**
 * @param {Element} element
 * @param {Attributes} attributes  a name that begins with "on" is an event's, with its listener
 */
function assign(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined)
      element.setAttribute(name, String(value));
  }
}

/** @param {Element} element @param {Child[]} children */
function append(element, children) {
  for (const child of children)
    if (child !== null && child !== undefined && child !== false)
      element.append(child instanceof Node ? child : String(child));
}

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag @param {Attributes} [attributes] @param {...Child} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  assign(element, attributes);
  append(element, children);
  return element;
}

/**
 * @param {string} tag @param {Attributes} [attributes] @param {...Child} children
 * @returns {SVGElement}
 */
export function s(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  assign(element, attributes);
  append(element, children);
  return /** @type {SVGElement} */ (element);
}

/**
 * Strokes of icons in a square of 24.
 * @type {Record<string, string>}
 */
const ICONS = {
  send: "M12 20V4M5 11l7-7 7 7",
  stop: "M6 6h12v12H6z",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  done: "M5 12l5 5L20 7",
  retry: "M20 5v5h-5M4 19v-5h5M19 10a8 8 0 0 0-14-3M5 14a8 8 0 0 0 14 3",
  edit: "M4 20h4L19 9l-4-4L4 16z",
  before: "M15 5l-7 7 7 7",
  after: "M9 5l7 7-7 7",
  add: "M12 5v14M5 12h14",
  remove: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  save: "M12 4v11M7 11l5 5 5-5M5 20h14",
  menu: "M4 7h16M4 12h16M4 17h16",
  tune: "M4 8h9M17 8h3M4 16h3M11 16h9M15 6v4M9 14v4",
  close: "M6 6l12 12M18 6L6 18",
};

/** @param {string} name */
export function icon(name) {
  return s("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true" },
    s("path", { d: ICONS[name] ?? "" }));
}

/**
 * A button with an icon alone, and its name for screen readers and as a tooltip.
 * @param {string} name @param {string} label @param {EventListener} onclick @param {Attributes} [more]
 */
export function iconButton(name, label, onclick, more = {}) {
  return h("button", { type: "button", class: "quiet", "aria-label": label, title: label, onclick, ...more },
    icon(name));
}

/** @param {Element} element @param {...Child} children */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

/** @param {string} id */
export function byId(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error("the page has no " + id);
  return element;
}

/**
 * Have screen readers say a text.
 * @param {string} text
 */
export function announce(text) {
  byId("announcer").textContent = text;
}

/**
 * Ask before something is lost.
 * @param {string} question @param {string} verb  on the button that does it
 * @returns {Promise<boolean>}
 */
export function confirm(question, verb) {
  return new Promise((resolve) => {
    /** @type {HTMLDialogElement} */
    const dialog = h("dialog", { "aria-labelledby": "question" },
      h("p", { id: "question" }, question),
      h("div", { class: "row end" },
        h("button", { type: "button", onclick: () => dialog.close("") }, "Cancel"),
        h("button", { type: "button", class: "danger", onclick: () => dialog.close("yes") }, verb)));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** @param {string} text @param {HTMLButtonElement} button  shows for a moment that it was copied */
export async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    /* a page that is not on the loopback and has no TLS may not use the clipboard */
    const area = h("textarea", { class: "away" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    button.focus();
  }
  const before = [...button.childNodes];
  button.replaceChildren(icon("done"));
  announce("Copied");
  setTimeout(() => button.replaceChildren(...before), 1200);
}

/** @param {string} name @param {string} type @param {string} text */
export function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
