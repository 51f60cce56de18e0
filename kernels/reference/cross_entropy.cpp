#include <cmath>
#include <limits>

#include "kernels/reference/reference.h"
#include "kernels/reference/typed.h"

namespace coshard::kernels::reference {
namespace {

double larger(double a, double b) { return b > a || std::isnan(b) ? b : a; }  // NaN wins
bool is_nothing(double max) { return max == -std::numeric_limits<double>::infinity(); }

template <class S>
void join(const CrossEntropyJoin& args) {
  const S* found = as<S>(args.found);
  S* joined = as<S>(args.joined);
  for (std::int64_t r = 0; r < args.rows; ++r) {
    const auto of = [&](std::int64_t part, std::int64_t kind) {
      return get(found, (part * args.kinds + kind) * args.rows + r);
    };
    double high = of(0, 0);
    for (std::int64_t p = 1; p < args.parts; ++p) high = larger(high, of(p, 0));
    double sums[3] = {};
    for (std::int64_t p = 0; p < args.parts; ++p) {
      sums[0] += of(p, 0) == high ? of(p, 1) : of(p, 1) * std::exp(of(p, 0) - high);
      for (std::int64_t kind = 2; kind < args.kinds; ++kind) sums[kind - 1] += of(p, kind);
    }
    joined[r] = static_cast<S>(high);
    for (std::int64_t kind = 1; kind < args.kinds; ++kind)
      joined[kind * args.rows + r] = static_cast<S>(sums[kind - 1]);
  }
}

}  // namespace

void run(const CrossEntropyStats& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    using S = Statistic<T>;
    for (std::int64_t r = 0; r < args.rows; ++r) {
      const T* logits = as<T>(args.logits) + r * args.classes;
      double high = -std::numeric_limits<double>::infinity();
      for (std::int64_t c = 0; c < args.classes; ++c) high = larger(high, get(logits, c));
      double sum = 0;
      double total = 0;
      for (std::int64_t c = 0; c < args.classes; ++c) {
        sum += std::exp(get(logits, c) - (is_nothing(high) ? 0 : high));
        total += get(logits, c);
      }
      const std::int64_t target = as<std::int64_t>(args.target)[r];
      const std::int64_t own = target - args.first;
      const bool here = target != args.ignore && own >= 0 && own < args.classes;
      as<S>(args.max)[r] = static_cast<S>(high);
      as<S>(args.sum)[r] = static_cast<S>(sum);
      as<S>(args.picked)[r] = static_cast<S>(here ? get(logits, own) : 0);
      if (args.total != nullptr) as<S>(args.total)[r] = static_cast<S>(total);
    }
  });
}

void run(const CrossEntropyJoin& args) {
  args.dtype == DType::F64 ? join<double>(args) : join<float>(args);
}

void run(const CrossEntropyGrad& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    using S = Statistic<T>;
    for (std::int64_t r = 0; r < args.rows; ++r) {
      const T* logits = as<T>(args.logits) + r * args.classes;
      T* dlogits = as<T>(args.dlogits) + r * args.classes;
      const std::int64_t target = as<std::int64_t>(args.target)[r];
      const double high = as<S>(args.max)[r];
      const double sum = as<S>(args.sum)[r];
      const double scale = as<S>(args.scale)[r];
      const double everywhere =
          args.smoothing == 0 ? 0 : args.smoothing / static_cast<double>(args.all_classes);
      for (std::int64_t c = 0; c < args.classes; ++c) {
        const double hit = c + args.first == target ? 1 - args.smoothing : 0;
        const double grad = std::exp(get(logits, c) - high) / sum - hit - everywhere;
        dlogits[c] = rounded<T>(target == args.ignore ? 0 : scale * grad);
      }
    }
  });
}

void run(const CrossEntropyLoss& args) {
  const auto finish = [&](auto tag) {
    using S = decltype(tag);
    double loss_sum = 0;
    double count = 0;
    for (std::int64_t r = 0; r < args.rows; ++r) {
      const std::int64_t target = as<std::int64_t>(args.target)[r];
      const bool counted = target != args.ignore;
      CS_REQUIRE(!counted || (target >= 0 && target < args.classes), "cross_entropy: target ",
                 target, " in row ", r, " is out of bounds for ", args.classes, " classes");
      const double log_sum = std::log(get(as<S>(args.sum), r));
      const double high = get(as<S>(args.lse), r);
      double loss = log_sum - (1 - args.smoothing) * (get(as<S>(args.picked), r) - high);
      if (args.total != nullptr)
        loss -=
            args.smoothing * (get(as<S>(args.total), r) / static_cast<double>(args.classes) - high);
      as<S>(args.lse)[r] += static_cast<S>(log_sum);
      loss_sum += counted ? loss : 0;
      count += counted ? 1 : 0;
      if (args.summed) continue;
      as<S>(args.loss)[r] = static_cast<S>(counted ? loss : 0);
      as<S>(args.count)[r] = static_cast<S>(counted ? 1 : 0);
    }
    if (!args.summed) return;
    as<S>(args.loss)[0] = static_cast<S>(loss_sum);
    as<S>(args.count)[0] = static_cast<S>(count);
  };
  args.dtype == DType::F64 ? finish(double{}) : finish(float{});
}

}  // namespace coshard::kernels::reference
