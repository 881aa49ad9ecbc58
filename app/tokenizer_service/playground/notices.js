/** Error messages and passing notices. */

import { byId, make } from "./elements.js";

const SHOWN_MILLISECONDS = 8000;

/** Show an error in `element`. The service's `detail` names the remedy. */
export function reportProblem(element, error) {
  if (error.name === "AbortError") return;
  const details = (error.errors ?? []).map(({ detail }) => detail)
    .filter((detail) => detail && !error.message.includes(detail));
  element.textContent = [error.message, ...details].join(" ");
  element.hidden = false;
}

/** Show a notice that screen readers announce and that disappears after a while. */
export function announce(text, kind = "news") {
  const notice = make("p", { class: `notice ${kind}`, textContent: text });
  const close = make("button", {
    type: "button", class: "quiet", textContent: "×",
    "aria-label": "Close this message", onclick: () => notice.remove(),
  });
  notice.append(close);
  byId("notices").replaceChildren(notice);
  setTimeout(() => notice.remove(), SHOWN_MILLISECONDS);
}
