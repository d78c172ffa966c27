"use strict";
// What the page holds: compressed JSON in data blocks, unpacked when it is needed. Text becomes text nodes only, here in `element`.

async function unpack(id) {
  const packed = atob(document.getElementById(id).textContent);
  const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

const unpacked = new Map(); // the packs opened last, so that going back and forth is quick and memory stays bounded
const MOST_UNPACKED = 4;

async function detailOf(row) {
  const pack = Math.floor(row / held.rowsPerPack);
  if (!unpacked.has(pack)) unpacked.set(pack, unpack(`pack-${pack}`));
  if (unpacked.size > MOST_UNPACKED) unpacked.delete(unpacked.keys().next().value);
  return (await unpacked.get(pack))[row % held.rowsPerPack];
}

function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

const number = (value) => (value == null ? "n/a" : Math.abs(value) >= 1e4 || (value && Math.abs(value) < 1e-3) ? value.toExponential(1) : String(Number(value.toPrecision(3))));
