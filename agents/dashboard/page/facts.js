// The cards at the top: a name, a large text and a small one.

import { el, fill, say } from "./dom.js";

export class Facts {
  constructor(place, names) {
    this.cards = Object.fromEntries(
      Object.entries(names).map(([name, title]) => {
        const [large, small] = [el("p", { class: "large" }), el("p", { class: "small" })];
        return [name, { large, small, card: el("div", { class: "fact", id: `fact-${name}` }, el("h2", {}, title), large, small) }];
      }),
    );
    fill(place, ...Object.values(this.cards).map(({ card }) => card));
  }

  /** large, small: texts; aside: what follows the large one in a smaller type; meter: a share of 0 to 1. */
  show(name, large, small, { aside = "", meter = null } = {}) {
    const card = this.cards[name];
    if (card.large.firstChild?.textContent !== large || card.large.dataset.aside !== aside) {
      fill(card.large, large, aside ? el("small", {}, ` ${aside}`) : null);
      card.large.dataset.aside = aside;
    }
    say(card.small, small);
    card.card.querySelector(".meter")?.remove();
    if (meter !== null) {
      const inner = el("span");
      inner.style.width = `${Math.min(100, Math.max(0, meter * 100))}%`;
      card.card.append(el("div", { class: "meter", "aria-hidden": "true" }, inner));
    }
  }
}
