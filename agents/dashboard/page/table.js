// The histogram: one page of keys as bars with whiskers, and as a table.

import { colour, draw, literal, series } from "./charts.js";
import { el, fill, say } from "./dom.js";
import { NumberChoice, chosenNumber, saidNumber } from "./shown.js";
import { arms, keyText, number, plural, reach, shortened, windowName } from "./text.js";
import { choose, list, view } from "./view.js";

const PATIENCE = 250;
const MOST_BESIDE = 3;

export class TableCard {
  /** onkey(name): a key was chosen. onchange(): another table is wanted. */
  constructor(onkey, onchange) {
    this.onkey = onkey;
    this.onchange = onchange;
    this.subtitle = el("p", {});
    this.window = el("select", { id: "window", onchange: () => this.change({ window: this.window.value }) });
    this.column = el("select", { id: "column", onchange: () => this.change({ column: this.column.value }) });
    this.level = el("select", { id: "level", onchange: () => this.change({ level: this.level.value, key: "" }) });
    this.search = el("input", { type: "search", id: "search", autocomplete: "off", spellcheck: "false", value: view.search, oninput: () => this.typed() });
    this.fresh = el("input", { type: "checkbox", id: "only-new", checked: view.new === "1", onchange: () => this.change({ new: this.fresh.checked ? "1" : "" }) });
    this.columns = menu("Columns", "columns-menu");
    this.beside = menu("Compare", "beside-menu");
    this.number = new NumberChoice(() => this.onchange());
    this.chart = el("div", { class: "chart", id: "histogram-chart" });
    this.head = el("tr", {});
    this.body = el("tbody", {});
    this.range = el("p", { id: "range", role: "status" });
    this.previous = el("button", { type: "button", onclick: () => this.turn(-1) }, "Previous");
    this.next = el("button", { type: "button", onclick: () => this.turn(1) }, "Next");
    this.limit = el("select", { id: "limit", onchange: () => this.change({ limit: this.limit.value }) }, ["10", "15", "25", "50", "100"].map((rows) => el("option", { value: rows, selected: rows === view.limit }, rows)));
    this.nothing = el("p", { class: "empty", hidden: true });
    this.card = el(
      "section",
      { class: "card", "aria-labelledby": "histogram-title" },
      el("header", {}, el("h2", { id: "histogram-title" }, "Histogram"), this.subtitle),
      el(
        "div",
        { class: "controls" },
        field("Window", this.window),
        field("Value", this.column),
        field("Level", this.level),
        field("Search keys", this.search, "grow"),
      ),
      el("div", { class: "controls" }, el("label", { class: "check" }, this.fresh, "Only keys new at this release"), el("span", { class: "push" }), this.columns.menu, this.beside.menu),
      this.number.place,
      this.chart,
      this.nothing,
      el("div", { class: "table", tabindex: "0", role: "region", "aria-label": "The histogram as a table" }, el("table", { id: "histogram-table" }, el("caption", { class: "unseen" }, "Published keys with their estimates and 95 % error bars"), el("thead", {}, this.head), this.body)),
      el("div", { class: "pager" }, this.range, el("label", { class: "check" }, "Rows", this.limit), this.previous, this.next),
    );
    document.addEventListener("keydown", (event) => event.key === "Escape" && this.closeMenus());
    document.addEventListener("click", (event) => {
      for (const { menu: each } of [this.columns, this.beside]) if (!each.contains(event.target)) each.open = false;
    });
  }

  closeMenus() {
    for (const { menu: each } of [this.columns, this.beside]) {
      if (each.open && each.contains(document.activeElement)) each.querySelector("summary").focus();
      each.open = false;
    }
  }

  change(changes) {
    choose({ offset: "0", ...changes });
    this.onchange();
  }

  typed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.change({ search: this.search.value }), PATIENCE);
  }

  turn(pages) {
    this.change({ offset: String(Math.max(0, Number(view.offset) + pages * Number(view.limit))) });
  }

  sort(sort, column) {
    const same = view.sort === sort && (sort === "key" || column === this.charted);
    const order = same ? (view.order === "desc" ? "asc" : "desc") : sort === "key" ? "asc" : "desc";
    this.change({ sort, order, ...(sort === "key" ? {} : { column }) });
  }

  problem(text) {
    say(this.range, `No answer: ${text}.`);
  }

  show(state, windows, answer, column, key) {
    const [main] = windows;
    // Of one level, its name is not repeated in every row; the total has no other part.
    const inLevel = (parts) => (chosenLevel(state) && parts.length > 1 ? parts.slice(1) : parts);
    const table = { ...answer, rows: answer.rows.map((row) => ({ ...row, key: inLevel(row.key) })) };
    this.charted = column;
    const chosen = chosenNumber(state);
    const smoothed = chosen === "smoothed" ? ` · ${plural(table.smoothed, "key is", "keys are")} smoothed` : "";
    say(this.subtitle, `${windowName(main.start, main.end)} · release ${table.trigger} of ${main.of_triggers}${smoothed}`);
    this.number.show(state);
    this.options(state, main, column, windows);
    const shown = state.columns.filter(({ name }) => name === column || !list(view.hidden).includes(name));
    this.showHead(state, shown, column);
    fill(this.body, table.rows.map((row) => this.row(row, shown, chosen, key)));
    const none = !table.rows.length;
    this.nothing.hidden = !none;
    this.chart.hidden = none;
    if (none) {
      const why = view.search || view.new || chosenLevel(state) ? "No published key fits." : "No key is published yet: none is shared by enough users so far.";
      say(this.nothing, why);
    } else {
      this.showChart(windows, table, column, `${column}${saidNumber(state)}`);
    }
    const last = table.offset + table.rows.length;
    const all = table.found === table.keys ? plural(table.keys, "key") : `${number(table.found)} of ${plural(table.keys, "key")}`;
    say(this.range, none ? all : `${number(table.offset + 1)}–${number(last)} of ${all}`);
    this.previous.disabled = table.offset === 0;
    this.next.disabled = last >= table.found;
  }

  options(state, main, column, windows) {
    const offered = state.windows.map(({ start, end }, at) => [at ? String(start) : "", `${windowName(start, end)}${at ? "" : " (newest)"}`]);
    setOptions(this.window, offered, main === state.windows[0] ? "" : String(main.start));
    setOptions(this.column, state.columns.map(({ name }) => [name, name]), column);
    this.column.parentElement.hidden = state.columns.length < 2;
    setOptions(this.level, [["", "all levels"], ...state.levels.map((name) => [name, name])], chosenLevel(state));
    this.level.parentElement.hidden = !state.levels.length;
    this.columns.menu.hidden = state.columns.length < 2;
    this.columns.fill("Shown in the table", state.columns.map(({ name }) => ({ value: name, text: name, checked: name === column || !list(view.hidden).includes(name), disabled: name === column })), (values) => {
      const hidden = state.columns.map(({ name }) => name).filter((name) => !values.includes(name) && name !== column);
      this.change({ hidden: hidden.join(","), offset: view.offset });
    });
    const others = state.windows.filter((window) => window !== main);
    const chosen = windows.slice(1).map(({ start }) => String(start));
    this.beside.menu.hidden = !others.length;
    this.beside.fill(`Windows beside it, at most ${MOST_BESIDE}`, others.map(({ start, end }) => {
      const value = String(start);
      return { value, text: windowName(start, end), checked: chosen.includes(value), disabled: !chosen.includes(value) && chosen.length >= MOST_BESIDE };
    }), (values) => this.change({ beside: values.join(","), offset: view.offset }));
  }

  showHead(state, shown, column) {
    const sorted = (sort, name) => (view.sort === sort && (sort === "key" || name === column) ? (view.order === "asc" ? "ascending" : "descending") : "none");
    const head = (text, sort, name, label) => el("th", { scope: "col", "aria-sort": sorted(sort, name) }, el("button", { type: "button", "data-focus": `sort-${sort}-${name}`, "aria-label": label, onclick: () => this.sort(sort, name) }, text));
    const fields = chosenLevel(state) ? state.fields.slice(1) : state.fields;
    fill(
      this.head,
      head(fields.join(" · "), "key", "", `Sort by key (${fields.join(", ")})`),
      shown.flatMap(({ name, interval }) => [head(name, "estimate", name, `Sort by ${name}`), head(interval ? "95 % interval" : "± 95 %", "interval", name, `Sort by the error bar of ${name}`)]),
      el("th", { scope: "col", class: "wide" }, "First in release"),
    );
  }

  row({ key, name, values, first, smoothed, new: fresh }, shown, chosen, selected) {
    const text = keyText(key);
    return el(
      "tr",
      { "aria-current": name === selected ? "true" : null },
      el("td", { class: "key" }, el("button", { type: "button", title: text.length > 40 ? shortened(text, 400) : null, "data-focus": `key-${name}`, "aria-label": `Show the curve of ${shortened(text, 200)}`, onclick: () => this.onkey(name) }, fresh ? el("span", { class: "new" }, "new") : null, el("bdi", {}, keyParts(key)))),
      shown.flatMap(({ name: column }) => {
        const of = values[column] ?? [null, null];
        const title = chosen === "smoothed" && smoothed.includes(column) ? "smoothed" : null;
        return [el("td", { "data-column": column, title }, number(of[0])), el("td", { class: "pm" }, reach(of, ""))];
      }),
      el("td", { class: "wide" }, `${first}`),
    );
  }

  /** said: what the numbers are. */
  showChart(windows, table, column, said) {
    const narrow = this.chart.clientWidth < 520;
    const labels = table.rows.map(({ key }) => literal(shortened(keyText(key), narrow ? 16 : 38)));
    const places = table.rows.map((_, at) => at);
    const values = windows.map(({ start }, at) => table.rows.map(({ values, beside }) => (at ? beside[start] : values[column])));
    const words = `Bar chart of ${plural(table.rows.length, "key")}: ${said} with 95 % error bars. The table below has the same numbers.`;
    draw(
      this.chart,
      words,
      () => {
        const traces = windows.map((window, at) => {
          const known = values[at].map((pair) => pair ?? [null, null]);
          return {
            type: "bar",
            orientation: "h",
            name: windowName(window.start, window.end),
            y: places,
            x: known.map(([estimate]) => (estimate === null ? null : Number(estimate))),
            marker: { color: windows.length > 1 ? series(at) : colour("bar"), opacity: windows.length > 1 ? 0.5 : 1, cornerradius: 3 },
            error_x: { type: "data", symmetric: false, array: known.map((of) => arms(of)[1]), arrayminus: known.map((of) => arms(of)[0]), color: windows.length > 1 ? series(at) : colour("whisker"), thickness: 1.7, width: windows.length > 1 ? 3 : 4.5 },
            customdata: table.rows.map(({ key, name }, row) => [literal(shortened(keyText(key), 90)), number(known[row][0]), reach(known[row]), name]),
            hovertemplate: `%{customdata[0]}<br><b>%{customdata[1]}</b> %{customdata[2]}<extra>${windows.length > 1 ? literal(windowName(window.start, window.end)) : ""}</extra>`,
          };
        });
        const layout = {
          height: 46 + table.rows.length * (windows.length > 1 ? 10 + 13 * windows.length : 27) + (windows.length > 1 ? 30 : 0),
          bargap: windows.length > 1 ? 0.22 : 0.36,
          barmode: "group",
          showlegend: windows.length > 1,
          legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom", traceorder: "normal" },
          margin: { l: 8, r: 16, t: windows.length > 1 ? 34 : 6, b: 8 },
          yaxis: { autorange: "reversed", tickmode: "array", tickvals: places, ticktext: labels, showgrid: false, zeroline: false, ticks: "", tickfont: { size: 12.5, color: colour("ink") }, ticklabelstandoff: 6, range: [-0.6, table.rows.length - 0.4] },
          xaxis: { title: { text: narrow ? `${said}, 95 % interval` : `${said} (bar), 95 % interval (whisker)` }, rangemode: "tozero", range: view.sort === "key" || windows.length > 1 ? undefined : [Math.min(0, ...traces[0].x), table.largest * 1.03], nticks: narrow ? 4 : 8, zeroline: true },
        };
        return { traces, layout };
      },
      (point) => this.onkey(point.customdata[3]),
    );
  }
}

/** The level that the address names, where the pipeline has it. */
export const chosenLevel = (state) => (state.levels.includes(view.level) ? view.level : "");

function keyParts(parts) {
  return parts.flatMap(([text], at) => {
    const shown = text === "" ? el("span", { class: "nothing" }, "(empty)") : shortened(keyText([[text, true]]), 300);
    return at ? [" · ", shown] : [shown];
  });
}

function field(text, control, more = "") {
  return el("label", { class: `field ${more}` }, el("span", {}, text), control);
}

function setOptions(select, offered, chosen) {
  const known = JSON.stringify(offered);
  if (select.dataset.offered !== known) {
    select.dataset.offered = known;
    fill(select, offered.map(([value, text]) => el("option", { value }, text)));
  }
  select.value = chosen;
}

/** A button that opens a list of check boxes. */
function menu(title, id) {
  const box = el("fieldset", { id });
  const made = el("details", { class: "menu" }, el("summary", { class: "button" }, title), box);
  return {
    menu: made,
    fill(legend, items, onchange) {
      const known = JSON.stringify(items);
      if (box.dataset.items === known) return;
      box.dataset.items = known;
      const values = () => [...box.querySelectorAll("input:checked")].map((input) => input.value);
      fill(box, el("legend", {}, legend), items.map(({ value, text, checked, disabled }) => el("label", { class: "check" }, el("input", { type: "checkbox", value, checked, disabled, "data-focus": `${id}-${value}`, onchange: () => onchange(values()) }), text)));
    },
  };
}
