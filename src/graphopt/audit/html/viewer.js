(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("graph-data").textContent);
  const $ = (id) => document.getElementById(id);
  const make = (tag, text, attributes = {}) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  };
  const models = data.after ? { before: data.before, after: data.after } : { before: data.before };
  const names = Object.keys(models);
  const events = data.events || [];
  const origins = data.origins || [], heirs = data.before.nodes.map(() => []);
  origins.forEach((group, i) => group.forEach((j) => heirs[j].push(i)));
  const unchanged = new Set(data.unchanged || []), hidden = new Set(data.hidden || []);
  const counterparts = { before: (i) => heirs[i] || [], after: (i) => origins[i] || [] };
  const opposite = { before: "after", after: "before" };

  // Which node makes a value, which ones read it, and which rewrites concern a node.
  const links = {}, touched = {};
  for (const side of names) {
    const makers = new Map(), readers = new Map();
    models[side].nodes.forEach((n, i) => {
      for (const v of n[5]) if (v >= 0) makers.set(v, i);
      for (const v of n[4]) if (v >= 0) { if (!readers.has(v)) readers.set(v, []); readers.get(v).push(i); }
    });
    links[side] = { makers, readers };
    touched[side] = new Map();
    events.forEach((event, k) => {
      for (const i of event[side]) { if (!touched[side].has(i)) touched[side].set(i, []); touched[side].get(i).push(k); }
    });
  }

  const looks = {
    before: (i) => !data.after ? { filled: models.before.nodes[i][8] === NODE }
      : { filled: !unchanged.has(i) && models.before.nodes[i][8] === NODE, gone: !heirs[i].length },
    after: (i) => ({
      filled: models.after.nodes[i][8] === NODE && !(origins[i].length === 1 && unchanged.has(origins[i][0])),
      dashed: hidden.has(i),
    }),
  };
  const views = {};
  for (const side of names) views[side] = new GraphCanvas(side, models[side], looks[side]);
  const together = $("together"), detail = $("detail"), tip = $("tip");
  const graphOf = (side, i) => models[side].graphs.findIndex((g) => i >= g.first && i < g.first + g.count);

  const enter = (side, number, ids = null) => {
    const view = views[side];
    view.enter(number);
    crumbs(side);
    if (ids) view.show(ids); else view.start();
  };
  const leave = (side) => {
    const owner = views[side].graph.owner;
    if (views[side].number === 0) return false;
    enter(side, owner === undefined ? 0 : graphOf(side, owner), owner === undefined ? null : [owner]);
    return true;
  };
  const crumbs = (side) => {
    const place = $(`path-${side}`), path = [];
    for (let at = views[side].number; ;) {
      const graph = models[side].graphs[at];
      path.unshift([at, graph.title]);
      if (at === 0) break;
      at = graph.owner === undefined ? 0 : graphOf(side, graph.owner);
    }
    place.replaceChildren();
    path.forEach(([at, title], k) => {
      if (k) place.append(" › ");
      if (k === path.length - 1) { place.append(make("b", title)); return; }
      const back = make("button", title, { type: "button", class: "link" });
      back.addEventListener("click", () => enter(side, at));
      place.append(back);
    });
    const inside = models[side].nodes.slice(views[side].from, views[side].to).filter((n) => n[8] === NODE);
    const others = models[side].graphs.length - 1;
    $(`count-${side}`).textContent = `${inside.length} node${inside.length === 1 ? "" : "s"}, constants not drawn`;
    const list = $(`graphs-${side}`);
    list.hidden = !others;
    list.value = String(views[side].number);
  };
  for (const side of names) {
    const list = $(`graphs-${side}`);
    models[side].graphs.forEach((g, k) => list.append(make("option", g.title || `graph ${k}`, { value: k })));
    list.addEventListener("change", () => enter(side, Number(list.value)));
  }

  // What is told about a node.
  const section = (title, rows) => {
    const part = make("section");
    part.append(make("h4", title), ...rows);
    return part;
  };
  const table = (rows) => {
    const made = make("table");
    for (const cells of rows) {
      const line = make("tr");
      cells.forEach((cell, k) => {
        const place = make(k ? "td" : "th");
        place.append(...(Array.isArray(cell) ? cell : [cell]));
        line.append(place);
      });
      made.append(line);
    }
    return made;
  };
  const label = (side, i) => { const n = models[side].nodes[i]; return n[3] ? `${short(n[2])} ${n[3]}` : short(n[2]); };
  const jump = (side, i) => {
    const to = make("button", label(side, i), { type: "button", class: "link" });
    to.addEventListener("click", () => { go(side, i); });
    return to;
  };
  const spread = (items) => items.flatMap((item, k) => (k ? [" · ", item] : [item]));
  const weight = (w) => {
    const parts = [make("span", `${w.count.toLocaleString("en")} elements, ${w.size}`)];
    const rows = [];
    if (w.range) rows.push(["least, most", `${w.range[0]}, ${w.range[1]}`], ["mean, deviation", `${w.range[2]}, ${w.range[3]}`], ["zeros", w.zeros]);
    if (w.strange) rows.push(["not finite", String(w.strange)]);
    if (w.sampled) rows.push(["of a sample of", w.sampled.toLocaleString("en")]);
    if (w.first) rows.push([w.count > w.first.length ? "it starts" : "values", w.first.join(", ") + (w.count > w.first.length ? ", …" : "")]);
    if (w.note) rows.push(["", w.note]);
    const more = make("details");
    more.append(make("summary", "contents"));
    if (w.bars) {
      const svg = $("drawn").content.firstElementChild.cloneNode();
      const most = Math.max(...w.bars);
      svg.setAttribute("viewBox", `0 0 ${w.bars.length * 10} 60`); svg.setAttribute("class", "histogram");
      svg.setAttribute("role", "img"); svg.setAttribute("aria-label", "histogram of the values");
      w.bars.forEach((count, k) => {
        const bar = document.createElementNS(svg.namespaceURI, "rect"), high = count ? Math.max(1, (58 * count) / most) : 0;
        for (const [name, value] of Object.entries({ x: k * 10 + 1, y: 59 - high, width: 8, height: high })) bar.setAttribute(name, value);
        svg.append(bar);
      });
      more.append(svg);
    }
    more.append(table(rows));
    return [...parts, more];
  };
  const valueRow = (side, v, way) => {
    const line = make("div", undefined, { class: "value" });
    if (v < 0) { line.append(make("i", "left out")); return line; }
    const [name, type, w] = models[side].values[v], { makers, readers } = links[side];
    const ends = way === "in" ? (makers.has(v) ? [makers.get(v)] : []) : readers.get(v) || [];
    const shown = ends.slice(0, 12).map((i) => jump(side, i));
    if (ends.length > 12) shown.push(make("span", `and ${ends.length - 12} more`));
    line.append(make("b", name), " ", make("code", type));
    const rest = make("div");
    rest.append(...(w >= 0 ? weight(models[side].weights[w]) : spread(shown)));
    line.append(rest);
    return line;
  };
  const tellNode = (side, i) => {
    const n = models[side].nodes[i], head = make("h3", `${n[2]}${n[3] ? `  ${n[3]}` : ""}`);
    if (names.length > 1) head.append(make("small", side));
    const parts = [head];
    const into = n[7].map((g) => {
      const open = make("button", `enter ${models[side].graphs[g].title}`, { type: "button" });
      open.addEventListener("click", () => enter(side, g));
      return open;
    });
    if (into.length) parts.push(section("bodies", into));
    if (n[6].length) parts.push(section("attributes", [table(n[6])]));
    if (n[4].length) parts.push(section("reads", n[4].map((v) => valueRow(side, v, "in"))));
    if (n[5].length) parts.push(section("gives", n[5].map((v) => valueRow(side, v, "out"))));
    if (names.length > 1) {
      const other = counterparts[side](i), near = other.length ? other : [];
      const changes = new Set(touched[side].get(i) || []);
      for (const j of near) for (const k of touched[opposite[side]].get(j) || []) changes.add(k);
      const rows = [...changes].sort((a, b) => a - b).slice(0, 20).map((k) => {
        const line = make("div", undefined, { class: "value" });
        line.append(eventButton(k), make("div", data.passes[events[k].rule] || ""), make("div", events[k].gain));
        return line;
      });
      parts.push(section("rewrites", rows.length ? rows : [make("p", "none")]));
      const there = near.slice(0, 20).map((j) => jump(opposite[side], j));
      parts.push(section(`${opposite[side]}`, there.length ? [make("p")] : [make("p", "no counterpart in the other graph")]));
      if (there.length) parts.at(-1).lastChild.append(...spread(there));
    }
    detail.replaceChildren(...parts);
  };
  const eventButton = (k) => {
    const to = make("button", `${k + 1}. ${events[k].rule}`, { type: "button", class: "link" });
    to.addEventListener("click", () => showEvent(k));
    return to;
  };

  const mark = (sets, focus) => {
    for (const side of names) { views[side].picked = new Set(sets[side] || []); views[side].focus = -1; }
    if (focus) views[focus[0]].focus = focus[1];
  };
  const bring = (side, ids) => {
    if (!ids.length) { views[side].draw(); return; }
    const graph = graphOf(side, ids[0]);
    if (graph !== views[side].number) enter(side, graph, ids); else views[side].show(ids);
  };
  const pick = (side, i) => {
    const over = counterparts[side](i), other = opposite[side];
    const same = side === "before" && over.length ? [...new Set(over.flatMap((j) => origins[j]))] : [i];
    mark({ [side]: same, [other]: over }, [side, i]);
    views[side].draw();
    if (views[other]) bring(other, over);
    tellNode(side, i);
  };
  const go = (side, i) => {
    const graph = graphOf(side, i);
    if (graph !== views[side].number) enter(side, graph, [i]);
    pick(side, i);
    views[side].reveal(i);
  };
  let event = -1;
  const showEvent = (k) => {
    event = k;
    const given = events[k];
    document.querySelectorAll("tr.picked").forEach((other) => other.classList.remove("picked"));
    const row = document.querySelector(`tr[data-event="${k}"]`);
    if (row) { row.classList.add("picked"); row.parentElement.parentElement.parentElement.scrollTop = row.offsetTop - 60; }
    const after = given.after.length ? given.after : [...new Set(given.before.flatMap((j) => heirs[j]))];
    mark({ before: given.before, after });
    bring("before", given.before); bring("after", after);
    const head = make("h3", `${k + 1}. ${given.rule}`);
    const back = make("button", "previous", { type: "button" }), on = make("button", "next", { type: "button" });
    back.addEventListener("click", () => showEvent((k + events.length - 1) % events.length));
    on.addEventListener("click", () => showEvent((k + 1) % events.length));
    const bar = make("div", undefined, { class: "bar" });
    bar.append(back, on);
    const rows = [["why", data.passes[given.rule] || ""], ["what", given.text], ["gain", given.gain]];
    for (const [side, ids] of [["before", given.before], ["after", after]]) {
      rows.push([side, ids.length ? spread(ids.slice(0, 20).map((i) => jump(side, i))) : "nothing"]);
    }
    detail.replaceChildren(head, bar, table(rows));
  };

  for (const side of names) {
    const view = views[side];
    view.onpick = (i) => pick(side, i);
    view.onenter = (g) => enter(side, g);
    view.onmove = () => {
      if (together && together.checked && views[opposite[side]]) views[opposite[side]].follow(view, counterparts[side]);
    };
    view.onhover = (i, e) => {
      tip.hidden = i < 0;
      if (i < 0) return;
      const n = models[side].nodes[i], types = n[5].filter((v) => v >= 0).map((v) => models[side].values[v].slice(0, 2).join(": "));
      tip.textContent = [`${n[2]}  ${n[3]}`, ...types.slice(0, 4)].join("\n");
      tip.style.left = `${Math.min(e.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
      tip.style.top = `${Math.min(e.clientY + 16, innerHeight - tip.offsetHeight - 8)}px`;
    };
  }

  // Search: everything that a node is called, reads, makes or states.
  let hits = [], hit = -1;
  const search = $("search"), found = $("found");
  const texts = {};
  const textOf = (side) => texts[side] ??= models[side].nodes.map((n) => {
    const values = [...n[4], ...n[5]].filter((v) => v >= 0).map((v) => models[side].values[v][0]);
    return [n[2], n[3], ...values, ...n[6].flat()].join(" ").toLowerCase();
  });
  const look = () => {
    const wanted = search.value.trim().toLowerCase(), by = {};
    hits = [];
    for (const side of names) {
      by[side] = wanted ? textOf(side).flatMap((text, i) => (text.includes(wanted) ? [i] : [])) : [];
      hits.push(...by[side].map((i) => [side, i]));
    }
    hit = -1;
    mark(by);
    for (const side of names) { const here = by[side].filter((i) => views[side].inside(i)); here.length ? views[side].show(here) : views[side].draw(); }
    found.textContent = !wanted ? "" : names.length > 1 ? `${by.before.length} before, ${by.after.length} after` : `${hits.length} found`;
  };
  const step = (way) => {
    if (!hits.length) return;
    const kept = Object.fromEntries(names.map((side) => [side, hits.filter((h) => h[0] === side).map((h) => h[1])]));
    hit = (hit + way + hits.length) % hits.length;
    const [side, i] = hits[hit];
    go(side, i);
    mark(kept, hits[hit]);
    for (const each of names) views[each].draw();
    found.textContent = `${hit + 1} of ${hits.length}${names.length > 1 ? `, ${side}` : ""}`;
  };
  search.addEventListener("input", look);
  search.addEventListener("keydown", (e) => {
    if (e.key === "Enter") { e.preventDefault(); step(e.shiftKey ? -1 : hit < 0 ? 1 : 1); }
    if (e.key === "Escape") { search.value = ""; look(); search.blur(); }
  });
  $("next").addEventListener("click", () => step(1));
  $("previous").addEventListener("click", () => step(-1));
  $("fit").addEventListener("click", () => names.forEach((side) => views[side].all()));

  document.querySelectorAll("tr[data-event]").forEach((row) => {
    const show = () => { showEvent(Number(row.dataset.event)); $("graphs").scrollIntoView({ block: "start" }); };
    row.addEventListener("click", show);
    row.addEventListener("keydown", (e) => { if (e.key === "Enter") show(); });
  });
  const filter = $("filter");
  if (filter) filter.addEventListener("input", () => {
    const wanted = filter.value.toLowerCase();
    document.querySelectorAll("#events tbody tr").forEach((row) => { row.hidden = !row.textContent.toLowerCase().includes(wanted); });
  });

  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)) return;
    if (e.key === "/") search.focus();
    else if (e.key === "n" && events.length) showEvent((event + 1) % events.length);
    else if (e.key === "p" && events.length) showEvent((event + events.length - 1 + (event < 0 ? 1 : 0)) % events.length);
    else if (e.key === "0") names.forEach((side) => views[side].all());
    else if (e.key === "?") $("keys").open = !$("keys").open;
    else if (e.key === "Escape") {
      const left = names.filter((side) => leave(side));
      if (!left.length) { mark({}); names.forEach((side) => views[side].draw()); }
    } else return;
    e.preventDefault();
  });
  const redraw = () => { for (const view of Object.values(views)) { view.resize(); view.draw(); } };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { theme.clear(); redraw(); });
  window.addEventListener("resize", redraw);
  window.addEventListener("beforeprint", () => { for (const view of Object.values(views)) { view.resize(); view.all(); } });
  for (const side of names) { crumbs(side); views[side].start(); }
  window.graphoptViews = { left: views.before, right: views.after, events, showEvent, go, enter };
})();
