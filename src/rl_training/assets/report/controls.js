// Toggles
const bind = (id, name, read, after = () => {}) => {
  const input = document.getElementById(id);
  if (!input) return;
  if (input.type === "checkbox") input.checked = state[name];
  else input.value = typeof state[name] === "boolean" ? String(state[name]) : state[name];
  input.addEventListener("input", () => {
    state[name] = read(input);
    after();
    redraw();
  });
};
bind("bands", "bands", (input) => input.checked);
bind("members", "members", (input) => input.checked);
bind("log", "log", (input) => input.checked);
bind("smooth", "smooth", (input) => +input.value);
bind("axis", "time", (input) => input.value === "true", () => (state.zoom = null));
const listed = (name, attribute, read) => {
  for (const input of all(`[${attribute}]`)) {
    const key = read(input.getAttribute(attribute));
    input.checked = !state[name].includes(key);
    input.addEventListener("input", () => {
      state[name] = state[name].filter((one) => one !== key);
      if (!input.checked) state[name].push(key);
      redraw();
    });
  }
};
listed("off", "data-group", (group) => labels[group]);
listed("hidden", "data-member", (place) => memberKey(...place.split(":")));
for (const button of all("[data-zoom]")) button.addEventListener("click", actions[button.dataset.zoom]);

// Of many curves one stands out while its name is pointed at or has the focus
let pointed = null;
const emphasise = () => {
  const named = pointed || document.querySelector(".legend label:has(:focus-visible)");
  const input = named && named.querySelector("input");
  const group = input && input.checked ? input.dataset.group : null;
  for (const part of all(".plot [data-of]")) part.classList.toggle("faint", group !== null && part.dataset.of !== group);
};
for (const label of all(".legend label")) {
  label.addEventListener("pointerenter", (event) => (pointed = byFinger(event) ? null : label));
  label.addEventListener("pointerleave", () => (pointed = null));
  for (const event of ["pointerenter", "pointerleave", "focusin", "focusout"]) label.addEventListener(event, emphasise);
}
afterDrawing.push(emphasise);

// The focus is never below the bar that stays at the top
const bar = document.querySelector(".toolbar");
const leaveRoom = () => {
  const stays = bar && getComputedStyle(bar).position === "sticky";
  root.style.scrollPaddingTop = stays ? `${bar.offsetHeight + 12}px` : "";
};
afterDrawing.push(leaveRoom);

const dark = matchMedia("(prefers-color-scheme: dark)");
const themeButton = document.getElementById("theme");
const setTheme = () => {
  if (state.theme) root.dataset.theme = state.theme;
  themeButton.textContent = (state.theme || (dark.matches ? "dark" : "light")) === "dark" ? "Light colours" : "Dark colours";
};
themeButton.addEventListener("click", () => {
  state.theme = (state.theme || (dark.matches ? "dark" : "light")) === "dark" ? "light" : "dark";
  setTheme();
  keep();
});
dark.addEventListener("change", setTheme);
setTheme();

// Tables: a click on a heading sorts
const sortBy = (heading, falling) => {
  const body = heading.closest("table").tBodies[0];
  const column = [...heading.parentElement.children].indexOf(heading);
  for (const other of heading.parentElement.children) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", falling ? "descending" : "ascending");
  const value = (row) => row.children[column].dataset.value ?? row.children[column].textContent;
  const compare = (a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === "" || y === "") return (x === "") - (y === ""); // nothing known: last in either order
    const order = Number.isNaN(+x) || Number.isNaN(+y) ? x.localeCompare(y, "en", { numeric: true }) : x - y;
    return falling ? -order : order;
  };
  body.append(...[...body.rows].sort(compare));
};
for (const button of all("th button")) {
  const heading = button.parentElement;
  const table = heading.closest("table").caption.textContent;
  const sorted = state.sorted[table];
  if (sorted && sorted[0] === button.textContent) sortBy(heading, sorted[1]);
  button.addEventListener("click", () => {
    const falling = heading.getAttribute("aria-sort") !== "descending";
    state.sorted[table] = [button.textContent, falling];
    sortBy(heading, falling);
    keep();
  });
}

// Trials over their knobs: one stop of the Tab key, arrows lead from one to the next, and what it is stands below
for (const plot of all(".parallel")) {
  const trials = all(".trial", plot); // the best comes last
  const told = plot.querySelector(".told");
  trials.forEach((trial, i) => {
    const tell = () => (told.textContent = trial.getAttribute("aria-label"));
    trial.addEventListener("pointerover", tell);
    trial.addEventListener("focus", () => {
      for (const other of trials) other.setAttribute("tabindex", other === trial ? 0 : -1);
      tell();
    });
    trial.addEventListener("keydown", (event) => {
      const last = trials.length - 1;
      const places = { ArrowUp: i + 1, ArrowRight: i + 1, ArrowDown: i - 1, ArrowLeft: i - 1, Home: 0, End: last };
      if (!(event.key in places)) return;
      trials[Math.min(last, Math.max(0, places[event.key]))].focus();
      event.preventDefault();
    });
  });
}

// The policy at work: moving unless the reader's system asks for stillness
for (const button of all("button.play")) {
  const image = button.closest("figure").querySelector("img");
  const still = image.src;
  let moving = !matchMedia("(prefers-reduced-motion: reduce)").matches;
  const show = () => {
    image.src = moving ? image.dataset.moving : still;
    button.firstChild.textContent = moving ? "Stop" : "Play"; // what follows is the name of the run, for those who hear it
  };
  button.addEventListener("click", () => {
    moving = !moving;
    show();
  });
  show();
}

// A page of runs that go on loads itself again, unless the reader pauses it, and then shows what was being read
const focused = () => (document.activeElement === document.body ? "" : nameOf(document.activeElement));
const loadAgain = () => {
  Object.assign(state, { reloads: true, scroll: scrollY, focus: focused() });
  state.reading = reading && { plot: nameOf(reading.plot), at: reading.at };
  keep();
  location.reload();
};
const pauseButton = document.getElementById("pause");
let timer = 0;
const wait = () => {
  clearTimeout(timer);
  if (!state.paused) timer = setTimeout(loadAgain, 1000 * data.live);
  pauseButton.textContent = state.paused ? "Resume" : "Pause";
};
if (pauseButton) {
  wait();
  pauseButton.addEventListener("click", () => {
    state.paused = !state.paused;
    if (state.paused) {
      wait();
      keep();
    } else loadAgain();
  });
}

const find = (selector, name) => all(selector).find((element) => nameOf(element) === name);
for (const summary of all("summary")) {
  summary.parentElement.open ||= state.open.includes(nameOf(summary));
  summary.parentElement.addEventListener("toggle", keep);
}
if (state.reloads) {
  const plot = state.reading && find(".plot", state.reading.plot);
  if (plot) reading = { plot, at: state.reading.at };
  const before = find("a, button, input, select, summary, [tabindex]", state.focus);
  if (before) before.focus({ preventScroll: true });
  requestAnimationFrame(() => scrollTo(0, state.scroll));
  state.reloads = false;
}
if (state.zoom) {
  const [low, high] = wholeRange();
  if (state.zoom[0] < low || state.zoom[1] > high) state.zoom = null; // of another report
}
new ResizeObserver(redraw).observe(document.body);
redraw();
