"use strict";

const kRuler = 22, kBand = 18, kLane = 20, kBetweenRanks = 8;

function duration(ns, digits = 4) {
  const [unit, by] = ns < 1e3 ? ["ns", 1] : ns < 1e6 ? ["µs", 1e3] : ns < 1e9 ? ["ms", 1e6] : ["s", 1e9];
  return `${Number((ns / by).toPrecision(digits))} ${unit}`;
}

// Draws the lanes between two times on a canvas that stands still while its box scrolls.
class Timeline {
  constructor(box, lanes, trace, show) {
    this.box = box;
    this.canvas = box.querySelector("canvas");
    this.spacer = box.querySelector("#spacer");
    this.lanes = lanes;
    this.ranges = trace.ranges;
    this.whole = [trace.begin, Math.max(trace.end, trace.begin + 100)];
    [this.from, this.to] = this.whole;
    this.show = show;  // told of the event that is pointed at
    this.lane = -1;
    this.event = -1;
    this.place();
    new ResizeObserver(() => this.resize()).observe(box);
    box.addEventListener("scroll", () => this.redraw());
    const recolour = () => { this.colours = null; this.redraw(); };
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
    this.resize();
  }

  place() {
    let y = kRuler + (this.ranges.length ? kBand : 0) + 4, rank = null;
    for (const lane of this.lanes.all) {
      if (rank !== null && lane.rank !== rank) y += kBetweenRanks;
      lane.first = lane.rank !== rank;
      rank = lane.rank;
      lane.y = y;
      y += kLane;
    }
    this.height = y + 6;
  }

  resize() {
    const limit = parseFloat(getComputedStyle(this.box).maxHeight) || this.height;
    const height = Math.min(this.height, Math.max(120, Math.floor(limit) - 2));
    this.canvas.style.height = `${height}px`;
    this.spacer.style.height = `${this.height - height}px`;
    this.shown = [this.box.clientWidth, height];
    this.gutter = this.shown[0] < 600 ? 84 : 136;
    this.redraw();
  }

  get scale() { return (this.shown[0] - this.gutter) / (this.to - this.from); }  // px per ns
  x(time) { return this.gutter + (time - this.from) * this.scale; }
  time(x) { return this.from + (x - this.gutter) / this.scale; }

  look(from, to) {
    const [first, last] = this.whole;
    const length = Math.min(Math.max(to - from, 100), last - first);
    this.from = Math.min(Math.max(from, first), last - length);
    this.to = this.from + length;
    this.redraw();
  }
  zoom(factor, at = (this.from + this.to) / 2) {
    this.look(at - (at - this.from) * factor, at + (this.to - at) * factor);
  }
  pan(share) {
    const by = (this.to - this.from) * share;
    this.look(this.from + by, this.to + by);
  }

  select(lane, event) {
    this.lane = lane;
    this.event = event;
    const one = this.lanes.all[lane];
    const top = kRuler + (this.ranges.length ? kBand : 0) + 4;
    if (one && one.y - this.box.scrollTop < top) this.box.scrollTop = one.y - top;
    if (one && one.y + kLane - this.box.scrollTop > this.shown[1]) this.box.scrollTop = one.y + kLane + 6 - this.shown[1];
    this.show(one, event);
    this.redraw();
  }

  laneAt(y) {
    const down = y + this.box.scrollTop;
    return this.lanes.all.findIndex((lane) => lane.y <= down && down < lane.y + kLane);
  }

  redraw() {
    if (this.asked) return;
    this.asked = requestAnimationFrame(() => { this.asked = 0; this.draw(); });
  }

  draw() {
    const [width, height] = this.shown, ratio = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const to = this.to2d = this.canvas.getContext("2d");
    to.scale(ratio, ratio);
    this.colours ??= this.readColours(to);
    to.textBaseline = "middle";
    const top = kRuler + (this.ranges.length ? kBand : 0);
    this.drawGrid(to, top);
    to.save();
    to.beginPath();
    to.rect(0, top, width, height - top);
    to.clip();
    this.drawn = 0;
    this.lanes.all.forEach((lane, i) => {
      const y = lane.y - this.box.scrollTop;
      if (y + kLane < top || y > height) return;
      this.drawLane(to, lane, y, i);
      ++this.drawn;
    });
    to.restore();
    this.drawRanges(to);
  }

  readColours(to) {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(`--${name}`).trim();
    const colours = {};
    for (const name of ["card", "line", "grid", "text", "faint", "compute", "exposed", "hidden", "hidden-light", "other",
                        "on-compute", "on-exposed", "on-hidden", "focus"])
      colours[name] = read(name);
    colours.hidden = this.hatch(to, colours["hidden-light"], colours.hidden);
    colours["on-other"] = colours.faint;
    return colours;
  }

  hatch(to, ground, stroke) {
    const tile = new OffscreenCanvas(6, 6), on = tile.getContext("2d");
    on.fillStyle = ground;
    on.fillRect(0, 0, 6, 6);
    on.strokeStyle = stroke;
    on.lineWidth = 1.8;
    on.beginPath();
    for (const shift of [-6, 0, 6]) on.moveTo(shift - 1, 7), on.lineTo(shift + 7, -1);
    on.stroke();
    return to.createPattern(tile, "repeat");
  }

  drawGrid(to, top) {
    const [width, height] = this.shown;
    to.font = "11px system-ui, sans-serif";
    const rough = 90 / this.scale, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
    const origin = this.whole[0];
    for (let k = Math.ceil((this.from - origin) / step); origin + k * step <= this.to; ++k) {
      const x = Math.round(this.x(origin + k * step)) + 0.5;
      to.fillStyle = this.colours.grid;
      to.fillRect(x - 0.5, 14, 1, height);
      const text = k === 0 ? "0" : duration(k * step, 9);
      to.fillStyle = this.colours.faint;
      if (x + to.measureText(text).width + 6 < width) to.fillText(text, x + 4, kRuler / 2);
    }
    to.fillStyle = this.colours.line;
    to.fillRect(0, top, width, 1);
  }

  drawRanges(to) {
    to.font = "11px system-ui, sans-serif";
    const [width] = this.shown;
    this.ranges.forEach(([name, begin, end], i) => {
      const left = Math.max(this.x(begin), this.gutter), right = Math.min(this.x(end), width);
      if (right <= left) return;
      to.fillStyle = i % 2 ? this.colours.grid : this.colours.line;
      to.fillRect(left, kRuler, Math.max(1, right - left - 1), kBand - 2);
      to.fillStyle = this.colours.text;
      this.label(to, name, left, kRuler + (kBand - 2) / 2, right - left);
    });
  }

  label(to, text, x, y, width) {
    const room = width - 8;
    if (room < 16) return;
    let shown = text;
    if (to.measureText(shown).width > room) {
      const each = to.measureText(text).width / text.length;
      shown = text.slice(0, Math.max(0, Math.floor(room / each) - 1));
      if (shown.length < 2) return;
      shown += "…";
    }
    to.fillText(shown, x + 4, y);
  }

  drawLane(to, lane, y, number) {
    const [width] = this.shown;
    const height = kLane - 3;
    if (number === this.lane) {
      to.fillStyle = this.colours.grid;
      to.fillRect(0, y - 1, width, kLane - 1);
    }
    this.drawShades(to, lane, y, height);
    this.drawEvents(to, lane, y, height, number);
    to.fillStyle = this.colours.card;
    if (number !== this.lane) to.fillRect(0, y - 1, this.gutter - 1, kLane);
    to.font = "12px system-ui, sans-serif";
    const narrow = this.gutter < 100, indent = narrow ? 22 : 58;
    if (lane.first) {
      to.fillStyle = this.colours.text;
      to.fillText(narrow ? String(lane.rank) : `rank ${lane.rank}`, 8, y + height / 2);
    }
    to.fillStyle = this.colours.faint;
    this.label(to, lane.name, indent - 4, y + height / 2, this.gutter - indent + 8);
  }

  // For each pixel, how much of it each shade takes, from the bottom up. Its cost is that of the
  // pixels, however many events there are.
  drawShades(to, lane, y, height) {
    const pixels = this.shown[0] - this.gutter, ratio = devicePixelRatio || 1;
    const columns = Math.ceil(pixels * ratio), step = (this.to - this.from) / columns, wide = pixels / columns;
    const before = lane.shades.map(([, set]) => set.until(this.from));
    let run = null, begun = 0;
    const flush = (column) => {
      let bottom = y + height;
      run.forEach((tall, k) => {
        if (tall === 0) return;
        to.fillStyle = this.colours[lane.shades[k][0]];
        to.fillRect(this.gutter + begun * wide, bottom - tall, (column - begun) * wide, tall);
        bottom -= tall;
      });
    };
    for (let column = 0; column < columns; ++column) {
      const tall = lane.shades.map(([, set], k) => {
        const until = set.until(this.from + (column + 1) * step), share = (until - before[k]) / step;
        before[k] = until;
        return share <= 0 ? 0 : Math.max(1, Math.min(1, share) * height);
      });
      if (run && tall.every((one, k) => Math.abs(one - run[k]) < 0.25)) continue;
      if (run) flush(column);
      run = tall;
      begun = column;
    }
    if (run) flush(columns);
  }

  // Edges and names of what is wide enough.
  drawEvents(to, lane, y, height, number) {
    const [first, last] = lane.during(this.from, this.to);
    to.font = "11px system-ui, sans-serif";
    if (last - first < 5000)
      for (let i = first; i < last; ++i) {
        const left = this.x(lane.begin[i]), right = this.x(lane.end[i]);
        if (right - left < 4) continue;
        to.fillStyle = this.colours.card;
        if (left > this.gutter) to.fillRect(left - 0.5, y, 1, height);
        this.drawName(to, lane, i, Math.max(left, this.gutter), right, y + height / 2);
      }
    if (number !== this.lane || this.event < 0) return;
    const left = Math.max(this.x(lane.begin[this.event]), this.gutter), right = this.x(lane.end[this.event]);
    if (right < this.gutter) return;
    to.strokeStyle = this.colours.text;
    to.lineWidth = 2;
    to.strokeRect(left, y, Math.max(2, right - left), height);
  }

  drawName(to, lane, i, left, right, y) {
    const width = Math.min(right, this.shown[0]) - left;
    if (width < 34) return;
    const own = lane.chosen[lane.data.module[i]];
    const hidden = !lane.compute && lane.hiddenShare(i) > 0.5;
    const on = own ? (lane.compute ? "on-compute" : hidden ? "on-hidden" : "on-exposed") : "on-other";
    if (hidden && own) {  // a hatched ground is hard to read on
      to.fillStyle = this.colours["hidden-light"];
      to.fillRect(left + 2, y - 7, Math.min(width - 4, to.measureText(lane.text(i)).width + 5), 14);
    }
    to.fillStyle = this.colours[on];
    this.label(to, lane.text(i), left, y, width);
  }
}
