// Elements without HTML: whatever a key holds becomes text. Nothing on this page sets innerHTML.

/** el("p", {class: "note", onclick: f}, "text", child): attributes by name, functions as listeners, null left out. */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") made.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled" || name === "selected") made[name] = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

/** Replace what an element holds, and keep the focus where it was: on the element with the same data-focus. */
export function fill(place, ...children) {
  const focused = place.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
  place.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
  if (focused) place.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
}

/** Set a text only where it is another one, so that screen readers and selections are left alone. */
export function say(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

/** A table of numbers behind a summary: what a chart shows, for those who do not see it. */
export function numbers(title, heads, rows) {
  const body = rows.map((row) => el("tr", {}, row.map((cell, at) => el(at ? "td" : "th", at ? {} : { scope: "row" }, cell))));
  return el(
    "details",
    { class: "numbers" },
    el("summary", {}, title),
    el(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": title },
      el("table", {}, el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))), el("tbody", {}, body)),
    ),
  );
}
