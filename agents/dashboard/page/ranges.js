// A series with its band, and the answer to a range query beside it: for private streams and for local privacy.

import { banded, colour, draw, faint, series } from "./charts.js";
import { el, fill, numbers, say } from "./dom.js";
import { ends, margin, number } from "./text.js";

/** points: [from, to, plain, its error, filtered, its error, …] as columns of the chart. place(at): a position as text. */
export class SeriesCard {
  constructor(title, unit) {
    this.unit = unit;
    this.title = el("h2", { id: "series-title" }, title);
    this.subtitle = el("p", {});
    this.controls = el("div", { class: "controls" });
    this.both = el("input", { type: "checkbox", id: "show-plain", onchange: () => this.redraw() });
    this.chart = el("div", { class: "chart", id: "series-chart" });
    this.note = el("p", { class: "note" });
    this.table = el("div");
    this.card = el("section", { class: "card", "aria-labelledby": "series-title" }, el("header", {}, this.title, this.subtitle), this.controls, this.chart, this.note, el("label", { class: "check", id: "plain-choice" }, this.both, "Also the plain estimates, without the filter"), this.table);
  }

  /** axis: {title, type}; x(point): where a point is; place(at): a position as text. */
  show(points, axis, x, place, words) {
    this.last = { points, axis, x, place, words };
    const some = points.some(([, , , , filtered]) => filtered !== null);
    this.card.querySelector("#plain-choice").hidden = !some;
    this.filtered = some;
    this.redraw();
    fill(
      this.table,
      numbers("The series as a table", ["From", "To", "Plain mean", "± 95 %", ...(some ? ["Filtered mean", "± 95 %"] : [])], points.map(([from, to, plain, error, filtered, filteredError]) => [place(from), place(to), number(plain), margin(plain, error), ...(some ? [number(filtered), margin(filtered, filteredError)] : [])])),
    );
  }

  redraw() {
    const { points, axis, x, words } = this.last;
    draw(this.chart, words, () => {
      const traces = [];
      if (!this.filtered || this.both.checked) traces.push(...this.line(points, x, 2, series(this.filtered ? 1 : 0), "plain"));
      if (this.filtered) traces.push(...this.line(points.filter((point) => point[4] !== null), x, 4, series(0), "filtered"));
      return { traces, layout: { height: 330, showlegend: traces.length > 2, legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" }, margin: { l: 8, r: 12, t: 26, b: 8 }, xaxis: { ...axis, nticks: 8 }, yaxis: { rangemode: "tozero", title: { text: this.unit }, nticks: 7 } } };
    });
  }

  line(points, x, at, hex, name) {
    return banded(points.map(x), points.map((point) => point[at]), points.map((point) => ends([point[at], point[at + 1]])), hex, name, {
      line: {
        mode: "lines",
        customdata: points.map((point) => [number(point[at]), margin(point[at], point[at + 1]), this.last.place(point[0]), this.last.place(point[1])]),
        hovertemplate: "<b>%{customdata[0]}</b> ± %{customdata[1]}<br>%{customdata[2]} to %{customdata[3]}<extra></extra>",
      },
    });
  }
}

/** A form with two ends, and both answers. parse(text): a position, or NaN. onask(from, to): the answer, or an Error. */
export class RangeCard {
  constructor(hint, parse, onask) {
    this.parse = parse;
    this.onask = onask;
    this.from = el("input", { type: "text", id: "range-from", autocomplete: "off", "aria-describedby": "range-hint" });
    this.to = el("input", { type: "text", id: "range-to", autocomplete: "off", "aria-describedby": "range-hint" });
    this.answer = el("div", { id: "range-answer", role: "status" });
    const form = el("form", { class: "controls", onsubmit: (event) => { event.preventDefault(); this.ask(); } }, el("label", { class: "field long" }, el("span", {}, "From"), this.from), el("label", { class: "field long" }, el("span", {}, "To (not included)"), this.to), el("button", { type: "submit", class: "primary" }, "Sum"));
    this.card = el("section", { class: "card", "aria-labelledby": "range-title" }, el("header", {}, el("h2", { id: "range-title" }, "The sum of a range")), form, el("p", { class: "note", id: "range-hint" }, hint), this.answer);
  }

  preset(from, to) {
    if (this.from.value || this.to.value) return;
    this.from.value = from;
    this.to.value = to;
    this.ask();
  }

  async ask() {
    const [from, to] = [this.parse(this.from.value), this.parse(this.to.value)];
    if (Number.isNaN(from) || Number.isNaN(to)) {
      fill(this.answer, el("p", { class: "note" }, "Both ends are needed, in the form that the hint says."));
      return;
    }
    try {
      const said = await this.onask(from, to);
      const one = (title, [estimate, error], words) => el("div", { id: `answer-${title.toLowerCase()}` }, el("h3", {}, title), el("p", { class: "large" }, number(estimate), el("small", {}, ` ± ${margin(estimate, error)}`)), el("p", { class: "note" }, words));
      fill(
        this.answer,
        el("div", { class: "answers" }, one("Plain", said.plain, "unbiased for the clipped values"), said.filtered[0] === null ? null : one("Filtered", said.filtered, said.fits === false ? "its model does not fit here: prefer the plain sum" : "usually closer; biased towards slow change")),
        said.reports === undefined ? null : el("p", { class: "note" }, `over ${number(said.reports)} reports`),
      );
    } catch (error) {
      fill(this.answer, el("p", { class: "note" }, `No answer: ${error.message}.`));
    }
  }
}
