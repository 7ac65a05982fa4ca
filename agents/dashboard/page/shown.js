// Which number of a row is shown: the smoothed one where a row has it, the estimate, or that of the row's own stream alone.

import { el, fill } from "./dom.js";
import { choose, view } from "./view.js";

const NAMES = { smoothed: "smoothed", estimate: "not smoothed", direct: "direct" };
const MEANINGS = {
  smoothed: "With the window before, where a row has such a number: the most exact one for a single key",
  estimate: "From this window alone",
  direct: "From the row's own measurements in this window alone: the numbers to add over keys",
};

/** The number that is shown: the one that the address names, or the first that there is. */
export const chosenNumber = (state) => (state.numbers.includes(view.number) ? view.number : state.numbers[0]);

const nameOf = (state, number) => (number === "estimate" && !state.numbers.includes("smoothed") ? "estimate" : NAMES[number]);

/** What a title says behind the name of a column: nothing where rows have one number only. some: whether any of what it is the title
 * of has a smoothed number. */
export function saidNumber(state, some = true) {
  const chosen = chosenNumber(state);
  return state.numbers.length < 2 ? "" : `, ${nameOf(state, chosen === "smoothed" && !some ? "estimate" : chosen)}`;
}

/** One click for each number that the rows have. */
export class NumberChoice {
  constructor(onchange) {
    this.onchange = onchange;
    this.place = el("fieldset", { class: "controls plain", id: "number", hidden: true });
  }

  show(state) {
    this.place.hidden = state.numbers.length < 2;
    const known = JSON.stringify([state.numbers, chosenNumber(state)]);
    if (known === this.known) return;
    this.known = known;
    fill(
      this.place,
      el("legend", { class: "unseen" }, "Number"),
      state.numbers.map((number, at) => {
        const name = nameOf(state, number);
        const pick = () => {
          choose({ number: at ? number : "", offset: "0" });
          this.onchange();
        };
        return el("label", { class: "check", title: MEANINGS[number] }, el("input", { type: "radio", name: "number", value: number, checked: number === chosenNumber(state), "data-focus": `number-${number}`, onchange: pick }), name[0].toUpperCase() + name.slice(1));
      }),
    );
  }
}
