/** The published versions: which one is active, promote another, roll back, import one. */

import * as api from "./api.js";
import { byId, make } from "./elements.js";
import { announce, reportProblem } from "./notices.js";
import { served, shortName } from "./served.js";

const SHOWN = 30;

export class VersionsView {
  /** `compare(version)` is called to show a version next to the active one. */
  constructor(compare) {
    this.compare = compare;
    byId("roll-back").addEventListener("click", () => served.previous && this.promote(served.previous));
    byId("import-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#import();
    });
    served.addEventListener("listed", () => this.render());
  }

  render() {
    const { versions } = served;
    byId("versions").replaceChildren(...versions.slice(0, SHOWN).map((row) => this.#row(row)));
    if (versions.length > SHOWN) {
      const more = `and ${versions.length - SHOWN} more, which GET /tokenizers lists`;
      byId("versions").append(make("li", { class: "hint", textContent: more }));
    }
    const back = byId("roll-back");
    back.hidden = !versions.some(({ name, version }) => `${name}@${version}` === served.previous);
    back.textContent = `Roll back to ${shortName(served.previous)}`;
    back.title = served.previous ?? "";
  }

  #row({ name, version, active, created_at: createdAt }) {
    const full = `${name}@${version}`;
    const made = createdAt ? new Date(createdAt).toLocaleString() : "";
    const button = (text, action) => make("button", {
      type: "button", textContent: text, "aria-label": `${text} ${shortName(full)}`, onclick: action,
    });
    return make("li", active ? { class: "is-served", "aria-current": "true" } : {},
      make("span", { class: "version-name" },
        make("b", { textContent: shortName(full), title: full })),
      make("span", { class: "hint grow", textContent: made }),
      ...(active ? [make("span", { class: "badge", textContent: "served" })]
        : [button("Compare", () => this.compare(full)), button("Serve", () => this.promote(full))]));
  }

  async #import() {
    const [state, problem, start] = ["state", "problem", "start"].map((part) => byId(`import-${part}`));
    problem.hidden = true;
    start.disabled = true;
    state.textContent = "The server is reading the files …";
    try {
      const { name, version, vocab_size: size, warnings } = await api.importVocabulary(
        byId("import-name").value.trim(), byId("import-files").files, {
          pattern: byId("import-pattern").value.trim(),
          specials: byId("import-specials").value.split(/\s+/).filter(Boolean),
          noSpecial: byId("import-no-special").checked,
        });
      state.textContent = `Published ${shortName(`${name}@${version}`)}, ${size.toLocaleString()} tokens. “Serve” serves it. ${warnings.join(" ")}`;
      await served.list();
    } catch (error) {
      state.textContent = "";
      reportProblem(problem, error);
    }
    start.disabled = false;
  }

  /** Promote only if the active version is still the one this page shows. */
  async promote(version) {
    const problem = byId("versions-problem");
    problem.hidden = true;
    try {
      const { previous } = await api.promote(version, served.active.digest);
      if (previous) announce(`Every process now serves ${shortName(version)}.`, "swap");
    } catch (error) {
      reportProblem(problem, error);
    }
    await served.look();
  }
}
