// The page: asks for the state every two seconds, and gives it to the board that it names.

import { now, state as asked } from "./api.js";
import { say } from "./dom.js";
import { ago, clock, moment, offset, powers } from "./text.js";

const EVERY = 2000;
const EVERY_HIDDEN = 20_000;
const at = (id) => document.getElementById(id);
let state = null;
let board = null;
let lost = null;

async function refresh() {
  try {
    const found = await asked();
    lost = null;
    if (found !== null) state = found;
    // A state that has not changed does not come again, and the board's file may not have come with the last one.
    if (state !== null && (found !== null || board === null)) await show();
  } catch {
    lost ??= Date.now();
  }
  status();
  setTimeout(refresh, document.hidden ? EVERY_HIDDEN : EVERY);
}

async function show() {
  document.title = `${state.pipeline} · Susurrus`;
  say(at("pipeline"), state.pipeline);
  say(at("guarantee"), powers(state.guarantee));
  say(at("strategy"), `Strategy ${state.strategy}${state.why ? `, the default because ${state.why}` : ""}.`);
  say(
    at("foot"),
    `This page reads ${state.topic} and what is published beside it. It shows no raw record, no exact figure and no user, so whoever ` +
      "may read the results may see it. Error bars are 95 % intervals. They cover the noise, and not what caps and clamps leave out." +
      (state.time_zone ? ` Times are those of ${state.time_zone}.` : ""),
  );
  board ??= new (await import(`./${state.page}.js`)).Board(at("facts"), at("board"), at("announcer"));
  board.show(state);
}

function status() {
  const [live, text, banner] = [at("live"), at("live-text"), at("banner")];
  const trouble = lost ? { kind: "away", text: "This dashboard's server does not answer. The page keeps what it has, and goes on asking.", since: lost } : state?.trouble;
  live.dataset.kind = trouble ? "away" : state ? "live" : "loading";
  const known = state && !state.caught_up && !trouble;
  say(text, trouble ? `Not live since ${clock(trouble.since)} ${offset(trouble.since)}` : known ? "Reading what is there …" : state ? "Live" : "Loading");
  banner.hidden = !trouble;
  if (trouble) say(banner, `${trouble.text} Since ${moment(trouble.since)}.`);
  else say(banner, "");
}

function tick() {
  board?.tick?.(now());
  if (lost) say(at("live-text"), `Not live for ${ago(Date.now() - lost)}`);
}

document.addEventListener("visibilitychange", () => !document.hidden && tick());
setInterval(tick, 1000);
refresh();
