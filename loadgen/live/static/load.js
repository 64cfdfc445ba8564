// The panels above the waterfall: load, demand against capacity, latency, lag. All share the page's time scale.

import {decades, linear, logarithmic, node, textWidth, ticks} from './axis.js';

// Bins as rows in order, those between the first and the last that saw nothing included; an unfinished one is left out.
export function rows(bins, width, now) {
  const indices = [...bins.keys()].sort((a, b) => a - b), found = [];
  if (!indices.length) return found;
  const last = Math.min(indices.at(-1), Math.floor(now / width) - 1);
  for (let i = indices[0]; i <= last; i++) found.push({t: i * width, end: (i + 1) * width, ...(bins.get(i) || EMPTY)});
  return found;
}
const EMPTY = {due: 0, sent: 0, ok: 0, failed: 0, p50: null, p95: null, lag: null};

export function unitsAt(levels, t) {
  let found = null;
  for (const [at, units] of levels) if (at <= t) found = units;
  return found;
}

function steps(points, x, y) {
  let path = '', open = false;
  for (const {t, end, value} of points) {
    if (value === null) { open = false; continue; }
    path += `${open ? 'L' : 'M'}${x(t).toFixed(1)},${y(value).toFixed(1)}L${x(end).toFixed(1)},${y(value).toFixed(1)}`;
    open = true;
  }
  return path;
}

// A title with its legend beside it, on a narrow screen below it.
function panel(svg, frame, title, keys) {
  svg.append(node('text', {x: frame.left, y: frame.top - (frame.narrow ? 22 : 7), class: 'title'}, title));
  let x = frame.narrow ? frame.left : frame.left + textWidth(title, '600 12px') + 16;
  for (const [name, words] of keys) {
    const y = frame.top - 7;
    svg.append(node('rect', {x, y: y - 8, width: 9, height: 9, rx: 2, class: `fill-${name}`}), node('text', {x: x + 13, y, class: 'soft'}, words));
    x += 13 + textWidth(words, '11px') + 14;
  }
}

function axis(svg, frame, y, values, words) {
  for (const value of values) {
    const at = y(value);
    svg.append(node('line', {x1: frame.left, x2: frame.right, y1: at, y2: at, class: 'grid'}), node('text', {x: frame.left - 5, y: at + 4, 'text-anchor': 'end', class: 'soft'}, words(value)));
  }
}

const plain = value => String(Number(value.toPrecision(6)));
const most = (found, pick) => found.reduce((top, row) => Math.max(top, pick(row) || 0), 0);

export function drawLoad(svg, frame, found, x) {
  panel(svg, frame, 'Load, requests/s', [['offered', 'offered'], ['delivered', 'delivered'], ['failed', 'failed']]);
  const per = row => row.end - row.t;
  const y = linear(0, Math.max(1, most(found, r => Math.max(r.due, r.sent, r.failed) / per(r))) * 1.08, frame.bottom, frame.top);
  axis(svg, frame, y, ticks(0, most(found, r => Math.max(r.due, r.sent) / per(r)) || 1, 3), plain);
  const line = (pick, name) => svg.append(node('path', {d: steps(found.map(r => ({...r, value: pick(r) / per(r)})), x, y), class: `line ${name}`}));
  line(r => r.due, 'offered wide');
  line(r => r.sent, 'delivered thin');
  if (found.some(r => r.failed)) line(r => r.failed, 'failed thin');
}

export function drawCapacity(svg, frame, found, levels, rate, now, x) {
  if (!levels.length || rate === null) {
    panel(svg, frame, 'Ready units', [['capacity', levels.length ? 'in service' : 'not seen']]);
    const top = Math.max(1, ...levels.map(l => l[1]));
    const y = linear(0, top * 1.15, frame.bottom, frame.top);
    axis(svg, frame, y, ticks(0, top, Math.min(3, top)), plain);
    svg.append(node('path', {d: steps(spans(levels, now, 1), x, y), class: 'line wide capacity'}));
    if (levels.length) svg.append(node('text', {x: frame.left + 6, y: frame.top + 12, class: 'soft'}, 'What one unit can do is read once units are seen saturated.'));
    return;
  }
  panel(svg, frame, 'Demand against capacity, requests/s', [['offered', 'demand'], ['capacity', 'ready capacity'], ['deficit', 'deficit']]);
  const demand = r => r.due / (r.end - r.t);
  const top = Math.max(most(found, demand), ...levels.map(l => l[1] * rate));
  const y = linear(0, top * 1.08, frame.bottom, frame.top);
  axis(svg, frame, y, ticks(0, top, 3), plain);
  let area = '';
  for (const row of found) {
    const able = (unitsAt(levels, (row.t + row.end) / 2) || 0) * rate;
    if (demand(row) > able) area += `M${x(row.t).toFixed(1)},${y(able).toFixed(1)}H${x(row.end).toFixed(1)}V${y(demand(row)).toFixed(1)}H${x(row.t).toFixed(1)}Z`;
  }
  svg.append(node('path', {d: area, class: 'deficit'}));
  svg.append(node('path', {d: steps(found.map(r => ({...r, value: demand(r)})), x, y), class: 'line offered'}));
  svg.append(node('path', {d: steps(spans(levels, now, rate), x, y), class: 'line wide capacity'}));
}

function spans(levels, now, rate) {
  return levels.map(([t, units], i) => ({t, end: i + 1 < levels.length ? levels[i + 1][0] : Math.max(now, t), value: units * rate}));
}

export function drawLatency(svg, frame, found, x) {
  panel(svg, frame, 'First token from due, s (log)', [['p50', 'p50'], ['p95', 'p95']]);
  const values = found.flatMap(r => [r.p50, r.p95]).filter(v => v > 0);
  const low = values.length ? 10 ** Math.floor(Math.log10(Math.min(...values))) : 0.1;
  const high = Math.max(low * 10, values.length ? 10 ** Math.ceil(Math.log10(Math.max(...values))) : 1);
  const y = logarithmic(low, high, frame.bottom, frame.top);
  axis(svg, frame, y, decades(low, high), plain);
  for (const name of ['p95', 'p50']) svg.append(node('path', {d: steps(found.map(r => ({...r, value: r[name] > 0 ? r[name] : null})), x, y), class: `line ${name}`}));
}

export function drawLag(svg, frame, found, limits, x) {
  panel(svg, frame, 'Client’s lag, worst, ms', [['lag', `limits ${limits.join(' and ')} ms`]]);
  const top = Math.max(limits[0] * 1.6, most(found, r => r.lag) * 1.1);
  const y = linear(0, top, frame.bottom, frame.top);
  axis(svg, frame, y, ticks(0, top, 2), plain);
  for (const limit of limits) if (limit <= top) svg.append(node('line', {x1: frame.left, x2: frame.right, y1: y(limit), y2: y(limit), class: 'limit'}));
  svg.append(node('path', {d: steps(found.map(r => ({...r, value: r.lag})), x, y), class: 'line lag'}));
}
