// Opening and closing a question, the keyboard, and the start.

const WIDE = window.matchMedia("(min-width: 1000px)"); // the list stands beside the open question
const NARROW = window.matchMedia("(max-width: 640px)"); // a row is a card

function draw() {
  const isOpen = state.open != null;
  if (document.body.classList.contains("reading") !== isOpen) fold(isOpen);
  document.body.classList.toggle("reading", isOpen);
  document.getElementById("list").hidden = isOpen && !WIDE.matches;
  document.getElementById("question").hidden = !isOpen;
  filterRows();
  drawFilters();
  drawTable();
  if (held.words.notes) drawNotes();
  return isOpen ? drawQuestion() : null;
}

// On a narrow screen, and beside an open question, the controls are behind their heading.
function fold(isOpen) {
  document.getElementById("controls").open = !NARROW.matches && !isOpen;
}

// What a control changes: the state, its address, and the page.
function change(values, options) {
  Object.assign(state, values);
  writeAddress(options);
  return draw();
}

async function openQuestion(index) {
  await change({ open: index });
  showFromTop();
}

async function closeQuestion() {
  await change({ open: null });
  focusRow();
}

function showFromTop() {
  const question = document.getElementById("question");
  question.focus({ preventScroll: WIDE.matches });
  question.scrollTo(0, 0);
  if (!WIDE.matches) window.scrollTo(0, 0);
  document.querySelector("#table [aria-current]")?.scrollIntoView({ block: "nearest" });
}

// To the next question that the filters leave.
function step(by) {
  const at = state.found.indexOf(state.open) + by;
  if (at < 0 || at >= state.found.length) return;
  showPageOf(at);
  openQuestion(state.found[at]);
}

function showPageOf(position) {
  state.page = Math.floor(position / ROWS_PER_PAGE);
  state.cursor = position % ROWS_PER_PAGE;
}

function openAll() {
  const closed = [...document.querySelectorAll("#question .tree details:not([open])")];
  closed.forEach((details) => (details.open = true));
}

async function route() {
  const wasOpen = state.open != null;
  readAddress();
  filterRows();
  if (state.open != null && state.found.includes(state.open)) showPageOf(state.found.indexOf(state.open));
  await draw();
  if (state.open != null) showFromTop();
  else if (wasOpen) focusRow();
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
  question: { n: () => step(1), p: () => step(-1), j: () => step(1), k: () => step(-1), Escape: closeQuestion, e: openAll },
};

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches("input, select, textarea");
  if (typing && event.key === "Escape") return event.target.blur();
  const interactive = event.target.matches("summary, button, a");
  if (typing || (interactive && event.key === "Enter")) return;
  const act = KEYS[state.open == null ? "list" : "question"][event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

async function start() {
  held = await unpack("index");
  document.getElementById("note").textContent = held.note;
  drawAbout();
  document.getElementById("about").open = !NARROW.matches || !held.rows.length;
  if (held.rows.length) await startList();
  document.body.dataset.ready = "yes";
}

async function startList() {
  fold(false);
  NARROW.addEventListener("change", () => (fold(state.open != null), draw()));
  WIDE.addEventListener("change", draw);
  document.getElementById("search").addEventListener("input", (event) => change({ search: event.target.value, page: 0, cursor: 0 }, { over: true }));
  document.querySelector("footer").hidden = false;
  await route();
  window.addEventListener("hashchange", route);
  document.addEventListener("keydown", onKey);
}

start();
