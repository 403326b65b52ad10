"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

function element(tag, text, kind) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

const absent = "-";
const count = (n) => (n === null || n === undefined ? absent : n.toLocaleString("en"));
const percent = (x) => (x === null ? absent : (100 * x).toFixed(1) + "%");
const times = (x) => (x === null || x === undefined ? absent : x.toFixed(2) + "x");
const seconds = (s) => (s === null ? absent : s < 1 ? (1000 * s).toFixed(1) + " ms" : s.toFixed(1) + " s");

// -- which models are shown

let wanted = { text: "", what: "all", test: () => true };

function show(what, test) {
  wanted = { text: "", what, test };
  byId("filter").value = "";
  fillModels();
  byId("models").scrollIntoView({ block: "nearest" });
}

function words(model) {
  if (!model.words) {
    const parts = [model.name, model.digest, model.status, model.how];
    for (const row of model.rows) parts.push(row.says, ...Object.keys(row.ops), ...Object.keys(row.passes));
    model.words = parts.join(" ").toLowerCase();
  }
  return model.words;
}

const row = (model, name) => model.rows.find((each) => each.name === name);

function figure(text, what, test, bad) {
  const cell = element("td");
  const button = element("button", text, bad ? "figure bad" : "figure");
  button.type = "button";
  button.addEventListener("click", () => show(what, test));
  cell.append(button);
  if (typeof number(text) !== "number") cell.className = "text";
  return cell;
}

// -- tables

const atOnce = 200;

function sortable(table, heads, rows, line) {
  // Each row is [keys, ...]; a click on a head sorts by that key, a second one the other way. Rows that nobody has come
  // to yet are not made: the last one made makes those after it when it comes into view.
  let by = -1, down = false, made = 0;
  const head = element("thead"), body = element("tbody"), top = element("tr");
  heads.forEach((text, place) => {
    const word = rows.length && typeof rows[0][0][place] === "string";
    const cell = element("th", text, word ? "sortable word" : "sortable");
    cell.tabIndex = 0;
    const sort = () => {
      down = by === place ? !down : typeof rows[0]?.[0][place] === "number";
      by = place;
      rows.sort((a, b) => {
        const [x, y] = [a[0][place], b[0][place]];
        const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en");
        return down ? -order : order;
      });
      for (const each of top.children) each.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      fill();
    };
    cell.addEventListener("click", sort);
    cell.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
    top.append(cell);
  });
  head.append(top);
  const watcher = new IntersectionObserver((seen) => {
    if (seen.some((each) => each.isIntersecting)) more();
  });
  const more = () => {
    body.append(...rows.slice(made, made + atOnce).map(line));
    made = Math.min(made + atOnce, rows.length);
    watcher.disconnect();
    if (made < rows.length) watcher.observe(body.lastElementChild);
  };
  const fill = () => {
    made = 0;
    body.replaceChildren();
    more();
  };
  fill();
  table.replaceChildren(head, body);
}

const number = (text) => (/^[0-9,]+$|^-[0-9,]+$/.test(text) ? Number(text.replaceAll(",", "")) : text);

function plain(id, heads, rows, links) {
  if (!byId(id)) return;
  const lines = rows.map((cells) => [cells.map(number), cells]);
  sortable(byId(id), heads, lines, ([, cells]) => {
    const line = element("tr");
    cells.forEach((text, place) => {
      line.append(links(cells, place) || element("td", text, typeof number(text) === "number" ? "" : "text"));
    });
    return line;
  });
}

function fillStandings() {
  const heads = ["", "right", "wrong", "failed", "nodes left", "size left", "optimize"];
  for (const kind of data.kinds) heads.push("speed-up, " + kind, "faster", "tie", "slower");
  const rows = data.standings.map((each) => {
    const speeds = each.speeds.flatMap((speed) => speed || [0, 0, 0, 0]);
    return [[each.name, ...each.counts, each.nodes ?? 0, each.size ?? 0, each.seconds, ...speeds], each];
  });
  sortable(byId("standings"), heads, rows, ([, each]) => {
    const line = element("tr", undefined, each.name.startsWith("graphopt") ? "own" : "");
    line.append(element("td", each.name, "text"));
    ["right", "wrong", "failed"].forEach((state, place) => {
      const test = (model) => row(model, each.name)?.state === state;
      line.append(figure(count(each.counts[place]), each.name + ": " + state, test, place > 0 && each.counts[place] > 0));
    });
    line.append(element("td", percent(each.nodes)), element("td", percent(each.size)), element("td", each.seconds ? seconds(each.seconds) : absent));
    each.speeds.forEach((speed, at) => {
      line.append(element("td", speed ? times(speed[0]) : absent));
      ["faster", "tie", "slower"].forEach((verdict, place) => {
        const test = (model) => model.kind === data.kinds[at] && row(model, each.name)?.speed?.[3] === verdict;
        line.append(speed ? figure(count(speed[place + 1]), each.name + ": " + verdict, test) : element("td", absent));
      });
    });
    return line;
  });
}

function best(model) {
  const speeds = model.rows.filter((each) => each.name.startsWith("graphopt") && each.speed).map((each) => each.speed[0]);
  return speeds.length ? Math.max(...speeds) : 0;
}

function fewest(model) {
  const nodes = model.rows.filter((each) => each.name.startsWith("graphopt") && each.nodes !== null).map((each) => each.nodes);
  return nodes.length ? Math.min(...nodes) : 0;
}

function fillModels() {
  const text = wanted.text;
  const models = data.models.filter((each) => wanted.test(each) && words(each).includes(text));
  byId("shown").textContent = `${count(models.length)} of ${count(data.models.length)}: ${wanted.what}${text ? `, "${text}"` : ""}`;
  const heads = ["model", "status", "wrong", "failed", "nodes", "fewest", "fastest", "audit"];
  const rows = models.map((each) => {
    const states = (state) => each.rows.filter((one) => one.state === state).length;
    return [[each.name, each.status, states("wrong"), states("failed"), each.rows[0]?.nodes ?? 0, fewest(each), best(each),
      each.seconds], each];
  });
  sortable(byId("models"), heads, rows, ([keys, each]) => {
    const line = element("tr", undefined, keys[2] || each.status !== "done" ? "open bad" : "open");
    line.tabIndex = 0;
    line.append(element("td", each.name, "text"), element("td", each.status, "text"));
    line.append(element("td", keys[2] || ""), element("td", keys[3] || ""));
    line.append(element("td", count(keys[4])), element("td", count(keys[5])), element("td", keys[6] ? times(keys[6]) : absent));
    line.append(element("td", seconds(each.seconds)));
    const toggle = () => {
      if (line.nextSibling?.classList?.contains("detail")) line.nextSibling.remove();
      else line.after(detail(each));
    };
    line.addEventListener("click", toggle);
    line.addEventListener("keydown", (event) => { if (event.key === "Enter") toggle(); });
    return line;
  });
}

function detail(model) {
  const line = element("tr", undefined, "detail"), cell = element("td");
  cell.colSpan = 8;
  cell.append(element("p", [model.digest, model.kind, model.how].filter(Boolean).join("; ")));
  const table = element("table");
  const heads = ["", "says", "nodes", "bytes", "optimize", "against base", "interval", "passes", "message"];
  sortable(table, heads, model.rows.map((each) => [[each.name, each.says, each.nodes, each.bytes, each.seconds, each.speed?.[0] ?? 0],
    each]), ([, each]) => {
    const inner = element("tr", undefined, each.state === "right" ? "" : "bad");
    inner.append(element("td", each.name, "text"), element("td", each.says, "text"), element("td", count(each.nodes)));
    inner.append(element("td", count(each.bytes)), element("td", seconds(each.seconds)));
    inner.append(element("td", each.speed ? `${times(each.speed[0])} ${each.speed[3]}` : absent));
    inner.append(element("td", each.speed ? `${times(each.speed[1])} to ${times(each.speed[2])}` : absent));
    const passes = Object.entries(each.passes).map(([name, n]) => `${name} ${n}`).join(", ");
    inner.append(element("td", passes, "words"), element("td", each.message, "words"));
    return inner;
  });
  if (model.rows.length) cell.append(table);
  line.append(cell);
  return line;
}

fillStandings();
fillModels();
plain("releases", data.releaseHead, data.releases, () => undefined);
plain("changes", ["", "model", "contestant", "before", "after"], data.changes, (cells, place) =>
  place === 1 && figure(cells[1], cells[1], (model) => model.name === cells[1], ["wrong", "failed", "slower"].includes(cells[0])));
plain("passes", ["pass", "contestant", "models", "times", "nodes removed"], data.passes, (cells, place) =>
  place === 2 && figure(cells[2], cells[1] + ": " + cells[0], (model) => cells[0] in (row(model, cells[1])?.passes ?? {})));
plain("operators", data.operatorHead, data.operators, (cells, place) =>
  place === 1 && figure(cells[1], "with " + cells[0], (model) => cells[0] in (model.rows[0]?.ops ?? {})));
byId("filter").addEventListener("input", (event) => { wanted.text = event.target.value.toLowerCase(); fillModels(); });
byId("all").addEventListener("click", () => show("all", () => true));
