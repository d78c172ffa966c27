// The list: the table of one page of rows, and the pages.

function drawTable() {
  const { found } = state;
  const pages = Math.max(1, Math.ceil(found.length / ROWS_PER_PAGE));
  state.page = Math.min(state.page, pages - 1);
  const first = state.page * ROWS_PER_PAGE;
  const shown = found.slice(first, first + ROWS_PER_PAGE);
  state.cursor = Math.min(state.cursor, Math.max(0, shown.length - 1));
  const tallies = [...new Set(shownSides())].map((run) => element("p", {}, element("b", {}, runName(run)), " ", tally(found, run)));
  const counted = `${found.length.toLocaleString("en")} of ${held.rows.length.toLocaleString("en")} ${held.words.rows ?? "questions"}`;
  document.getElementById("summary").replaceChildren(element("p", {}, counted), ...tallies);
  const [table, shownColumns] = [document.getElementById("table"), columns()];
  table.classList.toggle("cards", NARROW.matches || (WIDE.matches && state.open != null));
  table.classList.toggle("beside", shownSides().length > 1);
  replace(table.tHead, element("tr", {}, ...shownColumns.map(headElement)));
  table.tBodies[0].replaceChildren(...shown.map((index, position) => rowElement(index, position, shownColumns)));
  drawPages(found.length, pages, first, shown.length);
}

function rowElement(index, position, shownColumns) {
  const row = held.rows[index];
  const cells = shownColumns.map((column) => element("td", { class: column.kind, "data-label": column.kind === "asked" ? null : column.label }, ...column.cell(row)));
  const open = () => {
    state.cursor = position;
    openQuestion(index);
  };
  const chosen = index === state.open ? "true" : null;
  return element("tr", { tabindex: position === state.cursor ? 0 : -1, onclick: open, "data-row": index, "aria-current": chosen, "aria-label": `open ${row.text}` }, ...cells);
}

function drawPages(count, pages, first, shown) {
  const go = (page) => () => turnPage(page - state.page);
  replace(
    document.getElementById("pages"),
    element("button", { onclick: go(state.page - 1), disabled: state.page === 0, "data-key": "previous" }, "previous"),
    element("span", {}, count ? `${first + 1} to ${first + shown} of ${count.toLocaleString("en")}` : "no question is left by the filters"),
    element("button", { onclick: go(state.page + 1), disabled: state.page >= pages - 1, "data-key": "next" }, "next"),
  );
}

function turnPage(by) {
  const pages = Math.max(1, Math.ceil(state.found.length / ROWS_PER_PAGE));
  state.page = Math.min(pages - 1, Math.max(0, state.page + by));
  state.cursor = 0;
  writeAddress({ over: true });
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
