// Numbers, and the ticks of axes, as texts
const plain = (value, digits) =>
  value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const exponential = (value) => value.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e");
const shown = (value, percent) => {
  if (value === null || value === undefined) return "–";
  if (percent) return `${plain(100 * value, 1)}%`;
  const size = Math.abs(value);
  if (size >= 1e7 || (size > 0 && size < 1e-3)) return exponential(value);
  const digits = [1e4, 1e2, 1e1, 1, 0.1, 0.01, 0.001].findIndex((least) => size >= least);
  return plain(value, digits < 0 ? 4 : digits); // 0
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
