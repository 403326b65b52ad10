"use strict";
const BOX_W = 132, BOX_H = 28, STRIP = 26, NODE = 0;

const theme = new Map();
const css = (name) => {
  if (!theme.has(name)) theme.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return theme.get(name);
};
const families = ["#5b7db1", "#5f8a64", "#a0658f", "#9c755f", "#3f8b8a", "#757b85", "#ab6c2d", "#6a6fb0"];
const colours = new Map();
const colour = (op) => {
  if (!colours.has(op)) colours.set(op, families[colours.size % families.length]);
  return colours.get(op);
};
const fitted = new Map();
const fitting = (c, text) => {
  // As much of a text as has room in a box; by characters, of which some are two units of a string.
  if (!fitted.has(text)) {
    let parts = [...text.slice(0, 80)], shown = text;
    while (parts.length && c.measureText(shown).width > BOX_W - 12) { parts = parts.slice(0, -1); shown = `${parts.join("")}…`; }
    fitted.set(text, shown);
  }
  return fitted.get(text);
};
const short = (op) => op.split("::").pop();

/* One graph of a model on a canvas: moved, zoomed, entered. What a node looks like is asked of `look`. */
class GraphCanvas {
  constructor(id, model, look) {
    this.canvas = document.getElementById(id);
    this.model = model; this.look = look;
    this.picked = new Set(); this.focus = -1;
    this.scale = 1; this.x = 0; this.y = 0;
    this.fingers = new Map();
    const on = (kind, act, options) => this.canvas.addEventListener(kind, act, options);
    on("wheel", (e) => this.wheel(e), { passive: false });
    on("pointerdown", (e) => this.down(e));
    on("pointermove", (e) => this.move(e));
    on("pointerup", (e) => this.up(e));
    on("pointercancel", (e) => { this.fingers.delete(e.pointerId); this.last = null; this.jumping = false; });
    on("pointerleave", () => this.onhover(-1, null));
    on("dblclick", (e) => { const i = this.at(e); if (i >= 0 && this.nodes[i][7].length) this.onenter(this.nodes[i][7][0]); });
    on("keydown", (e) => this.key(e));
    this.onpick = this.onhover = this.onenter = this.onleave = () => {};
    this.enter(0);
  }
  get nodes() { return this.model.nodes; }
  enter(number) {
    this.number = number; this.graph = this.model.graphs[number];
    this.from = this.graph.first; this.to = this.from + this.graph.count;
    this.extent = null;
    this.resize();
  }
  inside(i) { return i >= this.from && i < this.to; }
  own() { return Array.from({ length: this.graph.count }, (_, i) => this.from + i); }
  resize() {
    const box = this.canvas.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
    this.width = box.width; this.height = box.height;
    this.canvas.width = box.width * ratio; this.canvas.height = box.height * ratio;
    this.context = this.canvas.getContext("2d");
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }
  bounds(ids) {
    let left = Infinity, top = Infinity, right = -Infinity, bottom = -Infinity;
    for (const i of ids) {
      const [x, y] = this.nodes[i];
      left = Math.min(left, x); right = Math.max(right, x); top = Math.min(top, y); bottom = Math.max(bottom, y);
    }
    return [left - BOX_W / 2, top - BOX_H / 2, right + BOX_W / 2, bottom + BOX_H / 2];
  }
  show(ids, closest = 1.2) {
    const here = ids.filter((i) => this.inside(i));
    if (!here.length) { this.draw(); return; }
    const [l, t, r, b] = this.bounds(here);
    this.scale = Math.min(closest, 0.92 * Math.min((this.width - STRIP) / (r - l), this.height / (b - t)));
    this.x = (this.width - STRIP) / 2 - this.scale * (l + r) / 2;
    this.y = this.height / 2 - this.scale * (t + b) / 2;
    this.draw();
  }
  all() { this.show(this.own()); }
  start() {
    // The top of the graph at a size that can be read, rather than all of it as a thread.
    this.all();
    if (this.scale >= 0.6 || !this.graph.count) return;
    const top = this.bounds(this.own())[1];
    const first = this.own().map((i) => this.nodes[i]).filter((n) => n[1] <= top + 4 * BOX_H);
    const middle = first.reduce((sum, n) => sum + n[0], 0) / first.length;
    this.scale = 0.75; this.x = this.width / 2 - this.scale * middle; this.y = 20 - this.scale * top; this.draw();
  }
  reveal(i) {
    // Bring a node into view, at a size that can be read, without moving more than that takes.
    const [x, y] = this.nodes[i], s = this.scale = Math.max(this.scale, 0.6);
    const sx = this.x + s * x, sy = this.y + s * y;
    if (sx < 80 || sx > this.width - 110) this.x = this.width / 2 - s * x;
    if (sy < 40 || sy > this.height - 40) this.y = this.height / 2 - s * y;
    this.draw();
  }
  nearest(fits) {
    // The node nearest to the middle of the view, among those that have a counterpart.
    const x = (this.width / 2 - this.x) / this.scale, y = (this.height / 2 - this.y) / this.scale;
    let best = -1, least = Infinity;
    for (let i = this.from; i < this.to; i++) {
      const far = Math.abs(this.nodes[i][0] - x) + 2 * Math.abs(this.nodes[i][1] - y);
      if (far < least && fits(i)) { best = i; least = far; }
    }
    return best;
  }
  follow(other, counterparts) {
    const near = other.nearest((i) => counterparts(i).some((j) => this.inside(j)));
    if (near < 0) return;
    const [x, y] = other.nodes[near], [u, v] = this.nodes[counterparts(near).find((j) => this.inside(j))];
    this.scale = other.scale;
    this.x = other.x + other.scale * (x - u); this.y = other.y + other.scale * (y - v);
    this.draw();
  }
  moved() {
    // Several movements between two frames are drawn once.
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); if (this.onmove) this.onmove(); });
  }
  draw() {
    const c = this.context, nodes = this.nodes, s = this.scale, far = s < 0.15;
    c.clearRect(0, 0, this.width, this.height);
    c.save(); c.translate(this.x, this.y); c.scale(s, s);
    const l = -this.x / s - BOX_W, r = (this.width - this.x) / s + BOX_W;
    const t = -this.y / s - BOX_H, b = (this.height - this.y) / s + BOX_H;
    c.strokeStyle = css("--soft"); c.lineWidth = Math.max(0.6, 0.8 / s); c.globalAlpha = 0.6; c.beginPath();
    for (const [from, to] of this.graph.edges) {
      const [x1, y1] = nodes[from], [x2, y2] = nodes[to];
      if (Math.max(y1, y2) < t || Math.min(y1, y2) > b || Math.max(x1, x2) < l || Math.min(x1, x2) > r) continue;
      c.moveTo(x1, y1 + BOX_H / 2);
      if (far) { c.lineTo(x2, y2 - BOX_H / 2); continue; }
      const bend = Math.min(40, (y2 - y1 - BOX_H) / 2);
      c.bezierCurveTo(x1, y1 + BOX_H / 2 + bend, x2, y2 - BOX_H / 2 - bend, x2, y2 - BOX_H / 2);
    }
    c.stroke(); c.globalAlpha = 1;
    c.font = "12px system-ui, sans-serif"; c.textAlign = "center"; c.textBaseline = "middle";
    for (let i = this.from; i < this.to; i++) {
      const [x, y] = nodes[i];
      if (x < l || x > r || y < t || y > b) continue;
      this.box(c, i, x, y, s > 0.28, far);
    }
    c.restore();
    this.overview(c);
  }
  box(c, i, x, y, text, far) {
    const name = short(this.nodes[i][2]), end = this.nodes[i][8] !== NODE, look = this.look(i), picked = this.picked.has(i);
    const tone = end ? css("--own") : colour(name);
    if (far) {
      c.fillStyle = picked ? css("--picked") : look.gone ? css("--bad") : look.filled ? tone : css("--soft");
      c.fillRect(x - BOX_W / 2, y - BOX_H / 2, BOX_W, BOX_H);
      return;
    }
    c.fillStyle = look.gone || !look.filled ? css("--paper") : tone;
    c.strokeStyle = picked ? css("--picked") : look.gone ? css("--bad") : look.filled || end ? tone : css("--soft");
    c.lineWidth = i === this.focus ? 6 : picked ? 4 : 1.4;
    c.setLineDash(look.dashed || look.gone ? [5, 3] : []);
    c.beginPath(); c.roundRect(x - BOX_W / 2, y - BOX_H / 2, BOX_W, BOX_H, end ? 14 : 5); c.fill(); c.stroke();
    c.setLineDash([]);
    if (!text) return;
    c.fillStyle = look.gone ? css("--bad") : look.filled ? "#fff" : end ? tone : css("--ink");
    const label = end ? this.nodes[i][3] : this.nodes[i][7].length ? `${name} ▸` : name;
    c.fillText(fitting(c, label), x, y);
  }
  overview(c) {
    // A strip on the right: the whole graph top to bottom, what was changed, what is picked, and what is in view.
    if (!this.graph.count) return;
    const [, top, , bottom] = this.extent ??= this.bounds(this.own());
    const left = this.width - STRIP, scale = this.height / (bottom - top), thick = Math.max(1, BOX_H * scale);
    c.fillStyle = css("--tint"); c.fillRect(left, 0, STRIP, this.height);
    for (let i = this.from; i < this.to; i++) {
      const picked = this.picked.has(i), look = this.look(i);
      if (!picked && !look.filled) continue;
      c.fillStyle = picked ? css("--picked") : look.gone ? css("--bad") : colour(short(this.nodes[i][2]));
      c.fillRect(left + (picked ? 0 : 5), (this.nodes[i][1] - top) * scale - thick / 2, STRIP - (picked ? 0 : 10), thick);
    }
    const from = (-this.y / this.scale - top) * scale, high = (this.height / this.scale) * scale;
    c.strokeStyle = css("--ink"); c.lineWidth = 1.5;
    c.strokeRect(left + 1, Math.max(1, from), STRIP - 2, Math.max(4, Math.min(high, this.height - Math.max(1, from)) - 1));
  }
  place(e) { const box = this.canvas.getBoundingClientRect(); return [e.clientX - box.left, e.clientY - box.top]; }
  at(e) {
    const [px, py] = this.place(e), x = (px - this.x) / this.scale, y = (py - this.y) / this.scale;
    for (let i = this.from; i < this.to; i++) {
      const [a, b] = this.nodes[i];
      if (Math.abs(a - x) <= BOX_W / 2 && Math.abs(b - y) <= BOX_H / 2) return i;
    }
    return -1;
  }
  zoom(factor, x = this.width / 2, y = this.height / 2) {
    const next = Math.max(0.005, Math.min(4, this.scale * factor)), by = next / this.scale;
    this.x = x - (x - this.x) * by; this.y = y - (y - this.y) * by; this.scale = next; this.moved();
  }
  wheel(e) { e.preventDefault(); this.zoom(Math.exp(-e.deltaY * 0.0015), ...this.place(e)); }
  jump(e) {
    const [, top, , bottom] = this.extent, y = top + (this.place(e)[1] / this.height) * (bottom - top);
    const near = this.own().map((i) => this.nodes[i]).reduce((best, n) => (Math.abs(n[1] - y) < Math.abs(best[1] - y) ? n : best));
    this.y = this.height / 2 - this.scale * y; this.x = this.width / 2 - this.scale * near[0];
    this.moved();
  }
  down(e) {
    this.canvas.setPointerCapture(e.pointerId);
    this.fingers.set(e.pointerId, this.place(e));
    if (this.fingers.size === 1 && this.place(e)[0] > this.width - STRIP) { this.jumping = true; this.jump(e); return; }
    this.last = this.place(e); this.way = 0;
  }
  move(e) {
    if (this.jumping) { this.jump(e); return; }
    if (!this.last) { this.onhover(this.at(e), e); return; }
    const before = [...this.fingers.values()], now = this.place(e);
    this.fingers.set(e.pointerId, now);
    if (this.fingers.size === 2) {
      const [a, b] = this.fingers.values(), wide = ([p, q]) => Math.hypot(p[0] - q[0], p[1] - q[1]);
      this.way = 99;
      this.zoom(wide([a, b]) / Math.max(1, wide(before)), (a[0] + b[0]) / 2, (a[1] + b[1]) / 2);
      return;
    }
    const dx = now[0] - this.last[0], dy = now[1] - this.last[1];
    this.way += Math.abs(dx) + Math.abs(dy); this.x += dx; this.y += dy; this.last = now; this.moved();
  }
  up(e) {
    const clicked = this.last && this.way < 5 && this.fingers.size === 1;
    this.fingers.delete(e.pointerId); this.last = null; this.jumping = false;
    if (clicked) { const i = this.at(e); if (i >= 0) this.onpick(i); }
  }
  key(e) {
    const step = 60, moves = { ArrowLeft: [step, 0], ArrowRight: [-step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    if (moves[e.key] && (e.shiftKey || !this.inside(this.focus))) {
      this.x += moves[e.key][0]; this.y += moves[e.key][1]; this.moved();
    } else if (moves[e.key]) {
      const next = this.neighbour(e.key);
      if (next >= 0) { this.onpick(next); this.reveal(next); }
    } else if (e.key === "+" || e.key === "=") this.zoom(1.25);
    else if (e.key === "-") this.zoom(0.8);
    else if (e.key === "Enter" && this.inside(this.focus) && this.nodes[this.focus][7].length) this.onenter(this.nodes[this.focus][7][0]);
    else return;
    e.preventDefault(); e.stopPropagation();
  }
  neighbour(key) {
    // Up to what the node reads, down to what reads it, left and right within its layer.
    const i = this.focus, [x, y] = this.nodes[i];
    const over = this.graph.edges.flatMap(([a, b]) => (key === "ArrowUp" && b === i ? [a] : key === "ArrowDown" && a === i ? [b] : []));
    if (key === "ArrowUp" || key === "ArrowDown") return over.length ? over[0] : -1;
    const sign = key === "ArrowLeft" ? -1 : 1;
    const beside = this.own().filter((j) => this.nodes[j][1] === y && sign * (this.nodes[j][0] - x) > 0);
    return beside.sort((a, b) => sign * (this.nodes[a][0] - this.nodes[b][0]))[0] ?? -1;
  }
}
