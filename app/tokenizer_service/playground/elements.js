/** Make elements without markup in strings, so that untrusted text never becomes markup. */

/**
 * Make an element with properties and children. `on…` names set listeners, `class` and names with a
 * dash set attributes, all others set properties. Null and false children are skipped.
 */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name.includes("-") || name === "role" || name === "for") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children.filter((child) => child !== null && child !== false));
  return element;
}

export const byId = (id) => document.getElementById(id);

const counting = new Intl.NumberFormat("en");
export const formatCount = (n) => counting.format(n);
export const counted = (n, noun) => `${formatCount(n)} ${noun}${n === 1 ? "" : "s"}`;

/** Format bytes in decimal units (1 kB = 1,000 bytes). */
export function formatBytes(n) {
  if (n < 1000) return counted(n, "byte");
  const unit = n < 1e6 ? [1e3, "kB"] : n < 1e9 ? [1e6, "MB"] : [1e9, "GB"];
  return `${(n / unit[0]).toFixed(n / unit[0] < 10 ? 1 : 0)} ${unit[1]}`;
}

/** Format seconds for people. */
export function formatSeconds(seconds) {
  if (seconds < 60) return `${Math.max(1, Math.round(seconds))} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
}

/** Debounce: run `action` once, `milliseconds()` after the last call. */
export function debounce(action, milliseconds) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...values), milliseconds());
  };
}

/** Call `take(file)` for the file that is chosen in `input` or dropped on `area`. */
export function onFile(input, area, take) {
  input.addEventListener("change", () => {
    take(input.files[0]);
    input.value = "";
  });
  area.addEventListener("dragover", (event) => event.preventDefault());
  area.addEventListener("drop", (event) => {
    if (!event.dataTransfer.files.length) return;
    event.preventDefault();
    take(event.dataTransfer.files[0]);
  });
}

/** Abort what `owner` last asked for; returns the signal of what it asks for now. */
export function supersede(owner) {
  owner.controller?.abort();
  owner.controller = new AbortController();
  return owner.controller.signal;
}

/** Run `action` periodically while the page is visible, and at once when it becomes visible again. */
export function whileLookedAt(action, milliseconds) {
  const run = () => document.hidden || action();
  setInterval(run, milliseconds);
  document.addEventListener("visibilitychange", run);
}

/** Yield, so that the browser can paint and handle input during long work. */
export const breathe = () => new Promise((resolve) => setTimeout(resolve));
