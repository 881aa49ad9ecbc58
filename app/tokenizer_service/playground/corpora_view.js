/** The uploaded corpora: choose, upload with progress, remove. */

import * as api from "./api.js";
import { byId, formatBytes, make, onFile } from "./elements.js";
import { announce, reportProblem } from "./notices.js";

export class CorporaView {
  constructor() {
    this.list = byId("corpora");
    this.state = byId("upload-state");
    this.progress = byId("upload-progress");
    this.controller = null;
    this.known = [];
    onFile(byId("upload"), byId("source-corpora"), (file) => this.#upload(file));
    byId("upload-cancel").addEventListener("click", () => this.controller?.abort());
  }

  /** The ids of the selected corpora. */
  get chosen() {
    return [...this.list.querySelectorAll("input:checked")].map((input) => input.value);
  }

  /** Reload the list. Selected corpora stay selected, and `ticked` becomes selected. */
  async list_(ticked) {
    const chosen = new Set([...this.chosen, ticked]);
    try {
      this.known = (await api.corpora()).corpora;
    } catch (error) {
      reportProblem(this.state, error);
      return;
    }
    if (this.known.length === 1) chosen.add(this.known[0].id);
    this.list.replaceChildren(...this.known.map((corpus) => this.#row(corpus, chosen.has(corpus.id))));
    if (this.known.length) return;
    const advice = "None yet. Upload a file, or train on the text of the Encode tab.";
    this.list.append(make("li", { class: "hint", textContent: advice }));
  }

  #row(corpus, isChosen) {
    return make("li", {},
      make("label", { class: "check" },
        make("input", { type: "checkbox", value: corpus.id, checked: isChosen }),
        make("span", { class: "corpus-id", textContent: corpus.id }),
        make("span", { class: "hint", textContent: formatBytes(corpus.bytes) })),
      make("button", {
        type: "button", class: "quiet", textContent: "Remove",
        "aria-label": `Remove corpus ${corpus.id}`, onclick: () => this.#remove(corpus.id),
      }));
  }

  async #remove(id) {
    try {
      await api.removeCorpus(id);
      announce(`Corpus ${id} is removed.`);
    } catch (error) {
      reportProblem(this.state, error);
    }
    this.list_();
  }

  async #upload(file) {
    if (!file || this.controller) return;
    const id = corpusId(file.name);
    this.controller = new AbortController();
    this.#show(true);
    try {
      await api.upload(id, file, {
        signal: this.controller.signal,
        progress: (sent, all) => {
          this.progress.value = all ? sent / all : 0;
          this.state.textContent = sent < all
            ? `${formatBytes(sent)} of ${formatBytes(all)} sent` : "Upload complete; the server is storing it";
        },
      });
      this.state.textContent = `Uploaded ${file.name} as ${id}.`;
      await this.list_(id);
    } catch (error) {
      if (error.name === "AbortError") this.state.textContent = "Upload stopped; nothing was kept.";
      else reportProblem(this.state, error);
    } finally {
      this.controller = null;
      this.#show(false);
    }
  }

  #show(isBusy) {
    this.progress.hidden = !isBusy;
    this.progress.value = 0;
    byId("upload-cancel").hidden = !isBusy;
  }
}

/** Make a valid corpus id from a file name. */
function corpusId(name) {
  const plain = name.toLowerCase().replace(/[^a-z0-9._-]+/g, "-").replace(/^[^a-z0-9]+/, "").slice(0, 64);
  return plain || "corpus";
}
