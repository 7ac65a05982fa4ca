// What the visitor has chosen, kept in the address, so that a view can be sent to others.

const DEFAULTS = { window: "", column: "", level: "", search: "", sort: "estimate", order: "desc", offset: "0", limit: "15", new: "", number: "", beside: "", key: "", hidden: "", layout: "overlay", stream: "", from: "", to: "" };

export const view = { ...DEFAULTS, ...Object.fromEntries([...new URLSearchParams(location.hash.slice(1))].filter(([name]) => name in DEFAULTS)) };

/** Change the view, and the address with it. */
export function choose(changes) {
  Object.assign(view, changes);
  const kept = Object.entries(view).filter(([name, value]) => value !== DEFAULTS[name]);
  history.replaceState(null, "", kept.length ? `#${new URLSearchParams(kept)}` : location.pathname + location.search);
}

export const list = (text) => text.split(",").filter(Boolean);
