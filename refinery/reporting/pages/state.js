// What is shown: the runs side by side, the view of each, the filters, the page, and the open question.

const ROWS_PER_PAGE = 50;
let held; // the index: title, runs, rows, words
const state = { search: "", outcome: "all", group: "", sides: [0, null], views: [], page: 0, cursor: 0, open: null };

const cellOf = (row, run) => row.cells[run] && row.cells[run][state.views[run]];
const isRight = (cell) => (cell && cell.score != null ? cell.score >= 0.5 : null);
const shownSides = () => state.sides.filter((run) => run != null);

const OUTCOMES = {
  all: () => true,
  right: (a) => isRight(a) === true,
  wrong: (a) => isRight(a) === false,
  only_first: (a, b) => isRight(a) === true && isRight(b) === false,
  only_second: (a, b) => isRight(a) === false && isRight(b) === true,
  differ: (a, b) => Boolean(a && b) && a.text !== b.text,
};

function outcomeWords() {
  const { right, wrong } = held.words;
  const words = { all: "all", right, wrong };
  return state.sides[1] == null ? words : { ...words, only_first: `first ${right}, second ${wrong}`, only_second: `first ${wrong}, second ${right}`, differ: "they differ" };
}

// Numbers of the rows that the filters leave.
function foundRows() {
  const wanted = state.search.trim().toLowerCase();
  const [first, second] = state.sides;
  const passes = OUTCOMES[state.outcome];
  const found = [];
  held.rows.forEach((row, index) => {
    const a = cellOf(row, first);
    const b = second == null ? null : cellOf(row, second);
    if (!a && !b) return;
    if (state.group && !row.groups.includes(state.group)) return;
    if (!passes(a, b)) return;
    if (wanted && ![row.id, row.text, a && a.text, b && b.text].some((text) => text && text.toLowerCase().includes(wanted))) return;
    found.push(index);
  });
  return found;
}

// `12 of 40 right (30.0%)` over the rows found, for one run.
function tally(found, run) {
  const judged = found.map((index) => isRight(cellOf(held.rows[index], run))).filter((right) => right !== null);
  const right = judged.filter(Boolean).length;
  return judged.length ? `${right} of ${judged.length} ${held.words.right} (${((100 * right) / judged.length).toFixed(1)}%)` : "";
}

function runName(run) {
  const { name, views } = held.runs[run];
  return views.length > 1 ? `${name}, ${views[state.views[run]]}` : name;
}
