// Numbers and times as people read them.

/** Writes a number with three significant digits. */
export function short(number) {
  if (number === undefined || number === null) return "–";
  if (number === 0) return "0";
  const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 3, useGrouping: false });
  if (Math.abs(number) >= 1e6) return `${digits.format(number / 1e6)} M`;
  if (Math.abs(number) >= 1e4) return `${digits.format(number / 1e3)} k`;
  return digits.format(number);
}

/** Writes seconds with a unit. */
export function duration(seconds) {
  if (seconds === undefined || seconds === null) return "–";
  if (seconds >= 1) return `${short(seconds)} s`;
  if (seconds >= 0.001) return `${short(seconds * 1000)} ms`;
  return `${short(seconds * 1e6)} µs`;
}

export function bytes(count) {
  if (count === undefined || count === null) return "–";
  return count >= 1 << 30 ? `${short(count / (1 << 30))} GiB` : `${short(count / (1 << 20))} MiB`;
}

/** Writes a time, given in seconds since 1970. */
export function time(seconds) {
  return new Date(seconds * 1000).toLocaleString();
}

/** Writes how long ago a time in seconds since 1970 is. */
export function since(seconds) {
  const elapsed = Math.max(0, Date.now() / 1000 - seconds);
  if (elapsed < 90) return `${Math.round(elapsed)} s`;
  if (elapsed < 5400) return `${Math.round(elapsed / 60)} min`;
  if (elapsed < 129600) return `${Math.round(elapsed / 3600)} h`;
  return `${Math.round(elapsed / 86400)} days`;
}

/** Returns the class of a state's color. */
export function tone(state) {
  if (state === "READY" || state === "running") return "good";
  return state === "LOADING" || state === "starting" || state === "draining" ? "wait" : "bad";
}
