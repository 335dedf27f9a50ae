"use strict";
(() => {
  const data = JSON.parse(document.getElementById("report-data").textContent);
  const root = document.documentElement;
  const SVG = "http://www.w3.org/2000/svg";
  const COLOURS = 8;
  const DASHES = ["", "7 4"];
  const REFERENCE_DASHES = ["2 4", "10 3 2 3"];
  const MOST_ROWS = 14; // in the box beside the cursor
  const [SWITCH_ROW, SWITCH_ROWS] = [14, 4]; // height and number of the rows for names of switches

  // What the reader has chosen: kept while the page reloads itself.
  const state = { off: [], hidden: [], bands: true, members: data.members, log: false, smooth: 0, time: false, zoom: null, theme: "" };
  const KEY = `report:${location.pathname}`;
  try {
    Object.assign(state, JSON.parse(sessionStorage.getItem(KEY) || "{}"));
  } catch { /* a browser may refuse storage to files: nothing is kept then */ }
  const keep = () => {
    try {
      sessionStorage.setItem(KEY, JSON.stringify({ ...state, scroll: scrollY }));
    } catch { /* as above */ }
  };

  const make = (tag, attributes = {}, text = "") => {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text) element.textContent = text;
    return element;
  };

  // Numbers
  const plain = (value, digits) =>
    value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  const exponential = (value) => value.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e");
  const shown = (value, percent) => {
    if (value === null || value === undefined) return "–";
    if (percent) return `${plain(100 * value, 1)}%`;
    const size = Math.abs(value);
    if (size >= 1e7 || (size > 0 && size < 1e-3)) return exponential(value);
    return plain(value, size >= 1e4 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : size >= 1 ? 3 : 4);
  };
  const duration = (seconds) => {
    if (seconds < 90) return `${plain(seconds, seconds < 10 ? 1 : 0)} s`;
    if (seconds < 5400) return `${plain(seconds / 60, 1)} min`;
    return `${plain(seconds / 3600, 2)} h`;
  };
  const counted = (largest) => (value) => {
    if (value === 0 || largest < 1e4) return plain(value, 0);
    return largest >= 2e6 ? `${+(value / 1e6).toFixed(4)}M` : `${+(value / 1e3).toFixed(3)}k`;
  };
  const niceStep = (span, most) => {
    const rough = span / Math.max(1, most);
    const power = 10 ** Math.floor(Math.log10(rough));
    return power * ([1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough * 0.999) || 10);
  };
  const ticksOf = (low, high, most, whole) => {
    const step = whole ? Math.max(1, Math.ceil(niceStep(high - low, most))) : niceStep(high - low, most);
    const ticks = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) ticks.push(i * step || 0); // never -0
    return { ticks, step };
  };
  const logTicks = (low, high) => {
    const ticks = [];
    const factors = high / low < 30 ? [1, 2, 5] : [1];
    const every = Math.max(1, Math.ceil(Math.log10(high / low) / 6));
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += factors.length > 1 ? 1 : every)
      for (const factor of factors) {
        const tick = factor * 10 ** power;
        if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
      }
    return ticks;
  };
  const decimals = (step) => {
    let digits = 0;
    while (digits < 8 && Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) > 1e-6) digits++;
    return digits;
  };
  const tickText = (step, percent) => (value) => {
    const scaled = percent ? 100 * value : value;
    const size = percent ? 100 * step : step;
    if (!percent && (size < 1e-4 || Math.abs(scaled) >= 1e7)) return scaled === 0 ? "0" : exponential(scaled);
    return plain(scaled, decimals(size)) + (percent ? "%" : "");
  };
  const timeTicks = (low, high, most) => {
    const unit = high > 5400 ? 3600 : high > 90 ? 60 : 1;
    const { ticks, step } = ticksOf(low / unit, high / unit, most, false);
    const name = { 1: "s", 60: "min", 3600: "h" }[unit];
    return { ticks: ticks.map((tick) => tick * unit), text: (tick) => `${tickText(step)(tick / unit)} ${name}` };
  };

  // Curves
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
  const isOff = (group) => state.off.includes(group);
  const isHidden = (group, member) => state.hidden.includes(`${group}:${member}`);

  /** The visible curves of a chart as they are drawn now. */
  const linesOf = (chart) => {
    const names = [...new Set(chart.lines.map((line) => line.name))];
    return chart.lines
      .filter((line) => !isOff(line.group))
      .map((line) => {
        const group = data.groups[line.group];
        const members = state.members && line.each ? line.each.map((ys, k) => [smoothed(ys), k]) : [];
        return {
          label: (data.groups.length > 1 || !line.name ? group.label : "") + (line.name ? `${data.groups.length > 1 ? ", " : ""}${line.name}` : ""),
          colour: `c${line.group % COLOURS}${Math.floor(line.group / COLOURS) % 2 ? " again" : ""}`,
          dash: names.indexOf(line.name) % DASHES.length || (Math.floor(line.group / COLOURS) % 2 ? 1 : 0),
          xs: axisOf(line.x, line.group),
          mid: smoothed(line.mid),
          low: state.bands && line.low ? smoothed(line.low) : null,
          high: state.bands && line.high ? smoothed(line.high) : null,
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

  const rangeOfX = () => {
    if (state.zoom) return state.zoom;
    let low = Infinity;
    let high = -Infinity;
    for (const chart of data.charts)
      for (const line of chart.lines) {
        const xs = axisOf(line.x, line.group);
        low = Math.min(low, xs[0]);
        high = Math.max(high, xs[xs.length - 1]);
      }
    if (low === Infinity) return [0, 1];
    if (low > 0 && low < 0.2 * high) low = 0; // a run from its beginning
    return low === high ? [low - 1, high + 1] : [low, high];
  };

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
    const range = rangeOfX();
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
      inside.append(make("line", { x1: box.left, x2: box.right, y1: py(value), y2: py(value), class: "reference", "stroke-dasharray": REFERENCE_DASHES[i % 2] }));
    });
    for (const line of lines)
      if (line.low) inside.append(make("path", { d: area(line.xs, line.low, line.high, px, py), class: `band ${line.colour}` }));
    for (const line of lines)
      for (const { ys } of line.each) inside.append(make("path", { d: path(line.mxs, ys, px, py), class: `member ${line.colour}` }));
    for (const line of lines) {
      inside.append(make("path", { d: path(line.xs, line.mid, px, py), class: `curve ${line.colour}`, "stroke-dasharray": DASHES[line.dash] }));
      if (line.mid.length <= 25)
        line.mid.forEach((v, i) => v !== null && inside.append(make("circle", { cx: px(line.xs[i]), cy: py(v), r: 2.6, class: `dot ${line.colour}` })));
    }
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

  let queued = false;
  const redraw = () => {
    if (queued) return;
    queued = true;
    requestAnimationFrame(() => {
      queued = false;
      cache.clear();
      document.querySelectorAll(".plot").forEach(draw);
      explainLog();
      const reset = document.getElementById("zoom-reset");
      if (reset) reset.disabled = !state.zoom;
      keep();
    });
  };

  window.reportPage = { data, state, keep, redraw, views, rangeOfX, shown, duration, make, MOST_ROWS, root };
})();
