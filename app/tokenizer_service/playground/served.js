/**
 * The active tokenizer and the published ones, polled every few seconds so that the page shows every
 * swap. Events: `swapped` (detail: {before}), and `listed` when the list of versions, or what
 * served before, changes.
 */

import * as api from "./api.js";
import { byId, make, whileLookedAt } from "./elements.js";
import { announce } from "./notices.js";

const LOOK_MILLISECONDS = 1500;

class Served extends EventTarget {
  active = { version: null, digest: null };
  previous = null;
  versions = [];
  #engine = "";
  #trouble = "";
  #refused = null;

  /** Poll now and periodically. */
  start() {
    whileLookedAt(() => this.look(), LOOK_MILLISECONDS);
    return this.look();
  }

  /** Poll once; usually the response is a 304. Does not resend a refused key. */
  async look() {
    if (this.#refused === api.key.value) return;
    try {
      this.note(await api.active());
      this.#trouble = (await api.readiness()).reason ?? "";
      this.#render(); // the service may have been unreachable before
    } catch (error) {
      if (error.status === 503 && !this.versions.length) await this.list(); // to promote one
      if (error.status === 401) this.#refused = api.key.value;
      byId("served").textContent = error.status === 401 ? "a key is required to read" : error.message;
    }
  }

  /** Note the active tokenizer named by a response. */
  note({ version, digest, previous }) {
    if (previous !== undefined && previous !== this.previous) {
      this.previous = previous;
      this.dispatchEvent(new Event("listed")); // another response may have named the version first
    }
    if (!version || version === this.active.version) return;
    const before = this.active.version;
    this.active = { version, digest };
    if (before) {
      this.previous = previous ?? before;
      // A version that was published just now is not listed yet.
      this.list().then(() =>
        announce(`Now serving ${shortName(version)}; before, it was ${shortName(before)}.`, "swap"));
    }
    this.#render();
    this.dispatchEvent(new CustomEvent("swapped", { detail: { before } }));
    this.list();
  }

  /** Load the list of published tokenizers. */
  async list() {
    try {
      const { tokenizers } = await api.tokenizers();
      this.versions = tokenizers;
      if (!this.#engine && this.active.version) this.#engine = (await api.info()).engine;
    } catch {
      return; // the failed poll shows the reason
    }
    this.#render();
    this.dispatchEvent(new Event("listed"));
  }

  #render() {
    const { version } = this.active;
    const name = make("b", { textContent: version ? shortName(version) : "nothing yet", title: version ?? "" });
    const parts = ["serves ", name];
    if (this.#engine) parts.push(` · ${this.#engine} engine`);
    if (this.#trouble) parts.push(` · ${this.#trouble}`);
    byId("served").replaceChildren(...parts);
  }
}

export const served = new Served();

/**
 * The name that people read for `name@version`: the name; for all but the newest version also which
 * one it is, counted from the oldest.
 */
export function shortName(full) {
  const [name] = (full ?? "").split("@");
  const versions = served.versions.filter((one) => one.name === name); // newest first
  const index = versions.findIndex(({ version }) => `${name}@${version}` === full);
  return index > 0 ? `${name} #${versions.length - index}` : name;
}

/** Fill a tokenizer select and keep the selection; the first entry is the active tokenizer. */
export function fillChoice(select, wanted = select.value) {
  const option = (text, full) => {
    const made = new Option(text, full);
    made.title = full || served.active.version || "";
    return made;
  };
  const { active } = served;
  const options = [option(active.version ? `${shortName(active.version)} (served now)` : "nothing yet", "")];
  const all = served.versions.map(({ name, version }) => `${name}@${version}`);
  // Keep an unknown version from a link: the service's error message explains it.
  if (wanted && !all.includes(wanted)) all.push(wanted);
  options.push(...all.filter((full) => full !== active.version || full === wanted)
    .map((full) => option(shortName(full), full)));
  select.replaceChildren(...options);
  select.value = wanted;
  select.title = wanted || active.version || "";
}
