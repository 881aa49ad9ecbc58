/** One training run: phase, progress, rate, time left, log and result. */

import * as api from "./api.js";
import { drawCurve } from "./curve.js";
import { byId, counted, formatBytes, formatCount, formatSeconds, make, supersede } from "./elements.js";
import { reportProblem } from "./notices.js";

const PHASES = {
  queued: "queued", start: "starting", download: "fetching the text", count: "counting the text",
  learn: "learning merges", publish: "publishing", promote: "putting it into service", cancelling: "being cancelled",
};
const HELD_BACK = {
  size_not_reached: (why) => `it has ${formatCount(why.got)} entries, not the ${formatCount(why.asked)} asked for`,
  ten_times_smaller: (why) =>
    `it has ${formatCount(why.got)} entries, and ${why.replaces} has ${formatCount(why.replaces_vocab_size)}`,
  replaced_not_readable: (why) => `${why.replaces}, which is active, cannot be loaded`,
};
const ENDS = {
  live: "Now serving.", succeeded: "Published; the active tokenizer did not change.",
  failed: "Failed.", cancelled: "Cancelled.",
};

export class JobView {
  /**
   * Callbacks: `ended(view)` at the end of each run shown here; `compare(version)` and
   * `serve(version)` for the tokenizer of a run.
   */
  constructor({ ended, compare, serve }) {
    this.element = byId("job");
    Object.assign(this, { ended, compare, serve });
    setInterval(() => this.view && !api.isFinal(this.view) && this.#renderFigures(this.view), 1000);
    const make_ = (tag, name, more = {}) => (this[name] = make(tag, { class: name, ...more }));
    this.element.replaceChildren(
      make("div", { class: "row" }, make_("h2", "title", { id: "job-title" }), make_("span", "state")),
      make_("p", "phase", { role: "status" }),
      make_("progress", "bar", { max: 1, value: 0, "aria-label": "Progress of the run" }),
      make_("dl", "numbers"),
      make_("p", "problem", { role: "alert", hidden: true }),
      make_("div", "result"),
      make_("div", "buttons"),
      make("details", {}, make("summary", { textContent: "Log" }), make_("pre", "log", { tabIndex: 0 })));
    this.element.querySelector(".log").setAttribute("aria-label", "Log of the run");
  }

  /** Follow the run `id` to its end. */
  async follow(id) {
    const signal = supersede(this);
    this.view = null;
    this.rate = new Rate();
    this.result.replaceChildren();
    this.element.hidden = false;
    let wasGoing = false;
    try {
      for await (const view of api.events(id, signal)) {
        if (signal.aborted) return;
        this.#render(view);
        if (!api.isFinal(view)) wasGoing = true;
        else if (wasGoing) this.ended(view);
        if (view.result) await this.#showResult(view, signal);
      }
    } catch (error) {
      if (!signal.aborted) reportProblem(this.problem, error);
    }
  }

  /** Hide the run and stop listening. */
  leave() {
    this.controller?.abort();
    this.view = null;
    this.element.hidden = true;
  }

  #render(view) {
    const isFinal = api.isFinal(view);
    this.view = view;
    this.title.textContent = `Training ${view.name}`;
    this.state.textContent = view.state;
    this.state.dataset.state = view.state;
    const reason = view.waits_for ? `, waits for ${view.waits_for}` : "";
    const words = isFinal ? endOf(view) : (PHASES[view.phase] ?? view.phase) + reason;
    if (this.phase.textContent !== words) this.phase.textContent = words;
    this.bar.value = view.progress;
    this.rate.note(view);
    this.#renderFigures(view);
    this.log.textContent = view.log_tail.join("\n");
    this.problem.hidden = view.error === null;
    if (view.error) this.problem.textContent = view.error.detail;
    const canCancel = !isFinal && view.phase !== "cancelling";
    if (canCancel === this.buttons.hasChildNodes()) return; // a new button would lose the focus
    const cancel = { type: "button", textContent: "Cancel the run", onclick: () => this.#cancel(view.id) };
    this.buttons.replaceChildren(...(canCancel ? [make("button", cancel)] : []));
  }

  #renderFigures(view) {
    this.numbers.replaceChildren(...this.#figures(view).map(([name, value]) =>
      make("div", {}, make("dt", { textContent: name }), make("dd", { textContent: value }))));
  }

  #figures(view) {
    const { counters } = view;
    const found = [["done", `${Math.round(100 * view.progress)}%`]];
    if (counters.download_done) found.push(["fetched", formatBytes(counters.download_done)]);
    const share = (name, phase, format) => counters[`${phase}_total`]
      && found.push([name, `${format(counters[`${phase}_done`])} of ${format(counters[`${phase}_total`])}`]);
    share("text read", "count", formatBytes);
    if (!api.isFinal(view)) share("merges", "learn", formatCount);
    const { perSecond, left } = this.rate;
    if (!api.isFinal(view) && perSecond) {
      const isLearning = view.phase === "learn";
      found.push(["rate", isLearning ? `${formatCount(Math.round(perSecond))} merges/s` : `${formatBytes(perSecond)}/s`]);
      found.push(["left of this phase", `about ${formatSeconds(left)}`]);
    }
    if (view.started_at) found.push([view.finished_at ? "took" : "elapsed", elapsedOf(view)]);
    return found;
  }

  /** Show the result while it is published. */
  async #showResult({ state, result: { name, version, warnings } }, signal) {
    // A version may have been removed since.
    const { tokenizers } = await api.versionsOf(name).catch(() => ({ tokenizers: [] }));
    const published = tokenizers.find((one) => one.version === version);
    const training = published?.manifest?.training;
    if (signal.aborted || !training) return;
    const full = `${name}@${version}`;
    const button = (textContent, onclick) => make("button", { type: "button", textContent, onclick });
    this.result.replaceChildren(
      make("p", {}, make("b", { textContent: name, title: full }),
        `: ${formatCount(training.vocab_size)} entries, ${training.bytes_per_token.toFixed(2)} bytes per token, ` +
        `longest token ${counted(training.longest_token_bytes, "byte")}.`),
      ...(warnings ?? []).map((textContent) => make("p", { textContent: `Warning: ${textContent}.` })),
      make("div", { class: "row" },
        button("Compare on your text", () => this.compare(full)),
        state === "succeeded" && button("Serve it", () => this.serve(full))));
    if (training.curve?.length > 1) this.result.append(drawCurve(training.curve));
  }

  async #cancel(id) {
    try {
      await api.cancel(id);
    } catch (error) {
      reportProblem(this.problem, error);
    }
  }
}

/** How long a run took, or has taken. */
export function elapsedOf({ started_at: start, finished_at: end }) {
  return formatSeconds(((end ? Date.parse(end) : Date.now()) - Date.parse(start)) / 1000);
}

/** How a run ended, and why its tokenizer is not served. */
function endOf({ state, result }) {
  const why = result?.not_promoted;
  const held = why && `Published, and not served: ${HELD_BACK[why.reason](why)}.`;
  return held || ENDS[state];
}

/** The smoothed rate of the current phase and the estimated seconds left. */
class Rate {
  perSecond = 0;
  left = 0;

  note({ phase, counters }) {
    const [done, total] = [counters[`${phase}_done`] ?? 0, counters[`${phase}_total`] ?? 0];
    const now = performance.now() / 1000;
    if (phase !== this.phase) Object.assign(this, { phase, done, at: now, perSecond: 0 });
    if (now - this.at < 0.4 || done <= this.done) return;
    const fresh = (done - this.done) / (now - this.at);
    this.perSecond = this.perSecond ? 0.6 * this.perSecond + 0.4 * fresh : fresh;
    this.left = (total - done) / this.perSecond;
    Object.assign(this, { done, at: now });
  }
}
