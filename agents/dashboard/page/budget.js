// The budget burn-down: what was charged for every window, against [budget].

import { colour, draw, faint } from "./charts.js";
import { el, fill, numbers, say } from "./dom.js";
import { day, moment, number, plural, small, wallTime } from "./text.js";

/** The card at the top: [large, small, aside and meter]. */
export function budgetFact(budget) {
  if (!budget) return ["–", "No charge is known yet."];
  if (!budget.total) return [`ε ${small(budget.epsilon)}`, "spent; no [budget] is set, so nothing stops it", {}];
  const left = Math.max(0, 1 - (budget.share ?? 0));
  const aside = budget.period ? `left of ${budget.period.text}` : "left";
  return [`${number(Math.round(left * 1000) / 10)} %`, left || budget.period ? stops(budget) : "The budget is spent.", { aside, meter: left }];
}

function stops(budget) {
  const windows = plural(budget.windows_left ?? 0, "window");
  if (budget.period) return skips(budget, windows);
  if (budget.stop === null) return `${windows} left`;
  return `${windows} left, until ${day(budget.stop)}`;
}

function skips(budget, windows) {
  const { skipping, resumes } = budget.period;
  if (skipping) return resumes === null ? "Windows are skipped: there is no room" : `Windows are skipped until ${day(resumes)}`;
  return budget.stop === null ? "every window has room" : `${windows} until one is skipped, ${day(budget.stop)}`;
}

const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;

/** Which of the windows that were lately skipped, at most three by name. */
function without(skipped) {
  if (!skipped.length) return "";
  const named = skipped.slice(-3).map(day).join(", ");
  return `The budget had no room for ${plural(skipped.length, "window")}, which ${skipped.length === 1 ? "begins" : "begin"} ${skipped.length > 3 ? `… ${named}` : named}: nothing of ${skipped.length === 1 ? "it" : "them"} is published.`;
}

export class BudgetCard {
  constructor() {
    this.sentence = el("p", { class: "note" });
    this.chart = el("div", { class: "chart", id: "budget-chart" });
    this.table = el("div");
    this.card = el("section", { class: "card", id: "budget", "aria-labelledby": "budget-title" }, el("header", {}, el("h2", { id: "budget-title" }, "Privacy budget")), this.sentence, this.chart, this.table);
  }

  /** skipped: starts of windows that had no room. */
  show(budget, skipped = []) {
    const known = JSON.stringify([budget, skipped]);
    if (known === this.known) return;
    this.known = known;
    this.card.hidden = !budget;
    if (!budget) return;
    const total = budget.total;
    say(this.sentence, [this.words(budget), without(skipped)].filter(Boolean).join(" "));
    const points = budget.points.filter(([, epsilon]) => epsilon !== null);
    const windows = points.map(([window]) => wallTime(window));
    const spent = points.map(([, epsilon]) => epsilon);
    const shown = budget.period ?? budget;
    const words = `Budget: epsilon ${small(shown.epsilon)}${total ? ` of ${small(total.epsilon)}` : ""} after ${plural(points.length, "point")}.`;
    draw(this.chart, words, () => {
      const traces = [
        { x: windows, y: spent, mode: points.length > 40 ? "lines" : "lines+markers", line: { shape: "hv", color: colour("series-1"), width: 2 }, marker: { size: 5 }, fill: "tozeroy", fillcolor: faint(colour("series-1"), 0.14), hovertemplate: "%{x|%d %b %Y %H:%M}<br>ε = %{y:.4~g}<extra></extra>", type: "scatter" },
      ];
      const layout = { height: 190, margin: { l: 8, r: 12, t: 12, b: 8 }, yaxis: { rangemode: "tozero", title: { text: budget.period ? `ε in ${budget.period.text}` : "ε spent" }, nticks: 5 }, xaxis: { type: "date", nticks: 4, showgrid: false } };
      if (total) {
        const end = budget.stop === null ? windows.at(-1) : wallTime(budget.stop);
        if (budget.stop !== null && budget.live && !budget.period) {
          traces.push({ x: [windows.at(-1), end], y: [spent.at(-1), total.epsilon], mode: "lines", line: { color: colour("series-1"), width: 1.5, dash: "dot" }, hoverinfo: "skip", type: "scatter" });
        }
        layout.shapes = [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: total.epsilon, y1: total.epsilon, line: { color: colour("series-2"), width: 1.5, dash: "dash" } }];
        layout.annotations = [{ xref: "paper", x: 0, y: total.epsilon, xanchor: "left", yanchor: "bottom", showarrow: false, text: `budget ε = ${small(total.epsilon)}`, font: { color: colour("series-2"), size: 12 } }];
        layout.yaxis.range = [0, Math.max(total.epsilon, ...spent) * 1.18]; // pipelines without a budget may spend more
      }
      return { traces, layout };
    });
    fill(
      this.table,
      numbers("The burn-down as a table", ["Windows up to", budget.period ? `ε in ${budget.period.text}` : "ε spent"], budget.points.map(([window, epsilon]) => [moment(window), small(epsilon)])),
      budget.pipelines.length > 1
        ? numbers("Who charges", ["Pipeline", "Charges"], budget.pipelines.map((row) => [el("bdi", {}, row.name), number(row.charges)]))
        : null,
    );
  }

  words(budget) {
    const spent = `A user who was active in every window has spent ε = ${small(budget.epsilon)} at δ = ${small(budget.delta)}`;
    const others = budget.pipelines.length > 1 ? `, over ${plural(budget.pipelines.length, "pipeline")} on this raw topic` : "";
    if (!budget.total) return `${spent}${others}. No [budget] is set, so nothing limits it.`;
    if (budget.period) {
      const { text, epsilon } = budget.period;
      return `Of any ${text}, a user who was active in every window spends at most ε = ${small(budget.total.epsilon)} at δ = ${small(budget.total.delta)}; in the newest ${text} ε = ${small(epsilon)}${others}. Over all windows it is ε = ${small(budget.epsilon)} at δ = ${small(budget.delta)}. ${sentence(stops(budget))}`;
    }
    return `${spent}${others}, of ε = ${small(budget.total.epsilon)} in all. ${sentence(stops(budget))}`;
  }
}
