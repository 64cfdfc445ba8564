// Asks once a second for what changed, and draws it. Everything comes from the host that served the page.

import {clock, duration, figure, linear, node, textWidth, timeTicks} from './axis.js';
import {drawCapacity, drawLag, drawLatency, drawLoad, rows, unitsAt} from './load.js';
import * as waterfall from './waterfall.js';

const EVERY_MS = 1000, HIDDEN_MS = 10000, LONGEST_MS = 10000;
const STAGES = {idle: 'Not started', preparing: 'Preparing', starting: 'About to start', running: 'Replaying', draining: 'Waiting for the last answers', tail: 'Load is over; the collector watches the tail', finished: 'Finished', interrupted: 'Stopped before its end', failed: 'Failed'};
const ACTIVE = ['preparing', 'starting', 'running', 'draining', 'tail'];
const NONE = {scale_outs: [], left_out: 0, levels: [], alarm_s: null};
const byId = id => document.getElementById(id);

const state = {cursor: '', span: 'whole', bins: new Map(), width: 1, scaling: NONE, rate: null, now: null, run: null, read: null, failures: 0};
let timer = null;

async function poll() {
  const asked = state.span;
  try {
    const answer = await fetch(`scaling/data?span=${asked}&since=${encodeURIComponent(state.cursor)}`, {cache: 'no-store', signal: AbortSignal.timeout(15000)});
    if (answer.redirected) { location.assign('./login'); return; }
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    const told = await answer.json();
    if (asked === state.span) take(told);
    state.failures = 0;
    say('connection', '');
  } catch (error) {
    state.failures += 1;
    say('connection', 'Connection lost; trying again …');
  }
  const wait = state.failures ? Math.min(LONGEST_MS, EVERY_MS * 2 ** Math.min(state.failures - 1, 4)) : document.hidden ? HIDDEN_MS : EVERY_MS;
  clearTimeout(timer);
  timer = setTimeout(poll, wait);
}

function take(told) {
  if (told.whole) { state.bins = new Map(); state.scaling = NONE; state.rate = null; }
  state.cursor = told.cursor;
  state.now = told.now;
  state.run = told.run;
  if (told.bins) {
    const {width_s, i, ...columns} = told.bins;
    state.width = width_s;
    i.forEach((index, n) => state.bins.set(index, Object.fromEntries(Object.entries(columns).map(([key, values]) => [key, values[n]]))));
  }
  if (told.scaling) state.scaling = told.scaling;
  if (told.unit_rate !== undefined) state.rate = told.unit_rate;
  show();
}

function say(id, text) {
  const place = byId(id);
  if (place.textContent !== text) place.textContent = text;
}

function show() {
  const {now, run} = state, t = Math.max(0, now.t_s ?? 0);
  say('headline', headline());
  document.title = `${STAGES[now.stage] || now.stage} · ramptrace`;
  byId('emulated').hidden = !(run && run.emulated);
  say('about', run ? [run.name, run.condition, run.time_scale === 1 ? null : `endpoint time runs ×${run.time_scale}`, run.directory].filter(Boolean).join(' · ') : '');
  byId('problem').hidden = !problem();
  say('problem', problem());
  byId('start').hidden = ACTIVE.includes(now.stage);
  byId('stop').hidden = !['preparing', 'starting', 'running', 'draining'].includes(now.stage);
  figures(t);
  draw(t);
  table(t);
  say('next', run && ['finished', 'interrupted'].includes(now.stage) ? `The run is in ${run.directory}: ramptrace analyse and ramptrace report say with bounds where the time went.` : '');
}

function problem() {
  const {error, collector} = state.now;
  if (error) return error;
  return collector && collector.state === 'died' ? `The collector died: ${collector.detail || 'no reason known'}` : '';
}

function headline() {
  const {now, scaling} = state, stage = STAGES[now.stage] || now.stage, last = scaling.scale_outs.at(-1);
  if (scaling.alarm_s !== null && ACTIVE.includes(now.stage)) return `${stage}. The alarm has fired; the scaler has not decided yet.`;
  if (!last) return `${stage}.`;
  if (last.capacity_s !== null) return `${stage}. ${waterfall.title(last)}.`;
  const phases = new Map();
  for (const unit of last.units) phases.set(unit.now, (phases.get(unit.now) || 0) + 1);
  const parts = [...phases].map(([phase, n]) => `${n} in ${phase}`).join(', ').replace('in in service', 'in service');
  return `${stage}. Scale-out ${last.number}: ${duration(Math.max(0, now.t_s - last.decision_s))} since the decision, ${parts}.`;
}

function figures(t) {
  const {now, run, scaling, width} = state;
  say('time-name', run && run.length_s !== null ? `Time (load: ${clock(run.length_s)})` : 'Time');
  say('time', now.t_s === null ? '–' : clock(t));
  const last = state.bins.get(Math.floor(t / width) - 1);
  say('offered', now.t_s === null ? '–' : `${figure((last ? last.due : 0) / width)}/s`);
  say('flight', now.in_flight === undefined ? '–' : String(now.in_flight));
  say('units', String(unitsAt(scaling.levels, t) ?? '–'));
  say('lag', now.lag_p99_ms === null || now.lag_p99_ms === undefined ? '–' : `${figure(now.lag_p99_ms)} ms`);
  say('verdict-name', now.verdict && !now.so_far ? 'Verdict' : 'Verdict so far');
  say('verdict', now.verdict ? now.verdict.status : '–');
  byId('verdict').className = now.verdict ? now.verdict.status : '';
  const reasons = now.verdict ? now.verdict.reasons : [];
  if (byId('reasons').dataset.told !== reasons.join('\n')) {
    byId('reasons').dataset.told = reasons.join('\n');
    byId('reasons').replaceChildren(...reasons.map(text => Object.assign(document.createElement('li'), {textContent: text})));
  }
}

let layout = null;

function draw(t) {
  const place = byId('chart'), width = place.clientWidth, narrow = width < 560;
  if (!width || !state.run) { place.replaceChildren(); return; }
  const found = rows(state.bins, state.width, t), limits = state.run.limits_ms;
  const first = state.span === 'recent' && found.length ? found[0].t : 0, last = Math.max(t, first + 10);
  const left = narrow ? 40 : 92, right = width - 8, x = linear(first, last, left, right);
  const panels = [];
  let y = narrow ? 50 : 38;
  const top = y;
  const add = (height, drawIt) => { panels.push([{left, right, top: y, bottom: y + height, narrow}, drawIt]); y += height + (narrow ? 44 : 30); };
  add(100, frame => drawLoad(svg, frame, found, x));
  add(100, frame => drawCapacity(svg, frame, found, state.scaling.levels, state.rate, t, x));
  add(90, frame => drawLatency(svg, frame, found, x));
  add(46, frame => drawLag(svg, frame, found, limits, x));
  const tall = waterfall.height(state.scaling);
  if (tall) { y -= narrow ? 30 : 16; add(tall, frame => waterfall.draw(svg, frame, state.scaling, t, x)); }
  const bottom = panels.at(-1)[0].bottom, svg = node('svg', {height: bottom + 34, viewBox: `0 0 ${width} ${bottom + 34}`, 'aria-hidden': 'true'});
  for (const at of timeTicks(first, last, Math.max(2, Math.min(10, width / 90)))) {
    svg.append(node('line', {x1: x(at), x2: x(at), y1: top, y2: bottom, class: 'grid'}), node('text', {x: x(at), y: bottom + 14, 'text-anchor': 'middle', class: 'soft'}, clock(at)));
  }
  svg.append(node('text', {x: right, y: bottom + 29, 'text-anchor': 'end', class: 'soft'}, 'time since the start of the load, endpoint clock'));
  marks(svg, x, first, last, bottom);
  for (const [frame, drawIt] of panels) {
    svg.append(node('line', {x1: left, x2: right, y1: frame.bottom, y2: frame.bottom, class: 'frame'}));
    drawIt(frame);
  }
  const cursor = node('line', {y1: top, y2: bottom, class: 'cursor', visibility: 'hidden'});
  svg.append(cursor);
  place.replaceChildren(svg);
  layout = {x, first, last, left, right, found, cursor};
  place.setAttribute('aria-valuemin', Math.floor(first));
  place.setAttribute('aria-valuemax', Math.ceil(last));
  readOut();
}

// A rule per event of the scale-outs, behind the panels' words; those that would lie on each other share one, and a label that has no room is left out.
function marks(svg, x, first, last, bottom) {
  const events = state.scaling.scale_outs.flatMap(one => [[one.alarm_s, 'alarm'], [one.decision_s, 'decision'], [one.capacity_s, 'capacity']]);
  const found = [];
  for (const [at, name] of events.filter(([t]) => t !== null && t >= first && t <= last).sort((a, b) => a[0] - b[0])) {
    const before = found.at(-1);
    if (before && x(at) - before.x < 10) before.names.add(name);
    else found.push({x: x(at), names: new Set([name])});
  }
  let free = -Infinity;
  for (const one of found) {
    svg.append(node('line', {x1: one.x, x2: one.x, y1: 17, y2: bottom, class: 'mark'}));
    const words = [...one.names].join(' · '), length = textWidth(words, '11px'), ends = one.x + length + 6 > x(last);
    const from = ends ? one.x - length - 3 : one.x + 3;
    if (from < free) continue;
    svg.append(node('text', {x: from, y: 12}, words));
    free = from + length + 8;
  }
}

function readOut() {
  const place = byId('chart');
  if (!layout || state.read === null) { place.setAttribute('aria-valuenow', Math.floor(layout ? layout.last : 0)); place.setAttribute('aria-valuetext', 'now'); return; }
  const t = Math.min(Math.max(state.read, layout.first), layout.last), row = layout.found.find(r => r.t <= t && t < r.end);
  layout.cursor.setAttribute('x1', layout.x(t));
  layout.cursor.setAttribute('x2', layout.x(t));
  layout.cursor.setAttribute('visibility', 'visible');
  const units = unitsAt(state.scaling.levels, t), parts = [`At ${clock(t)}`];
  if (row) {
    const per = row.end - row.t;
    parts.push(`offered ${figure(row.due / per)}/s`, `delivered ${figure(row.sent / per)}/s`);
    if (row.failed) parts.push(`failed ${figure(row.failed / per)}/s`);
    if (row.p50 !== null) parts.push(`first token p50 ${figure(row.p50)} s, p95 ${figure(row.p95)} s`);
    if (row.lag !== null) parts.push(`lag up to ${figure(row.lag)} ms`);
  }
  if (units !== null) parts.push(`${units} ready unit${units === 1 ? '' : 's'}${state.rate === null ? '' : ` (${figure(units * state.rate)} requests/s)`}`);
  const text = parts.join(' · ');
  say('readout', text);
  place.setAttribute('aria-valuenow', Math.round(t));
  place.setAttribute('aria-valuetext', text);
}

function table(t) {
  const all = state.scaling.scale_outs.flatMap(one => one.units.map((unit, i) => ({one, unit, i}))).reverse();
  byId('unit-table').hidden = !all.length;
  byId('no-units').hidden = Boolean(all.length);
  const cell = (text, numeric) => Object.assign(document.createElement('td'), {textContent: text, className: numeric ? 'n' : ''});
  const lines = all.map(({one, unit, i}) => {
    const arrived = unit.now === 'in service', line = document.createElement('tr');
    const now = arrived && state.now.stage !== 'running' ? '–' : duration(Math.max(0, t - unit.since_s));
    line.append(cell(unit.id ?? `unit ${i + 1}, not named yet`), cell(String(one.number)), cell(unit.now + (unit.download_s ? ` (download ${duration(unit.download_s)})` : '')), cell(now, true), cell(duration(Math.max(0, (arrived ? unit.since_s : t) - one.decision_s)), true));
    return line;
  });
  byId('unit-table').tBodies[0].replaceChildren(...lines);
}

async function post(route, form) {
  try {
    const answer = await fetch(route, {method: 'POST', body: new URLSearchParams(form)});
    const told = await answer.json().catch(() => ({success: answer.ok}));
    if (!told.success) throw new Error(told.message || `the server answered ${answer.status}`);
  } catch (error) {
    byId('problem').hidden = false;
    say('problem', error.message);
    return;
  }
  poll();
}

function readAt(t) {
  state.read = t;
  readOut();
}

byId('start').addEventListener('click', () => post('./swarm', {user_count: '1', spawn_rate: '1'}));
byId('stop').addEventListener('click', () => post('./stop', {}));
for (const input of document.querySelectorAll('input[name=span]')) {
  input.addEventListener('change', () => { state.span = input.value; state.cursor = ''; poll(); });
}
byId('chart').addEventListener('pointermove', event => {
  if (!layout) return;
  const at = event.clientX - byId('chart').getBoundingClientRect().left;
  readAt(layout.first + (at - layout.left) / (layout.right - layout.left) * (layout.last - layout.first));
});
byId('chart').addEventListener('keydown', event => {
  if (!layout) return;
  const step = Math.max(state.width, (layout.last - layout.first) / 200), from = state.read ?? layout.last;
  const moves = {ArrowLeft: from - step, ArrowDown: from - step, ArrowRight: from + step, ArrowUp: from + step, PageDown: from - 10 * step, PageUp: from + 10 * step, Home: layout.first, End: layout.last};
  if (!(event.key in moves)) return;
  event.preventDefault();
  readAt(Math.min(Math.max(moves[event.key], layout.first), layout.last));
});
let drawnWidth = 0;
new ResizeObserver(() => {
  if (byId("chart").clientWidth === drawnWidth) return;
  drawnWidth = byId("chart").clientWidth;
  if (state.now) draw(Math.max(0, state.now.t_s ?? 0));
}).observe(byId('chart'));
document.addEventListener('visibilitychange', () => { if (!document.hidden) poll(); });
poll();
