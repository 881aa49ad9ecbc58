/**
 * What the service serves and has: asked for every few seconds, so that a swap by anybody is seen.
 * Events: `swapped` (detail: {before, now}), `listed` when the list of versions changed.
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

  /** Ask now, and from now on. */
  start() {
    whileLookedAt(() => this.look(), LOOK_MILLISECONDS);
    return this.look();
  }

  /** Ask once; an answer of 304 is all that it mostly costs. A key that was refused is not sent again. */
  async look() {
    if (this.#refused === api.key.value) return;
    try {
      this.note(await api.active(this.active.digest));
      this.#render(); // it may have been out of reach until now
    } catch (error) {
      if (error.status === 401) this.#refused = api.key.value;
      byId("served").textContent = error.status === 401 ? "a key is wanted to read" : error.message;
    }
  }

  /** An answer named what is served. */
  note({ version, digest }) {
    if (!version || version === this.active.version) return;
    const before = this.active.version;
    this.active = { version, digest };
    if (before) {
      this.previous = before;
      announce(`${version} is served now; it was ${before}.`, "swap");
    }
    this.#render();
    this.dispatchEvent(new CustomEvent("swapped", { detail: { before, now: version } }));
    this.list();
  }

  /** Ask what is published. */
  async list() {
    try {
      const { tokenizers } = await api.tokenizers();
      this.versions = tokenizers;
      if (!this.#engine) this.#engine = (await api.info()).engine;
    } catch {
      return; // the look that failed says why
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

/** Fill a choice of tokenizers, and keep what is chosen; with `first`, an entry for what is served. */
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
  // A version that a link names and nobody has: the service says so, better than this page.
  if (wanted && !known) options.push(new Option(wanted, wanted));
  select.replaceChildren(...options);
  select.value = wanted;
}
