/** The Decode page: ids to text, their pieces, and whether encoding the text gives the same ids. */

import * as api from "./api.js";
import { byId, debounce, formatCount, supersede } from "./elements.js";
import { reportProblem } from "./notices.js";
import { Pane } from "./pane.js";
import { fillChoice, served } from "./served.js";

const WAIT_MILLISECONDS = 150;
const LARGE_IDS = 20_000;
const SHOWN_IDS = 1000;
const SHOWN_CHARACTERS = 20_000;

export class DecodeView {
  /** `chosen(pane, index)` is called when a token is selected. `takeIds()` returns the text's ids and tokenizer. */
  constructor(chosen, takeIds) {
    this.box = byId("ids");
    this.held = null; // too many ids for the text box
    this.select = byId("decode-tokenizer");
    this.pane = new Pane("Decoded ids", {
      hovered: (span) => this.pane.light(span, span !== null),
      chosen,
    });
    this.pane.element.classList.add("fixed-tokenizer");
    byId("decode-pane").append(this.pane.element);
    this.pane.element.hidden = true;
    const soon = debounce(() => this.decode(), () => WAIT_MILLISECONDS);
    this.box.addEventListener("input", soon);
    this.select.addEventListener("change", soon);
    byId("skip-special").addEventListener("change", soon);
    byId("take-ids").addEventListener("click", () => {
      const { ids, tokenizer } = takeIds();
      fillChoice(this.select, tokenizer);
      this.#put(ids);
    });
    byId("clear-ids").addEventListener("click", () => this.#put([]));
    served.addEventListener("listed", () => fillChoice(this.select));
  }

  #put(ids) {
    const isLarge = ids.length > LARGE_IDS;
    this.held = isLarge ? Array.from(ids) : null;
    const more = isLarge ? `, and ${formatCount(ids.length - SHOWN_IDS)} more` : "";
    this.box.value = Array.from(isLarge ? ids.slice(0, SHOWN_IDS) : ids).join(", ") + more;
    this.box.readOnly = isLarge;
    this.decode();
  }

  /** Decode the ids in the text box. */
  async decode() {
    const signal = supersede(this);
    const problem = byId("decode-problem");
    try {
      const ids = this.held ?? parseIds(this.box.value);
      const answer = await api.decode(ids, {
        tokenizer: this.select.value, skipSpecial: byId("skip-special").checked, signal,
      });
      problem.hidden = true;
      byId("decoded").textContent = shorten(answer.text);
      this.pane.element.hidden = ids.length === 0;
      this.pane.showIds(ids, answer);
      await this.#judge(ids, answer, signal);
    } catch (error) {
      if (signal.aborted) return;
      byId("decoded").textContent = "";
      byId("decode-verdict").textContent = "";
      this.pane.element.hidden = true;
      reportProblem(problem, error);
    }
  }

  async #judge(ids, answer, signal) {
    const verdict = byId("decode-verdict");
    if (!ids.length) {
      verdict.textContent = "";
      return;
    }
    const { ok, first_difference: index } = await api.verify(ids, answer.version, signal);
    const n = `${formatCount(ids.length)} ${ids.length === 1 ? "id" : "ids"}`;
    verdict.textContent = ok
      ? `${n}: encoding this text gives the same ids.`
      : `${n}: encoding this text gives different ids from number ${formatCount(index + 1)} on. ` +
        "A model rarely sees ids like these.";
  }
}

/** Keep the beginning of a long text, because laying out all of it is slow. */
function shorten(text) {
  const more = text.length - SHOWN_CHARACTERS;
  return more > 0 ? `${text.slice(0, SHOWN_CHARACTERS)}\n… and ${formatCount(more)} characters more` : text;
}

/** Parse the numbers in `text`. Throws on anything else. */
function parseIds(text) {
  const words = text.split(/[\s,;[\]()]+/).filter(Boolean);
  return words.map((word, index) => {
    if (!/^\d{1,10}$/.test(word)) {
      throw new Error(`Number ${formatCount(index + 1)} is no token id; ids are whole numbers from 0, ` +
        "separated by commas, spaces or lines.");
    }
    return Number(word);
  });
}
