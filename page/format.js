/* format.js: numbers for people. */

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** @param {number | null | undefined} n */
export function count(n) {
  return n === null || n === undefined ? "–" : WHOLE.format(n);
}

/**
 * Three significant digits.
 * @param {number | null | undefined} n
 */
export function short(n) {
  if (n === null || n === undefined || !Number.isFinite(n)) return "–";
  const size = Math.abs(n);
  if (size >= 1e9) return digits(n / 1e9) + " G";
  if (size >= 1e6) return digits(n / 1e6) + " M";
  if (size >= 1e4) return digits(n / 1e3) + " k";
  return digits(n);
}

/** @param {number} n */
function digits(n) {
  const size = Math.abs(n);
  if (size >= 100 || n === 0) return WHOLE.format(n);
  return String(Number(n.toFixed(size >= 10 ? 1 : 2)));
}

/** @param {number | null | undefined} n */
export function bytes(n) {
  if (n === null || n === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  let value = n;
  for (; value >= 1024 && at < units.length - 1; at++) value /= 1024;
  return digits(value) + " " + units[at];
}

/** @param {number | null | undefined} ms */
export function duration(ms) {
  if (ms === null || ms === undefined || !Number.isFinite(ms)) return "–";
  if (ms < 1000) return digits(ms) + " ms";
  if (ms < 60000) return digits(ms / 1000) + " s";
  if (ms < 3600000) return digits(ms / 60000) + " min";
  if (ms < 172800000) return digits(ms / 3600000) + " h";
  return digits(ms / 86400000) + " d";
}

/** @param {number} share  of 1 */
export function percent(share) {
  return Number.isFinite(share) ? digits(share * 100) + " %" : "–";
}

/** @param {number} seconds  since 1970 */
export function time(seconds) {
  const d = new Date(seconds * 1000);
  const two = (/** @type {number} */ n) => String(n).padStart(2, "0");
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ` +
    `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}

/**
 * How a moment is called on an axis.
 * @param {number} seconds @param {number} range_s
 */
export function moment(seconds, range_s) {
  const all = time(seconds);
  if (range_s <= 2 * 86400) return all.slice(11, 16);
  return all.slice(5, 10);
}
