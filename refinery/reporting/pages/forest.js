// Values with their intervals below each other on one axis: differences of systems, or what a right answer costs.

function forestElement({ name, note, rows }) {
  const ends = rows.flatMap(({ value, low, high }) => [value, low ?? value, high ?? value]);
  const ticks = niceTicks(Math.min(0, smallest(ends)), Math.max(0, largest(ends)));
  const [from, to] = [ticks[0], ticks.at(-1)];
  const place = (value) => `${(100 * (value - from)) / (to - from)}%`;
  const signed = from < 0 ? "exceptZero" : "auto";
  return element("figure", { class: "card chart" }, element("figcaption", {}, element("h2", {}, name)), element("div", { class: "forest" }, ...rows.map((row) => forestRow(row, place, signed))), element("p", { class: "none" }, note));
}

function forestRow({ name, value, low, high }, place, signDisplay) {
  const shown = (amount) => (amount === null ? "…" : amount.toLocaleString("en", { maximumFractionDigits: Math.abs(amount) < 100 ? 1 : 0, signDisplay }));
  const range = low === null && high === null ? "" : ` ${shown(low)} to ${shown(high)}`;
  const axis = element("span", { class: "axis", role: "img", "aria-label": `${name}: ${shown(value)}${range}` });
  const places = { zero: place(0), low: low === null ? "0%" : place(low), high: high === null ? "100%" : place(high), mean: place(value) };
  for (const [key, at] of Object.entries(places)) axis.style.setProperty(`--${key}`, at);
  axis.append(element("i", { class: "spread" }), element("i", { class: "zero" }), element("i", { class: "dot" }));
  return element("div", { class: "forest-row" }, element("span", {}, name), axis, element("span", { class: "number" }, element("b", {}, shown(value)), element("small", {}, range)));
}
