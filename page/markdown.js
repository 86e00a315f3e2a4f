/*
 * markdown.js: Markdown to DOM nodes.  Blocks: headings, paragraphs, code, lists, quotes, tables, rules;
 * within them code, emphasis, links.  HTML is text, images are links, and of addresses only those of the
 * web and of mail become links.  Every step is linear in the text, so that no text of a model holds up
 * the page.
 */
import { copy, h, icon } from "./dom.js";

const DEEPEST = 12; /* of lists and quotes in each other */
const MOST_MARKS = 24; /* of emphasis that is open at once */
const LONGEST_LINK = 2000;

/**
 * @typedef {{ kind: "heading" | "paragraph" | "code" | "list" | "quote" | "table" | "rule",
 *   source: string, lines: string[], level?: number, info?: string, closed?: boolean }} Block
 */

/* ---- blocks ---- */

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?=\s|$)/;
const RULE = /^ {0,3}(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(\s+|$)/;
const QUOTE = /^ {0,3}> ?/;
const DELIMITER = /^ {0,3}\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;

/** @param {string} line */
function isBlank(line) {
  return line.trim() === "";
}

/**
 * Without the marks before it, and those that may be behind it.
 * @param {string} line
 */
function headingText(line) {
  const text = line.trim().replace(/^#+/, "").trim();
  let end = text.length;
  while (text[end - 1] === "#") end--;
  return end === 0 || /\s/.test(text[end - 1]) ? text.slice(0, end).trim() : text;
}

/** @param {string[]} lines @param {number} at  whether a table begins there */
function beginsTable(lines, at) {
  return lines[at].includes("|") && at + 1 < lines.length && lines[at + 1].includes("-") &&
    DELIMITER.test(lines[at + 1]) && cells(lines[at]).length === cells(lines[at + 1]).length;
}

/** @param {string[]} lines @param {number} at */
function beginsBlock(lines, at) {
  const line = lines[at];
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || ITEM.test(line) ||
    beginsTable(lines, at);
}

/** @param {string[]} lines @param {number} at @returns {[number, Partial<Block>]} */
function takeFence(lines, at) {
  const open = /** @type {RegExpExecArray} */ (FENCE.exec(lines[at]));
  const mark = open[1];
  let end = at + 1;
  for (; end < lines.length; end++) {
    const close = lines[end].trim();
    if (close.length >= mark.length && close === mark[0].repeat(close.length)) break;
  }
  const closed = end < lines.length;
  return [closed ? end + 1 : end, { kind: "code", info: open[2].trim(), lines: lines.slice(at + 1, end), closed }];
}

/** @param {string[]} lines @param {number} at @returns {number}  the line after the list */
function endOfList(lines, at) {
  const ordered = /\d/.test(/** @type {RegExpExecArray} */ (ITEM.exec(lines[at]))[2]);
  let end = at + 1;
  for (; end < lines.length; end++) {
    if (isBlank(lines[end])) {
      const next = lines[end + 1] ?? "";
      if (isBlank(next) || !(/^\s{2,}/.test(next) || ITEM.test(next))) break;
      continue;
    }
    const item = ITEM.exec(lines[end]);
    if (item && /\d/.test(item[2]) !== ordered && !/^ {2}/.test(lines[end])) break;
    if (!item && !/^\s/.test(lines[end]) && (isBlank(lines[end - 1]) || beginsBlock(lines, end))) break;
    if (item && RULE.test(lines[end])) break;
  }
  return end;
}

/** @param {string[]} lines @param {number} at @returns {[number, Partial<Block>]} */
function takeBlock(lines, at) {
  const line = lines[at];
  if (FENCE.test(line)) return takeFence(lines, at);
  const heading = HEADING.exec(line);
  if (heading) return [at + 1, { kind: "heading", level: heading[1].length, lines: [headingText(line)] }];
  if (RULE.test(line)) return [at + 1, { kind: "rule", lines: [] }];
  let end = at + 1;
  if (QUOTE.test(line)) {
    while (end < lines.length && !isBlank(lines[end]) && (QUOTE.test(lines[end]) || !beginsBlock(lines, end))) end++;
    return [end, { kind: "quote", lines: lines.slice(at, end).map((l) => l.replace(QUOTE, "")) }];
  }
  if (ITEM.test(line)) {
    end = endOfList(lines, at);
    return [end, { kind: "list", lines: lines.slice(at, end) }];
  }
  if (beginsTable(lines, at)) {
    for (end = at + 2; end < lines.length && lines[end].includes("|"); ) end++;
    return [end, { kind: "table", lines: lines.slice(at, end) }];
  }
  while (end < lines.length && !isBlank(lines[end]) && !beginsBlock(lines, end)) end++;
  return [end, { kind: "paragraph", lines: lines.slice(at, end) }];
}

/** @param {string[]} lines @returns {Block[]} */
function blocksOf(lines) {
  /** @type {Block[]} */
  const blocks = [];
  for (let at = 0; at < lines.length; ) {
    if (isBlank(lines[at])) {
      at++;
      continue;
    }
    const [end, block] = takeBlock(lines, at);
    blocks.push({ kind: "paragraph", lines: [], ...block, source: lines.slice(at, end).join("\n") });
    at = end;
  }
  return blocks;
}

/* ---- in a line ---- */

/** @param {string} url @returns {string}  "": not one that a model may link to */
function safeUrl(url) {
  return /^(https?:\/\/|mailto:)/i.test(url) && !/[\s<>"\\\u0000-\u001f]/.test(url) ? url : "";
}

/** @param {string} url @param {...(Node | string)} content */
function link(url, ...content) {
  return h("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, ...content);
}

/** @param {string} text @param {number} at  of "[" @returns {{ label: string, url: string, end: number } | null} */
function readLink(text, at) {
  const limit = Math.min(text.length, at + LONGEST_LINK);
  let depth = 0;
  let close = at;
  for (; close < limit; close++) {
    if (text[close] === "\\") close++;
    else if (text[close] === "[") depth++;
    else if (text[close] === "]" && --depth === 0) break;
  }
  if (close >= limit || text[close + 1] !== "(") return null;
  const match = /^\(\s*<?([^\s()<>]*(?:\([^\s()<>]*\)[^\s()<>]*)*)>?(?:\s+["'][^"']*["'])?\s*\)/.exec(
    text.slice(close + 1, close + 1 + LONGEST_LINK));
  return match && { label: text.slice(at + 1, close), url: match[1], end: close + 1 + match[0].length };
}

/** @type {Record<string, "strong" | "em" | "del">} */
const MARKS = { "**": "strong", "__": "strong", "*": "em", "_": "em", "~~": "del" };

/**
 * What is open: its mark, and the nodes since.
 * @typedef {{ mark: string, nodes: (Node | string)[] }} Frame
 */

/**
 * Close the frame at `to` and those above it, whose marks were only text.
 * @param {Frame[]} frames @param {number} to
 */
function closeTo(frames, to) {
  while (frames.length - 1 > to) {
    const inner = /** @type {Frame} */ (frames.pop());
    frames[frames.length - 1].nodes.push(inner.mark, ...inner.nodes);
  }
}

/** @param {Frame[]} frames @param {string} text @param {number} at @returns {number}  how many characters it took */
function takeMark(frames, text, at) {
  const two = text.slice(at, at + 2);
  /* of three the first closes what was opened last */
  const inner = frames[frames.length - 1].mark === text[at] && text[at + 2] === text[at];
  const mark = two in MARKS && !inner ? two : text[at];
  if (!(mark in MARKS)) return 0;
  const before = text[at - 1] ?? " ";
  const after = text[at + mark.length] ?? " ";
  const inWord = mark[0] === "_" && /\w/.test(before) && /\w/.test(after);
  const open = frames.map((f) => f.mark).lastIndexOf(mark);
  if (open > 0 && !/\s/.test(before) && !inWord) {
    closeTo(frames, open);
    const frame = /** @type {Frame} */ (frames.pop());
    frames[frames.length - 1].nodes.push(h(MARKS[mark], {}, ...frame.nodes));
    return mark.length;
  }
  if (/\s/.test(after) || inWord || frames.length > MOST_MARKS) return 0;
  frames.push({ mark, nodes: [] });
  return mark.length;
}

/** @param {string} text @param {number} at @param {Set<number>} hopeless  lengths that nothing closes @returns {[string, number] | null} */
function readCode(text, at, hopeless) {
  const run = /** @type {RegExpExecArray} */ (/^`+/.exec(text.slice(at, at + 64)))[0].length;
  if (hopeless.has(run)) return null;
  for (let end = text.indexOf("`", at + run); end >= 0; ) {
    let n = 0;
    while (text[end + n] === "`") n++;
    if (n === run) {
      const inner = text.slice(at + run, end).replaceAll("\n", " ");
      return [/^ .*\S.* $/.test(inner) ? inner.slice(1, -1) : inner, end + n];
    }
    end = text.indexOf("`", end + n);
  }
  hopeless.add(run);
  return null;
}

const SPECIAL = /[\\`*_~[!\nhH]/;
const AUTOLINK = /https?:\/\/[^\s<>"'`]*[^\s<>"'`.,;:!?)\]}*_~]/iy;

/** @param {string} text @returns {(Node | string)[]} */
function inline(text) {
  /** @type {Frame[]} */
  const frames = [{ mark: "", nodes: [] }];
  /** @type {Set<number>} */
  const hopeless = new Set();
  let plain = "";
  const put = (/** @type {Node | string} */ node) => {
    const nodes = frames[frames.length - 1].nodes;
    if (plain) nodes.push(plain);
    plain = "";
    if (node) nodes.push(node);
  };
  for (let at = 0; at < text.length; ) {
    const c = text[at];
    if (!SPECIAL.test(c)) {
      plain += c;
      at++;
      continue;
    }
    const took = takeSpecial(text, at, frames, hopeless, put);
    if (!took) plain += c;
    at += took || 1;
  }
  put("");
  closeTo(frames, 0);
  return frames[0].nodes;
}

/**
 * @param {string} text @param {number} at @param {Frame[]} frames @param {Set<number>} hopeless
 * @param {(node: Node | string) => void} put @returns {number}  how many characters it took; 0: it is text
 */
function takeSpecial(text, at, frames, hopeless, put) {
  const c = text[at];
  if (c === "\n") {
    put("\n");
    return 1;
  }
  if (c === "\\") {
    const next = text[at + 1] ?? "";
    if (!next || !/[!-/:-@[-`{-~\n]/.test(next)) return 0;
    put(next === "\n" ? h("br") : next);
    return 2;
  }
  if (c === "`") {
    const code = readCode(text, at, hopeless);
    const run = /** @type {RegExpExecArray} */ (/^`+/.exec(text.slice(at, at + 64)))[0];
    put(code ? h("code", {}, code[0]) : run);
    return code ? code[1] - at : run.length;
  }
  const picture = c === "!" && text[at + 1] === "[";
  if (c === "[" || picture) {
    const found = readLink(text, at + Number(picture));
    const url = found && safeUrl(found.url);
    if (!found || !url) return 0;
    put(link(url, ...(picture ? ["image: " + found.label] : inline(found.label))));
    return found.end - at;
  }
  if (c === "h" || c === "H") {
    AUTOLINK.lastIndex = at;
    const url = /\w/.test(text[at - 1] ?? " ") ? null : AUTOLINK.exec(text);
    if (!url) return 0;
    put(link(url[0], url[0]));
    return url[0].length;
  }
  put("");
  return takeMark(frames, text, at);
}

/* ---- nodes ---- */

/**
 * Two blanks at the end of a line break it, as a backslash does.
 * @param {string} line @param {number} i @param {string[]} lines
 */
function withBreak(line, i, lines) {
  const text = line.trimStart();
  return text.endsWith("  ") && i < lines.length - 1 ? text.trimEnd() + "\\" : text;
}

/** @param {string} line @returns {string[]} */
function cells(line) {
  const out = [""];
  const text = line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "");
  let code = false;
  for (let i = 0; i < text.length; i++) {
    if (text[i] === "\\" && text[i + 1] === "|") out[out.length - 1] += text[++i];
    else if (text[i] === "|" && !code) out.push("");
    else {
      if (text[i] === "`") code = !code;
      out[out.length - 1] += text[i];
    }
  }
  return out.map((c) => c.trim());
}

/** @param {string[]} lines */
function tableNode(lines) {
  const head = cells(lines[0]);
  const sides = cells(lines[1]).map((c) => (/^:-+:$/.test(c) ? "center" : /-:$/.test(c) ? "right" : "left"));
  const row = (/** @type {"th" | "td"} */ tag, /** @type {string[]} */ list) =>
    h("tr", {}, ...head.map((_, i) => h(tag, { class: sides[i], scope: tag === "th" && "col" }, ...inline(list[i] ?? ""))));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table" },
    h("table", {}, h("thead", {}, row("th", head)),
      h("tbody", {}, ...lines.slice(2).map((l) => row("td", cells(l))))));
}

/** @param {string} text @param {string} info */
export function codeNode(text, info) {
  const language = info.split(/\s/)[0] ?? "";
  const button = h("button", { type: "button", class: "quiet", "aria-label": "Copy code", title: "Copy code" }, icon("copy"));
  button.addEventListener("click", () => copy(text, button));
  return h("div", { class: "code" },
    h("div", { class: "code-head" }, h("span", {}, language), button),
    h("pre", { tabindex: 0, role: "region", "aria-label": (language || "Plain") + " code" }, h("code", {}, text)));
}

/** @param {string[]} lines @param {number} depth */
function listNode(lines, depth) {
  const first = /** @type {RegExpExecArray} */ (ITEM.exec(lines[0]));
  const ordered = /\d/.test(first[2]);
  const start = parseInt(first[2], 10);
  /** @type {string[][]} */
  const items = [];
  let indent = 2;
  let base = first[1].length;
  for (const line of lines) {
    const item = ITEM.exec(line);
    if (item && (!items.length || item[1].length < Math.max(base + 2, 2))) {
      if (!items.length) base = item[1].length;
      indent = item[0].length;
      items.push([line.slice(indent)]);
    } else {
      const blanks = /** @type {RegExpExecArray} */ (/^\s*/.exec(line))[0].length;
      items[items.length - 1].push(line.slice(Math.min(blanks, indent)));
    }
  }
  return h(ordered ? "ol" : "ul", { start: ordered && start !== 1 && start }, ...items.map((i) => itemNode(i, depth)));
}

/** @param {string[]} lines @param {number} depth */
function itemNode(lines, depth) {
  const task = /^\[([ xX])\]\s+/.exec(lines[0]);
  if (task) lines = [lines[0].slice(task[0].length), ...lines.slice(1)];
  const nodes = nodesOf(blocksOf(lines), depth + 1);
  const only = nodes[0];
  /* a paragraph alone at the start needs no space around it */
  const content = only instanceof HTMLParagraphElement ? [...only.childNodes, ...nodes.slice(1)] : nodes;
  const box = task && h("input", { type: "checkbox", disabled: true, checked: task[1] !== " ", "aria-label": task[1] === " " ? "to do" : "done" });
  return h("li", { class: task && "task" }, box, ...content);
}

/** @param {Block} block @param {number} depth @returns {Node} */
function nodeOf(block, depth) {
  const text = block.lines.join("\n");
  switch (block.kind) {
    case "heading":
      /* the page's own headings are above those of a reply */
      return h(/** @type {"h3"} */ ("h" + Math.min(6, (block.level ?? 1) + 2)), {}, ...inline(text));
    case "code":
      return codeNode(text, block.info ?? "");
    case "rule":
      return h("hr");
    case "table":
      return tableNode(block.lines);
    case "quote":
      return h("blockquote", {}, ...(depth < DEEPEST ? nodesOf(blocksOf(block.lines), depth + 1) : [text]));
    case "list":
      return depth < DEEPEST ? listNode(block.lines, depth) : h("p", {}, text);
    default:
      return h("p", {}, ...inline(block.lines.map(withBreak).join("\n").trimEnd()));
  }
}

/** @param {Block[]} blocks @param {number} depth */
function nodesOf(blocks, depth) {
  return blocks.map((b) => nodeOf(b, depth));
}

/** Text that may still grow: what did not change keeps its nodes. */
export class Markdown {
  constructor() {
    this.element = h("div", { class: "markdown" });
    /** @type {string[]} */
    this.sources = [];
  }

  /** @param {string} text */
  show(text) {
    const blocks = blocksOf(text.replaceAll("\r\n", "\n").split("\n"));
    let same = 0;
    while (same < blocks.length && blocks[same].source === this.sources[same]) same++;
    while (this.element.childNodes.length > same) this.element.lastChild?.remove();
    for (const block of blocks.slice(same)) this.element.append(nodeOf(block, 0));
    this.sources = blocks.map((b) => b.source);
  }
}
