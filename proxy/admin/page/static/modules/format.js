// Numbers as people read them. Each takes null for what is not known.

const UNKNOWN = "–";
const SIZES = ["B", "kB", "MB", "GB", "TB", "PB"];

/** @param {number} value at least 0 @returns {string} three digits that matter */
function threeDigits(value) {
  if (value === 0) return "0";
  if (value >= 100) return value.toFixed(0);
  if (value >= 10) return value.toFixed(1);
  return value >= 0.1 ? value.toFixed(2) : value.toPrecision(2);
}

/** Bytes; a kB is 1,000 of them, as in prices. */
export function bytes(value) {
  if (value === null || value === undefined) return UNKNOWN;
  let size = Math.abs(value);
  let unit = 0;
  while (size >= 999.5 && unit < SIZES.length - 1) {
    size /= 1000;
    unit += 1;
  }
  const text = unit === 0 ? Math.round(size).toString() : threeDigits(size);
  return `${value < 0 ? "−" : ""}${text} ${SIZES[unit]}`;
}

/** Bytes by the second. */
export function rate(value) {
  return value === null || value === undefined ? UNKNOWN : `${bytes(value)}/s`;
}

/** Milliseconds. */
export function milliseconds(value) {
  if (value === null || value === undefined) return UNKNOWN;
  return value >= 9_995 ? `${threeDigits(value / 1000)} s` : `${threeDigits(value)} ms`;
}

/** A count, by thousands. */
export function count(value) {
  return value === null || value === undefined ? UNKNOWN : Math.round(value).toLocaleString("en");
}

/** Something by the second that is counted. */
export function perSecond(value) {
  if (value === null || value === undefined) return UNKNOWN;
  return `${value >= 1000 ? count(value) : threeDigits(value)}/s`;
}

/** A ratio between 0 and 1. */
export function percent(value) {
  return value === null || value === undefined ? UNKNOWN : `${threeDigits(value * 100)} %`;
}

/** US dollars: cents where there are any, else two digits that matter. */
export function usd(value) {
  if (value === null || value === undefined) return UNKNOWN;
  const size = Math.abs(value);
  const sign = value < 0 ? "−" : "";
  if (size === 0) return "$0";
  if (size < 0.000001) return `${sign}under $0.000001`;
  if (size < 0.1) return `${sign}$${size.toFixed(Math.min(8, 1 - Math.floor(Math.log10(size))))}`;
  return `${sign}$${size.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
}

/** Hours of a month, as clouds count them in their prices. */
export const HOURS_PER_MONTH = 730;

/** US dollars a month at a rate of US dollars an hour. */
export function usdPerMonth(perHour) {
  return perHour === null || perHour === undefined ? UNKNOWN : `${usd(perHour * HOURS_PER_MONTH)}/month`;
}

/** How long, in its two largest units. */
export function duration(elapsed) {
  if (elapsed === null || elapsed === undefined) return UNKNOWN;
  const seconds = Math.max(0, Math.floor(elapsed / 1000));
  const parts = [
    [Math.floor(seconds / 86_400), "d"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "min"],
    [seconds % 60, "s"],
  ];
  const first = parts.findIndex(([number]) => number > 0);
  if (first < 0) return "0 s";
  return parts
    .slice(first, first + 2)
    .filter(([number]) => number > 0)
    .map(([number, unit]) => `${number} ${unit}`)
    .join(" ");
}

/** The time of day. */
export function clock(time) {
  if (time === null || time === undefined) return UNKNOWN;
  return new Date(time).toLocaleTimeString("en-GB");
}

/** Date and time, exactly. */
export function moment(time) {
  return time === null || time === undefined ? "" : new Date(time).toISOString();
}

/** The value itself, for titles. */
export function exact(value, unit) {
  if (value === null || value === undefined) return "not known";
  return `${value.toLocaleString("en", { maximumFractionDigits: 9 })} ${unit}`;
}
