/** Makes elements, without markup in strings: what strangers wrote can never become markup here. */

/**
 * An element with properties and children. `on…` are listeners, `class` and whatever holds a dash
 * are attributes, the rest are properties. Children that are null or false are left out.
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

/** Bytes in units of 1,000, as the disk's maker counts them. */
export function formatBytes(n) {
  if (n < 1000) return `${n} bytes`;
  const unit = n < 1e6 ? [1e3, "kB"] : n < 1e9 ? [1e6, "MB"] : [1e9, "GB"];
  return `${(n / unit[0]).toFixed(n / unit[0] < 10 ? 1 : 0)} ${unit[1]}`;
}

/** Seconds as people say them. */
export function formatSeconds(seconds) {
  if (seconds < 60) return `${Math.max(1, Math.round(seconds))} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
}

/** Calls `action` once, `milliseconds()` after the last call. */
export function debounce(action, milliseconds) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...values), milliseconds());
  };
}

/** Runs `action` every so often, at once when the page is looked at again, never while it is not. */
export function whileLookedAt(action, milliseconds) {
  const run = () => document.hidden || action();
  setInterval(run, milliseconds);
  document.addEventListener("visibilitychange", run);
}

/** Lets the browser paint and the person type before the rest of a long piece of work. */
export const breathe = () => new Promise((resolve) => setTimeout(resolve));
