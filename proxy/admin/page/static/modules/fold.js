// On a small screen the long sections are closed at first: a heading opens and closes its section.

import { h, setAttribute } from "./dom.js";

const LONG = ["plots", "fleet", "buffers", "topics", "connections", "segments"];

/** Make the headings of long sections buttons while the screen is small. */
export function foldSections() {
  const small = matchMedia("(max-width: 560px)");
  const folds = LONG.map((id) => new Fold(document.getElementById(id)));
  const show = () => folds.forEach((fold) => fold.take(small.matches));
  small.addEventListener("change", show);
  addEventListener("hashchange", () => folds.find((fold) => `#${fold.section.id}` === location.hash)?.open(true));
  show();
}

class Fold {
  constructor(section) {
    this.section = section;
    const heading = section.querySelector("h2");
    this.name = heading.textContent;
    this.heading = heading;
    this.rest = [...section.children].filter((child) => child !== heading);
    this.button = h("button", { type: "button", class: "fold", onclick: () => this.open(this.rest[0].hidden) }, this.name);
  }

  take(small) {
    this.heading.replaceChildren(small ? this.button : this.name);
    this.open(!small || `#${this.section.id}` === location.hash);
  }

  open(open) {
    for (const part of this.rest) part.hidden = !open;
    setAttribute(this.button, "aria-expanded", open);
  }
}
