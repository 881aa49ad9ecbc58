/** The details of one token: bytes, position, split characters and merge tree. */

import * as api from "./api.js";
import { hexOf, textOf } from "./encoding.js";
import { byId, counted, formatCount, make, supersede } from "./elements.js";
import { reportProblem } from "./notices.js";
import { brokenCharacters, partsOf, showParts } from "./visible_text.js";

const fromBase64 = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));

function piece(bytes) {
  const element = make("span", { class: "piece plain" });
  showParts(element, partsOf(bytes));
  return element;
}

export class TokenDetails {
  /** `closed()` is called when the user closes the details, to restore the focus. */
  constructor(closed) {
    this.element = byId("details");
    this.closed = closed;
    this.element.addEventListener("keydown", (event) => event.key === "Escape" && this.close());
  }

  get isOpen() {
    return !this.element.hidden;
  }

  close() {
    this.controller?.abort();
    this.element.hidden = true;
    this.closed();
  }

  /**
   * Show the token `id` of `version`; `encoding` and `index` add its position. `takeFocus` moves the
   * focus here.
   */
  async show({ id, version, encoding, index, takeFocus = false }) {
    const hasFocus = takeFocus || this.element.contains(document.activeElement);
    const signal = supersede(this);
    try {
      const token = await api.token(id, version, signal);
      if (signal.aborted) return;
      this.#render(token, { version, encoding, index });
    } catch (error) {
      if (signal.aborted) return;
      const problem = make("p", { class: "problem", role: "alert" });
      reportProblem(problem, error);
      this.element.replaceChildren(this.#head(`Token ${id}`), problem);
    }
    this.element.hidden = false;
    if (hasFocus) this.element.focus();
  }

  #head(title) {
    return make("div", { class: "row" },
      make("h2", { id: "details-title", class: "grow", textContent: title }),
      make("button", {
        type: "button", class: "quiet", textContent: "×",
        "aria-label": "Close the token", onclick: () => this.close(),
      }));
  }

  #render(token, context) {
    const bytes = fromBase64(token.bytes);
    const facts = [
      ["bytes", make("code", { textContent: hexOf(bytes) || "none" })],
      ["length", counted(bytes.length, "byte")],
      ["rank", rankOf(token)],
      ["kind", kindOf(token)],
      ["tokenizer", context.version],
      ...positionFacts(token.id, context),
    ];
    const list = make("dl", { class: "facts" });
    for (const [name, value] of facts) list.append(make("dt", { textContent: name }), make("dd", {}, value));
    const broken = context.encoding ? brokenCharacters(context.encoding, context.index) : brokenAlone(bytes);
    const tree = token.parts
      ? [make("h3", { textContent: "how it was merged" }),
        make("ul", { class: "tree", "aria-label": "Merges" }, this.#node(token.tree, context))]
      : [];
    this.element.replaceChildren(
      this.#head(`Token ${token.id}`),
      make("p", { class: "specimen" }, piece(bytes)),
      broken.length ? make("ul", { class: "broken" }, ...broken.map((line) => make("li", { textContent: line }))) : "",
      list,
      ...tree,
    );
  }

  /** Make a tree node with its two parts below it. */
  #node(node, context) {
    const bytes = fromBase64(node.bytes);
    const name = `token ${node.id}, ${textOf(bytes) ?? hexOf(bytes)}`;
    const button = make("button", {
      type: "button", class: "node", "aria-label": name,
      onclick: () => this.show({ id: node.id, version: context.version }),
    }, piece(bytes), make("span", { class: "node-id", textContent: node.id }),
    node.rank === null ? "" : make("span", { class: "node-rank", textContent: `rank ${formatCount(node.rank)}` }));
    const parts = node.parts ? make("ul", {}, ...node.parts.map((part) => this.#node(part, context))) : "";
    const more = node.cut ? make("span", { class: "hint", textContent: " made of more" }) : "";
    return make("li", {}, button, more, parts);
  }
}

function rankOf(token) {
  if (token.rank === null) return token.special ? "none: it is not merged" : "none: it is there from the start";
  return `${formatCount(token.rank)} (merge number ${formatCount(token.rank + 1)})`;
}

function kindOf(token) {
  if (token.special) return "special token: matched before the text is split";
  if (token.parts) return "merged from two tokens";
  return "not merged from others";
}

function positionFacts(id, { encoding, index }) {
  if (!encoding) return [];
  const [start, end] = encoding.span(index);
  return [
    ["position", `token ${formatCount(index + 1)} of ${formatCount(encoding.length)}, ` +
      `bytes ${formatCount(start)} to ${formatCount(end)}`],
    ["occurs", timesOf(encoding.occurrences(id))],
  ];
}

const timesOf = (n) => (n === 1 ? "once in this text" : `${formatCount(n)} times in this text`);

function brokenAlone(bytes) {
  return textOf(bytes) === null ? ["Not a complete character: it becomes text only with its neighbours."] : [];
}
