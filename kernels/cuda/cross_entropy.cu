// Cross-entropy over the classes of a row, in steps between which ranks may combine their
// statistics: the statistics read the logits once, the gradient reads them once and writes dlogits.
#include <limits>

#include "kernels/cuda/exponent.h"
#include "kernels/cuda/team.h"

namespace coshard::kernels::cuda {
namespace {

template <class A>
CS_BODY A larger(A a, A b) {  // NaN wins
  return a < b || b != b ? b : a;
}

// Over the elements x so far: the largest, and the sum of e^(x - largest), 0 while the largest is
// -infinity.
template <class T>
struct Exponents {
  using A = Wide<T>;
  A high = -std::numeric_limits<A>::infinity(), sum = 0;

  template <int W>
  CS_BODY void add(const A (&x)[W]) {
    A highest = high;
    CS_UNROLL
    for (int j = 0; j < W; ++j) highest = larger(highest, x[j]);
    const A from = highest == -std::numeric_limits<A>::infinity() ? A(0) : highest;
    sum *= exponent<T>(high - from);
    CS_UNROLL
    for (int j = 0; j < W; ++j) sum += exponent<T>(x[j] - from);
    high = highest;
  }
  CS_BODY static Two<A> joined(const Two<A>& x, const Two<A>& y) {
    const A highest = larger(x.a, y.a);
    const auto share = [&](const Two<A>& part) {
      return part.a == highest ? part.b : part.b * exponent<T>(part.a - highest);
    };
    return {highest, share(x) + share(y)};
  }
};

template <class T, int W>
struct CrossEntropyStatsKernel : LineKernel<> {
  std::int64_t first, ignore;
  const T* logits;
  const std::int64_t* target;
  Wide<T>* max;
  Wide<T>* sum;
  Wide<T>* picked;
  Wide<T>* total;

  CS_BODY void operator()(Block& block) const {
    using A = Wide<T>;
    Team team(block, this->shape);
    team.each_line(this->lines(), [&](std::int64_t row) {
      Exponents<T> seen;
      A plain = 0;
      each_wide_pack(team, this->template span<W>(logits, row), [&](const A(&x)[W]) {
        seen.add(x);
        CS_UNROLL
        for (int j = 0; j < W; ++j) plain += x[j];
      });
      const Two<A> all =
          team.combine(Two<A>{seen.high, seen.sum},
                       [](const Two<A>& x, const Two<A>& y) { return Exponents<T>::joined(x, y); });
      if (total != nullptr) plain = team.sum(plain);
      if (team.rank() != 0 || row >= this->lines()) return;
      const std::int64_t own = target[row] - first;
      const bool here = target[row] != ignore && own >= 0 && own < this->extent;
      max[row] = all.a;
      sum[row] = all.b;
      picked[row] = here ? widen(logits[row * this->extent + own]) : A(0);
      if (total != nullptr) total[row] = plain;
    });
  }
};

template <class A>
struct CrossEntropyJoinKernel : PerElement {
  std::int64_t parts, kinds, rows;
  const A* found;
  A* joined;

  CS_BODY void operator()(Block& block) const {
    for (std::int64_t row = block.grid_thread(); row < rows; row += block.grid_threads()) {
      Two<A> all = {of(0, 0, row), of(0, 1, row)};
      for (std::int64_t p = 1; p < parts; ++p)
        all = Exponents<A>::joined(all, {of(p, 0, row), of(p, 1, row)});
      joined[row] = all.a;
      joined[rows + row] = all.b;
      for (std::int64_t kind = 2; kind < kinds; ++kind) {
        A sum = 0;
        for (std::int64_t p = 0; p < parts; ++p) sum += of(p, kind, row);
        joined[kind * rows + row] = sum;
      }
    }
  }
  CS_BODY A of(std::int64_t part, std::int64_t kind, std::int64_t row) const {
    return found[(part * kinds + kind) * rows + row];
  }
};

template <class T, int W>
struct CrossEntropyGradKernel : LineKernel<> {
  std::int64_t first, ignore;
  Wide<T> hit, everywhere;  // subtracted from the target class and from every class
  const T* logits;
  const std::int64_t* target;
  const Wide<T>* max;
  const Wide<T>* sum;
  const Wide<T>* scale;
  T* dlogits;

  CS_BODY void operator()(Block& block) const {
    Team team(block, this->shape);
    team.each_line(this->lines(), [&](std::int64_t row) {
      if (row < this->lines()) one(team, row);
    });
  }
  CS_BODY void one(const Team& team, std::int64_t row) const {
    using A = Wide<T>;
    const A high = max[row], by = scale[row];
    const A share = 1 / sum[row];
    const bool counts = target[row] != ignore;
    const std::int64_t own = target[row] - first;
    const auto to = this->template span<W>(dlogits, row);
    each_pack(team, this->template span<W>(logits, row),
              [&](const Pack<T, W>& pack, std::int64_t n) {
                A v[W], out[W];
                widen_pack(pack, v);
                CS_UNROLL
                for (int j = 0; j < W; ++j) {
                  const A lost = n * W + j == own ? hit + everywhere : everywhere;
                  out[j] = counts ? by * (exponent<T>(v[j] - high) * share - lost) : A(0);
                }
                store_wide(to.at(n), out);
              });
  }
};

// A single block if the rows are summed.
template <class A>
struct CrossEntropyLossKernel : PerBlock {
  std::int64_t rows, classes, ignore;
  A smoothing;
  bool summed;
  const std::int64_t* target;
  const A* sum;
  const A* picked;
  const A* total;
  A* lse;
  A* loss;
  A* count;
  DeviceAssert* finding;

  CS_BODY A loss_of(std::int64_t row, A log_sum) const {
    const A high = lse[row], one = log_sum - (1 - smoothing) * (picked[row] - high);
    return total == nullptr ? one : one - smoothing * (total[row] / static_cast<A>(classes) - high);
  }
  CS_BODY void operator()(Block& block) const {
    A losses = 0, counts = 0;
    for (std::int64_t row = block.grid_thread(); row < rows; row += block.grid_threads()) {
      const bool counted = target[row] != ignore;
      if (counted && (target[row] < 0 || target[row] >= classes))
        leave(block, finding, DeviceAssertKind::Target, target[row], classes);
      const A log_sum = std::log(sum[row]);
      const A own = counted ? loss_of(row, log_sum) : A(0);
      lse[row] += log_sum;
      losses += own;
      counts += counted ? 1 : 0;
      if (summed) continue;
      loss[row] = own;
      count[row] = static_cast<A>(counted ? 1 : 0);
    }
    if (!summed) return;
    const Two<A> all = Team(block, TeamShape::Block).sums(losses, counts);
    if (block.thread() != 0) return;
    loss[0] = all.a;
    count[0] = all.b;
  }
};

template <class A>
void cross_entropy_loss(CudaDevice& device, const CrossEntropyLoss& args) {
  CrossEntropyLossKernel<A> kernel{};
  kernel.rows = args.rows;
  kernel.classes = args.classes;
  kernel.ignore = args.ignore;
  kernel.smoothing = static_cast<A>(args.smoothing);
  kernel.summed = args.summed;
  kernel.target = as<std::int64_t>(args.target);
  kernel.sum = as<A>(args.sum);
  kernel.picked = as<A>(args.picked);
  kernel.total = as<A>(args.total);
  kernel.lse = as<A>(args.lse);
  kernel.loss = as<A>(args.loss);
  kernel.count = as<A>(args.count);
  kernel.finding = device.finding();
  const int threads = power_of_two(args.rows, kWarp, args.summed ? 1024 : 128);
  const std::int64_t blocks = args.summed ? 1 : (args.rows + threads - 1) / threads;
  launch(device, "cross entropy loss", kernel, blocks, threads, kWarp * kLargestState);
}

template <class A>
void cross_entropy_join(CudaDevice& device, const CrossEntropyJoin& args) {
  CrossEntropyJoinKernel<A> kernel{};
  kernel.parts = args.parts;
  kernel.kinds = args.kinds;
  kernel.rows = args.rows;
  kernel.found = as<A>(args.found);
  kernel.joined = as<A>(args.joined);
  launch_elements(device, "cross entropy join", kernel, args.rows);
}

}  // namespace

void run(CudaDevice& device, const CrossEntropyStats& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    with_width<T>(in_vectors<T>(args.classes, args.logits), [&](auto width) {
      CrossEntropyStatsKernel<T, width()> kernel{};
      set_lines(kernel, args.rows, args.classes, 1);
      kernel.first = args.first;
      kernel.ignore = args.ignore;
      kernel.logits = as<T>(args.logits);
      kernel.target = as<std::int64_t>(args.target);
      kernel.max = as<Wide<T>>(args.max);
      kernel.sum = as<Wide<T>>(args.sum);
      kernel.picked = as<Wide<T>>(args.picked);
      kernel.total = as<Wide<T>>(args.total);
      launch_lines(device, "cross entropy", kernel, width());
    });
  });
}

void run(CudaDevice& device, const CrossEntropyGrad& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const auto classes = static_cast<double>(args.all_classes);
    const double everywhere = args.smoothing == 0 ? 0 : args.smoothing / classes;
    with_width<T>(in_vectors<T>(args.classes, args.logits, args.dlogits), [&](auto width) {
      CrossEntropyGradKernel<T, width()> kernel{};
      set_lines(kernel, args.rows, args.classes, 1);
      kernel.first = args.first;
      kernel.ignore = args.ignore;
      kernel.hit = static_cast<Wide<T>>(1 - args.smoothing);
      kernel.everywhere = static_cast<Wide<T>>(everywhere);
      kernel.logits = as<T>(args.logits);
      kernel.target = as<std::int64_t>(args.target);
      kernel.max = as<Wide<T>>(args.max);
      kernel.sum = as<Wide<T>>(args.sum);
      kernel.scale = as<Wide<T>>(args.scale);
      kernel.dlogits = as<T>(args.dlogits);
      launch_lines(device, "cross entropy gradient", kernel, width());
    });
  });
}

void run(CudaDevice& device, const CrossEntropyJoin& args) {
  args.dtype == DType::F64 ? cross_entropy_join<double>(device, args)
                           : cross_entropy_join<float>(device, args);
}

void run(CudaDevice& device, const CrossEntropyLoss& args) {
  args.dtype == DType::F64 ? cross_entropy_loss<double>(device, args)
                           : cross_entropy_loss<float>(device, args);
}

}  // namespace coshard::kernels::cuda
