/** The key form. It opens by itself when the service asks for a key. */

import { checkKey, key } from "./api.js";
import { byId } from "./elements.js";
import { reportProblem } from "./notices.js";

export function openKeyForm() {
  byId("key-form").hidden = false;
  byId("key-toggle").setAttribute("aria-expanded", "true");
  byId("key-input").focus();
}

function close() {
  byId("key-problem").hidden = true;
  byId("key-form").hidden = true;
  byId("key-toggle").setAttribute("aria-expanded", "false");
}

export function startKeyForm() {
  byId("key-toggle").addEventListener("click", () => (byId("key-form").hidden ? openKeyForm() : close()));
  byId("key-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const value = byId("key-input").value.trim();
    try {
      await checkKey(value);
    } catch (error) {
      const unknown = error.status === 401 && new Error("The service does not know this key.");
      reportProblem(byId("key-problem"), unknown || error);
      return;
    }
    key.use(value, byId("key-kept").checked);
    byId("key-input").value = "";
    close();
    byId("key-toggle").focus();
  });
  byId("key-forget").addEventListener("click", () => {
    key.use("", false);
    close();
  });
  let refused = null; // ask once per refused key; closing the form dismisses it
  const show = () => {
    byId("key-toggle").textContent = key.value && key.value !== refused ? "Key ✓" : "Key";
    byId("key-toggle").classList.toggle("has-key", key.value !== "");
    byId("key-kept").checked = key.isKept;
  };
  key.addEventListener("changed", show);
  key.addEventListener("wanted", () => {
    if (refused === key.value) return;
    refused = key.value;
    show();
    openKeyForm();
  });
  show();
}
