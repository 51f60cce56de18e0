"use strict";

// A lane: the kernels of a rank, or the collectives of one of its communicators.
class Lane {
  constructor(data, texts) {
    this.rank = data.rank;
    this.name = data.name;
    this.compute = data.compute;
    this.data = data;
    this.texts = texts;
    this.begin = [];
    this.end = [];
    this.lastEnd = [];  // the latest end up to each event
    let time = 0, last = -Infinity;
    data.begin.forEach((step, i) => {
      time += step;
      this.begin.push(time);
      this.end.push(time + data.length[i]);
      this.lastEnd.push(last = Math.max(last, time + data.length[i]));
    });
  }
  get size() { return this.begin.length; }
  text(i) { return this.texts[this.data.text[i]]; }
  module(i) { return this.texts[this.data.module[i]]; }
  at(i) { return this.data.at ? this.texts[this.data.at[i]] : ""; }
  bytes(i) { return this.data.bytes ? this.data.bytes[i] : 0; }

  // Indices [first, last) of the events that reach into a time.
  during(from, to) { return [firstAbove(this.lastEnd, from), firstAbove(this.begin, to)]; }

  // The union of the events whose module is chosen, and of the others.
  united(chosen) {
    const own = new TimeSet(), others = new TimeSet();
    for (let i = 0; i < this.size; ++i)
      (chosen(this.data.module[i]) ? own : others).add(this.begin[i], this.end[i]);
    return [own, others];
  }

  // Index of the innermost event at a time, or within `reach` of it; -1: none.
  eventAt(time, reach) {
    const [first, last] = this.during(time - reach, time + reach);
    let best = -1, distance = Infinity;
    for (let i = Math.max(first, last - 200); i < last; ++i) {
      const off = Math.max(this.begin[i] - time, time - this.end[i], 0);
      if (off <= reach && off <= distance) best = i, distance = off;
    }
    return best;
  }
}

// All lanes of a trace, and what of them is drawn in which shade.
class Lanes {
  constructor(trace) {
    this.texts = trace.texts;
    this.all = trace.lanes.map((lane) => new Lane(lane, trace.texts));
    this.computing = new Map();  // by rank
    for (const lane of this.all)
      if (lane.compute) this.computing.set(lane.rank, lane.united(() => true)[0]);
    this.modules = [...new Set(this.all.flatMap((lane) => [...new Set(lane.data.module)]))]
        .map((number) => this.texts[number]).filter((path) => path !== "");
    this.choose("");
  }

  // The events of a module and its submodules stand out; "" is all. A text that names no module
  // stands for all that contain it. Returns whether there is any.
  choose(text) {
    const exact = this.modules.some((path) => path === text || path.startsWith(text + "."));
    const matches = (path) => text === "" || (path !== "" &&
        (text === "model" || (exact ? path === text || path.startsWith(text + ".") : path.includes(text))));
    const chosen = this.texts.map(matches);
    for (const lane of this.all) {
      const [own, others] = lane.united((number) => chosen[number]);
      lane.chosen = chosen;
      const rest = others.split(own)[1];
      if (lane.compute) {
        lane.shades = [["compute", own], ["other", rest]];
      } else {
        const [hidden, exposed] = own.split(this.computing.get(lane.rank) ?? new TimeSet());
        lane.shades = [["exposed", exposed], ["hidden", hidden], ["other", rest]];
      }
    }
    return text === "" || this.modules.some(matches);
  }

  // Share of an event that ran under compute.
  hiddenShare(lane, i) {
    const computing = this.computing.get(lane.rank);
    const length = lane.end[i] - lane.begin[i];
    return computing && length > 0 ? (computing.until(lane.end[i]) - computing.until(lane.begin[i])) / length : 0;
  }
}
