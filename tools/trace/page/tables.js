"use strict";

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes))
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// A column: {title, of: row -> value (null: not known), text: value -> text, cell: row -> element}.
// Numbers stand to the right.
class Table {
  constructor(title, columns, rows, {sort, mean, tall} = {}) {
    this.columns = columns;
    this.rows = rows;
    this.body = element("tbody");
    const heads = columns.map((column, i) => {
      const button = element("button", {type: "button", onclick: () => this.sortBy(i)}, column.title);
      return element("th", {scope: "col", class: column.text ? "number" : "text"}, button);
    });
    this.heads = heads;
    const table = element("table", {}, element("thead", {}, element("tr", {}, ...heads)), this.body);
    if (mean) table.append(element("tfoot", {}, this.line(mean, "mean")));
    const id = `table-${title.toLowerCase().replace(/\W+/g, "-")}`;
    const heading = element("h2", {id}, title);
    const box = element("div", {class: tall ? "scroll tall" : "scroll", tabindex: "0", role: "region", "aria-labelledby": id}, table);
    this.root = element("div", {}, heading, box);
    this.descending = false;
    this.sortBy(sort ?? 0);
  }

  // The same column again: the other way round. Numbers begin with the largest.
  sortBy(i) {
    const column = this.columns[i];
    this.descending = this.sorted === i ? !this.descending : Boolean(column.text);
    this.sorted = i;
    const sign = this.descending ? -1 : 1;
    const compare = (a, b) => {
      const [x, y] = [column.of(a), column.of(b)];
      if (x === null || y === null) return (x === null) - (y === null);
      return sign * (typeof x === "number" ? x - y : x.localeCompare(y, "en", {numeric: true}));
    };
    this.heads.forEach((head, k) => {
      if (k === i) head.setAttribute("aria-sort", this.descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    this.body.replaceChildren(...[...this.rows].sort(compare).map((row) => this.line(row, "")));
  }

  line(row, kind) {
    const cells = this.columns.map((column) => {
      const value = column.of(row);
      const shown = column.cell ? column.cell(row) : value === null ? "–" : column.text ? column.text(value) : value;
      return element("td", {class: column.text ? "number" : column.plain ? "text" : "name"}, shown);
    });
    return element("tr", {class: kind}, ...cells);
  }
}

const asMs = (value) => value.toFixed(2);
const asCount = (value) => String(value);
const asPercent = (value) => (100 * value).toFixed(1);
const asMegabytes = (value) => (value / 1e6).toFixed(3);

function shareBar(of) {
  const part = (kind, ms) => element("i", {class: kind, style: `width:${of.total_ms > 0 ? 100 * ms / of.total_ms : 0}%`});
  const text = `computing ${asMs(of.compute_ms)} ms, exposed ${asMs(of.exposed_ms)} ms, idle ${asMs(of.idle_ms)} ms`;
  return element("div", {class: "bar", role: "img", "aria-label": text, title: text}, part("compute", of.compute_ms),
                 part("exposed", of.exposed_ms), part("idle", of.idle_ms));
}

const kCommunication = [
  {title: "Collectives", of: (row) => row.collectives, text: asCount},
  {title: "MB", of: (row) => row.bytes, text: asMegabytes},
  {title: "Communicating ms", of: (row) => row.communication_ms, text: asMs},
  {title: "Exposed ms", of: (row) => row.exposed_ms, text: asMs},
  {title: "Hidden %", of: (row) => row.hidden_share, text: asPercent},
];
const kComputing = {title: "Computing ms", of: (row) => row.compute_ms, text: asMs};

function rankTable(report) {
  const columns = [
    {title: "Rank", of: (row) => row.rank ?? "mean", plain: true},
    {title: "Total ms", of: (row) => row.total_ms, text: asMs},
    kComputing, ...kCommunication.slice(2),
    {title: "Idle ms", of: (row) => row.idle_ms, text: asMs},
    {title: "Longest gap ms", of: (row) => row.longest_idle_ms, text: asMs},
    ...kCommunication.slice(0, 2),
    {title: "ECT ms", of: (row) => row.ect_ms, text: asMs},
    {title: "Computing, exposed, idle", of: (row) => row.exposed_ms / row.total_ms, cell: shareBar, plain: true},
  ];
  const known = report.mean.overlap_efficiency !== null;
  if (known) columns.splice(-1, 0, {title: "E %", of: (row) => row.overlap_efficiency, text: asPercent});
  return new Table("Ranks", columns, report.ranks, {mean: report.ranks.length > 1 ? report.mean : null});
}

function kindTable(report) {
  const columns = [{title: "Collective", of: (row) => row.op}, {title: "For", of: (row) => row.for}, ...kCommunication];
  return new Table("Collectives, mean over ranks", columns, report.mean.kinds, {sort: 5});
}

function moduleTable(report, filter) {
  const name = (row) => row.module ?? "outside of modules";
  const cell = (row) => row.module === null ? name(row) :
      element("button", {type: "button", title: "Show in the timeline", onclick: () => filter(row.module)}, row.module);
  const columns = [{title: "Module, with its submodules", of: name, cell}, kComputing, ...kCommunication];
  return new Table("Modules, mean over ranks", columns, report.mean.modules, {sort: 5, tall: true});
}

function longestTable(report, go) {
  const cell = (row) => element("button", {type: "button", title: "Show in the timeline", onclick: () => go(row)}, row.collective);
  const columns = [
    {title: "Collective", of: (row) => row.collective, cell},
    {title: "Exposed ms", of: (row) => row.exposed_ms, text: asMs},
    {title: "Rank", of: (row) => row.rank, text: asCount},
    {title: "Begins at ms", of: (row) => row.begin_ms, text: asMs},
    {title: "Module", of: (row) => row.module},
    {title: "Issued at", of: (row) => row.at},
  ];
  return new Table("Longest exposed", columns, report.longest_exposed, {sort: 1, tall: true});
}
