"use strict";

// Mouse, fingers and keys of a timeline.
class Controls {
  constructor(timeline) {
    this.timeline = timeline;
    this.pointers = new Map();  // id -> x
    const box = timeline.box;
    box.addEventListener("keydown", (event) => this.key(event));
    box.addEventListener("wheel", (event) => this.wheel(event), {passive: false});
    box.addEventListener("pointerdown", (event) => this.down(event));
    box.addEventListener("pointermove", (event) => this.move(event));
    for (const over of ["pointerup", "pointercancel"]) box.addEventListener(over, (event) => this.up(event));
    box.addEventListener("dblclick", (event) => timeline.zoom(0.4, timeline.time(this.place(event)[0])));
  }

  place(event) {
    const box = this.timeline.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const line = this.timeline, share = event.shiftKey ? 0.8 : 0.15;
    const actions = {
      ArrowLeft: () => line.pan(-share), ArrowRight: () => line.pan(share),
      ArrowUp: () => this.lane(-1), ArrowDown: () => this.lane(1),
      "+": () => line.zoom(0.6), "=": () => line.zoom(0.6), "-": () => line.zoom(1 / 0.6),
      0: () => line.look(...line.whole), Home: () => line.look(...line.whole),
      n: () => this.step(1), N: () => this.step(1), p: () => this.step(-1), P: () => this.step(-1),
    };
    if (!actions[event.key]) return;
    actions[event.key]();
    event.preventDefault();
  }

  lane(by) {
    const count = this.timeline.lanes.all.length;
    this.timeline.select(Math.min(Math.max(this.timeline.lane + by, 0), count - 1), -1);
  }

  // To the next event of the lane that the filter leaves, or from the left edge.
  step(by) {
    const line = this.timeline;
    if (line.lane < 0) line.lane = 0;
    const lane = line.lanes.all[line.lane];
    let at = line.event >= 0 ? line.event + by : lane.during(line.from, line.to)[0];
    while (at >= 0 && at < lane.size && !lane.chosen[lane.data.module[at]]) at += by;
    if (at < 0 || at >= lane.size) return;
    const length = line.to - line.from, middle = (lane.begin[at] + lane.end[at]) / 2;
    if (lane.begin[at] < line.from || lane.end[at] > line.to) line.look(middle - length / 2, middle + length / 2);
    line.select(line.lane, at);
  }

  wheel(event) {
    const line = this.timeline, [x] = this.place(event);
    const unit = event.deltaMode === 1 ? 20 : 1;
    if (event.ctrlKey || event.metaKey) {
      line.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY * unit)) * 0.008), line.time(x));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      line.pan((event.deltaX || event.deltaY) * unit / line.shown[0]);
    } else {
      return;  // the page or the box scrolls
    }
    event.preventDefault();
  }

  down(event) {
    const [x] = this.place(event);
    if (event.button !== 0 || x > this.timeline.shown[0]) return;
    this.pointers.set(event.pointerId, x);
    this.moved = 0;
    this.timeline.box.setPointerCapture(event.pointerId);
    this.timeline.box.classList.add("dragging");
  }

  move(event) {
    const line = this.timeline, [x, y] = this.place(event), before = this.pointers.get(event.pointerId);
    if (before === undefined) return this.point(x, y);
    this.moved += Math.abs(x - before);
    if (this.pointers.size === 1) {
      line.pan((before - x) / (line.shown[0] - line.gutter));
    } else {
      const other = [...this.pointers].find(([id]) => id !== event.pointerId)[1];
      const apart = Math.max(8, Math.abs(x - other));
      line.zoom(Math.max(8, Math.abs(before - other)) / apart, line.time((x + other) / 2));
    }
    this.pointers.set(event.pointerId, x);
  }

  up(event) {
    const line = this.timeline, [x, y] = this.place(event);
    if (this.pointers.delete(event.pointerId) && this.moved < 4 && event.type === "pointerup") {
      const lane = line.laneAt(y);
      if (lane >= 0) line.select(lane, x > line.gutter ? this.under(x, lane) : -1);
    }
    if (this.pointers.size === 0) line.box.classList.remove("dragging");
  }

  under(x, lane) {
    const line = this.timeline;
    return line.lanes.all[lane].eventAt(line.time(x), 3 / line.scale);
  }

  // What is under the mouse is told of until it leaves; then again what is selected.
  point(x, y) {
    const line = this.timeline, lane = line.laneAt(y);
    const event = lane >= 0 && x > line.gutter ? this.under(x, lane) : -1;
    if (event >= 0) line.show(line.lanes.all[lane], event);
    else line.show(line.lanes.all[line.lane], line.event);
  }
}
