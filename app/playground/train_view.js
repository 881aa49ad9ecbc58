/** The Train page: what to read, what to make of it, the run, the latest runs. */

import * as api from "./api.js";
import { CorporaView } from "./corpora_view.js";
import { byId, formatBytes, make } from "./elements.js";
import { JobView } from "./job_view.js";
import { openKeyForm } from "./key_form.js";
import { reportProblem } from "./notices.js";
import { served } from "./served.js";

const SOURCES = ["corpora", "text", "paths"];

export class TrainView {
  /** `textOf()`: what stands in the box under Encode. */
  constructor(textOf) {
    this.textOf = textOf;
    this.corpora = new CorporaView();
    this.job = new JobView(() => {
      this.#listJobs();
      served.look().then(() => served.list());
    });
    byId("train-unlock").addEventListener("click", openKeyForm);
    byId("train-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#start();
    });
    for (const input of byId("train-form").elements.source) input.addEventListener("change", () => this.#showSource());
    api.key.addEventListener("changed", () => byId("panel-train").hidden || this.open());
  }

  /** Show what this key opens. */
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
      ? `${formatBytes(new TextEncoder().encode(text).length)} stand under Encode. ` +
        "A tokenizer worth using wants megabytes; this is to see how it goes."
      : "There is no text under Encode yet.";
  }

  /** What is asked of the service; raises where something is missing. */
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
      if (!this.textOf()) throw new Error("There is no text under Encode; write some there first.");
      return { ...request, documents: [this.textOf()] };
    }
    if (source === "paths") {
      const paths = byId("paths").value.split("\n").map((line) => line.trim()).filter(Boolean);
      if (!paths.length) throw new Error("Name at least one file, as it stands below TOKENIZER_CORPUS_ROOTS.");
      return { ...request, input_paths: paths };
    }
    if (!this.corpora.chosen.length) throw new Error("Tick a corpus, or upload one first.");
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

  /** Whether the key lists them; the run that goes on is followed. */
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
      make("span", { class: "hint grow", textContent: when }),
      make("span", { class: "state", "data-state": job.state, textContent: job.state }));
  }
}
