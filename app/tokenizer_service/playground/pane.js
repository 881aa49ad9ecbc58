/**
 * One tokenizer's view of a text: the tokenizer, figures, pieces and ids. A pane queries the service,
 * drops outdated responses and shows errors.
 */

import * as api from "./api.js";
import { Encoding, hexOf } from "./encoding.js";
import { breathe, byId, formatCount, make, supersede } from "./elements.js";
import { reportProblem } from "./notices.js";
import { shortName } from "./served.js";
import { TokenFlow } from "./token_flow.js";
import { describeParts, inText, partsOf, showParts } from "./visible_text.js";

const N_COLOURS = 6;
const LARGE_TOKENS = 5000;
const MOST_RESIZED = 50_000; // tokens that the slider regroups while it moves

const tintOf = (encoding, index) => `tint-${index % N_COLOURS}`;

/** Render a piece as text or, with `asBytes`, as hexadecimal bytes. */
function renderPiece(encoding, index, look, asBytes) {
  const parts = partsOf(encoding.bytesOf(index));
  const characterOf = inText(encoding, index);
  const cell = make("span", { class: `piece ${look(encoding, index)}` });
  if (asBytes) cell.textContent = hexOf(encoding.bytesOf(index));
  else showParts(cell, parts, characterOf);
  cell.classList.toggle("ends-line", !asBytes && encoding.bytesOf(index).at(-1) === 10);
  cell.setAttribute("aria-label", `${describeParts(parts, characterOf)}, id ${encoding.ids[index]}`);
  return cell;
}

function renderId(encoding, index, look) {
  const id = encoding.ids[index];
  const cell = make("span", { class: `id ${look(encoding, index)}`, textContent: id });
  const words = describeParts(partsOf(encoding.bytesOf(index)), inText(encoding, index));
  cell.setAttribute("aria-label", `id ${id}, ${words}`);
  return cell;
}

/** The slider over the size of the vocabulary; its scale is logarithmic. */
class VocabularySize {
  constructor(label, changed) {
    this.label = label;
    this.slider = label.querySelector(".size-slider");
    this.shown = label.querySelector(".size-shown");
    this.range = [0, 0];
    this.slider.addEventListener("input", () => {
      this.#say();
      changed();
    });
  }

  get isWhole() {
    return this.label.hidden || this.slider.value === this.slider.max;
  }

  get value() {
    const [least, most] = this.range;
    const fraction = this.slider.value / this.slider.max;
    return Math.round(least + Math.expm1(Math.log1p(most - least) * fraction));
  }

  /** Show the slider for these merges at its last position; hide it for null. */
  show(merges) {
    this.label.hidden = merges === null;
    if (merges === null) return;
    this.range = [merges.base_size, merges.full_size];
    this.#say();
  }

  #say() {
    this.shown.textContent = formatCount(this.value);
    this.slider.setAttribute("aria-valuetext", `${formatCount(this.value)} tokens`);
  }
}

export class Pane {
  /**
   * Callbacks: `hovered(span)` with the byte range under the pointer or null; `chosen(pane, index, byKey)`;
   * `retargeted()` when another tokenizer is selected; `encoded(pane)` after each response. With
   * `classOf(encoding, index)`, the class of each token, the pane does not regroup tokens.
   */
  constructor(label, { hovered, chosen, retargeted = () => {}, encoded = () => {}, classOf }) {
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
    this.whole = null; // the encoding by the whole vocabulary
    this.merges = null;
    this.size = new VocabularySize(find(".size"), () => this.#resize());
    this.encoded = encoded;
    this.isResizable = classOf === undefined;
    const look = classOf ?? tintOf;
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
      renderPiece(encoding, index, look, asBytes.ariaPressed === "true"));
    this.idFlow = flow(".ids", "ids", (encoding, index) => renderId(encoding, index, look));
  }

  /** The selected tokenizer: `name@version`, or empty for the active one. */
  get tokenizer() {
    return this.select.value;
  }

  /** What people call the tokenizer, with the size if the slider reduces it. */
  get title() {
    const name = shortName(this.encoding?.version ?? this.tokenizer);
    return this.size.isWhole ? name : `${name} of ${formatCount(this.size.value)}`;
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
    const signal = supersede(this);
    this.element.setAttribute("aria-busy", "true");
    try {
      const { ids, ...identity } = await ask(signal);
      const encoding = await Encoding.load(ids, identity, signal);
      if (signal.aborted) return;
      this.whole = encoding;
      this.encoding = await this.#atSize(signal);
      if (signal.aborted) return;
      const steps = [() => this.#renderHead(text), () => this.pieces.show(this.encoding), () => this.idFlow.show(this.encoding)];
      for (const step of steps) {
        step();
        if (this.encoding.length > LARGE_TOKENS) await breathe();
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

  /** The encoding by as much of the vocabulary as the slider says. */
  async #atSize(signal) {
    const { whole } = this;
    if (this.merges?.of !== whole) this.merges = null;
    this.size.show(null);
    if (!this.isResizable || whole.length > MOST_RESIZED) return whole;
    const answer = await whole.loadMerges(signal);
    if (answer === null || answer.full_size <= answer.base_size) return whole;
    this.merges = { of: whole, ...answer };
    this.size.show(this.merges);
    return this.size.isWhole ? whole : whole.undo(this.merges, this.size.value);
  }

  #resize() {
    if (this.merges === null) return;
    this.encoding = this.size.isWhole ? this.whole : this.whole.undo(this.merges, this.size.value);
    this.#renderFigures(this.encoding);
    this.pieces.show(this.encoding);
    this.idFlow.show(this.encoding);
    this.encoded(this);
  }

  /** The figures, and whether the tokenizer changed the text; of ids there is no text (null). */
  #renderHead(text) {
    const { encoding } = this;
    this.problem.hidden = true;
    this.element.classList.toggle("is-empty", encoding.length === 0);
    this.#renderFigures(encoding);
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
    this.encoding = this.whole = this.merges = null;
    this.size.show(null);
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
