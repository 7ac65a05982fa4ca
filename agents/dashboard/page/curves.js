// One key over the releases of one or several windows, with its 95 % band.

import { banded, colour, draw, literal, series } from "./charts.js";
import { el, fill, numbers, say } from "./dom.js";
import { saidNumber } from "./shown.js";
import { ends, keyText, moment, number, reach, shortened, windowName } from "./text.js";
import { choose, view } from "./view.js";

const UNITS = [
  [86_400_000 * 3, 86_400_000, "days"],
  [3_600_000 * 2, 3_600_000, "hours"],
  [120_000, 60_000, "minutes"],
  [0, 1000, "seconds"],
];

export class CurveCard {
  constructor(onchange) {
    this.title = el("h2", { id: "curve-title" }, "A key over time");
    this.subtitle = el("p", {});
    this.layout = el("fieldset", { class: "controls plain", hidden: true }, ["overlay", "beside"].map((name) => el("label", { class: "check" }, el("input", { type: "radio", name: "curve-layout", value: name, checked: view.layout === name, onchange: () => { choose({ layout: name }); onchange(); } }), name === "overlay" ? "Overlaid" : "Side by side")));
    this.layout.prepend(el("legend", { class: "unseen" }, "Windows"));
    this.chart = el("div", { class: "chart", id: "curve-chart" });
    this.note = el("p", { class: "note" });
    this.table = el("div");
    this.card = el("section", { class: "card", "aria-labelledby": "curve-title" }, el("header", {}, this.title, this.subtitle), this.layout, this.chart, this.note, this.table);
  }

  show(state, windows, curves, column) {
    const known = JSON.stringify([curves, column, view.layout, saidNumber(state)]);
    if (known === this.known) return;
    this.known = known;
    const found = curves?.curves.filter(({ points }) => points.length) ?? [];
    this.layout.hidden = found.length < 2;
    this.chart.hidden = !found.length;
    if (!found.length) {
      say(this.title, "A key over time");
      say(this.subtitle, "");
      say(this.note, curves?.key ? "This key is in none of the chosen windows." : "Choose a key in the table to see its curve.");
      fill(this.table);
      return;
    }
    const text = keyText(curves.key);
    fill(this.title, el("bdi", {}, shortened(text, 80)));
    const said = `${column}${saidNumber(state, found.some(({ smoothed }) => smoothed))}`;
    say(this.subtitle, `${said} over the releases of ${found.length === 1 ? "the window" : `${found.length} windows`}`);
    const thinned = found.filter(({ thinned }) => thinned);
    say(this.note, thinned.length ? "Of older windows only the newest release is kept here (--memory)." : "");
    draw(this.chart, `Line chart of ${said} over the releases, with a 95 % band. The table below has the same numbers.`, () => this.picture(found, state.repeats));
    fill(
      this.table,
      numbers(
        "The curve as a table",
        ["Release", "At", said, "± 95 %"],
        found.flatMap(({ window, end, points }) => points.map(([trigger, at, ...of]) => [found.length > 1 ? `${windowName(window, end)}: ${trigger}` : `${trigger}`, moment(at), number(of[0]), reach(of, "")])),
      ),
    );
  }

  /** repeats: whether a release has every key that is shown, so that a key can be missing at one. */
  picture(found, repeats) {
    const longest = Math.max(...found.map(({ window, end }) => end - window));
    const [, unit, unitName] = UNITS.find(([least]) => longest >= least);
    const beside = found.length > 1 && view.layout === "beside" && this.chart.clientWidth >= 320;
    const layout = { height: 250, showlegend: found.length > 1 && !beside, legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" }, margin: { l: 8, r: 12, t: found.length > 1 ? 30 : 10, b: 8 }, yaxis: { rangemode: "tozero", nticks: 6 }, annotations: [] };
    const traces = found.flatMap(({ window, end, points }, at) => {
      const x = points.map(([, time]) => (time - window) / unit);
      const y = points.map(([, , estimate]) => Number(estimate));
      const band = points.map(([, , ...of]) => ends(of));
      const breaks = repeats ? points.flatMap(([trigger], place) => (place && trigger > points[place - 1][0] + 1 ? [place] : [])) : [];
      const suffix = beside && at ? String(at + 1) : "";
      const axis = { title: { text: beside && at ? "" : `${unitName} since the window began` }, range: [0, ((end - window) / unit) * 1.03], nticks: beside ? 4 : 7 };
      if (beside) {
        const width = 1 / found.length;
        axis.domain = [at * width + (at ? 0.035 : 0), (at + 1) * width];
        layout.annotations.push({ xref: "paper", x: at * width + (at ? 0.04 : 0.01), xanchor: "left", yref: "paper", y: 1.01, yanchor: "bottom", showarrow: false, text: windowName(window, end), font: { size: 11.5, color: series(at) } });
      }
      layout[`xaxis${suffix}`] = axis;
      return banded(x, y, band, series(at), windowName(window, end), {
        breaks,
        axes: suffix ? { xaxis: `x${suffix}` } : {},
        line: {
          customdata: points.map(([trigger, , ...of]) => [trigger, number(of[0]), reach(of)]),
          hovertemplate: `<b>%{customdata[1]}</b> %{customdata[2]}<br>release %{customdata[0]}<extra>${found.length > 1 ? literal(windowName(window, end)) : ""}</extra>`,
        },
      });
    });
    if (beside) layout.xaxis.title = { text: `${unitName} since each window began` };
    return { traces, layout };
  }
}
