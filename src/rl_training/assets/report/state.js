// What all parts of the script share: the data, and what the reader has chosen
const data = JSON.parse(document.getElementById("report-data").textContent);
const root = document.documentElement;
const all = (selector, from = document) => [...from.querySelectorAll(selector)];

const make = (tag, attributes = {}, text = "") => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text) element.textContent = text;
  return element;
};

/** What an element is called on this page, by which it is found again when the page has loaded itself. */
const nameOf = (element) => {
  const around = element.closest("figure, section, header");
  const heading = around && around.querySelector("h1, h2, h3");
  const own = element.id || element.getAttribute("aria-label") || (element.closest("label") || element).textContent;
  return [heading ? heading.textContent : "", element.tagName, own].join("\n");
};

const state = {
  ...{ off: [], hidden: [], bands: data.bands, members: data.members, log: false, smooth: 0, time: false, zoom: null, theme: "" },
  ...{ open: [], sorted: {}, paused: false, scroll: 0, focus: "", reading: null, reloads: false },
};
const KEY = `report:${location.pathname}`;
const labels = data.groups.map((group) => group.label);

/** What was kept for this page: another report in the same file, whose curves are not here, leaves the colours alone. */
const kept = () => {
  try {
    const found = JSON.parse(sessionStorage.getItem(KEY) || "{}");
    const same = data.live || (found.labels || []).every((label) => labels.includes(label));
    return same ? found : { theme: found.theme || "" };
  } catch {
    return {}; // a browser may refuse storage to files: nothing is kept then
  }
};
Object.assign(state, kept(), { labels });
if (!document.getElementById("axis")) state.time = false;

const keep = () => {
  state.open = all("details[open] > summary").map(nameOf);
  try {
    sessionStorage.setItem(KEY, JSON.stringify(state));
  } catch { /* as above */ }
};
