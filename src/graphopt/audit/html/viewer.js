(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("graph-data").textContent);
  const palette = new Map();
  const css = (name) => {
    if (!palette.has(name)) palette.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
    return palette.get(name);
  };
  const BOX_W = 132, BOX_H = 28, STRIP = 26;
  const families = ["#5b7db1", "#7a9e7e", "#b07aa1", "#9c755f", "#59a1a0", "#8a8f98", "#c0803e", "#6a6fb0"];
  const colours = new Map();
  const colour = (op) => {
    if (!colours.has(op)) colours.set(op, families[colours.size % families.length]);
    return colours.get(op);
  };
  const origins = data.origins, heirs = data.before.nodes.map(() => []);
  origins.forEach((group, i) => group.forEach((j) => heirs[j].push(i)));
  const unchanged = new Set(data.unchanged), hidden = new Set(data.hidden);

  class View {
    constructor(id, graph, filled, dashed, gone) {
      this.canvas = document.getElementById(id);
      this.graph = graph;
      this.filled = filled;
      this.dashed = dashed;
      this.gone = gone;
      this.picked = new Set();
      this.scale = 1; this.x = 0; this.y = 0;
      this.canvas.addEventListener("wheel", (e) => this.wheel(e), { passive: false });
      this.canvas.addEventListener("pointerdown", (e) => this.down(e));
      this.canvas.addEventListener("pointermove", (e) => this.move(e));
      this.canvas.addEventListener("pointerup", (e) => this.up(e));
      this.canvas.addEventListener("keydown", (e) => this.key(e));
      this.resize();
      document.getElementById(`count-${id}`).textContent = `${graph.nodes.length} nodes, constants not drawn`;
    }
    resize() {
      const box = this.canvas.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
      this.width = box.width; this.height = box.height;
      this.canvas.width = box.width * ratio; this.canvas.height = box.height * ratio;
      this.context = this.canvas.getContext("2d");
      this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    bounds(nodes) {
      let left = Infinity, top = Infinity, right = -Infinity, bottom = -Infinity;
      for (const i of nodes) {
        const [x, y] = this.graph.nodes[i];
        left = Math.min(left, x); right = Math.max(right, x); top = Math.min(top, y); bottom = Math.max(bottom, y);
      }
      return [left - BOX_W / 2, top - BOX_H / 2, right + BOX_W / 2, bottom + BOX_H / 2];
    }
    show(nodes, closest = 1.2) {
      if (!nodes.length) return;
      const [l, t, r, b] = this.bounds(nodes);
      this.scale = Math.min(closest, 0.92 * Math.min(this.width / (r - l), this.height / (b - t)));
      this.x = this.width / 2 - this.scale * (l + r) / 2;
      this.y = this.height / 2 - this.scale * (t + b) / 2;
      this.draw();
    }
    all() { this.show(this.graph.nodes.map((_, i) => i)); }
    start() {
      // The top of the graph at a size that can be read, rather than all of it as a thread.
      this.all();
      if (this.scale >= 0.6 || !this.graph.nodes.length) return;
      const ys = this.graph.nodes.map((n) => n[1]), top = Math.min(...ys);
      const first = this.graph.nodes.filter((n) => n[1] <= top + 4 * BOX_H);
      const middle = first.reduce((sum, n) => sum + n[0], 0) / first.length;
      this.scale = 0.75; this.x = this.width / 2 - this.scale * middle; this.y = 34 - this.scale * top; this.draw();
    }
    middle() { return [(this.width / 2 - this.x) / this.scale, (this.height / 2 - this.y) / this.scale]; }
    nearest(fits) {
      // The node nearest to the middle of the view, among those that have a counterpart.
      const [x, y] = this.middle();
      let best = -1, least = Infinity;
      this.graph.nodes.forEach((n, i) => {
        const far = Math.abs(n[0] - x) + 2 * Math.abs(n[1] - y);
        if (far < least && fits(i)) { best = i; least = far; }
      });
      return best;
    }
    follow(other, counterparts) {
      const own = other.nearest((i) => counterparts(i).length > 0);
      if (own < 0) return;
      const [x, y] = other.graph.nodes[own], [u, v] = this.graph.nodes[counterparts(own)[0]];
      this.scale = other.scale;
      this.x = other.x + other.scale * (x - u); this.y = other.y + other.scale * (y - v);
      this.draw();
    }
    moved() { this.draw(); if (this.onmove) this.onmove(); }
    draw() {
      const c = this.context, nodes = this.graph.nodes, s = this.scale;
      c.clearRect(0, 0, this.width, this.height);
      c.save(); c.translate(this.x, this.y); c.scale(s, s);
      const l = -this.x / s - BOX_W, r = (this.width - this.x) / s + BOX_W;
      const t = -this.y / s - BOX_H, b = (this.height - this.y) / s + BOX_H;
      c.strokeStyle = css("--soft"); c.lineWidth = Math.max(0.6, 0.8 / s); c.globalAlpha = 0.6; c.beginPath();
      for (const [from, to] of this.graph.edges) {
        const [x1, y1] = nodes[from], [x2, y2] = nodes[to];
        if (Math.max(y1, y2) < t || Math.min(y1, y2) > b || Math.max(x1, x2) < l || Math.min(x1, x2) > r) continue;
        const bend = Math.min(40, (y2 - y1) / 2);
        c.moveTo(x1, y1 + BOX_H / 2);
        c.bezierCurveTo(x1, y1 + BOX_H / 2 + bend, x2, y2 - BOX_H / 2 - bend, x2, y2 - BOX_H / 2);
      }
      c.stroke(); c.globalAlpha = 1;
      const text = s > 0.28;
      c.font = "12px system-ui, sans-serif"; c.textAlign = "center"; c.textBaseline = "middle";
      for (let i = 0; i < nodes.length; i++) {
        const [x, y, op] = nodes[i];
        if (x < l || x > r || y < t || y > b) continue;
        this.box(c, i, x, y, op, text);
      }
      c.restore();
      this.overview(c);
    }
    overview(c) {
      // A strip on the right: the whole graph top to bottom, what was changed, what is picked, and what is in view.
      if (!this.graph.nodes.length) return;
      const [, top, , bottom] = this.extent ??= this.bounds(this.graph.nodes.map((_, i) => i));
      const left = this.width - STRIP, scale = this.height / (bottom - top), thick = Math.max(1, BOX_H * scale);
      c.fillStyle = css("--tint"); c.fillRect(left, 0, STRIP, this.height);
      this.graph.nodes.forEach((n, i) => {
        if (!this.picked.has(i) && !this.filled(i)) return;
        c.fillStyle = this.picked.has(i) ? css("--picked") : colour(n[2].split("::").pop());
        c.fillRect(left + (this.picked.has(i) ? 0 : 5), (n[1] - top) * scale - thick / 2, STRIP - (this.picked.has(i) ? 0 : 10), thick);
      });
      const from = (-this.y / this.scale - top) * scale, high = (this.height / this.scale) * scale;
      c.strokeStyle = css("--ink"); c.lineWidth = 1.5;
      c.strokeRect(left + 1, Math.max(1, from), STRIP - 2, Math.max(4, Math.min(high, this.height - Math.max(1, from)) - 1));
    }
    jump(e) {
      const [, top, , bottom] = this.extent, box = this.canvas.getBoundingClientRect();
      const y = top + ((e.clientY - box.top) / this.height) * (bottom - top);
      const near = this.graph.nodes.reduce((best, n) => (Math.abs(n[1] - y) < Math.abs(best[1] - y) ? n : best));
      this.y = this.height / 2 - this.scale * y; this.x = this.width / 2 - this.scale * near[0];
      this.moved();
    }
    box(c, i, x, y, op, text) {
      const name = op.split("::").pop(), filled = this.filled(i), gone = this.gone(i);
      c.fillStyle = gone || !filled ? css("--paper") : colour(name);
      c.strokeStyle = this.picked.has(i) ? css("--picked") : gone ? css("--bad") : filled ? colour(name) : css("--soft");
      c.lineWidth = this.picked.has(i) ? 5 : 1.4;
      c.setLineDash(this.dashed(i) || gone ? [5, 3] : []);
      c.beginPath(); c.roundRect(x - BOX_W / 2, y - BOX_H / 2, BOX_W, BOX_H, 5); c.fill(); c.stroke();
      c.setLineDash([]);
      if (!text) return;
      c.fillStyle = gone ? css("--bad") : filled ? "#fff" : css("--ink");
      c.fillText(name.length > 20 ? name.slice(0, 19) + "…" : name, x, y);
    }
    at(e) {
      const box = this.canvas.getBoundingClientRect();
      const x = (e.clientX - box.left - this.x) / this.scale, y = (e.clientY - box.top - this.y) / this.scale;
      return this.graph.nodes.findIndex(([a, b]) => Math.abs(a - x) <= BOX_W / 2 && Math.abs(b - y) <= BOX_H / 2);
    }
    zoom(factor, x = this.width / 2, y = this.height / 2) {
      const next = Math.max(0.005, Math.min(4, this.scale * factor)), by = next / this.scale;
      this.x = x - (x - this.x) * by; this.y = y - (y - this.y) * by; this.scale = next; this.moved();
    }
    wheel(e) {
      e.preventDefault();
      const box = this.canvas.getBoundingClientRect();
      this.zoom(Math.exp(-e.deltaY * 0.0015), e.clientX - box.left, e.clientY - box.top);
    }
    down(e) {
      this.canvas.setPointerCapture(e.pointerId);
      if (e.clientX - this.canvas.getBoundingClientRect().left > this.width - STRIP) { this.jumping = true; this.jump(e); return; }
      this.last = [e.clientX, e.clientY]; this.way = 0;
    }
    move(e) {
      if (this.jumping) this.jump(e);
      if (!this.last) return;
      const dx = e.clientX - this.last[0], dy = e.clientY - this.last[1];
      this.way += Math.abs(dx) + Math.abs(dy); this.x += dx; this.y += dy; this.last = [e.clientX, e.clientY]; this.moved();
    }
    up(e) {
      const clicked = this.last && this.way < 5; this.last = null; this.jumping = false;
      if (clicked) this.pick(this.at(e));
    }
    key(e) {
      const step = 60, moves = { ArrowLeft: [step, 0], ArrowRight: [-step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
      if (moves[e.key]) { this.x += moves[e.key][0]; this.y += moves[e.key][1]; this.moved(); }
      else if (e.key === "+" || e.key === "=") this.zoom(1.25);
      else if (e.key === "-") this.zoom(0.8);
      else return;
      e.preventDefault();
    }
    pick(i) { if (i >= 0) this.onpick(i); }
  }

  const left = new View("before", data.before, (i) => !unchanged.has(i), () => false, (i) => !heirs[i].length);
  const right = new View("after", data.after, (i) => !(origins[i].length === 1 && unchanged.has(origins[i][0])), (i) => hidden.has(i), () => false);
  const together = document.getElementById("together");
  left.onmove = () => { if (together.checked) right.follow(left, (i) => heirs[i]); };
  right.onmove = () => { if (together.checked) left.follow(right, (i) => origins[i]); };
  const detail = document.getElementById("detail");
  const tell = (title, nodes, others) => {
    const line = (n) => `${n[4]}${n[5] ? `  [${n[5]}]` : ""}${n[3] ? `  (${n[3]})` : ""}`;
    detail.textContent = [title, ...nodes.map(line), "", others.length ? "other side:" : "nothing on the other side", ...others.map(line)]
      .join("\n").slice(0, 6000);
  };
  const select = (before, after, title, focus) => {
    left.picked = new Set(before); right.picked = new Set(after);
    if (focus !== left) left.show(before); else left.draw();
    if (focus !== right) right.show(after); else right.draw();
    const own = focus === right ? after.map((i) => data.after.nodes[i]) : before.map((i) => data.before.nodes[i]);
    const other = focus === right ? before.map((i) => data.before.nodes[i]) : after.map((i) => data.after.nodes[i]);
    tell(title, own, other);
  };
  left.onpick = (i) => {
    const after = heirs[i], before = after.length ? [...new Set(after.flatMap((j) => origins[j]))] : [i];
    select(before, after, "before:", left);
  };
  right.onpick = (i) => select(origins[i], [i], "after:", right);

  document.querySelectorAll("tr[data-event]").forEach((row) => {
    const show = () => {
      document.querySelectorAll("tr.picked").forEach((other) => other.classList.remove("picked"));
      row.classList.add("picked");
      const event = data.events[Number(row.dataset.event)];
      let after = event.after;
      if (!after.length) after = [...new Set(event.before.flatMap((j) => heirs[j]))];
      select(event.before, after, `${event.rule}: ${event.text}`, null);
      document.getElementById("graphs").scrollIntoView({ block: "start" });
    };
    row.addEventListener("click", show);
    row.addEventListener("keydown", (e) => { if (e.key === "Enter") show(); });
  });
  const filter = document.getElementById("filter");
  if (filter) filter.addEventListener("input", () => {
    const wanted = filter.value.toLowerCase();
    document.querySelectorAll("#events tbody tr").forEach((row) => { row.hidden = !row.textContent.toLowerCase().includes(wanted); });
  });
  document.getElementById("search").addEventListener("input", (e) => {
    const wanted = e.target.value.toLowerCase();
    const find = (graph) => !wanted ? [] : graph.nodes.flatMap((n, i) => (n[2] + " " + n[3] + " " + n[4]).toLowerCase().includes(wanted) ? [i] : []);
    const before = find(data.before), after = find(data.after);
    left.picked = new Set(before); right.picked = new Set(after);
    before.length ? left.show(before) : left.draw(); after.length ? right.show(after) : right.draw();
    document.getElementById("found").textContent = wanted ? `${before.length} before, ${after.length} after` : "";
  });
  document.getElementById("fit").addEventListener("click", () => { left.all(); right.all(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { palette.clear(); left.draw(); right.draw(); });
  window.addEventListener("resize", () => { for (const view of [left, right]) { view.resize(); view.draw(); } });
  left.start(); right.start();
  window.graphoptViews = { left, right };
})();
