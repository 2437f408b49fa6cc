// Links from headings to the sections of the documentation, if the setting admin.docs_url has its address.

import { byId, h, setAttribute } from "./dom.js";

/** Put a link next to each heading with `data-docs`; none if the pattern is empty. */
export function linkHeadings(pattern) {
  for (const heading of document.querySelectorAll("[data-docs]")) {
    const id = `${heading.id}-docs`;
    const [page, section] = heading.dataset.docs.split("#");
    const address = pattern ? pattern.replace("{page}", page) + (section ? `#${section}` : "") : null;
    if (!address) byId(id)?.remove();
    else if (byId(id)) setAttribute(byId(id), "href", address);
    else heading.after(link(id, address, heading.textContent));
  }
}

function link(id, address, heading) {
  const of = h("span", { class: "hidden-text" }, ` about: ${heading}`);
  return h("a", { id, class: "docs", href: address, target: "_blank", rel: "noopener noreferrer" }, "docs", of);
}
