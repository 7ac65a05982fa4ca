// Charts by plotly, in the page's own colours. Without plotly a chart's place says so, and the tables stay.

const drawn = new Map();

/** A colour of style.css, as it is in the present colour scheme. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

export const faint = (hex, share) => `${hex}${Math.round(share * 255).toString(16).padStart(2, "0")}`;

export const series = (at) => colour(`series-${(at % 4) + 1}`);

/** Text for plotly, which would read some tags and entities. The marks keep a text's direction to itself. */
export const literal = (text) => `\u2068${text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;")}\u2069`;

/** Draw, or draw again. make() returns {traces, layout}; it is called again when the colour scheme changes. description: what a
 * screen reader says of the picture. onkey(point): a click on a point. */
export function draw(place, description, make, onpoint = null) {
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", description);
  if (!window.Plotly) {
    if (!place.dataset.missing) {
      place.dataset.missing = "true";
      place.textContent = 'No charts: plotly is not installed. An operator runs pip install "susurrus[dashboard]".';
      place.classList.add("note");
    }
    return;
  }
  drawn.set(place, make);
  const { traces, layout } = make();
  const first = !place.dataset.drawn;
  window.Plotly.react(place, traces, complete(layout), { displayModeBar: false, responsive: true, showTips: false, doubleClick: "reset" });
  if (first) {
    place.dataset.drawn = "true";
    if (onpoint) place.on("plotly_click", (event) => onpoint(event.points[0]));
    // Nothing in a chart is reached by keyboard; its table is. So it is one picture for assistive technology.
    for (const svg of place.querySelectorAll("svg")) svg.setAttribute("aria-hidden", "true");
  }
}

export function forget(place) {
  if (drawn.delete(place) && window.Plotly) window.Plotly.purge(place);
}

function complete(layout) {
  const axis = {
    gridcolor: colour("line"),
    zerolinecolor: colour("line"),
    linecolor: colour("line"),
    tickcolor: colour("line"),
    automargin: true,
    fixedrange: true,
    title: { font: { size: 12, color: colour("quiet") }, standoff: 8 },
  };
  const axes = { xaxis: {}, yaxis: {}, ...Object.fromEntries(Object.entries(layout).filter(([name]) => /^[xy]axis/.test(name))) };
  for (const [name, own] of Object.entries(axes)) {
    axes[name] = { ...axis, ...own, title: { ...axis.title, ...(own.title ?? {}) } };
  }
  return {
    autosize: true,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12.5, color: colour("quiet") },
    margin: { l: 8, r: 12, t: 8, b: 8 },
    showlegend: false,
    hovermode: "closest",
    hoverlabel: { bgcolor: colour("surface"), bordercolor: colour("edge"), font: { color: colour("ink"), size: 13 }, align: "left", namelength: -1 },
    dragmode: false,
    ...layout,
    ...axes,
  };
}

/** The pieces of a line, as [from, to) places: it is broken before each place of `breaks`. */
const pieces = (length, breaks) => [0, ...breaks].map((from, at) => [from, breaks[at] ?? length]);

/** Values with null between the pieces, where plotly breaks a line. */
const broken = (values, breaks) => pieces(values.length, breaks).flatMap(([from, to]) => [...(from ? [null] : []), ...values.slice(from, to)]);

/** A line with its 95 % band: two traces. breaks: the places before which there are points that are not known. */
export function banded(x, y, ends, hex, name, { breaks = [], ...options } = {}) {
  const around = pieces(x.length, breaks).map(([from, to]) => [x.slice(from, to), ends.slice(from, to)]);
  const closed = (parts) => parts.flatMap((part, at) => [...(at ? [null] : []), ...part]);
  const band = {
    x: closed(around.map(([places]) => [...places, ...[...places].reverse()])),
    y: closed(around.map(([, of]) => [...of.map(([, high]) => high), ...of.map(([low]) => low).reverse()])),
    fill: "toself",
    fillcolor: faint(hex, 0.18),
    line: { width: 0 },
    mode: "lines",
    hoverinfo: "skip",
    showlegend: false,
    type: "scatter",
    ...options.axes,
  };
  const line = { x: broken(x, breaks), y: broken(y, breaks), mode: x.length > 60 && !breaks.length ? "lines" : "lines+markers", line: { color: hex, width: 2, shape: options.shape ?? "linear" }, marker: { size: 5 }, name, type: "scatter", ...options.axes, ...options.line, customdata: options.line?.customdata && broken(options.line.customdata, breaks) };
  return [band, line];
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const [place, make] of drawn) {
    const { traces, layout } = make();
    window.Plotly.react(place, traces, complete(layout));
  }
});
