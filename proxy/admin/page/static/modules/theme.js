// Light or dark: the system's choice, unless the button was used.

import { byId, setAttribute, setText } from "./dom.js";

const KEY = "diskless-proxy theme";

/** Let the button switch. A choice that is the system's own is none: the page follows the system again. */
export function startTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const button = byId("theme");
  let chosen = stored();
  const isDark = () => (chosen === null ? system.matches : chosen === "dark");
  const show = () => {
    setAttribute(document.documentElement, "data-theme", chosen);
    setText(button, isDark() ? "Switch to light" : "Switch to dark");
  };
  button.addEventListener("click", () => {
    const dark = !isDark();
    chosen = dark === system.matches ? null : dark ? "dark" : "light";
    store(chosen);
    show();
  });
  system.addEventListener("change", show);
  show();
}

function store(chosen) {
  try {
    if (chosen === null) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, chosen);
  } catch {
    // Storage may be off; then the choice lasts as long as the page.
  }
}

function stored() {
  try {
    const value = localStorage.getItem(KEY);
    return value === "dark" || value === "light" ? value : null;
  } catch {
    return null;
  }
}
