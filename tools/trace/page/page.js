"use strict";

const trace = JSON.parse(document.getElementById("trace").textContent);
const report = trace.report;
const byId = (id) => document.getElementById(id);

function showHeader() {
  const simulated = report.about.simulated;
  const ranks = simulated === undefined ? `${report.ranks.length} rank${report.ranks.length === 1 ? "" : "s"}`
                                        : `simulation of ${simulated}`;
  const parts = [report.file, ranks, duration(trace.end - trace.begin)];
  if (report.link !== null) parts.push(simulated === undefined ? `emulated link of ${report.link}` : report.link);
  if (report.dropped_events > 0) parts.push(`${report.dropped_events} events were dropped`);
  byId("about").textContent = parts.join(" · ");
  document.title = `Overlap: ${report.file}`;
}

function showFigures() {
  const mean = report.mean, share = (ms) => `${asPercent(ms / mean.total_ms)} % of the time`;
  const tile = (name, value, note) => byId("figures").append(element("div", {},
      element("dt", {}, name), element("dd", {class: "value"}, value), element("dd", {class: "note"}, note)));
  tile("Hidden", mean.hidden_share === null ? "–" : `${asPercent(mean.hidden_share)} %`,
       mean.hidden_share === null ? "there is no communication" : "of the time in flight, the rank did not stand still");
  tile("Exposed", `${asMs(mean.exposed_ms)} ms`, `${share(mean.exposed_ms)}; ${asMs(mean.communication_ms)} ms communicating`);
  tile("Computing", `${asMs(mean.compute_ms)} ms`, share(mean.compute_ms));
  tile("Idle", `${asMs(mean.idle_ms)} ms`, `neither computing nor exposed; the longest gap is ${asMs(mean.longest_idle_ms)} ms`);
  const whyNoEfficiency = report.why_no_efficiency === null ? "" : `; E is not known: ${report.why_no_efficiency}`;
  const efficiency = mean.overlap_efficiency === null ? whyNoEfficiency : `; E = ${asPercent(mean.overlap_efficiency)} %`;
  if (mean.ect_ms === null) tile("Effective communication time", "not known", "it takes a --baseline");
  else tile("Effective communication time", `${asMs(mean.ect_ms)} ms`, `over the baseline's compute${efficiency}`);
  byId("share").replaceWith(Object.assign(shareBar(mean), {className: "bar wide", id: "share"}));
}

// What an event is, in words.
function describe(lane, i) {
  if (!lane || i < 0) return lane ? [element("b", {}, `rank ${lane.rank}, ${lane.name}`), ` ${lane.size} events`] : [];
  const parts = [duration(lane.end[i] - lane.begin[i]), `from ${duration(lane.begin[i] - trace.begin, 6)}`, `rank ${lane.rank}`];
  if (lane.module(i)) parts.push(lane.module(i));
  if (!lane.compute) {
    parts.push(`${asMegabytes(lane.bytes(i))} MB`, `${asPercent(lane.hiddenShare(i))} % hidden`);
    if (lane.at(i)) parts.push(lane.at(i));
  }
  return [element("b", {}, lane.text(i)), ` ${parts.join(" · ")}`];
}

function makeTimeline() {
  const lanes = new Lanes(trace);
  const show = (lane, event) => byId("status").replaceChildren(...describe(lane, event));
  const timeline = new Timeline(byId("view"), lanes, trace, show);
  new Controls(timeline);
  const on = (id, action) => byId(id).addEventListener("click", action);
  on("in", () => timeline.zoom(0.6));
  on("out", () => timeline.zoom(1 / 0.6));
  on("earlier", () => timeline.pan(-0.3));
  on("later", () => timeline.pan(0.3));
  on("whole", () => timeline.look(...timeline.whole));
  return timeline;
}

function makeFilter(timeline) {
  const input = byId("filter");
  for (const path of report.mean.modules.map((row) => row.module).filter((path) => path !== null).sort())
    byId("modules").append(element("option", {value: path}));
  const apply = () => {
    const found = timeline.lanes.choose(input.value.trim());
    input.classList.toggle("none", !found);
    byId("view").parentElement.classList.toggle("filtered", input.value.trim() !== "");
    timeline.redraw();
  };
  input.addEventListener("input", apply);
  return (path) => {
    input.value = path;
    apply();
    byId("view").scrollIntoView({block: "nearest"});
  };
}

// To a stretch of a rank, with as much again around it.
function goTo(timeline, row) {
  const begin = row.begin_ms * 1e6, length = row.exposed_ms * 1e6;
  timeline.look(begin - length, begin + 2 * length);
  const all = timeline.lanes.all;
  const lane = all.findIndex((one) => one.rank === row.rank && !one.compute &&
                                      one.during(begin, begin + length)[0] < one.during(begin, begin + length)[1]);
  const middle = begin + length / 2;
  timeline.select(lane, lane < 0 ? -1 : all[lane].eventAt(middle, length / 2));
  byId("view").scrollIntoView({block: "nearest"});
  byId("view").focus({preventScroll: true});
}

function showPage() {
  showHeader();
  showFigures();
  const timeline = makeTimeline(), filter = makeFilter(timeline);
  const tables = [rankTable(report)];
  if (report.mean.kinds.length > 0) tables.push(kindTable(report));
  if (report.mean.modules.length > 0) tables.push(moduleTable(report, filter));
  if (report.longest_exposed.length > 0) tables.push(longestTable(report, (row) => goTo(timeline, row)));
  byId("tables").append(...tables.map((table) => table.root));
  return {timeline, tables};
}

const page = showPage();
