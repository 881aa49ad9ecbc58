/**
 * The active tokenizer and the published ones, polled every few seconds so that the page shows every
 * swap. Events: `swapped` (detail: {before, now}), and `listed` when the list of versions changes.
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
      this.note(await api.active(this.active.digest));
      this.#render(); // the service may have been unreachable before
    } catch (error) {
      if (error.status === 401) this.#refused = api.key.value;
      byId("served").textContent = error.status === 401 ? "a key is required to read" : error.message;
    }
  }

  /** Note the active tokenizer named by a response. */
  note({ version, digest }) {
    if (!version || version === this.active.version) return;
    const before = this.active.version;
    this.active = { version, digest };
    if (before) {
      this.previous = before;
      announce(`Now serving ${version}; before, it was ${before}.`, "swap");
    }
    this.#render();
    this.dispatchEvent(new CustomEvent("swapped", { detail: { before, now: version } }));
    this.list();
  }

  /** Load the list of published tokenizers. */
  async list() {
    try {
      const { tokenizers } = await api.tokenizers();
      this.versions = tokenizers;
      if (!this.#engine) this.#engine = (await api.info()).engine;
    } catch {
      return; // the failed poll shows the reason
    }
    this.#render();
    this.dispatchEvent(new Event("listed"));
  }

  #render() {
    const parts = ["serves ", make("b", { textContent: this.active.version ?? "nothing yet" })];
    if (this.#engine) parts.push(` · ${this.#engine} engine`);
    byId("served").replaceChildren(...parts);
  }
}

export const served = new Served();

/** Fill a tokenizer select and keep the selection; `first` adds an entry for the active tokenizer. */
export function fillChoice(select, wanted = select.value) {
  const options = [new Option(`served now: ${served.active.version ?? "nothing yet"}`, "")];
  let group = null;
  for (const { name, version, active } of served.versions) {
    if (group?.label !== name) {
      group = make("optgroup", { label: name });
      options.push(group);
    }
    group.append(new Option(`${name}@${version}${active ? " (served)" : ""}`, `${name}@${version}`));
  }
  const known = served.versions.some(({ name, version }) => `${name}@${version}` === wanted);
  // Keep an unknown version from a link: the service's error message explains it.
  if (wanted && !known) options.push(new Option(wanted, wanted));
  select.replaceChildren(...options);
  select.value = wanted;
}
