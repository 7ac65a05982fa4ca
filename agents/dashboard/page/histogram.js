// The board of a private histogram: facts, the histogram with its table, a key's curves, new keys, the budget.

import { ask, now } from "./api.js";
import { BudgetCard, budgetFact } from "./budget.js";
import { CurveCard } from "./curves.js";
import { el, fill, say } from "./dom.js";
import { Facts } from "./facts.js";
import { chosenNumber } from "./shown.js";
import { TableCard, chosenLevel } from "./table.js";
import { clock, countdown, day, keyText, minute, moment, number, offset, plural, reach, showTimesIn, windowName } from "./text.js";
import { choose, list, view } from "./view.js";

const NEW_SHOWN = 12;

export class Board {
  constructor(facts, place, announcer) {
    this.announcer = announcer;
    this.facts = new Facts(facts, { release: "Newest release", due: "Next release", keys: "Published keys", budget: "Budget" });
    this.table = new TableCard((key) => this.select(key), () => this.load());
    this.curves = new CurveCard(() => this.load());
    this.budget = new BudgetCard();
    this.fresh = el("ul", { class: "keys" });
    this.freshNote = el("p", { class: "note" });
    this.news = el("section", { class: "card", "aria-labelledby": "new-title", hidden: true }, el("header", {}, el("h2", { id: "new-title" }, "New at this release"), this.freshNote), this.fresh);
    this.first = el("ol", { class: "ranking" });
    this.firstNote = el("p", { class: "note" });
    this.ranked = el("section", { class: "card", "aria-labelledby": "ranking-title", hidden: true }, el("header", {}, el("h2", { id: "ranking-title" }, "Ranking"), this.firstNote), this.first, el("p", { class: "note" }, "A key that is missing here may still be large, and the first are too high on average."));
    this.last = el("ol", { class: "ranking" });
    this.lastNote = el("p", { class: "note" });
    this.rolling = el("section", { class: "card", "aria-labelledby": "rolling-title", hidden: true }, el("header", {}, el("h2", { id: "rolling-title" }, "Rolling view"), this.lastNote), this.last, el("p", { class: "note" }, "Computed from the rows of two windows, at no cost. Who came in both counts twice."));
    this.epoch = el("p", { class: "note card", id: "epoch", hidden: true });
    this.waiting = el("section", { class: "card empty", hidden: true });
    this.grid = el("div", { class: "grid", hidden: true }, this.table.card, el("div", { class: "side" }, this.curves.card, this.rolling, this.ranked, this.news, this.budget.card));
    fill(place, this.epoch, this.waiting, this.grid);
  }

  show(state) {
    const before = this.state?.windows[0];
    this.state = state;
    showTimesIn(state.time_zone);
    const newest = state.windows[0];
    this.grid.hidden = !newest;
    this.waiting.hidden = Boolean(newest) || !state.caught_up;
    this.showFacts();
    this.showEpoch();
    this.budget.show(state.budget, state.skipped);
    if (!newest) {
      const due = state.due.at ? `The first release is due at ${moment(state.due.at)} at the latest.` : "The worker replays an archive, and releases as it goes.";
      fill(this.waiting, el("strong", {}, "Nothing is released yet."), el("p", {}, `Waiting for the first trigger. ${due}`));
      return;
    }
    if (before && (before.start !== newest.start || before.trigger !== newest.trigger)) {
      say(this.announcer, `Release ${newest.trigger} of ${newest.of_triggers} of ${windowName(newest.start, newest.end)} is complete: ${plural(newest.keys, "key")}, ${number(newest.new)} new.`);
    }
    if (state.version !== this.version) {
      this.version = state.version;
      this.load();
    }
    this.tick(now());
  }

  showEpoch() {
    const [newest, ...older] = this.state.windows;
    this.epoch.hidden = !newest || newest.epoch_number === 1;
    if (this.epoch.hidden) return;
    const before = older.filter(({ epoch_number: number }) => number !== newest.epoch_number);
    const others = before.length ? ` ${plural(before.length, "older window is", "older windows are")} of an earlier epoch.` : "";
    say(this.epoch, `Epoch ${newest.epoch_number} publishes with noise of its own: its rows are never put together with those of another epoch.${others}`);
  }

  showFacts() {
    const { windows: [newest], announced, budget } = this.state;
    if (!newest) {
      const some = announced ? `release ${announced.trigger}: ${announced.seen} of ${announced.of} partitions` : "Waiting for the first trigger.";
      this.facts.show("release", "None yet", some);
      this.facts.show("keys", "–", "");
    } else {
      const underWay = announced && (announced.window !== newest.start || announced.trigger !== newest.trigger) && announced.seen < announced.of;
      const complete = underWay ? `release ${announced.trigger} has ${announced.seen} of ${announced.of} partitions` : `complete: ${announced?.of ?? "all"} of ${announced?.of ?? "all"} partitions`;
      this.facts.show("release", number(newest.trigger), `${windowName(newest.start, newest.end)} · ${complete}`, { aside: `of ${newest.of_triggers}${newest.final ? " · final" : ""}` });
      const fresh = newest.new ? `${number(newest.new)} new at this release` : "none new at this release";
      this.facts.show("keys", number(newest.keys), [fresh, ...this.fromBefore()].join(" · "));
    }
    this.facts.show("budget", ...budgetFact(budget));
  }

  /** What the newest window with a complete release has from those before it. */
  fromBefore() {
    const { memory, windows: [newest], evidence_windows: windows } = this.state;
    const said = [];
    if (memory?.window === newest.start) {
      if (memory.remembered !== null) said.push(`${plural(memory.remembered, "key")} remembered from the window before`);
      if (memory.persistence !== null) said.push(`κ ${memory.persistence.toFixed(1)}`);
    }
    if (windows > 1) said.push(`evidence over ${windows} windows`);
    return said;
  }

  tick(at) {
    if (!this.state) return;
    const { due } = this.state;
    if (due.archive) {
      this.facts.show("due", due.ended ? "Archive" : "Replay", due.ended ? `read to its end, ${day(due.until)}, ${minute(due.until)}` : `of an archive until ${day(due.until)}, ${minute(due.until)}`);
      return;
    }
    const left = due.at - at;
    const { skipped, windows: [shown] } = this.state;
    const lately = skipped.filter((start) => !shown || start > shown.start);
    const passed = lately.length ? `; ${plural(lately.length, "window is", "windows are")} skipped, for the budget had no room` : "";
    if (left > -2000) this.facts.show("due", countdown(left), `due at ${clock(due.at)} ${offset(due.at)} at the latest${passed}`);
    else this.facts.show("due", "Overdue", `was due at ${clock(due.at)} ${offset(due.at)}; ask an operator for susurrus status`);
  }

  /** The windows that are shown: the chosen one (by default the newest), and those beside it. */
  windows() {
    const known = this.state.windows;
    const main = known.find((window) => String(window.start) === view.window) ?? known[0];
    const beside = list(view.beside).map((start) => known.find((window) => String(window.start) === start));
    return [main, ...beside.filter((window) => window && window !== main)];
  }

  async load() {
    const windows = this.windows();
    const [main, ...beside] = windows;
    const column = this.state.columns.find(({ name }) => name === view.column)?.name ?? this.state.columns[0].name;
    const shown = chosenNumber(this.state);
    const asked = (this.asking = {});
    try {
      const [table, fresh, ranked, rolling] = await Promise.all([
        ask("table", { window: main.start, column, number: shown, level: chosenLevel(this.state), search: view.search, sort: view.sort, order: view.order, offset: view.offset, limit: view.limit, new: view.new, beside: beside.map(({ start }) => start).join(",") }),
        main.new ? ask("table", { window: main.start, column, new: "1", limit: NEW_SHOWN }) : null,
        this.state.ranking ? ask("ranking", { window: main.start }) : null,
        this.state.rolling ? ask("rolling", { column, number: shown }) : null,
      ]);
      if (this.asking !== asked) return; // a later question is under way
      choose({ offset: String(table.offset) });
      const key = view.key || table.rows[0]?.name || "";
      const curves = key ? await ask("curves", { key, column, number: shown, windows: windows.map(({ start }) => start).join(",") }) : null;
      if (this.asking !== asked) return;
      this.table.show(this.state, windows, table, column, key);
      this.curves.show(this.state, windows, curves, column);
      this.showNew(main, fresh);
      this.showRanking(main, ranked);
      this.showRolling(rolling);
    } catch (error) {
      this.table.problem(error.message);
    }
  }

  showNew(window, fresh) {
    this.news.hidden = !fresh?.found;
    if (!fresh?.found) return;
    const more = fresh.found > fresh.rows.length;
    say(this.freshNote, `release ${window.trigger} of ${window.of_triggers}`);
    fill(
      this.fresh,
      fresh.rows.map(({ key, name }) => el("li", {}, el("button", { type: "button", "data-focus": `new-${name}`, onclick: () => this.select(name) }, el("bdi", {}, keyText(key))))),
      more ? el("li", {}, el("button", { type: "button", "data-focus": "new-more", onclick: () => this.only() }, `and ${number(fresh.found - fresh.rows.length)} more`)) : null,
    );
  }

  showRanking(window, ranked) {
    this.ranked.hidden = !ranked;
    if (!ranked) return;
    say(this.firstNote, `${ranked.ranking} · release ${window.trigger} of ${window.of_triggers}${ranked.rows.length ? "" : " · no row"}`);
    fill(
      this.first,
      ranked.rows.map(({ key, name, values }) => this.entry(`ranking-${name}`, key, name, values)),
    );
  }

  showRolling(rolling) {
    this.rolling.hidden = !rolling?.period;
    if (!rolling?.period) return;
    const [from, until] = rolling.period;
    const less = rolling.keys - rolling.whole;
    say(this.lastNote, `${rolling.column} · ${moment(from)} to ${moment(until)} · ${plural(rolling.keys, "key")}${less ? `, ${number(less)} of them count less` : ""}`);
    fill(
      this.last,
      rolling.rows.map(({ key, name, values, counted: [since, to] }) => {
        const parts = [since === from ? "" : ` from ${moment(since)}`, to === until ? "" : ` until ${moment(to)}`].join("");
        return this.entry(`rolling-${name}`, key, name, values, parts && `counted${parts}`);
      }),
    );
  }

  /** One row of a short list: the key, its number, and a note below where there is one. */
  entry(focus, key, name, values, note = "") {
    const said = el("span", { class: "value" }, `${number(values[0])} ${reach(values)}`);
    return el("li", {}, el("div", { class: "entry" }, el("button", { type: "button", "data-focus": focus, title: keyText(key), onclick: () => this.select(name) }, el("bdi", {}, keyText(key))), said, note ? el("span", { class: "note" }, note) : null));
  }

  only() {
    choose({ new: "1", offset: "0" });
    this.load();
  }

  select(name) {
    choose({ key: name });
    this.load();
  }
}
