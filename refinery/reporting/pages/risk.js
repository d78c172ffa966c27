// Risk against coverage: the share of wrong answers if only those are given that the model is surest of. A good confidence rises late.

const CONFIDENCE = "confidence";
const FEWEST = 10; // judged answers with a confidence, below which a curve shows chance

function riskElement() {
  const column = held.columns.indexOf(CONFIDENCE);
  const lines = column < 0 ? [] : held.runs.slice(0, 6).map((run, index) => ({ name: run.name, points: riskPoints(index, run.own, column) })).filter(({ points }) => points.length);
  return lines.length ? chartElement({ name: "Wrong answers by the share answered (%)", across: "answered %", lines }) : null;
}

function riskPoints(run, view, column) {
  const answers = held.rows.map((row) => row.cells[run]?.[view]).filter((cell) => cell && isRight(cell) !== null && cell.numbers[column] != null);
  if (answers.length < FEWEST) return [];
  answers.sort((a, b) => b.numbers[column] - a.numbers[column]);
  let wrong = 0;
  const points = answers.map((cell, index) => [(100 * (index + 1)) / answers.length, (100 * (wrong += isRight(cell) ? 0 : 1)) / (index + 1)]);
  return points.filter((_, index) => (index + 1) * 20 >= answers.length); // the share among the first few jumps
}
