// The board of local privacy.

import { ask, now } from "./api.js";
import { el, fill } from "./dom.js";
import { Facts } from "./facts.js";
import { RangeCard, SeriesCard } from "./ranges.js";
import { clock, countdown, moment, number, plural } from "./text.js";
import { say } from "./dom.js";

const instant = (text) => {
  const given = text.trim();
  return Date.parse(/[zZ]|[+-]\d\d:?\d\d$/.test(given) ? given : `${given}Z`);
};
const written = (at) => new Date(at).toISOString().replace(/\.000Z$/, "Z");

export class Board {
  constructor(facts, place, announcer) {
    this.announcer = announcer;
    this.facts = new Facts(facts, { newest: "Newest interval", due: "Next estimate", reports: "Reports in it", theta: "Clipped at" });
    this.series = new SeriesCard("Mean per interval", "mean per report");
    this.range = new RangeCard("Instants in UTC, such as 2026-01-31T12:00:00Z. The sum is over the intervals that begin in the range.", instant, (from, to) => ask("range", { from, to }));
    this.waiting = el("section", { class: "card empty", hidden: true });
    this.grid = el("div", { class: "grid", hidden: true }, this.series.card, el("div", { class: "side" }, this.range.card));
    fill(place, this.waiting, this.grid);
  }

  show(state) {
    this.state = state;
    this.grid.hidden = !state.intervals;
    this.waiting.hidden = Boolean(state.intervals) || !state.caught_up;
    if (!state.newest) {
      fill(this.waiting, el("strong", {}, "Nothing is published yet."), el("p", {}, "The first estimate comes when the threshold is known and an interval is over."));
      this.facts.show("newest", "None yet", "");
      return;
    }
    const { start, reports, theta } = state.newest;
    this.facts.show("newest", clock(start), `${moment(start).split(",")[0]} UTC · ${state.interval_text} long`);
    this.facts.show("reports", number(reports), "their number is public, their values are not");
    this.facts.show("theta", number(theta), "the public threshold");
    this.tick(now());
    if (state.version !== this.version) {
      if (this.version !== undefined) say(this.announcer, `The interval of ${clock(start)} UTC is published.`);
      this.version = state.version;
      this.load();
    }
  }

  tick(at) {
    if (!this.state?.due) return;
    const left = this.state.due.at - at;
    if (left > -2000) this.facts.show("due", countdown(left), `due at ${clock(this.state.due.at)} UTC, if reports come`);
    else this.facts.show("due", "None", `no interval since ${clock(this.state.newest.start)} UTC; there may be no reports`);
  }

  async load() {
    const said = await ask("series", {});
    const points = said.points.map(([from, to, , plain, error, filtered, filteredError]) => [from, to, plain, error, filtered, filteredError]);
    say(this.series.subtitle, plural(this.state.intervals, "interval"));
    this.series.show(points, { type: "date" }, ([from, to]) => written((from + to) / 2), moment, "Line chart of the mean per report, with a 95 % band. The table below has the same numbers.");
    say(this.series.note, said.intervals_a_point > 1 ? `Each point is ${said.intervals_a_point} intervals, by their plain sums.` : "Bands are 95 % intervals of the noise; they do not cover what clipping cuts off.");
    this.range.preset(written(points[0][0]), written(points.at(-1)[1]));
  }
}
