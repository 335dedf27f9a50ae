"use strict";
(() => {
  const { data, state, keep, redraw, views, rangeOfX, shown, duration, make, MOST_ROWS, root } = window.reportPage;
  delete window.reportPage;
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];

  // The cursor: values of every visible curve at a step
  const nearest = (xs, x) => {
    let [low, high] = [0, xs.length - 1];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (xs[middle] < x) low = middle;
      else high = middle;
    }
    return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
  };
  const stepText = (x) => (state.time ? duration(x) : `step ${Math.round(x).toLocaleString("en")}`);

  const positionsOf = (view) => {
    const inside = (x) => x >= view.range[0] && x <= view.range[1];
    return [...new Set(view.lines.flatMap((line) => line.xs.filter((x, i) => line.mid[i] !== null && inside(x))))].sort((a, b) => a - b);
  };

  const point = (plot, x) => {
    const view = views.get(plot);
    const xs = view ? positionsOf(view) : [];
    if (!xs.length) return;
    const at = xs[nearest(xs, x)];
    view.at = at;
    view.cursor.replaceChildren(make("line", { x1: view.px(at), x2: view.px(at), y1: view.box.top - 4, y2: view.box.bottom, class: "cross" }));
    const rows = [];
    for (const line of view.lines) {
      const i = nearest(line.xs, at);
      if (line.mid[i] === null) continue;
      const close = Math.abs(view.px(line.xs[i]) - view.px(at)) < 40; // a curve with fewer points is read at the nearest
      if (!close) continue;
      view.cursor.append(make("circle", { cx: view.px(line.xs[i]), cy: view.py(line.mid[i]), r: 4, class: `mark ${line.colour}` }));
      const band = line.low && line.low[i] !== line.high[i] ? ` (${shown(line.low[i], view.chart.percent)} to ${shown(line.high[i], view.chart.percent)})` : "";
      const elsewhere = line.xs[i] === at ? "" : ` at ${stepText(line.xs[i])}`;
      rows.push([line.colour, line.label, shown(line.mid[i], view.chart.percent) + band + elsewhere]);
      if (line.each.length && view.lines.length === 1) {
        const k = nearest(line.mxs, at);
        for (const { ys, name } of line.each) rows.push(["thin", name, shown(ys[k], view.chart.percent)]);
      }
    }
    showTip(plot, view, at, rows);
  };

  const showTip = (plot, view, at, rows) => {
    const tip = plot.querySelector(".tip");
    const cell = (tag, name, text) => {
      const element = document.createElement(tag);
      element.className = name;
      element.textContent = text;
      return element;
    };
    const list = document.createElement("dl");
    for (const [colour, label, value] of rows.slice(0, MOST_ROWS)) {
      const row = document.createElement("div");
      const term = cell("dt", "", label);
      term.prepend(cell("i", `chip ${colour}`, ""));
      row.append(term, cell("dd", "", value));
      list.append(row);
    }
    const more = rows.length - MOST_ROWS;
    const how = state.smooth ? `, smoothed by ${state.smooth.toFixed(2)}` : ""; // the values below are not those that were logged
    tip.replaceChildren(cell("strong", "", stepText(at) + how), list, ...(more > 0 ? [cell("em", "", `and ${more} more`)] : []));
    tip.hidden = false;
    const x = view.px(at);
    const room = plot.clientWidth - tip.offsetWidth - 4;
    const beside = x + 14 <= room ? x + 14 : x - 14 - tip.offsetWidth;
    tip.style.left = `${Math.max(0, Math.min(beside, room))}px`;
  };

  const leave = (plot) => {
    const view = views.get(plot);
    if (view) view.cursor.replaceChildren();
    plot.querySelector(".tip").hidden = true;
  };

  // Zoom: the same for all charts
  const zoomTo = (low, high) => {
    state.zoom = null;
    const [first, last] = rangeOfX();
    const least = (last - first) / 2000;
    const size = Math.min(last - first, Math.max(high - low, least));
    const start = Math.min(Math.max(low, first), last - size);
    state.zoom = size >= (last - first) * 0.999 ? null : [start, start + size];
    redraw();
  };
  const zoomBy = (factor, around) => {
    const [low, high] = rangeOfX();
    const centre = around === undefined || around === null ? (low + high) / 2 : around;
    zoomTo(centre - (centre - low) * factor, centre + (high - centre) * factor);
  };
  const pan = (share) => {
    const [low, high] = rangeOfX();
    zoomTo(low + share * (high - low), high + share * (high - low));
  };

  const actions = {
    in: () => zoomBy(0.5),
    out: () => zoomBy(2),
    left: () => pan(-0.25),
    right: () => pan(0.25),
    reset: () => {
      state.zoom = null;
      redraw();
    },
  };

  for (const plot of all(".plot")) {
    let from = null;
    let brush = null;
    const dataX = (event) => {
      const view = views.get(plot);
      const x = event.clientX - plot.getBoundingClientRect().left;
      const share = (x - view.box.left) / (view.box.right - view.box.left);
      return view.range[0] + Math.min(1, Math.max(0, share)) * (view.range[1] - view.range[0]);
    };
    plot.addEventListener("pointerdown", (event) => {
      if (event.button === 0 && views.get(plot)) from = event.clientX;
    });
    plot.addEventListener("pointermove", (event) => {
      const view = views.get(plot);
      if (!view) return;
      if (from !== null && Math.abs(event.clientX - from) > 6) {
        if (!brush) {
          brush = make("rect", { class: "brush", y: view.box.top, height: view.box.bottom - view.box.top });
          view.cursor.parentNode.append(brush);
          if (plot.setPointerCapture) plot.setPointerCapture(event.pointerId);
        }
        const [a, b] = [view.px(dataX(event)), view.px(dataX({ clientX: from }))];
        brush.setAttribute("x", Math.min(a, b));
        brush.setAttribute("width", Math.abs(a - b));
        leave(plot);
      } else point(plot, dataX(event));
    });
    plot.addEventListener("pointerup", (event) => {
      if (brush) {
        const ends = [dataX({ clientX: from }), dataX(event)].sort((a, b) => a - b);
        brush.remove();
        zoomTo(...ends);
      }
      from = brush = null;
    });
    plot.addEventListener("pointercancel", () => {
      if (brush) brush.remove();
      from = brush = null;
    });
    plot.addEventListener("pointerleave", () => from === null && leave(plot));
    plot.addEventListener("dblclick", actions.reset);
    plot.addEventListener("blur", () => leave(plot));
    plot.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const view = views.get(plot); // none where nothing is drawn: the keys lead back from there too
      const at = view ? view.at : null;
      const xs = view ? positionsOf(view) : [];
      const now = at === null ? -1 : nearest(xs, at);
      const moves = { ArrowRight: now + 1, ArrowLeft: now < 0 ? xs.length - 1 : now - 1, Home: 0, End: xs.length - 1 };
      if (event.key in moves && xs.length) point(plot, xs[Math.min(xs.length - 1, Math.max(0, moves[event.key]))]);
      else if (event.key === "ArrowLeft") actions.left(); // no point to read here: on to where there are some
      else if (event.key === "ArrowRight") actions.right();
      else if (event.key === "+" || event.key === "=") zoomBy(0.5, at);
      else if (event.key === "-") zoomBy(2, at);
      else if (event.key === "0" || event.key === "Escape") actions.reset();
      else return;
      event.preventDefault();
    });
  }

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
  listed("off", "data-group", Number);
  listed("hidden", "data-member", String);
  for (const button of all("[data-zoom]")) button.addEventListener("click", actions[button.dataset.zoom]);

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
  for (const button of all("th button")) {
    button.addEventListener("click", () => {
      const heading = button.parentElement;
      const body = heading.closest("table").tBodies[0];
      const column = [...heading.parentElement.children].indexOf(heading);
      const falling = heading.getAttribute("aria-sort") !== "descending";
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

  new ResizeObserver(redraw).observe(document.body);
  redraw();
  if (data.live) {
    if (state.scroll) requestAnimationFrame(() => scrollTo(0, state.scroll));
    setTimeout(() => {
      keep();
      location.reload();
    }, 1000 * data.live);
  }
})();
