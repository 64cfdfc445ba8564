// The scale-outs as rows of phases on the page's time scale; an open phase ends now.

import {duration, node, textWidth} from './axis.js';

const ROW = 20, HEADING = 24;
const COLOURS = ['detection', 'provisioning', 'pull', 'download', 'start', 'registration', 'weights'];
const DARK_TEXT = ['detection', 'download', 'registration'];
export const MOST_ROWS = 48;

// What is drawn: the newest scale-outs that have room, oldest first.
export function chosen(scaling) {
  const found = [];
  let rows = 0;
  for (const one of [...scaling.scale_outs].reverse()) {
    const own = 2 + one.units.length;
    if (found.length && rows + own > MOST_ROWS) break;
    found.unshift(one);
    rows += own;
  }
  return {shown: found, hidden: scaling.left_out + scaling.scale_outs.length - found.length};
}

export function height(scaling) {
  const {shown, hidden} = chosen(scaling);
  return shown.reduce((sum, one) => sum + HEADING + ROW * (one.units.length + (one.begun_s === null ? 0 : 1)), 0) + (hidden ? HEADING : 0) + (shown.length ? 4 : 0);
}

export function shortName(id) {
  return id.length > 13 ? `…${id.slice(-11)}` : id;
}

export function title(one, narrow = false) {
  const units = `${one.before ?? '?'} → ${one.desired ?? '?'} units`;
  if (one.capacity_s === null) return `Scale-out ${one.number}: ${units}, under way`;
  const since = one.begun_s !== null ? 'the first breach' : one.alarm_s !== null ? 'the alarm' : 'the decision';
  const length = duration(one.capacity_s - (one.begun_s ?? one.alarm_s ?? one.decision_s));
  return narrow ? `Scale-out ${one.number}: ${units}, ${length}` : `Scale-out ${one.number}: ${units}, capacity ${length} after ${since}`;
}

export function colour(phase) {
  if (phase === 'provisioning+pull' || phase.startsWith('provisioning+pull')) return 'pull';
  if (phase.startsWith('start')) return 'start';
  return COLOURS.includes(phase) ? phase : 'other';
}

export function draw(svg, frame, scaling, now, x) {
  const {shown, hidden} = chosen(scaling);
  let y = frame.top;
  if (hidden) {
    svg.append(node('text', {x: frame.left, y: y + 14, class: 'soft'}, `${hidden} earlier scale-outs are in the phases CSV.`));
    y += HEADING;
  }
  for (const one of shown) {
    svg.append(node('text', {x: frame.left, y: y + 16, class: 'title'}, title(one, frame.narrow)));
    y += HEADING;
    if (one.begun_s !== null) {
      bars(svg, frame, y, 'detection', [{name: 'detection', start_s: one.begun_s, end_s: one.decision_s, lo_s: null, hi_s: null, inside: false}], now, x);
      y += ROW;
    }
    one.units.forEach((unit, i) => {
      bars(svg, frame, y, unit.id === null ? `unit ${i + 1}` : shortName(unit.id), unit.phases, now, x, unit.id);
      y += ROW;
    });
  }
}

function bars(svg, frame, y, label, phases, now, x, whole = null) {
  const clip = value => Math.min(Math.max(value, frame.left), frame.right);
  if (!frame.narrow) {
    const name = node('text', {x: frame.left - 5, y: y + 13, 'text-anchor': 'end', class: 'soft'}, label);
    if (whole !== null) name.append(node('title', {}, whole));
    svg.append(name);
  }
  for (const phase of phases) {
    const end = phase.end_s ?? Math.max(now, phase.start_s), from = clip(x(phase.start_s)), to = clip(x(end));
    if (to <= frame.left || from >= frame.right) continue;
    const kind = colour(phase.name), open = phase.end_s === null;
    const bar = node('rect', {x: from.toFixed(1), y: phase.inside ? y + 13 : y + 2, width: Math.max(to - from, 1.5).toFixed(1), height: phase.inside ? 4 : 15, rx: 2, class: `bar phase-${kind}${open ? ' open' : ''}`});
    bar.append(node('title', {}, `${phase.name}: ${duration(end - phase.start_s)}${open ? ' so far' : ''}`));
    svg.append(bar);
    const words = `${phase.name}${open ? ' …' : ''}`;
    if (!phase.inside && to - from > textWidth(words, '11px') + 10) svg.append(node('text', {x: (from + 5).toFixed(1), y: y + 13, class: `on-bar${DARK_TEXT.includes(kind) ? ' dark' : ''}`}, words));
    if (phase.lo_s !== null && phase.hi_s !== null && x(phase.hi_s) - x(phase.lo_s) > 2) {
      const [lo, hi] = [clip(x(phase.lo_s)), clip(x(phase.hi_s))];
      svg.append(node('path', {d: `M${lo},${y + 6}v7M${lo},${y + 9.5}H${hi}M${hi},${y + 6}v7`, class: 'whisker line'}));
    }
  }
}
