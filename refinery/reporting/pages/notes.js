// What a person knows better: the right answer to a question, kept in this browser and saved as questions that the other commands read.

const notesKey = () => `refinery notes ${location.pathname}`;

function notes() {
  try {
    return JSON.parse(localStorage.getItem(notesKey())) ?? {};
  } catch {
    return {}; // a browser that keeps nothing for files
  }
}

function keepNote(id, answer) {
  const kept = { ...notes(), [id]: answer };
  if (!answer) delete kept[id];
  localStorage.setItem(notesKey(), JSON.stringify(kept));
  drawNotes();
}

// A field for the right answer, and a button for each answer shown that is right.
function noteElement(row) {
  const field = element("input", { type: "text", value: notes()[row.id] ?? "", "aria-label": "right answer", placeholder: "the right answer", onchange: () => keepNote(row.id, field.value.trim()) });
  const choose = (cell, run) => element("button", { onclick: () => keepNote(row.id, (field.value = cell.text)) }, `${runName(run)} is right`);
  const given = shownSides().map((run) => [cellOf(row, run), run]).filter(([cell]) => cell?.text);
  return element("div", { class: "bar note" }, field, ...given.map(([cell, run]) => choose(cell, run)));
}

// The button that saves the notes, if there are any, as a file of questions.
function drawNotes() {
  const kept = notes();
  const rows = held.rows.filter((row) => row.id in kept);
  const lines = rows.map((row) => JSON.stringify({ id: row.id, text: row.text, answers: [kept[row.id]] }));
  const save = () => {
    const link = element("a", { href: URL.createObjectURL(new Blob([lines.join("\n") + "\n"])), download: "questions.jsonl" });
    link.click();
    URL.revokeObjectURL(link.href);
  };
  replace(document.getElementById("notes"), rows.length ? element("button", { onclick: save }, `save right answers (${rows.length.toLocaleString("en")})`) : "");
}
