// The form of a calculator: fields with numbers, and a table of results that follows them. Nothing is fetched, and nothing leaves the page.
"use strict";

// `limits` has the least value of fields that may not be 0; `whole` has the names of fields for whole numbers.
function field(name, value, label, limits, whole) {
  const element = document.createElement("label"), input = document.createElement("input");
  input.name = name;
  if (typeof value === "boolean") {
    input.type = "checkbox";
    input.checked = value;
  } else {
    input.type = "number";
    input.value = value;
    input.step = whole.includes(name) ? 1 : "any";
    input.min = limits[name] ?? 0;
  }
  element.append(label, input);
  return element;
}

function read(form, defaults) {
  return Object.fromEntries(Object.keys(defaults).map((name) => {
    const input = form.elements[name];
    if (input.type === "checkbox") return [name, input.checked];
    const value = Math.max(Number(input.value), Number(input.min));
    return [name, input.step === "1" ? Math.round(value) : value];
  }));
}

// `groups` has titles, and defaults by name. `rows` returns the rows of the table for the values of each group: [class, cells].
function buildCalculator(place, {groups, labels, limits, whole, heads, label, rows}) {
  const form = document.createElement("form"), table = document.createElement("table");
  for (const [title, defaults] of groups) {
    const group = document.createElement("fieldset"), legend = document.createElement("legend");
    legend.textContent = title;
    group.append(legend, ...Object.entries(defaults).map(([name, value]) => field(name, value, labels[name], limits, whole)));
    form.append(group);
  }
  const line = (names, of, kind) => {
    const row = document.createElement("tr");
    row.className = kind;
    row.append(...names.map((text, place) => {
      const cell = document.createElement(of || (place === 0 ? "th" : "td"));
      if (cell.tagName === "TH") cell.scope = of ? "col" : "row";
      cell.textContent = text;
      return cell;
    }));
    return row;
  };
  const show = () => {
    const found = rows(...groups.map(([, defaults]) => read(form, defaults)));
    table.replaceChildren(...(heads ? [line(heads, "th", "")] : []), ...found.map(([kind, cells]) => line(cells, "", kind)));
  };
  form.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  table.setAttribute("aria-live", "polite");
  table.setAttribute("aria-label", label);
  place.replaceChildren(form, table);
  show();
}
