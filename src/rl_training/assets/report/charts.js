// Curves, and the charts they are drawn on
const [SWITCH_ROW, SWITCH_ROWS] = [14, 4]; // height and number of the rows for names of switches

const smoothed = (values) => {
  if (!state.smooth) return values;
  let sum = 0;
  let weight = 0;
  return values.map((value) => {
    if (value === null) return null;
    sum = state.smooth * sum + (1 - state.smooth) * value;
    weight = state.smooth * weight + (1 - state.smooth);
    return sum / weight;
  });
};
const between = (x, [from, to]) => {
  const last = from.length - 1;
  if (last < 1) return x;
  let i = from.findIndex((one) => one >= x);
  i = i < 0 ? last : Math.max(1, i); // before the first and after the last row the speed there is assumed
  const share = (x - from[i - 1]) / (from[i] - from[i - 1] || 1);
  return Math.max(0, to[i - 1] + share * (to[i] - to[i - 1]));
};
const cache = new Map();
const axisOf = (index, group) => {
  const key = state.time ? `${index}:${group}` : index;
  if (!cache.has(key)) cache.set(key, state.time ? data.axes[index].map((x) => between(x, data.groups[group].time)) : data.axes[index]);
  return cache.get(key);
};
const isOff = (group) => state.off.includes(labels[group]);
const memberKey = (group, member) => `${labels[group]}\n${data.groups[group].members[member]}`;
const isHidden = (group, member) => state.hidden.includes(memberKey(group, member));

/** The visible curves of a chart as they are drawn now. */
const linesOf = (chart) => {
  const names = [...new Set(chart.lines.map((line) => line.name))];
  return chart.lines
    .filter((line) => !isOff(line.group))
    .map((line) => {
      const group = data.groups[line.group];
      const members = state.members && line.each ? line.each.map((ys, k) => [smoothed(ys), k]) : [];
      const kind = names.indexOf(line.name) % data.dashes.names.length; // the first is drawn as its group is, others by their own dashes
      return {
        of: line.group,
        label: [data.groups.length > 1 || !line.name ? group.label : "", line.name].filter(Boolean).join(", "),
        colour: group.colour,
        style: `${group.colour}${group.dash ? " again" : ""}${kind ? " second" : ""}`,
        dash: kind ? data.dashes.names[kind] : group.dash,
        xs: axisOf(line.x, line.group),
        mid: smoothed(line.mid),
        low: state.bands && line.low ? smoothed(line.low) : null,
        high: state.bands && line.high ? smoothed(line.high) : null,
        counts: line.counts || null,
        ends: line.ends || [],
        total: group.members.length,
        mxs: line.each ? axisOf(line.mx, line.group) : null,
        each: members.filter(([, k]) => !isHidden(line.group, k)).map(([ys, k]) => ({ ys, name: group.members[k] })),
      };
    });
};

/** The share of the way from one value to the next, along the line that is drawn between them. */
const onLine = (from, to, share, log) => (log ? from * (to / from) ** share : from + share * (to - from));

/** Lowest and highest value of a curve in a range: of its points there, and where it enters or leaves the range. */
const extent = (xs, ys, range, log, low, high) => {
  const include = (y) => {
    if (y < low) low = y;
    if (y > high) high = y;
  };
  for (let i = 0; i < ys.length; i++) {
    if (ys[i] === null) continue;
    if (xs[i] >= range[0] && xs[i] <= range[1]) include(ys[i]);
    if (i === 0 || ys[i - 1] === null) continue;
    for (const end of range)
      if (xs[i - 1] < end && end < xs[i]) include(onLine(ys[i - 1], ys[i], (end - xs[i - 1]) / (xs[i] - xs[i - 1]), log && ys[i - 1] > 0 && ys[i] > 0));
  }
  return [low, high];
};

/** From where to where some positions reach: from 0 if they begin near it. */
const spanOf = (axes) => {
  const ends = axes.flatMap((xs) => [xs[0], xs[xs.length - 1]]);
  if (!ends.length) return [0, 1];
  let [low, high] = [Math.min(...ends), Math.max(...ends)];
  if (low > 0 && low < 0.2 * high) low = 0; // a run from its beginning
  return low === high ? [low - 1, high + 1] : [low, high];
};
const axesOf = (charts) => charts.flatMap((chart) => chart.lines.map((line) => axisOf(line.x, line.group)));
const wholeRange = () => spanOf(axesOf(data.charts));

/** What a chart shows: the part that was chosen for all of them, or from end to end of its own visible curves. */
const rangeOfX = (chart, lines) => state.zoom || spanOf(lines.length ? lines.map((line) => line.xs) : axesOf([chart]));

const rangeOfY = (lines, refs, range, log = state.log) => {
  let [low, high] = [Infinity, -Infinity];
  for (const line of lines) {
    for (const ys of [line.mid, line.low, line.high]) if (ys) [low, high] = extent(line.xs, ys, range, log, low, high);
    for (const { ys } of line.each) [low, high] = extent(line.mxs, ys, range, log, low, high);
  }
  if (low === Infinity) return null;
  const size = Math.max(Math.abs(low), Math.abs(high));
  const flat = high - low <= 1e-9 * size; // rounding alone
  const span = flat ? size || 1 : high - low;
  for (const [, value] of refs)
    if (value !== null && value > low - 4 * span && value < high + 4 * span) {
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
  const positive = low > 0;
  if (log && !positive) return rangeOfY(lines, refs, range, false); // such a chart stays linear, and so do its lines
  if (log) return { low: low / 1.08, high: high * 1.08, log, positive };
  const pad = 0.05 * Math.max(high - low, flat ? span : 0);
  return { low: low >= 0 && low - pad < 0 ? 0 : low - pad, high: high + pad, log, positive };
};

const path = (xs, ys, px, py) => {
  let text = "";
  let pen = "M";
  for (let i = 0; i < ys.length; i++) {
    if (ys[i] === null) {
      pen = "M";
      continue;
    }
    text += `${pen}${px(xs[i]).toFixed(1)},${py(ys[i]).toFixed(1)}`;
    pen = "L";
  }
  return text;
};
const area = (xs, low, high, px, py) => {
  const points = xs.map((x, i) => [x, low[i], high[i]]).filter(([, a, b]) => a !== null && b !== null);
  const upper = points.map(([x, , b]) => `${px(x).toFixed(1)},${py(b).toFixed(1)}`);
  const lower = points.map(([x, a]) => `${px(x).toFixed(1)},${py(a).toFixed(1)}`).reverse();
  return `M${[...upper, ...lower].join("L")}Z`;
};

// What is drawn of a curve
const bandOf = (line, px, py) =>
  line.low ? [make("path", { d: area(line.xs, line.low, line.high, px, py), class: `band ${line.colour}`, "data-of": line.of })] : [];
const membersOf = (line, px, py) =>
  line.each.map(({ ys }) => make("path", { d: path(line.mxs, ys, px, py), class: `member ${line.colour}`, "data-of": line.of }));
const curveOf = (line, px, py) => {
  const at = (i, tag, attributes) => make(tag, { ...attributes, "data-of": line.of, transform: `translate(${px(line.xs[i]).toFixed(1)} ${py(line.mid[i]).toFixed(1)})` });
  const known = [...line.mid.keys()].filter((i) => line.mid[i] !== null);
  const few = line.mid.length <= 25 ? known : [];
  return [
    make("path", { d: path(line.xs, line.mid, px, py), class: `curve ${line.style}`, "stroke-dasharray": line.dash, "data-of": line.of }),
    ...few.map((i) => at(i, "circle", { r: 2.6, class: `dot ${line.style}` })),
    ...known.filter((i) => line.ends.includes(i)).map((i) => at(i, "path", { d: "M-5-5L5 5M-5 5L5-5", class: `ended ${line.colour}` })),
  ];
};

// Drawing
const views = new Map(); // of each plot: what is needed to find the values under the cursor

const draw = (plot) => {
  const chart = data.charts[+plot.dataset.chart];
  const svg = plot.querySelector("svg");
  const width = plot.clientWidth;
  const height = plot.clientHeight;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.replaceChildren();
  const lines = linesOf(chart);
  const range = rangeOfX(chart, lines);
  const y = rangeOfY(lines, chart.refs, range);
  views.delete(plot);
  plot.querySelector(".tip").hidden = true;
  if (!y) {
    svg.append(make("text", { x: width / 2, y: height / 2, class: "empty" }, lines.length ? "nothing in this range" : "no run is chosen"));
    return;
  }
  const scaleY = y.log ? Math.log10 : (v) => v;
  const vertical = y.log ? { ticks: logTicks(y.low, y.high), text: (v) => shown(v, chart.percent).replace(/\.0+$/, "") } : null;
  const { ticks: evenTicks, step } = ticksOf(y.low, y.high, height / 48, false);
  const ticks = vertical && vertical.ticks.length > 1 ? vertical.ticks : evenTicks;
  const text = vertical && vertical.ticks.length > 1 ? vertical.text : tickText(step, chart.percent);
  const labels = ticks.map(text);
  const left = 12 + 6.7 * Math.max(3, ...labels.map((label) => label.length));
  const box = { left, right: width - 14, top: 12, bottom: height - 26 };
  const px = (x) => box.left + ((x - range[0]) / (range[1] - range[0])) * (box.right - box.left);
  const outside = beyond(chart, y);
  const switches = switchesIn(chart, box, px);
  const named = box.top + SWITCH_ROW * Math.max(0, ...switches.map((one) => one.row)); // where the names of switches end
  const upper = named + 15 * outside.above.length; // curves stay between the names of what is outside
  const lower = box.bottom - 15 * outside.below.length;
  const [y0, y1] = [scaleY(y.low), scaleY(y.high)];
  const py = (v) => lower - ((scaleY(y.log ? Math.max(v, y.low / 10) : v) - y0) / (y1 - y0)) * (lower - upper);
  const clip = `clip${plot.dataset.chart}`;
  const frame = make("clipPath", { id: clip });
  frame.append(make("rect", { x: box.left - 3, y: upper - 4, width: Math.max(0, box.right - box.left + 6), height: lower - upper + 8 }));
  svg.append(frame);
  ticks.forEach((tick, i) => {
    svg.append(make("line", { x1: box.left, x2: box.right, y1: py(tick), y2: py(tick), class: "grid" }));
    svg.append(make("text", { x: box.left - 7, y: py(tick) + 4, class: "tick end" }, labels[i]));
  });
  const most = (box.right - box.left) / 68;
  const across = state.time ? timeTicks(range[0], range[1], most) : { ...ticksOf(range[0], range[1], most, true), text: counted(range[1]) };
  for (const tick of across.ticks) {
    const x = px(tick);
    svg.append(make("line", { x1: x, x2: x, y1: box.bottom, y2: box.bottom + 4, class: "axis" }));
    const anchor = x > box.right - 20 ? "end" : x < box.left + 14 ? "start" : "middle";
    svg.append(make("text", { x, y: box.bottom + 18, class: `tick ${anchor}` }, across.text(tick)));
  }
  svg.append(make("line", { x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom, class: "axis" }));
  const inside = make("g", { "clip-path": `url(#${clip})` });
  svg.append(inside);
  chart.refs.forEach(([, value], i) => {
    if (value === null || (y.log && value <= 0)) return;
    inside.append(make("line", { x1: box.left, x2: box.right, y1: py(value), y2: py(value), class: "reference", "stroke-dasharray": data.dashes.references[i % data.dashes.references.length] }));
  });
  for (const part of [bandOf, membersOf, curveOf]) for (const line of lines) inside.append(...part(line, px, py));
  for (const { x, label, row, anchor } of switches) {
    svg.append(make("line", { x1: x, x2: x, y1: box.top - 6, y2: box.bottom, class: "switch" }));
    if (label) svg.append(make("text", { x: x + (anchor === "start" ? 5 : -5), y: box.top + 2 + SWITCH_ROW * row, class: `switch-label ${anchor}` }, label));
  }
  const below = named + (switches.length ? 14 : 8);
  outside.above.forEach((name, i) => svg.append(make("text", { x: box.right, y: below + 15 * i, class: "tick end beyond" }, `↑ ${name}`)));
  outside.below.forEach((name, i) => svg.append(make("text", { x: box.right, y: box.bottom - 4 - 15 * i, class: "tick end beyond" }, `↓ ${name}`)));
  if (state.log && !y.log) svg.append(make("text", { x: box.left + 6, y: box.bottom - 5, class: "tick start beyond linear" }, "linear: not all values are positive"));
  const cursor = make("g", { class: "cursor" });
  svg.append(cursor);
  views.set(plot, { chart, lines, range, box, px, py, cursor, positive: y.positive, at: null });
};

/** The references that lie outside the axis, by the end that they are beyond. */
const beyond = (chart, y) => {
  const named = (where) => chart.refs.filter(([, value]) => value !== null && where(value)).map(([name, value]) => `${name} ${shown(value, chart.percent)}`);
  return { above: named((value) => value > y.high), below: named((value) => value < y.low) };
};

const shortened = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** Where the runs on a chart went online, from left to right; names that would meet stand in rows, and those that find no place are left out. */
const switchesIn = (chart, box, px) => {
  const seen = data.groups.filter((_, i) => !isOff(i) && chart.lines.some((line) => line.group === i));
  const found = new Map();
  for (const group of seen) {
    if (group.switch === null) continue;
    const place = state.time ? between(group.switch, group.time) : group.switch;
    found.set(place, [...(found.get(place) || []), group.label]);
  }
  const rows = [];
  const inside = [...found].map(([place, whose]) => ({ x: px(place), whose })).filter(({ x }) => x >= box.left - 1 && x <= box.right + 1);
  return inside.sort((a, b) => a.x - b.x).map(({ x, whose }, i) => {
    const names = whose.length < seen.length ? `: ${whose[0]}${whose.length > 1 ? ` and ${whose.length - 1} more` : ""}` : "";
    const [before, after] = [inside[i - 1]?.x ?? box.left, inside[i + 1]?.x ?? box.right]; // a name had better cross no other line
    const anchor = after - x >= Math.min(x - before, 7 * (6 + names.length) + 8) ? "start" : "end";
    const room = (anchor === "start" ? box.right - x : x - box.left) - 8;
    const label = shortened(`online${names}`, Math.min(38, Math.floor(room / 7)));
    const width = 7 * label.length + 8;
    const [from, to] = anchor === "start" ? [x, x + width] : [x - width, x];
    const free = rows.findIndex((taken) => taken.every(([a, b]) => to < a || from > b));
    const row = free < 0 ? rows.length : free;
    if (row >= SWITCH_ROWS) return { x, label: "", row: 0, anchor };
    rows[row] = [...(rows[row] || []), [from, to]];
    return { x, label, row, anchor };
  });
};

/** A log scale is offered where it changes something, and the box says what it cannot do. */
const explainLog = () => {
  const box = document.getElementById("log");
  const drawn = [...views.values()];
  const useless = drawn.length > 0 && !drawn.some((view) => view.positive);
  box.disabled = useless && !state.log; // what is switched on can be switched off
  const told = useless ? "No chart has positive values alone, which a log scale needs" : "Charts whose values are not all positive stay linear";
  box.parentElement.title = told;
  box.setAttribute("aria-description", told);
};

/** What other parts of the script do when everything is drawn. */
const afterDrawing = [];
let queued = false;
const redraw = () => {
  if (queued) return;
  queued = true;
  requestAnimationFrame(() => {
    queued = false;
    cache.clear();
    all(".plot").forEach(draw);
    explainLog();
    afterDrawing.forEach((run) => run());
    const reset = document.getElementById("zoom-reset");
    if (reset) reset.disabled = !state.zoom;
    keep();
  });
};
