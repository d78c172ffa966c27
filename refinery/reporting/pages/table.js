// The list: filters, the table of one page of rows, and the pages.

function select(label, options, value, change) {
  const choices = options.map(([key, text]) => element("option", { value: key, selected: String(key) === String(value) }, text));
  return element("label", {}, `${label} `, element("select", { "aria-label": label, onchange: (event) => change(event.target.value) }, ...choices));
}

function runControls() {
  const names = held.runs.map((run, index) => [index, run.name]);
  const side = (position, label, options) =>
    select(label, options, state.sides[position] ?? "", (value) => {
      state.sides[position] = value === "" ? null : Number(value);
      if (!(state.outcome in outcomeWords())) state.outcome = "all";
      refresh();
    });
  const view = (run, label) =>
    select(label, held.runs[run].views.map((name, index) => [index, index === held.runs[run].own ? `${name} (as run)` : name]), state.views[run], (value) => {
      state.views[run] = Number(value);
      refresh();
    });
  const controls = held.runs.length > 1 ? [side(0, "run", names), side(1, "beside", [["", "none"], ...names])] : [];
  const several = shownSides().length > 1;
  const chosen = [...new Set(shownSides())].filter((run) => held.runs[run].views.length > 1);
  return [...controls, ...chosen.map((run) => view(run, several ? `${held.words.view}, ${held.runs[run].name}` : held.words.view))];
}

function filterControls() {
  const groups = [...new Set(held.rows.flatMap((row) => row.groups))].sort();
  const change = (key) => (value) => {
    state[key] = value;
    state.page = state.cursor = 0;
    drawTable();
  };
  const search = element("input", { type: "search", id: "search", placeholder: "search questions and answers", "aria-label": "search", value: state.search, oninput: (event) => change("search")(event.target.value) });
  return [
    search,
    select("show", Object.entries(outcomeWords()), state.outcome, change("outcome")),
    groups.length ? select("type", [["", "all"], ...groups.map((group) => [group, group])], state.group, change("group")) : null,
    ...runControls(),
  ];
}

function mark(right) {
  if (right === null) return element("span", { class: "mark" }, " ");
  return element("span", { class: right ? "mark right" : "mark wrong", title: right ? held.words.right : held.words.wrong }, right ? "✓" : "✗");
}

function cellElement(cell, run) {
  const name = shownSides().length > 1 ? held.runs[run].name : null; // said where the columns have no head, on a narrow screen
  return cell ? element("td", { "data-run": name }, mark(isRight(cell)), cell.text) : element("td", { class: "none", "data-run": name }, "not in this run");
}

function drawFilters() {
  document.getElementById("filters").replaceChildren(...filterControls().filter(Boolean));
}

function drawTable() {
  const found = foundRows();
  const pages = Math.max(1, Math.ceil(found.length / ROWS_PER_PAGE));
  state.found = found;
  state.page = Math.min(state.page, pages - 1);
  const first = state.page * ROWS_PER_PAGE;
  const shown = found.slice(first, first + ROWS_PER_PAGE);
  state.cursor = Math.min(state.cursor, Math.max(0, shown.length - 1));
  const tallies = [...new Set(shownSides())].map((run) => element("p", {}, element("b", {}, runName(run)), " ", tally(found, run)));
  document.getElementById("summary").replaceChildren(element("p", {}, `${found.length.toLocaleString("en")} of ${held.rows.length.toLocaleString("en")} questions`), ...tallies);
  const table = document.getElementById("table");
  table.tHead.replaceChildren(element("tr", {}, element("th", { scope: "col" }, "question"), ...shownSides().map((run) => element("th", { scope: "col" }, runName(run)))));
  table.tBodies[0].replaceChildren(...shown.map((index, position) => rowElement(index, position)));
  drawPages(found.length, pages, first, shown.length);
}

function rowElement(index, position) {
  const row = held.rows[index];
  const question = element("td", {}, row.text, " ", ...row.groups.map((group) => element("span", { class: "group" }, group)));
  const cells = shownSides().map((run) => cellElement(cellOf(row, run), run));
  const open = () => {
    state.cursor = position;
    openQuestion(index);
  };
  return element("tr", { tabindex: position === state.cursor ? 0 : -1, onclick: open, "data-row": index, "aria-label": `open ${row.text}` }, question, ...cells);
}

function drawPages(count, pages, first, shown) {
  const go = (page) => () => turnPage(page - state.page);
  document.getElementById("pages").replaceChildren(
    element("button", { onclick: go(state.page - 1), disabled: state.page === 0 }, "previous"),
    element("span", {}, count ? `${first + 1} to ${first + shown} of ${count.toLocaleString("en")}` : "no question is left by the filters"),
    element("button", { onclick: go(state.page + 1), disabled: state.page >= pages - 1 }, "next"),
  );
}

function turnPage(by) {
  const pages = Math.max(1, Math.ceil(state.found.length / ROWS_PER_PAGE));
  state.page = Math.min(pages - 1, Math.max(0, state.page + by));
  state.cursor = 0;
  drawTable();
  focusRow();
}

function moveCursor(by) {
  const rows = document.querySelectorAll("#table tbody tr");
  if (!rows.length) return;
  const onRow = document.activeElement && document.activeElement.matches("#table tbody tr");
  rows[state.cursor].tabIndex = -1;
  state.cursor = onRow ? Math.min(rows.length - 1, Math.max(0, state.cursor + by)) : state.cursor;
  focusRow();
}

function focusRow() {
  const row = document.querySelectorAll("#table tbody tr")[state.cursor];
  if (!row) return;
  row.tabIndex = 0;
  row.focus();
}
