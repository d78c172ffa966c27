// Curves over steps, drawn as SVG: lines with their last values, and all values of a step under the pointer.

const CHART = { width: 480, height: 220, left: 46, right: 10, top: 10, bottom: 26 };

function chartElement({ name, across, lines }) {
  const scale = chartScale(lines.flatMap(({ points }) => points));
  const svg = svgElement("svg", { viewBox: `0 0 ${CHART.width} ${CHART.height}`, role: "img", "aria-label": `${name}: ${lines.map((line) => line.name).join(", ")}` });
  svg.append(...axes(scale), ...lines.flatMap((line, index) => lineElements(line, index, scale)));
  const values = lines.map(({ points }) => element("b", {}, number(points.at(-1)[1])));
  const legend = lines.map((line, index) => element("span", { class: "legend" }, element("i", { class: `line-${index % 6}` }), `${line.name} `, values[index]));
  const at = element("span", { class: "at" }, `${across} ${number(scale.x[1])}`);
  watchPointer(svg, { lines, scale, values, at, across });
  return element("figure", { class: "card chart" }, element("figcaption", {}, element("h2", {}, name), at), svg, element("div", { class: "legends" }, ...legend));
}

// The parser of the page knows SVG's namespace; a page that contacts nobody need not spell its address.
function svgElement(tag, properties = {}, ...children) {
  const made = document.createElementNS(document.getElementById("svg").namespaceURI, tag);
  for (const [name, value] of Object.entries(properties)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function chartScale(points) {
  const [xs, ys] = [points.map(([x]) => x), points.map(([, y]) => y)];
  const x = [smallest(xs), largest(xs)];
  const ticks = niceTicks(smallest(ys), largest(ys));
  const y = [ticks[0], ticks.at(-1)];
  const along = (value, [from, to], start, end) => start + ((value - from) / (to - from || 1)) * (end - start);
  return {
    x,
    y,
    ticks,
    across: (value) => along(value, x, CHART.left, CHART.width - CHART.right),
    up: (value) => along(value, y, CHART.height - CHART.bottom, CHART.top),
  };
}

const smallest = (values) => values.reduce((a, b) => Math.min(a, b), Infinity);
const largest = (values) => values.reduce((a, b) => Math.max(a, b), -Infinity);

// Round values around a range, about five of them.
function niceTicks(low, high) {
  const span = high - low || Math.abs(high) || 1;
  const rough = 10 ** Math.floor(Math.log10(span / 4));
  const size = [1, 2, 5, 10].map((factor) => factor * rough).find((step) => span / step <= 5);
  const first = Math.floor(low / size);
  const last = Math.max(first + 1, Math.ceil(high / size - 1e-9));
  return Array.from({ length: last - first + 1 }, (_, index) => Number(((first + index) * size).toPrecision(6)));
}

function axes({ x, ticks, across, up }) {
  const rules = ticks.map((tick) => svgElement("line", { class: "rule", x1: CHART.left, x2: CHART.width - CHART.right, y1: up(tick), y2: up(tick) }));
  const names = ticks.map((tick) => svgElement("text", { x: CHART.left - 6, y: up(tick) + 4, "text-anchor": "end" }, number(tick)));
  const ends = [...new Set(x)].map((step, index) => svgElement("text", { x: across(step), y: CHART.height - 6, "text-anchor": index ? "end" : "start" }, number(step)));
  return [...rules, ...names, ...ends];
}

function lineElements({ points }, index, { across, up }) {
  const name = `line-${index % 6}`;
  const path = svgElement("polyline", { class: name, points: points.map(([x, y]) => `${across(x).toFixed(1)},${up(y).toFixed(1)}`).join(" ") });
  const dots = points.length > 24 ? [] : points.map(([x, y]) => svgElement("circle", { class: name, cx: across(x), cy: up(y), r: 2.5 }));
  return [path, ...dots];
}

// Shows the values of the step nearest to the pointer, and the last ones again when it leaves.
function watchPointer(svg, { lines, scale, values, at, across }) {
  const rule = svgElement("line", { class: "pointer", y1: CHART.top, y2: CHART.height - CHART.bottom });
  const steps = [...new Set(lines.flatMap(({ points }) => points.map(([x]) => x)))].sort((a, b) => a - b);
  const show = (step) => {
    at.textContent = `${across} ${number(step)}`;
    lines.forEach(({ points }, index) => {
      const before = points.filter(([x]) => x <= step);
      values[index].textContent = before.length ? number(before.at(-1)[1]) : "–";
    });
    rule.setAttribute("x1", scale.across(step));
    rule.setAttribute("x2", scale.across(step));
  };
  svg.addEventListener("pointermove", (event) => {
    const { left, width } = svg.getBoundingClientRect();
    const place = ((event.clientX - left) / width) * CHART.width;
    show(steps.reduce((best, step) => (Math.abs(scale.across(step) - place) < Math.abs(scale.across(best) - place) ? step : best)));
    svg.append(rule);
  });
  svg.addEventListener("pointerleave", () => {
    show(steps.at(-1));
    rule.remove();
  });
}
