"use strict";

// Disjoint times in ascending order, in one colour; knows how much of them lies before a time.
class Shade {
  begin = [];
  end = [];
  before = [];  // length of those before each
  length = 0;

  add(begin, length) {
    this.begin.push(begin);
    this.end.push(begin + length);
    this.before.push(this.length);
    this.length += length;
  }

  until(time) {
    const at = firstAbove(this.begin, time) - 1;
    return at < 0 ? 0 : this.before[at] + Math.min(time, this.end[at]) - this.begin[at];
  }
}

// Index of the first number above `limit`; numbers ascend.
function firstAbove(numbers, limit) {
  let low = 0, high = numbers.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] > limit) high = middle;
    else low = middle + 1;
  }
  return low;
}

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

  // What is drawn in which shade: [name, Shade], from the bottom up. Modules that are `chosen` stand
  // out, and so do sets of modules that are `own`.
  shadesOf(chosen, own) {
    const names = this.compute ? ["compute", "other"] : ["exposed", "hidden", "other"];
    const shades = new Map(names.map((name) => [name, new Shade()]));
    const parts = this.data.parts, {begin, length, exposed} = parts ?? this.data;
    let time = 0;
    begin.forEach((step, i) => {
      time += step;
      const standsOut = parts ? own[parts.modules[i]] : chosen[this.data.module[i]];
      const name = !standsOut ? "other" : this.compute ? "compute" : exposed[i] ? "exposed" : "hidden";
      shades.get(name).add(time, length[i]);
    });
    return [...shades];
  }

  // Share of a collective in which the rank did not stand still.
  hiddenShare(i) { return this.data.length[i] > 0 ? this.data.hidden[i] / this.data.length[i] : 0; }

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
    this.sets = trace.modules;
    this.all = trace.lanes.map((lane) => new Lane(lane, trace.texts));
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
    const own = this.sets.map((modules) => modules.some((number) => chosen[number]));
    for (const lane of this.all) {
      lane.chosen = chosen;
      lane.shades = lane.shadesOf(chosen, own);
    }
    return text === "" || this.modules.some(matches);
  }
}
