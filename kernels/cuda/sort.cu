// Stable sorting along lines: runs are sorted in shared memory, then merged through scratch memory
// until one is left. Equal elements are ordered by position, so any sorting network is stable.
#include <limits>

#include "kernels/cuda/team.h"

namespace coshard::kernels::cuda {
namespace {

constexpr int kSortRun = 2048;  // elements of a run, at most

// An element and its position in the line; -1: past the end, sorts after all others.
template <class T>
struct Sorted {
  T value;
  std::int32_t place;
};

template <class T>
CS_BODY bool sorts_before(const Sorted<T>& a, const Sorted<T>& b, bool descending) {
  if (a.place < 0 || b.place < 0) return b.place < 0 && a.place >= 0;
  const auto x = widen(a.value);
  const auto y = widen(b.value);
  const bool less = x < y || (y != y && x == x);
  const bool more = y < x || (x != x && y == y);
  if (less || more) return less != descending;
  return a.place < b.place;
}

// Where sorted elements go: the first k to the result, or all of a line to scratch memory.
template <class T>
struct SortTarget {
  Sorted<T>* scratch;  // [lines][extent]; null: the result
  T* values;
  std::int64_t* indices;
  std::int64_t extent, inner, k;
  CS_BODY void put(std::int64_t line, std::int64_t at, const Sorted<T>& element) const {
    if (scratch != nullptr) {
      scratch[line * extent + at] = element;
    } else if (at < k) {
      const std::int64_t to = (line / inner * k + at) * inner + line % inner;
      values[to] = element.value;
      indices[to] = element.place;
    }
  }
};

// One block per run.
template <class T>
struct SortRunsKernel : PerBlock {
  bool descending;
  int size;           // power of two: elements that are sorted
  std::int64_t runs;  // in a line
  const T* x;
  SortTarget<T> target;

  CS_BODY void operator()(Block& block) const {
    const std::int64_t line = block.index() / runs;
    const std::int64_t first = block.index() % runs * size;
    const std::int64_t inner = target.inner, extent = target.extent;
    const T* from = x + line / inner * extent * inner + line % inner;
    auto* run = block.template shared<Sorted<T>>();
    for (int i = block.thread(); i < size; i += block.threads()) {
      const std::int64_t place = first + i;
      run[i].place = -1;
      if (place < extent) run[i] = {from[place * inner], static_cast<std::int32_t>(place)};
    }
    block.barrier();
    for (int width = 2; width <= size; width *= 2) {
      for (int distance = width / 2; distance > 0; distance /= 2) {
        exchange(block, run, width, distance);
        block.barrier();
      }
    }
    for (int i = block.thread(); i < size; i += block.threads()) {
      if (run[i].place >= 0) target.put(line, first + i, run[i]);
    }
  }
  // One step of a bitonic network.
  CS_BODY void exchange(Block& block, Sorted<T>* run, int width, int distance) const {
    for (int pair = block.thread(); pair < size / 2; pair += block.threads()) {
      const int low = pair / distance * 2 * distance + pair % distance;
      const int high = low + distance;
      const Sorted<T> a = run[low], b = run[high];
      const bool rising = (low & width) == 0;
      if (rising ? !sorts_before(b, a, descending) : !sorts_before(a, b, descending)) continue;
      run[low] = b;
      run[high] = a;
    }
  }
};

// Merges adjacent runs of `length` elements: each element counts those of the other run that
// precede it.
template <class T>
struct MergeRunsKernel : PerElement {
  bool descending;
  std::int64_t lines, length;  // of a run
  const Sorted<T>* from;
  SortTarget<T> target;

  CS_BODY void operator()(Block& block) const {
    const std::int64_t extent = target.extent;
    for (std::int64_t i = block.grid_thread(); i < lines * extent; i += block.grid_threads()) {
      const std::int64_t line = i / extent, at = i % extent;
      const std::int64_t own = at / length * length;
      const std::int64_t pair = at / (2 * length) * 2 * length;
      const std::int64_t other = own == pair ? pair + length : pair;
      const std::int64_t end = other + length < extent ? other + length : extent;
      const Sorted<T>* data = from + line * extent;
      const Sorted<T> element = data[at];
      std::int64_t low = other, high = end;
      while (low < high) {
        const std::int64_t middle = low + (high - low) / 2;
        if (sorts_before(data[middle], element, descending)) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      const std::int64_t passed = low > other ? low - other : 0;
      target.put(line, pair + (at - own) + passed, element);
    }
  }
};

template <class T>
void sort_lines(CudaDevice& device, const Sort& args) {
  const std::int64_t lines = args.outer * args.inner;
  SortTarget<T> result{};
  result.values = as<T>(args.values);
  result.indices = as<std::int64_t>(args.indices);
  result.extent = args.extent;
  result.inner = args.inner;
  result.k = args.k;

  SortRunsKernel<T> sort{};
  sort.descending = args.descending;
  sort.size = power_of_two(args.extent, 2, kSortRun);
  sort.runs = (args.extent + sort.size - 1) / sort.size;
  sort.x = as<T>(args.x);
  sort.target = result;
  std::shared_ptr<Buffer> from, to;
  const auto scratch = static_cast<std::size_t>(lines * args.extent) * sizeof(Sorted<T>);
  const auto make = [&](std::shared_ptr<Buffer>& buffer) {
    buffer = device.make_buffer(scratch);
    return static_cast<Sorted<T>*>(buffer->data());
  };
  if (sort.runs > 1) sort.target.scratch = make(from);
  const int threads = power_of_two(sort.size / 2, kWarp, 1024);
  launch(device, "sort", sort, lines * sort.runs, threads,
         static_cast<std::size_t>(sort.size) * sizeof(Sorted<T>));

  MergeRunsKernel<T> merge{};
  merge.descending = args.descending;
  merge.lines = lines;
  for (merge.length = sort.size; merge.length < args.extent; merge.length *= 2) {
    const bool last = 2 * merge.length >= args.extent;
    merge.from = static_cast<Sorted<T>*>(from->data());
    merge.target = result;
    if (!last) merge.target.scratch = make(to);
    launch_elements(device, "merge", merge, lines * args.extent);
    std::swap(from, to);
  }
}

}  // namespace

void run(CudaDevice& device, const Sort& args) {
  CS_REQUIRE(args.k >= 0 && args.k <= args.extent, "sort, topk: k ", args.k,
             " is out of range for ", args.extent, " elements");
  CS_REQUIRE(args.extent <= std::numeric_limits<std::int32_t>::max(), "sort: ", args.extent,
             " elements are more than 2^31 - 1");
  if (args.outer * args.inner * args.k == 0) return;
  with_any(args.dtype, [&](auto tag) { sort_lines<decltype(tag)>(device, args); });
}

}  // namespace coshard::kernels::cuda
