// Elements. Names that others have chosen only ever become text: nothing here reads markup.

const SVG = "http://www.w3.org/2000/svg";

/** The element with this ID; it is in the page from the start. */
export function byId(id) {
  return document.getElementById(id);
}

/**
 * An element.
 * @param {string} name
 * @param {Object} attributes `class`, `title`, …; null and false leave one out, a function listens (`onclick`)
 * @param {...(Node|string|number|null)} children
 */
export function h(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** The same, of SVG. */
export function s(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Set the text, if it is another one: so that a selection lives on. */
export function setText(element, text) {
  const wanted = String(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

/** Set an attribute, or take it away by null, if that changes anything. */
export function setAttribute(element, name, value) {
  if (value === null || value === undefined) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
}

/** Pairs of a term and what is said of it, in a `dl`: built once, changed after that. */
export function setPairs(list, pairs) {
  while (list.children.length > pairs.length) list.lastElementChild.remove();
  pairs.forEach(({ term, value, note = null, title = null, kind = "" }, index) => {
    let row = list.children[index];
    if (!row) {
      row = h("div", {}, h("dt"), h("dd"));
      list.append(row);
    }
    setAttribute(row, "class", kind || null);
    setText(row.children[0], term);
    setText(row.children[1], value);
    setAttribute(row.children[1], "title", title);
    if (note !== null && !row.children[2]) row.append(h("dd"));
    if (note !== null) setText(row.children[2], note);
    else row.children[2]?.remove();
  });
}

/** Announce to people who do not see the page; used for changes of state only. */
export function announce(text) {
  setText(byId("news"), text);
}
