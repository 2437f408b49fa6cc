// A table whose columns sort by a button in the heading. Rows are changed in place, so that a selection lives on.

import { h, setAttribute, setText } from "./dom.js";
import { count } from "./format.js";

const FILTER_AFTER_MS = 300;

/**
 * One column. `text` is shown, `exact` is the title, `order` is what to sort by (`text` if left out),
 * `link` the address of a page, or null.
 * @typedef {{name: string, text: function, exact?: function, order?: function, numeric?: boolean, kind?: string,
 *   tag?: function, link?: function}} Column
 */

export class Table {
  /**
   * @param {HTMLElement} place
   * @param {{name: string, heading?: boolean, columns: Column[], empty: string, marked?: function,
   *   filter?: {label: string, more: number, changed: function}}} options `changed` is called with what to ask for:
   *   `{contains, limit}`
   */
  constructor(place, options) {
    this.options = options;
    this.sorted = { column: null, down: true };
    this.rows = [];
    this.body = h("tbody");
    this.headings = options.columns.map((column, index) => this.heading(column, index));
    this.empty = h("p", { class: "empty", hidden: true }, options.empty);
    this.shown = h("span", { class: "shown" });
    this.frame = h(
      "div",
      { class: "table-frame", role: "region", "aria-label": `${options.name}, table`, tabindex: "0" },
      h(
        "table",
        {},
        h("caption", { class: "hidden-text" }, options.name),
        h("thead", {}, h("tr", {}, ...this.headings.map((heading) => heading.cell))),
        this.body,
      ),
    );
    const title = options.heading ? h("h3", {}, options.name) : null;
    this.head = h("div", { class: "table-head" }, title, ...this.filterParts(), this.shown);
    place.append(this.head, this.frame, this.empty);
  }

  heading(column, index) {
    const order = h("span", { class: "order", "aria-hidden": "true" });
    const parts = column.numeric ? [order, column.name] : [column.name, order];
    const button = h("button", { type: "button", onclick: () => this.sortBy(index) }, ...parts);
    const cell = h("th", { scope: "col", class: column.numeric ? "of-numbers" : null }, button);
    return { cell, order };
  }

  filterParts() {
    const { filter, name } = this.options;
    if (!filter) return [];
    this.question = { contains: "", limit: filter.more / 10 };
    let waiting = null;
    const typed = (event) => {
      clearTimeout(waiting);
      waiting = setTimeout(() => {
        this.question.contains = event.target.value;
        filter.changed(this.question);
      }, FILTER_AFTER_MS);
    };
    this.more = h(
      "button",
      {
        type: "button",
        hidden: true,
        onclick: () => {
          this.question.limit = filter.more;
          filter.changed(this.question);
        },
      },
      `Show up to ${count(filter.more)}`,
    );
    const label = `Filter ${name.toLowerCase()}`;
    return [h("label", {}, filter.label, h("input", { type: "search", oninput: typed, "aria-label": label })), this.more];
  }

  sortBy(index) {
    const numeric = this.options.columns[index].numeric ?? false;
    const same = this.sorted.column === index;
    this.sorted = { column: index, down: same ? !this.sorted.down : numeric };
    this.headings.forEach(({ cell, order }, at) => {
      const direction = this.sorted.down ? "descending" : "ascending";
      setAttribute(cell, "aria-sort", at === index ? direction : null);
      setText(order, at === index ? (this.sorted.down ? "▼" : "▲") : "");
    });
    this.draw();
  }

  /** Show these rows; `total` is how many there are, if not all are listed. */
  update(rows, total = rows.length) {
    this.rows = rows;
    this.total = total;
    this.draw();
  }

  draw() {
    const rows = this.inOrder();
    const { columns, marked } = this.options;
    while (this.body.rows.length > rows.length) this.body.deleteRow(-1);
    rows.forEach((row, index) => {
      const line = this.body.rows[index] ?? this.newLine();
      setAttribute(line, "class", marked?.(row) ? "marked" : null);
      columns.forEach((column, at) => fill(line.cells[at], column, row));
    });
    this.frame.hidden = rows.length === 0;
    this.empty.hidden = rows.length > 0;
    const filtered = this.question?.contains ? " that match" : "";
    if (this.question) setText(this.shown, `${count(rows.length)} of ${count(this.total)}${filtered}`);
    if (this.more) this.more.hidden = rows.length >= this.total || this.question.limit >= this.options.filter.more;
  }

  inOrder() {
    if (this.sorted.column === null) return this.rows;
    const column = this.options.columns[this.sorted.column];
    const key = column.order ?? column.text;
    const turn = this.sorted.down ? -1 : 1;
    return [...this.rows].sort((one, other) => turn * compared(key(one), key(other)));
  }

  newLine() {
    const line = this.body.insertRow();
    this.options.columns.forEach((column, index) => {
      const kind = [column.numeric ? "of-numbers" : "", column.kind ?? ""].join(" ").trim();
      const cell = index === 0 ? h("th", { scope: "row" }) : h("td");
      setAttribute(cell, "class", kind || null);
      line.append(cell);
    });
    return line;
  }
}

function fill(cell, column, row) {
  const tag = column.tag?.(row) ?? null;
  const link = column.link?.(row) ?? null;
  const text = String(column.text(row) ?? "–");
  if (link !== null) {
    if (cell.firstElementChild === null || cell.textContent !== text) cell.replaceChildren(h("a", {}, text));
    setAttribute(cell.firstElementChild, "href", link);
  } else if (tag === null) {
    setText(cell, text);
  } else {
    if (cell.firstElementChild === null || cell.textContent !== text) cell.replaceChildren(h("span", {}, text));
    setAttribute(cell.firstElementChild, "class", `tag ${tag}`);
  }
  if (column.exact) setAttribute(cell, "title", column.exact(row));
}

function compared(one, other) {
  if (one === null || one === undefined) return other === null || other === undefined ? 0 : -1;
  if (other === null || other === undefined) return 1;
  if (typeof one === "number" && typeof other === "number") return one - other;
  return String(one).localeCompare(String(other), "en", { numeric: true });
}
