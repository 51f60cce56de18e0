#include <cmath>
#include <vector>

#include "kernels/reference/reference.h"
#include "kernels/reference/typed.h"

namespace coshard::kernels::reference {
namespace {

template <class T>
double weight_at(const void* weight, std::int64_t i) {
  return weight == nullptr ? 1.0 : get(as<T>(weight), i);
}

template <class T>
void store(void* to, const std::vector<double>& sums) {
  if (to == nullptr) return;
  for (std::size_t i = 0; i < sums.size(); ++i) as<T>(to)[i] = rounded<T>(sums[i]);
}

}  // namespace

void run(const LayerNorm& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    using S = Statistic<T>;
    for (std::int64_t r = 0; r < args.rows; ++r) {
      const T* x = as<T>(args.x) + r * args.dim;
      double mean = 0;
      for (std::int64_t i = 0; i < args.dim; ++i) mean += get(x, i);
      mean /= static_cast<double>(args.dim);
      double variance = 0;
      for (std::int64_t i = 0; i < args.dim; ++i)
        variance += (get(x, i) - mean) * (get(x, i) - mean);
      const double rstd = 1 / std::sqrt(variance / static_cast<double>(args.dim) + args.eps);
      for (std::int64_t i = 0; i < args.dim; ++i) {
        const double bias = args.bias == nullptr ? 0.0 : get(as<T>(args.bias), i);
        as<T>(args.y)[r * args.dim + i] =
            rounded<T>((get(x, i) - mean) * rstd * weight_at<T>(args.weight, i) + bias);
      }
      as<S>(args.mean)[r] = static_cast<S>(mean);
      as<S>(args.rstd)[r] = static_cast<S>(rstd);
    }
  });
}

void run(const LayerNormGrad& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    using S = Statistic<T>;
    std::vector<double> dweight(args.dim);
    std::vector<double> dbias(args.dim);
    for (std::int64_t r = 0; r < args.rows; ++r) {
      const T* x = as<T>(args.x) + r * args.dim;
      const T* dy = as<T>(args.dy) + r * args.dim;
      const double mean = as<S>(args.mean)[r];
      const double rstd = as<S>(args.rstd)[r];
      double sum = 0;
      double dot = 0;
      for (std::int64_t i = 0; i < args.dim; ++i) {
        const double normal = (get(x, i) - mean) * rstd;
        const double grad = get(dy, i) * weight_at<T>(args.weight, i);
        sum += grad;
        dot += grad * normal;
        dweight[i] += get(dy, i) * normal;
        dbias[i] += get(dy, i);
      }
      sum /= static_cast<double>(args.dim);
      dot /= static_cast<double>(args.dim);
      for (std::int64_t i = 0; i < args.dim; ++i) {
        const double normal = (get(x, i) - mean) * rstd;
        const double grad = get(dy, i) * weight_at<T>(args.weight, i);
        as<T>(args.dx)[r * args.dim + i] = rounded<T>(rstd * (grad - sum - normal * dot));
      }
    }
    store<T>(args.dweight, dweight);
    store<T>(args.dbias, dbias);
  });
}

void run(const RmsNorm& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    using S = Statistic<T>;
    for (std::int64_t r = 0; r < args.rows; ++r) {
      const T* x = as<T>(args.x) + r * args.dim;
      double sum = 0;
      for (std::int64_t i = 0; i < args.dim; ++i) sum += get(x, i) * get(x, i);
      const double rstd = 1 / std::sqrt(sum / static_cast<double>(args.dim) + args.eps);
      for (std::int64_t i = 0; i < args.dim; ++i) {
        as<T>(args.y)[r * args.dim + i] =
            rounded<T>(get(x, i) * rstd * weight_at<T>(args.weight, i));
      }
      as<S>(args.rstd)[r] = static_cast<S>(rstd);
    }
  });
}

void run(const RmsNormGrad& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    using S = Statistic<T>;
    std::vector<double> dweight(args.dim);
    for (std::int64_t r = 0; r < args.rows; ++r) {
      const T* x = as<T>(args.x) + r * args.dim;
      const T* dy = as<T>(args.dy) + r * args.dim;
      const double rstd = as<S>(args.rstd)[r];
      double dot = 0;
      for (std::int64_t i = 0; i < args.dim; ++i) {
        dot += get(dy, i) * weight_at<T>(args.weight, i) * get(x, i) * rstd;
        dweight[i] += get(dy, i) * get(x, i) * rstd;
      }
      dot /= static_cast<double>(args.dim);
      for (std::int64_t i = 0; i < args.dim; ++i) {
        const double grad = get(dy, i) * weight_at<T>(args.weight, i);
        as<T>(args.dx)[r * args.dim + i] = rounded<T>(rstd * (grad - get(x, i) * rstd * dot));
      }
    }
    store<T>(args.dweight, dweight);
  });
}

}  // namespace coshard::kernels::reference
