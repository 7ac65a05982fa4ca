// How numbers, times and keys are written.

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const DIGITS = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const FORMATS = {
  day: { day: "numeric", month: "short", year: "numeric" },
  minute: { hour: "2-digit", minute: "2-digit" },
  second: { hour: "2-digit", minute: "2-digit", second: "2-digit" },
  offset: { timeZoneName: "longOffset" },
  wall: { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" },
};
const formats = (timeZone) => Object.fromEntries(Object.entries(FORMATS).map(([name, of]) => [name, new Intl.DateTimeFormat("en-GB", { ...of, timeZone })]));
let timeZone = "UTC";
let times = formats(timeZone);

/** Show times on the clocks of a zone from now on, or in UTC: also where the browser does not know the zone. */
export function showTimesIn(zone) {
  if ((zone ?? "UTC") === timeZone) return;
  try {
    times = formats(zone ?? "UTC");
    timeZone = zone ?? "UTC";
  } catch {
    [times, timeZone] = [formats("UTC"), "UTC"];
  }
}

/** What stands behind a time: "UTC", or the zone's offset at that time, such as "+02:00". */
export function offset(at) {
  if (timeZone === "UTC") return "UTC";
  const name = times.offset.formatToParts(at).find(({ type }) => type === "timeZoneName").value;
  return name.replace(/^GMT/, "") || "+00:00";
}

export const Z95 = 1.96;

/** A number with separators; integers in full, however large (the server sends those as text). */
export function number(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "string") return WHOLE.format(BigInt(value));
  return Number.isInteger(value) || Math.abs(value) >= 1000 ? WHOLE.format(value) : DIGITS.format(value);
}

/** The 95 % half-width: whole and rounded up where the estimate is whole. */
export function margin(estimate, error) {
  if (error === null || error === undefined) return "–";
  const half = Z95 * error;
  return number(typeof estimate === "string" || Number.isInteger(estimate) ? Math.ceil(half) : half);
}

/** What stands behind an estimate: ± its half-width, or the ends of its interval where these are published. */
export function reach([estimate, error, low, high], sign = "± ") {
  if (low !== undefined) return `${sign && "("}${number(low)} to ${number(high)}${sign && ")"}`;
  const half = margin(estimate, error);
  return half === "–" ? half : sign + half;
}

/** The ends of an error bar, as numbers. */
export function ends([estimate, error, low, high]) {
  return low === undefined ? [Number(estimate) - Z95 * error, Number(estimate) + Z95 * error] : [low, high];
}

/** How far an error bar goes down and up from its estimate. */
export function arms([estimate, error, low, high]) {
  if (error === null) return [0, 0];
  return low === undefined ? [Z95 * error, Z95 * error] : [estimate - low, high - estimate];
}

const SUPERSCRIPT = { "-": "⁻", ".": "·", ...Object.fromEntries([..."⁰¹²³⁴⁵⁶⁷⁸⁹"].map((mark, digit) => [digit, mark])) };
const raised = (text) => [...text].map((mark) => SUPERSCRIPT[mark]).join("");

/** Powers as they are printed: e^6 and 1e-09. */
export const powers = (text) =>
  text
    .replace(/\be\^(\d+(?:\.\d+)?)/g, (_, power) => `e${raised(power)}`)
    .replace(/\b(\d+(?:\.\d+)?)e([-+]?)0*(\d+)\b/g, (_, mantissa, sign, power) => `${mantissa === "1" ? "" : `${mantissa} × `}10${raised(`${sign === "-" ? "-" : ""}${power}`)}`);

export const small = (value) => (value === null ? "∞" : value === 0 || (value >= 0.001 && value < 1e6) ? DIGITS.format(value) : powers(value.toExponential(value.toExponential(0) === value.toExponential(2).replace(".00", "") ? 0 : 2)));
export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;
export const day = (at) => times.day.format(at);
export const minute = (at) => times.minute.format(at);
export const clock = (at) => times.second.format(at);
export const moment = (at) => `${day(at)}, ${clock(at)} ${offset(at)}`;

/** An instant as the zone's clocks show it, for the axes of charts, which know no zones: "2026-10-25 02:30:00". */
export function wallTime(at) {
  const parts = Object.fromEntries(times.wall.formatToParts(at).map(({ type, value }) => [type, value]));
  return `${parts.year}-${parts.month}-${parts.day} ${parts.hour}:${parts.minute}:${parts.second}`;
}

/** A window: its day, and its hours where it is not just that day. */
export function windowName(start, end) {
  const midnight = (at) => (timeZone === "UTC" ? at % 86_400_000 === 0 : clock(at) === "00:00:00" || day(at - 1) !== day(at));
  if (midnight(start) && midnight(end)) return day(start) === day(end - 1) ? day(start) : `${day(start)} to ${day(end - 1)}`;
  return `${day(start)}, ${minute(start)}–${minute(end)}`;
}

/** "3:07" or "1:02:03"; of a time that is over with a sign. */
export function countdown(milliseconds) {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  const [days, hours, minutes] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
  const two = (value) => String(value).padStart(2, "0");
  if (days) return `${days} d ${hours} h`;
  return hours ? `${hours}:${two(minutes)}:${two(seconds % 60)}` : `${minutes}:${two(seconds % 60)}`;
}

export function ago(milliseconds) {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  if (seconds < 90) return plural(seconds, "second");
  if (seconds < 5400) return plural(Math.round(seconds / 60), "minute");
  return seconds < 172_800 ? plural(Math.round(seconds / 3600), "hour") : plural(Math.round(seconds / 86400), "day");
}

// Marks that turn the direction of what follows, or are not seen at all, and line ends: they would change the page around a key.
const HIDDEN = /[\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/gu;

/** A text as it can be shown: control characters as their pictures, invisible marks as their code points. */
export function visible(text) {
  return text
    .replace(/[\u0000-\u001f]/gu, (mark) => String.fromCodePoint(0x2400 + mark.codePointAt(0)))
    .replace(HIDDEN, (mark) => `‹${mark.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}›`);
}

/** A key in one line of text. parts: [[text, whether it is a text], …]. */
export const keyText = (parts) => parts.map(([text]) => (text === "" ? "(empty)" : visible(text))).join(" · ");

/** At most so many characters, the end kept: urls differ at their ends. Cut between code points. */
export function shortened(text, most) {
  const marks = [...text];
  if (marks.length <= most) return text;
  const tail = Math.floor((most - 1) * 0.6);
  return `${marks.slice(0, most - 1 - tail).join("")}…${marks.slice(-tail).join("")}`;
}
