"use strict";

// Disjoint times in ascending order; knows how much of them lies before a time.
class TimeSet {
  begin = [];
  end = [];
  before = [];  // length of those before each
  length = 0;

  // In ascending order of begin; what overlaps or touches the last one is joined with it.
  add(begin, end) {
    const last = this.end.length - 1;
    if (last >= 0 && begin <= this.end[last]) {
      if (end <= this.end[last]) return;
      this.length += end - this.end[last];
      this.end[last] = end;
      return;
    }
    if (end <= begin) return;
    this.begin.push(begin);
    this.end.push(end);
    this.before.push(this.length);
    this.length += end - begin;
  }

  // How much of the set lies before `time`.
  until(time) {
    const at = firstAbove(this.begin, time) - 1;
    return at < 0 ? 0 : this.before[at] + Math.min(time, this.end[at]) - this.begin[at];
  }

  // [what lies in `other`, what does not]
  split(other) {
    const inside = new TimeSet(), outside = new TimeSet();
    let at = 0;
    for (let i = 0; i < this.begin.length; ++i) {
      let begin = this.begin[i];
      const end = this.end[i];
      while (at < other.end.length && other.end[at] <= begin) ++at;
      for (let k = at; k < other.begin.length && other.begin[k] < end; ++k) {
        if (begin < other.begin[k]) outside.add(begin, other.begin[k]);
        inside.add(Math.max(begin, other.begin[k]), Math.min(end, other.end[k]));
        begin = Math.min(end, other.end[k]);
      }
      if (begin < end) outside.add(begin, end);
    }
    return [inside, outside];
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
