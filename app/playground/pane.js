/**
 * One tokenizer's view of a text: the tokenizer, figures, pieces and ids. A pane queries the service,
 * drops outdated responses and shows errors.
 */

import * as api from "./api.js";
import { Encoding, hexOf } from "./encoding.js";
import { breathe, byId, formatCount, make } from "./elements.js";
import { reportProblem } from "./notices.js";
import { TokenFlow } from "./token_flow.js";
import { describeParts, inText, partsOf, showParts } from "./visible_text.js";

const N_COLOURS = 6;
const LARGE_TOKENS = 5000;

/** Render a piece as text or, with `asBytes`, as hexadecimal bytes. */
function renderPiece(encoding, index, asBytes) {
  const parts = partsOf(encoding.bytesOf(index));
  const characterOf = inText(encoding, index);
  const cell = make("span", { class: `piece tint-${index % N_COLOURS}` });
  if (asBytes) cell.textContent = hexOf(encoding.bytesOf(index));
  else showParts(cell, parts, characterOf);
  cell.setAttribute("aria-label", `${describeParts(parts, characterOf)}, id ${encoding.ids[index]}`);
  return cell;
}

function renderId(encoding, index) {
  const id = encoding.ids[index];
  const cell = make("span", { class: `id tint-${index % N_COLOURS}`, textContent: id });
  const words = describeParts(partsOf(encoding.bytesOf(index)), inText(encoding, index));
  cell.setAttribute("aria-label", `id ${id}, ${words}`);
  return cell;
}

export class Pane {
  /**
   * Callbacks: `hovered(span)` with the byte range under the pointer or null; `chosen(pane, index, byKey)`;
   * `retargeted()` when another tokenizer is selected; `encoded(pane)` after each response.
   */
  constructor(label, { hovered, chosen, retargeted, encoded }) {
    this.element = byId("pane-template").content.firstElementChild.cloneNode(true);
    this.element.setAttribute("aria-label", label);
    const find = (selector) => this.element.querySelector(selector);
    this.select = find(".pane-tokenizer");
    this.problem = find(".problem");
    this.note = find(".pane-note");
    this.figures = {
      tokens: find(".n-tokens"), perToken: find(".per-token"),
      charsPerToken: find(".chars-per-token"), distinct: find(".n-distinct"),
    };
    this.encoding = null;
    this.encoded = encoded;
    this.select.addEventListener("change", retargeted);
    find(".copy-ids").addEventListener("click", (event) => this.#copyIds(event.target));
    const flow = (selector, what, renderCell) => new TokenFlow(find(selector), {
      label: `${label}: ${what}`,
      renderCell,
      hovered: (index) => hovered(index === null ? null : this.encoding.span(index), this),
      chosen: (index, byKey) => chosen(this, index, byKey),
    });
    const asBytes = find(".as-bytes");
    asBytes.addEventListener("click", () => {
      asBytes.ariaPressed = String(asBytes.ariaPressed !== "true");
      this.pieces.show(this.encoding);
    });
    this.pieces = flow(".pieces", "pieces", (encoding, index) =>
      renderPiece(encoding, index, asBytes.ariaPressed === "true"));
    this.idFlow = flow(".ids", "ids", renderId);
    this.controller = new AbortController();
  }

  /** The selected tokenizer: `name@version`, or empty for the active one. */
  get tokenizer() {
    return this.select.value;
  }

  /** Encode and show `text`; abort any earlier call. */
  async encode(text, special) {
    await this.#show((signal) => api.encode(text, { tokenizer: this.tokenizer, special, signal }), text);
  }

  /** Show these ids. */
  async showIds(ids, identity) {
    await this.#show(async () => ({ ids: Uint32Array.from(ids), ...identity }), null);
  }

  async #show(ask, text) {
    this.controller.abort();
    this.controller = new AbortController();
    const { signal } = this.controller;
    this.element.setAttribute("aria-busy", "true");
    try {
      const { ids, ...identity } = await ask(signal);
      const encoding = await Encoding.load(ids, identity, signal);
      if (signal.aborted) return;
      this.encoding = encoding;
      for (const step of this.#steps(text)) {
        step();
        if (encoding.length > LARGE_TOKENS) await breathe();
        if (signal.aborted) return;
      }
    } catch (error) {
      if (signal.aborted) return;
      this.clear();
      reportProblem(this.problem, error);
    }
    this.element.removeAttribute("aria-busy");
    this.encoded(this);
  }

  /** Yield each part to render, so that the caller can pause between them. */
  #steps(text) {
    const { encoding } = this;
    return [
      () => {
        this.problem.hidden = true;
        this.element.classList.toggle("is-empty", encoding.length === 0);
        this.#renderFigures(encoding);
        this.#renderNote(encoding, text);
      },
      () => this.pieces.show(encoding),
      () => this.idFlow.show(encoding),
    ];
  }

  #renderNote(encoding, text) {
    const nSent = text === null ? encoding.nBytes : new TextEncoder().encode(text).length;
    this.note.textContent = nSent === encoding.nBytes ? ""
      : `This tokenizer changes the text before it splits it: ${formatCount(nSent)} bytes became ` +
        `${formatCount(encoding.nBytes)}; the pieces show the changed text.`;
  }

  #renderFigures(encoding) {
    const n = encoding.length;
    let nChars = 0;
    for (let index = 0; index < n; index++) {
      for (const byte of encoding.bytesOf(index)) if ((byte & 0xc0) !== 0x80) nChars++;
    }
    this.figures.tokens.textContent = formatCount(n);
    this.figures.perToken.textContent = n ? (encoding.nBytes / n).toFixed(2) : "–";
    this.figures.charsPerToken.textContent = n ? (nChars / n).toFixed(2) : "–";
    this.figures.distinct.textContent = formatCount(encoding.nDistinct);
  }

  /** Clear the pane. */
  clear() {
    this.encoding = null;
    this.pieces.show(null);
    this.idFlow.show(null);
    this.element.classList.add("is-empty");
    for (const figure of Object.values(this.figures)) figure.textContent = "–";
    this.note.textContent = "";
  }

  /** Highlight the tokens that overlap `span`; with `follow`, scroll to them. */
  light(span, follow) {
    if (!this.encoding) return;
    const range = span ? this.encoding.overlapping(span) : [0, -1];
    for (const flow of [this.pieces, this.idFlow]) {
      flow.light(range);
      if (follow && range[1] >= range[0]) flow.reveal(range[0]);
    }
  }

  /** Highlight every token with this id. */
  mark(id, index) {
    for (const flow of [this.pieces, this.idFlow]) if (flow.encoding) flow.select(id, index);
  }

  async #copyIds(button) {
    if (!this.encoding) return;
    const was = button.textContent;
    try {
      await navigator.clipboard.writeText(`[${this.encoding.ids.join(", ")}]`);
      button.textContent = "Copied";
    } catch {
      button.textContent = "The browser does not allow it";
    }
    setTimeout(() => (button.textContent = was), 1500);
  }
}
