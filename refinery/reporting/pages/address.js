// What is shown stands in the address after the #, so that a view can be linked to and the back button works. The address may come from
// anybody: a value that the page does not know is ignored, and a text from it is only ever compared or shown as text.

function address() {
  const { search, outcome, groups, why, sort, page, open, sides, views } = state;
  const given = new URLSearchParams();
  const put = (name, value) => value && given.append(name, value);
  put("q", open == null ? "" : held.rows[open].id);
  put("search", search);
  put("show", outcome === "all" ? "" : outcome);
  groups.forEach((group) => put("type", group));
  put("why", why);
  put("sort", sort);
  put("page", page ? String(page + 1) : "");
  put("runs", sameList(sides, defaultSides()) ? "" : sides.map((run) => run ?? "none").join(","));
  put("views", sameList(views, defaultViews()) ? "" : views.join(","));
  return `#${given}`;
}

const defaultSides = () => [0, held.runs.length > 1 ? 1 : null];
const defaultViews = () => held.runs.map((run) => run.own);
const sameList = (a, b) => a.length === b.length && a.every((value, index) => value === b[index]);

// Sets the state from the address.
function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  state.sides = readSides(given.get("runs"));
  state.views = readViews(given.get("views"));
  const [groups, outcomes] = [new Set(held.rows.flatMap((row) => row.groups)), outcomeWords()];
  const open = given.has("q") ? held.rows.findIndex((row) => row.id === given.get("q")) : -1;
  Object.assign(state, {
    search: given.get("search") ?? "",
    outcome: Object.hasOwn(outcomes, given.get("show") ?? "") ? given.get("show") : "all",
    groups: [...new Set(given.getAll("type"))].filter((group) => groups.has(group)),
    why: held.rows.some((row) => cellsOf(row)[0]?.why === given.get("why")) ? given.get("why") : "",
    sort: columns().some(({ key }) => [key, `-${key}`].includes(given.get("sort"))) ? given.get("sort") : "",
    page: Math.max(0, (Number.parseInt(given.get("page") ?? "1", 10) || 1) - 1),
    cursor: 0,
    open: open < 0 ? null : open,
  });
}

function readSides(text) {
  const sides = (text ?? "").split(",").map((run) => (run === "none" ? null : Number(run || Number.NaN)));
  const isRun = (run) => Number.isInteger(run) && run >= 0 && run < held.runs.length;
  return sides.length === 2 && isRun(sides[0]) && (sides[1] === null || isRun(sides[1])) ? sides : defaultSides();
}

function readViews(text) {
  const views = (text ?? "").split(",").map((view) => Number(view || Number.NaN));
  const fits = views.length === held.runs.length && views.every((view, run) => Number.isInteger(view) && held.runs[run].views[view] != null);
  return fits ? views : defaultViews();
}

// Writes the state to the address: as a new entry of the history, or over the present one for what nobody would step back through.
function writeAddress({ over = false } = {}) {
  const now = address();
  if (now === (location.hash || "#")) return;
  history[over ? "replaceState" : "pushState"](null, "", now);
}
