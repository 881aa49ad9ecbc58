/** The key form. It opens by itself when the service asks for a key. */

import { key } from "./api.js";
import { byId } from "./elements.js";

export function openKeyForm() {
  byId("key-form").hidden = false;
  byId("key-toggle").setAttribute("aria-expanded", "true");
  byId("key-input").focus();
}

function close() {
  byId("key-form").hidden = true;
  byId("key-toggle").setAttribute("aria-expanded", "false");
}

export function startKeyForm() {
  byId("key-toggle").addEventListener("click", () => (byId("key-form").hidden ? openKeyForm() : close()));
  byId("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    key.use(byId("key-input").value.trim(), byId("key-kept").checked);
    byId("key-input").value = "";
    close();
    byId("key-toggle").focus();
  });
  byId("key-forget").addEventListener("click", () => {
    key.use("", false);
    close();
  });
  const show = () => {
    byId("key-toggle").textContent = key.value ? "Key ✓" : "Key";
    byId("key-toggle").classList.toggle("has-key", key.value !== "");
    byId("key-kept").checked = key.isKept;
  };
  key.addEventListener("changed", show);
  let refused = null; // ask once per refused key; closing the form dismisses it
  key.addEventListener("wanted", () => {
    if (refused === key.value) return;
    refused = key.value;
    openKeyForm();
  });
  show();
}
