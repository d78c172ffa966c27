// A project's runs in the order of the work: labels, models, answers. A run names those that it used; pointing at it shows both ways.

function flowElement(stages) {
  const runs = stages.flatMap(({ runs }) => runs);
  const usedBy = (id) => runs.filter((run) => run.uses.includes(id)).map((run) => run.id);
  const made = new Map();
  const chip = (id) => {
    const run = runs.find((other) => other.id === id);
    return element("span", { class: "used" }, linkElement({ text: run.name, link: run.link }));
  };
  const light = (run, on) => [...run.uses, ...usedBy(run.id)].forEach((id) => made.get(id)?.classList.toggle("lit", on));
  const columns = stages.map(({ name, runs }) => {
    const cards = runs.map((run) => {
      const card = runElement(run, chip, usedBy(run.id));
      made.set(run.id, card);
      for (const [event, on] of [["pointerenter", true], ["focusin", true], ["pointerleave", false], ["focusout", false]]) card.addEventListener(event, () => light(run, on));
      return card;
    });
    return element("section", { class: "stage" }, element("h2", {}, `${name} `, element("span", { class: "count" }, String(runs.length))), ...cards);
  });
  return element("div", { class: "flow" }, ...columns);
}

function runElement(run, chip, usedBy) {
  const row = (label, ids) => (ids.length ? element("p", { class: "links" }, element("span", {}, label), ...ids.flatMap((id) => [" ", chip(id)])) : null);
  return element("div", { class: "card run" }, element("h3", {}, linkElement({ text: run.name, link: run.link })), facts(run.facts), row("uses", run.uses), row("used by", usedBy));
}
