// The cursor: values of every visible curve at a step
const MOST_ROWS = [8, 14]; // in the box beside the cursor, on a small and on a large chart
const BELOW = 30; // pixels that the box may reach below its chart, unless a single row is longer
let reading = null; // the chart that is read, and where

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

/** What the box says of a curve at a step: nothing where the curve has no point near it. */
const rowOf = (line, view, at) => {
  const i = nearest(line.xs, at);
  const close = Math.abs(view.px(line.xs[i]) - view.px(at)) < 40; // a curve with fewer points is read at the nearest
  if (line.mid[i] === null || !close) return [];
  const text = (value) => shown(value, view.chart.percent);
  const band = line.low && line.low[i] !== line.high[i] ? ` (${text(line.low[i])} to ${text(line.high[i])})` : "";
  const elsewhere = line.xs[i] === at ? "" : ` at ${stepText(line.xs[i])}`;
  const fewer = line.counts && line.counts[i] < line.total ? `, ${line.counts[i]} of ${line.total} members` : "";
  return [{ line, label: line.label, text: text(line.mid[i]) + band + fewer + elsewhere, x: view.px(line.xs[i]), y: view.py(line.mid[i]) }];
};

/** The members of a curve that is alone on its chart. */
const memberRows = (view, at) => {
  const [line, another] = view.lines;
  if (another || !line.each.length) return [];
  const k = nearest(line.mxs, at);
  return line.each.map(({ ys, name }) => ({ label: name, text: shown(ys[k], view.chart.percent) }));
};

/** Read a chart at a step; `height` is that of the pointer, to which the rows that find room are nearest. */
const point = (plot, x, height) => {
  const view = views.get(plot);
  const xs = view ? positionsOf(view) : [];
  if (!xs.length) return;
  const at = xs[nearest(xs, x)];
  view.at = at;
  reading = { plot, at };
  view.cursor.replaceChildren(make("line", { x1: view.px(at), x2: view.px(at), y1: view.box.top - 4, y2: view.box.bottom, class: "cross" }));
  const rows = view.lines.flatMap((line) => rowOf(line, view, at));
  for (const { line, x: cx, y: cy } of rows) view.cursor.append(make("circle", { cx, cy, r: 4, class: `mark ${line.colour}` }));
  const away = (row) => (height === undefined ? row.y : Math.abs(row.y - height));
  const byDistance = [...rows].sort((a, b) => away(a) - away(b));
  const closest = height === undefined || rows.length < 3 ? null : byDistance[0];
  const members = memberRows(view, at);
  for (let most = MOST_ROWS[+(plot.clientHeight > 250)]; most > 0; most--) {
    const first = byDistance.slice(0, most).sort((a, b) => a.y - b.y); // as the curves lie, from top to bottom
    showTip(plot, view, at, [...first, ...members].slice(0, most), rows.length + members.length, closest);
    if (plot.querySelector(".tip").offsetHeight < plot.clientHeight + BELOW) break; // long names take several lines
  }
};

const showTip = (plot, view, at, rows, count, closest) => {
  const tip = plot.querySelector(".tip");
  const cell = (tag, text) => {
    const element = document.createElement(tag);
    element.textContent = text;
    return element;
  };
  const list = document.createElement("dl");
  for (const one of rows) {
    const row = document.createElement("div");
    if (one === closest) row.className = "closest";
    const term = cell("dt", one.label);
    term.prepend(sample(one.line));
    row.append(term, cell("dd", one.text));
    list.append(row);
  }
  const more = count - rows.length;
  const how = state.smooth ? `, smoothed by ${state.smooth.toFixed(2)}` : ""; // the values below are not those that were logged
  tip.replaceChildren(cell("strong", stepText(at) + how), list, ...(more > 0 ? [cell("em", `and ${more} more`)] : []));
  tip.hidden = false;
  const x = view.px(at);
  const room = plot.clientWidth - tip.offsetWidth - 4;
  const beside = x + 14 <= room ? x + 14 : x - 14 - tip.offsetWidth;
  tip.style.left = `${Math.max(0, Math.min(beside, room))}px`;
};

/** A short line as a curve is drawn; a thin grey one for a member. */
const sample = (line) => {
  const drawn = make("svg", { class: "sample", viewBox: "0 0 26 8", "aria-hidden": "true" });
  drawn.append(make("line", { x1: 0, x2: 26, y1: 4, y2: 4, class: line ? line.style : "thin", "stroke-dasharray": line ? line.dash : "" }));
  return drawn;
};

const leave = (plot) => {
  const view = views.get(plot);
  if (view) view.cursor.replaceChildren();
  plot.querySelector(".tip").hidden = true;
  if (reading && reading.plot === plot) reading = null;
};
afterDrawing.push(() => reading && point(reading.plot, reading.at));

// Zoom: the same for all charts
const zoomTo = (low, high) => {
  const [first, last] = wholeRange();
  const least = (last - first) / 2000;
  const size = Math.min(last - first, Math.max(high - low, least));
  const start = Math.min(Math.max(low, first), last - size);
  state.zoom = size >= (last - first) * 0.999 ? null : [start, start + size];
  redraw();
};
const zoomBy = (factor, view) => {
  if (factor > 1 && !state.zoom) return; // all is seen
  const [low, high] = view ? view.range : state.zoom || wholeRange();
  const centre = view && view.at !== null ? view.at : (low + high) / 2;
  zoomTo(centre - (centre - low) * factor, centre + (high - centre) * factor);
};
const pan = (share) => {
  if (!state.zoom) return;
  const [low, high] = state.zoom;
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

const dataX = (plot, clientX) => {
  const { box, range } = views.get(plot);
  const share = (clientX - plot.getBoundingClientRect().left - box.left) / (box.right - box.left);
  return range[0] + Math.min(1, Math.max(0, share)) * (range[1] - range[0]);
};
const readAt = (plot, event) => point(plot, dataX(plot, event.clientX), event.clientY - plot.getBoundingClientRect().top);
const byFinger = (event) => event.pointerType === "touch";

// A mouse reads where it points and zooms where it drags; a finger reads where it is, and what it read stays when it is lifted
for (const plot of all(".plot")) {
  let from = null;
  let brush = null;
  plot.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || !views.get(plot)) return;
    if (byFinger(event)) readAt(plot, event);
    else from = event.clientX;
  });
  plot.addEventListener("pointermove", (event) => {
    const view = views.get(plot);
    if (!view) return;
    if (from === null || Math.abs(event.clientX - from) <= 6) {
      readAt(plot, event);
      return;
    }
    if (!brush) {
      brush = make("rect", { class: "brush", y: view.box.top, height: view.box.bottom - view.box.top });
      view.cursor.parentNode.append(brush);
      if (plot.setPointerCapture) plot.setPointerCapture(event.pointerId);
    }
    const [a, b] = [view.px(dataX(plot, event.clientX)), view.px(dataX(plot, from))];
    brush.setAttribute("x", Math.min(a, b));
    brush.setAttribute("width", Math.abs(a - b));
    leave(plot);
  });
  plot.addEventListener("pointerup", (event) => {
    if (brush) {
      const ends = [dataX(plot, from), dataX(plot, event.clientX)].sort((a, b) => a - b);
      brush.remove();
      zoomTo(...ends);
    }
    from = brush = null;
  });
  plot.addEventListener("pointercancel", () => {
    if (brush) brush.remove();
    from = brush = null;
  });
  plot.addEventListener("pointerleave", (event) => from === null && !byFinger(event) && leave(plot));
  plot.addEventListener("dblclick", actions.reset);
  plot.addEventListener("blur", () => leave(plot));
  plot.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const view = views.get(plot); // none where nothing is drawn: the keys lead back from there too
    const xs = view ? positionsOf(view) : [];
    const now = view && view.at !== null ? nearest(xs, view.at) : -1;
    const moves = { ArrowRight: now + 1, ArrowLeft: now < 0 ? xs.length - 1 : now - 1, Home: 0, End: xs.length - 1 };
    if (event.key in moves && xs.length) point(plot, xs[Math.min(xs.length - 1, Math.max(0, moves[event.key]))]);
    else if (event.key === "ArrowLeft") actions.left(); // no point to read here: on to where there are some
    else if (event.key === "ArrowRight") actions.right();
    else if (event.key === "+" || event.key === "=") zoomBy(0.5, view);
    else if (event.key === "-") zoomBy(2, view);
    else if (event.key === "0" || event.key === "Escape") actions.reset();
    else return;
    event.preventDefault();
  });
}
document.addEventListener("pointerdown", (event) => {
  for (const plot of all(".plot")) if (!plot.contains(event.target)) leave(plot); // a finger has no other way to leave
});
