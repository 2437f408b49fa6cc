// Light or dark: the system's choice, unless the button says otherwise.

import { byId, setAttribute } from "./dom.js";

const KEY = "diskless-proxy theme";

/** Let the button switch. */
export function startTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const button = byId("theme");
  let chosen = remembered();
  const show = () => {
    const dark = chosen === null ? system.matches : chosen === "dark";
    setAttribute(document.documentElement, "data-theme", chosen);
    setAttribute(button, "aria-pressed", dark);
  };
  button.addEventListener("click", () => {
    chosen = button.getAttribute("aria-pressed") === "true" ? "light" : "dark";
    try {
      localStorage.setItem(KEY, chosen);
    } catch {
      // Storage may be off; then the choice lasts as long as the page.
    }
    show();
  });
  system.addEventListener("change", show);
  show();
}

function remembered() {
  try {
    const value = localStorage.getItem(KEY);
    return value === "dark" || value === "light" ? value : null;
  } catch {
    return null;
  }
}
