/** The Train page: corpus, options, the current run and recent runs. */

import * as api from "./api.js";
import { CorporaView } from "./corpora_view.js";
import { byId, formatBytes, make } from "./elements.js";
import { elapsedOf, JobView } from "./job_view.js";
import { openKeyForm } from "./key_form.js";
import { reportProblem } from "./notices.js";
import { served } from "./served.js";

const SOURCES = ["corpora", "text", "paths"];

export class TrainView {
  /** `textOf()` returns the text on the Encode tab; `compare` and `serve` are those of `JobView`. */
  constructor(textOf, { compare, serve }) {
    this.textOf = textOf;
    this.corpora = new CorporaView();
    this.job = new JobView({
      ended: () => {
        this.#listJobs();
        served.look().then(() => served.list());
      },
      compare,
      serve,
    });
    byId("train-unlock").addEventListener("click", openKeyForm);
    byId("train-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#start();
    });
    for (const input of byId("train-form").elements.source) input.addEventListener("change", () => this.#showSource());
    api.key.addEventListener("changed", () => byId("panel-train").hidden || this.open());
  }

  /** Show the controls that the current key allows. */
  async open() {
    const mayTrain = api.key.value !== "" && (await this.#listJobs());
    byId("train-locked").hidden = mayTrain;
    byId("train-open").hidden = !mayTrain;
    if (!mayTrain) {
      this.job.leave();
      return;
    }
    this.#showSource();
    await Promise.all([this.corpora.list_(), served.list()]);
  }

  get #source() {
    return byId("train-form").elements.source.value;
  }

  #showSource() {
    for (const source of SOURCES) byId(`source-${source}`).hidden = source !== this.#source;
    const text = this.textOf();
    byId("source-text-size").textContent = text
      ? `The Encode tab holds ${formatBytes(new TextEncoder().encode(text).length)}. ` +
        "A useful tokenizer needs megabytes; use this to see how training works."
      : "The Encode tab is empty.";
  }

  /** Build the training request; throws if something is missing. */
  #request() {
    const request = {
      name: byId("train-name").value.trim(),
      vocab_size: Number(byId("train-size").value),
      pattern: byId("train-pattern").value,
      promote: byId("train-promote").value,
      special_tokens: byId("train-specials").value.split(/\s+/).filter(Boolean),
    };
    const source = this.#source;
    if (source === "text") {
      if (!this.textOf()) throw new Error("The Encode tab is empty; enter some text there first.");
      return { ...request, documents: [this.textOf()] };
    }
    if (source === "paths") {
      const paths = byId("paths").value.split("\n").map((line) => line.trim()).filter(Boolean);
      if (!paths.length) throw new Error("Name at least one file, relative to TOKENIZER_CORPUS_ROOTS.");
      return { ...request, input_paths: paths };
    }
    if (!this.corpora.chosen.length) throw new Error("Select a corpus, or upload one first.");
    return { ...request, corpus_ids: this.corpora.chosen };
  }

  async #start() {
    const problem = byId("train-problem");
    problem.hidden = true;
    byId("train-start").disabled = true;
    try {
      const { id } = await api.train(this.#request());
      this.job.follow(id);
      this.job.element.scrollIntoView({ block: "nearest" });
      this.#listJobs();
    } catch (error) {
      reportProblem(problem, error);
    }
    byId("train-start").disabled = false;
  }

  /** List the runs and follow a running one. Returns whether the key allows it. */
  async #listJobs() {
    let jobs;
    try {
      ({ jobs } = await api.jobs());
    } catch (error) {
      reportProblem(byId("locked-problem"), error);
      return false;
    }
    byId("locked-problem").hidden = true;
    byId("jobs").replaceChildren(...jobs.map((job) => this.#row(job)));
    if (!jobs.length) byId("jobs").append(make("li", { class: "hint", textContent: "None yet." }));
    const going = jobs.find((job) => !api.isFinal(job));
    if (going && this.job.element.hidden) this.job.follow(going.id);
    return true;
  }

  #row(job) {
    const when = new Date(job.created_at).toLocaleString();
    return make("li", {},
      make("button", {
        type: "button", class: "job-name", textContent: job.name,
        "aria-label": `Show the run ${job.name} of ${when}`, onclick: () => this.job.follow(job.id),
      }),
      make("span", { class: "hint grow", textContent: job.finished_at && job.started_at ? `${when}, ${elapsedOf(job)}` : when }),
      make("span", { class: "state", "data-state": job.state, textContent: job.state }));
  }
}
