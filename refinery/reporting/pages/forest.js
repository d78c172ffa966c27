// Values with their intervals below each other on one axis: differences of systems, or what a right answer costs.

function forestElement({ name, note, rows }) {
  const ends = rows.flatMap(({ value, low, high }) => [value, low ?? value, high ?? value]);
  const ticks = niceTicks(Math.min(0, smallest(ends)), largest(ends));
  const [from, to] = [ticks[0], ticks.at(-1)];
  const place = (value) => `${(100 * (value - from)) / (to - from)}%`;
  const lines = rows.map((row) => forestRow(row, place, from < 0));
  return element("figure", { class: "card chart" }, element("figcaption", {}, element("h2", {}, name)), element("div", { class: "forest" }, ...lines.flat()), element("p", { class: "none" }, note));
}

function forestRow({ name, value, low, high }, place, signed) {
  const shown = (number_) => `${signed && number_ > 0 ? "+" : ""}${number(number_)}`;
  const range = low === null && high === null ? "" : ` ${low === null ? "…" : shown(low)} to ${high === null ? "…" : shown(high)}`;
  const axis = element("span", { class: "axis", role: "img", "aria-label": `${name}: ${shown(value)}${range}` });
  const places = { zero: place(0), low: low === null ? "0%" : place(low), high: high === null ? "100%" : place(high), mean: place(value) };
  for (const [key, at] of Object.entries(places)) axis.style.setProperty(`--${key}`, at);
  axis.append(element("i", { class: "spread" }), element("i", { class: "zero" }), element("i", { class: "dot" }));
  return [element("span", { class: "forest-name" }, name), axis, element("span", { class: "forest-value" }, element("b", {}, shown(value)), element("small", {}, range))];
}
