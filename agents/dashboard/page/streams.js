// The board of private streams.

import { ask } from "./api.js";
import { el, fill, say } from "./dom.js";
import { Facts } from "./facts.js";
import { RangeCard, SeriesCard } from "./ranges.js";
import { keyText, margin, number, plural, shortened } from "./text.js";
import { choose, view } from "./view.js";

const whole = (text) => (/^\s*\d+\s*$/.test(text) ? Number(text) : NaN);

export class Board {
  constructor(facts, place, announcer) {
    this.announcer = announcer;
    this.facts = new Facts(facts, { streams: "Streams", released: "Released values", total: "Sum so far", theta: "Clipped at" });
    this.series = new SeriesCard("Series", "mean per value");
    this.range = new RangeCard("Positions of values in the stream, counted from 0.", whole, (from, to) => ask("range", { stream: this.stream, from, to }));
    this.search = el("input", { type: "search", id: "search", autocomplete: "off", oninput: () => this.typed() });
    this.select = el("select", { id: "stream", onchange: () => this.choose(this.select.value) });
    this.found = el("p", { class: "note" });
    fill(this.series.controls, el("label", { class: "field grow" }, el("span", {}, "Stream"), this.select), el("label", { class: "field grow" }, el("span", {}, "Search streams"), this.search), this.found);
    this.waiting = el("section", { class: "card empty", hidden: true });
    this.grid = el("div", { class: "grid", hidden: true }, this.series.card, el("div", { class: "side" }, this.range.card));
    fill(place, this.waiting, this.grid);
  }

  show(state) {
    this.state = state;
    this.grid.hidden = !state.streams;
    this.waiting.hidden = Boolean(state.streams) || !state.caught_up;
    if (!state.streams) {
      fill(this.waiting, el("strong", {}, "Nothing is released yet."), el("p", {}, `The first piece of a stream comes after its first ${plural(state.holdout, "value")}, which choose the threshold.`));
      this.facts.show("streams", "0", "waiting for the first piece");
      return;
    }
    this.facts.show("streams", number(state.streams), state.full ? "and more than this page keeps" : plural(state.pieces, "released piece"));
    if (state.version !== this.version) {
      this.version = state.version;
      this.load();
    }
  }

  typed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(), 250);
  }

  choose(name) {
    choose({ stream: name });
    this.range.from.value = this.range.to.value = "";
    this.load();
  }

  async load() {
    const asked = (this.asking = {});
    const { streams, found } = await ask("streams", { search: this.search.value });
    if (this.asking !== asked) return;
    this.stream = streams.find(({ name }) => name === view.stream)?.name ?? streams[0]?.name;
    fill(this.select, streams.map(({ name, key }) => el("option", { value: name, selected: name === this.stream }, shortened(keyText(key), 60))));
    say(this.found, found > streams.length ? `${number(streams.length)} of ${number(found)} streams` : "");
    if (!this.stream) return;
    const said = await ask("series", { stream: this.stream });
    if (this.asking !== asked) return;
    fill(this.series.title, el("bdi", {}, shortened(keyText(said.key), 80)));
    say(this.series.subtitle, `positions ${number(said.begin)} to ${number(said.end - 1)}`);
    this.series.show(said.points, { title: { text: "position in the stream" } }, ([from, to]) => (from + to) / 2, number, "Line chart of the stream's mean per value, with a 95 % band. The table below has the same numbers.");
    say(this.series.note, "Each point is the mean of consecutive values. Bands are 95 % intervals of the noise; they do not cover what clipping cuts off.");
    this.facts.show("released", number(said.end - said.begin), `of this stream, from position ${number(said.begin)} on`);
    this.facts.show("total", number(said.total[0]), `± ${margin(said.total[0], said.total[1])}`);
    this.facts.show("theta", number(said.theta), "the public threshold of its newest values");
    this.range.preset(String(said.begin), String(said.end));
  }
}
