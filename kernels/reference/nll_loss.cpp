#include "kernels/reference/lines.h"
#include "kernels/reference/reference.h"

namespace coshard::kernels::reference {
namespace {

// The middle dimension of [outer, classes, inner] as a line.
struct NllLines {
  std::int64_t outer, extent, inner;
};
template <class Args>
NllLines nll_lines(const Args& args) {
  return {args.outer, args.classes, args.inner};
}

template <class T>
double class_weight(const void* weight, std::int64_t c) {
  return weight == nullptr ? 1 : get(as<T>(weight), c);
}

}  // namespace

void run(const NllLoss& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    using S = Statistic<T>;
    each_line(nll_lines(args), [&](std::int64_t first, std::int64_t row) {
      const Line<T> x{as<T>(args.log_probs) + first, args.classes, args.inner};
      const std::int64_t target = as<std::int64_t>(args.target)[row];
      const bool counted = target != args.ignore;
      CS_REQUIRE(!counted || (target >= 0 && target < args.classes), "nll_loss: target ", target,
                 " in row ", row, " is out of bounds for ", args.classes, " classes");
      const double weight = counted ? class_weight<T>(args.weight, target) : 0;
      double loss = counted ? -(1 - args.smoothing) * weight * x.get(target) : 0;
      if (counted && args.smoothing != 0) {
        double all = 0;
        for (std::int64_t c = 0; c < args.classes; ++c)
          all += class_weight<T>(args.weight, c) * x.get(c);
        loss -= args.smoothing / static_cast<double>(args.classes) * all;
      }
      as<S>(args.loss)[row] = static_cast<S>(loss);
      as<S>(args.count)[row] = static_cast<S>(weight);
    });
  });
}

void run(const NllLossGrad& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    using S = Statistic<T>;
    const double everywhere =
        args.smoothing == 0 ? 0 : args.smoothing / static_cast<double>(args.classes);
    each_line(nll_lines(args), [&](std::int64_t first, std::int64_t row) {
      const std::int64_t target = as<std::int64_t>(args.target)[row];
      const double dloss = as<S>(args.dloss)[row];
      for (std::int64_t c = 0; c < args.classes; ++c) {
        const double share = (c == target ? 1 - args.smoothing : 0) + everywhere;
        const double slope = share == 0 ? 0 : -dloss * share * class_weight<T>(args.weight, c);
        as<T>(args.dlog_probs)[first + c * args.inner] =
            rounded<T>(target == args.ignore ? 0 : slope);
      }
    });
  });
}

}  // namespace coshard::kernels::reference
