// Opening and closing a question, the keyboard, and the start. The open question stands in the address, so that the back button works.

function refresh() {
  drawFilters();
  drawTable();
  if (state.open != null) drawQuestion();
}

function openQuestion(index) {
  location.hash = `row=${index}`;
}

function closeQuestion() {
  location.hash = "";
}

// To the next question that the filters leave.
function step(by) {
  const at = state.found.indexOf(state.open) + by;
  if (at < 0 || at >= state.found.length) return;
  state.page = Math.floor(at / ROWS_PER_PAGE);
  state.cursor = at % ROWS_PER_PAGE;
  openQuestion(state.found[at]);
}

function openAll() {
  const closed = [...document.querySelectorAll("#question .tree details:not([open])")];
  closed.forEach((details) => (details.open = true));
}

async function route() {
  const asked = /^#row=(\d+)$/.exec(location.hash);
  state.open = asked && Number(asked[1]) < held.rows.length ? Number(asked[1]) : null;
  const [list, question] = [document.getElementById("list"), document.getElementById("question")];
  list.hidden = state.open != null;
  question.hidden = state.open == null;
  if (state.open == null) {
    drawTable();
    focusRow();
  } else {
    await drawQuestion();
    question.focus();
    window.scrollTo(0, 0);
  }
}

const KEYS = {
  list: {
    j: () => moveCursor(1),
    ArrowDown: () => moveCursor(1),
    k: () => moveCursor(-1),
    ArrowUp: () => moveCursor(-1),
    n: () => turnPage(1),
    p: () => turnPage(-1),
    Enter: () => state.found.length && openQuestion(state.found[state.page * ROWS_PER_PAGE + state.cursor]),
    "/": () => document.getElementById("search").focus(),
  },
  question: { n: () => step(1), p: () => step(-1), Escape: closeQuestion, e: openAll },
};

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches("input, select, textarea");
  if (typing && event.key === "Escape") return event.target.blur();
  const interactive = event.target.matches("summary, button");
  if (typing || (interactive && event.key === "Enter")) return;
  const act = KEYS[state.open == null ? "list" : "question"][event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

async function start() {
  held = await unpack("index");
  state.views = held.runs.map((run) => run.own);
  state.sides = [0, held.runs.length > 1 ? 1 : null];
  document.getElementById("note").textContent = held.note;
  drawFilters();
  drawTable();
  window.addEventListener("hashchange", route);
  document.addEventListener("keydown", onKey);
  if (location.hash) await route();
  document.body.dataset.ready = "yes";
}

start();
