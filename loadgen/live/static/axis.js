// Scales, ticks and SVG elements. Text only ever enters the page as text.

const SVG = 'http://www.w3.org/2000/svg';

export function node(name, attributes = {}, text = null) {
  const found = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) found.setAttribute(key, value);
  if (text !== null) found.textContent = text;
  return found;
}

const pen = document.createElement('canvas').getContext('2d');

export function textWidth(text, font) {
  pen.font = `${font} system-ui, sans-serif`;
  return pen.measureText(text).width;
}

export function linear(from, to, low, high) {
  const span = to - from || 1;
  return value => low + (value - from) / span * (high - low);
}

export function logarithmic(from, to, low, high) {
  const at = linear(Math.log10(from), Math.log10(to), low, high);
  return value => at(Math.log10(Math.max(value, from)));
}

// Round steps of 1, 2 and 5 for numbers.
export function ticks(from, to, about) {
  const raw = (to - from) / Math.max(1, about), power = 10 ** Math.floor(Math.log10(raw || 1));
  const step = [1, 2, 5, 10].map(s => s * power).find(s => s >= raw) || 1;
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to + step * 1e-9; at += step) found.push(Math.abs(at) < step / 1e6 ? 0 : at);
  return found;
}

const TIME_STEPS = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400];

export function timeTicks(from, to, about) {
  const step = TIME_STEPS.find(s => (to - from) / s <= about) || 172800;
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push(at);
  return found;
}

export function decades(from, to) {
  const found = [];
  for (let power = Math.round(Math.log10(from)); power <= Math.round(Math.log10(to)); power++) found.push(10 ** power);
  return found;
}

export function clock(seconds) {
  const all = Math.round(seconds), h = Math.floor(all / 3600), m = Math.floor(all % 3600 / 60), s = all % 60;
  return h ? `${h}:${String(m).padStart(2, '0')}:${String(s).padStart(2, '0')}` : `${m}:${String(s).padStart(2, '0')}`;
}

export function duration(seconds) {
  if (seconds < 99.95) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const all = Math.round(seconds), m = Math.floor(all / 60);
  return m < 60 ? `${m} min ${all % 60} s` : `${Math.floor(m / 60)} h ${m % 60} min`;
}

export function figure(value) {
  if (value === null || value === undefined) return '–';
  if (value === 0) return '0';
  const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))));
  return value.toFixed(Math.min(digits, 4));
}
