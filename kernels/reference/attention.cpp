#include <cmath>
#include <limits>
#include <vector>

#include "kernels/reference/reference.h"
#include "kernels/reference/typed.h"

namespace coshard::kernels::reference {
namespace {

struct Sizes {
  std::int64_t batch, heads, kv_heads, tq, tk, dim, value_dim;
  bool causal;
  std::int64_t diagonal, window;
  View first, last;
  // Whether query i of batch b attends to key j.
  bool sees(std::int64_t b, std::int64_t i, std::int64_t j) const {
    if (first.data && (j < key(first, b, i) || j > key(last, b, i))) return false;
    return !causal || (j <= i + diagonal && (window == 0 || j > i + diagonal - window));
  }
  static std::int64_t key(const View& keys, std::int64_t b, std::int64_t i) {
    return as<std::int64_t>(keys.data)[b * keys.strides[0] + i * keys.strides[1]];
  }
};

template <class Args>
Sizes sizes_of(const Args& args) {
  const View& q = args.q;
  const View& k = args.k;
  CS_REQUIRE(k.shape[1] > 0 && q.shape[1] % k.shape[1] == 0, "attention: ", q.shape[1],
             " query heads are not a multiple of ", k.shape[1], " key heads");
  return {q.shape[0],      q.shape[1],  k.shape[1],    q.shape[2],  k.shape[2], q.shape[3],
          args.v.shape[3], args.causal, args.diagonal, args.window, args.first, args.last};
}

// The value that the mask adds to a score.
template <class T>
double masked(const View& mask, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
  if (!mask.data) return 0;
  if (mask.dtype != DType::Bool) return static_cast<double>(at<T>(mask, b, h, i, j));
  return at<bool>(mask, b, h, i, j) ? 0 : -std::numeric_limits<double>::infinity();
}

template <class T>
double dot(const View& a, const View& b, const std::array<std::int64_t, 3>& i,
           const std::array<std::int64_t, 3>& j, std::int64_t dim) {
  double sum = 0;
  for (std::int64_t d = 0; d < dim; ++d) {
    sum += static_cast<double>(at<T>(a, i[0], i[1], i[2], d)) *
           static_cast<double>(at<T>(b, j[0], j[1], j[2], d));
  }
  return sum;
}

template <class T>
void forward(const Attention& args) {
  const Sizes n = sizes_of(args);
  const std::int64_t group = n.heads / n.kv_heads;
  const double lowest = -std::numeric_limits<double>::infinity();
  std::vector<double> p(n.tk);
  for (std::int64_t b = 0; b < n.batch; ++b) {
    for (std::int64_t h = 0; h < n.heads; ++h) {
      for (std::int64_t i = 0; i < n.tq; ++i) {
        double high = lowest;
        for (std::int64_t j = 0; j < n.tk; ++j) {
          p[j] = lowest;
          if (!n.sees(b, i, j)) continue;
          p[j] = args.scale * dot<T>(args.q, args.k, {b, h, i}, {b, h / group, j}, n.dim) +
                 masked<T>(args.mask, b, h, i, j);
          if (p[j] > high || std::isnan(p[j])) high = p[j];  // and stays NaN
        }
        const bool blind = high == lowest;
        double sum = 0;
        for (std::int64_t j = 0; j < n.tk; ++j)
          sum += p[j] = blind || !n.sees(b, i, j) ? 0 : std::exp(p[j] - high);
        for (std::int64_t d = 0; d < n.value_dim; ++d) {
          double value = 0;
          for (std::int64_t j = 0; j < n.tk; ++j) {
            if (n.sees(b, i, j))
              value += p[j] * static_cast<double>(at<T>(args.v, b, h / group, j, d));
          }
          at<T>(args.out, b, h, i, d) = rounded<T>(blind ? 0 : value / sum);
        }
        using S = Statistic<T>;
        as<S>(args.lse)[(b * n.heads + h) * n.tq + i] = static_cast<S>(high + std::log(sum));
      }
    }
  }
}

// The gradients of one (batch, kv head): dk and dv of all its keys, dq of the query heads of its
// group.
template <class T>
void backward_group(const AttentionGrad& args, const Sizes& n, std::int64_t b, std::int64_t kv) {
  using S = Statistic<T>;
  const std::int64_t group = n.heads / n.kv_heads;
  std::vector<double> dk(n.tk * n.dim);
  std::vector<double> dv(n.tk * n.value_dim);
  std::vector<double> dq(n.dim);
  for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) {
    for (std::int64_t i = 0; i < n.tq; ++i) {
      const double lse = as<S>(args.lse)[(b * n.heads + h) * n.tq + i];
      const double delta = dot<T>(args.dout, args.out, {b, h, i}, {b, h, i}, n.value_dim);
      const bool blind = std::isinf(lse) && lse < 0;
      std::fill(dq.begin(), dq.end(), 0.0);
      for (std::int64_t j = 0; j < n.tk; ++j) {
        if (blind || !n.sees(b, i, j)) {
          if (args.dmask.data) at<T>(args.dmask, b, h, i, j) = T(0.0F);
          continue;
        }
        const double score = args.scale * dot<T>(args.q, args.k, {b, h, i}, {b, kv, j}, n.dim) +
                             masked<T>(args.mask, b, h, i, j);
        const double p = std::exp(score - lse);
        const double dp = dot<T>(args.dout, args.v, {b, h, i}, {b, kv, j}, n.value_dim);
        const double ds = args.scale * p * (dp - delta);
        if (args.dmask.data) at<T>(args.dmask, b, h, i, j) = rounded<T>(p * (dp - delta));
        for (std::int64_t d = 0; d < n.value_dim; ++d)
          dv[j * n.value_dim + d] += p * static_cast<double>(at<T>(args.dout, b, h, i, d));
        for (std::int64_t d = 0; d < n.dim; ++d) {
          dk[j * n.dim + d] += ds * static_cast<double>(at<T>(args.q, b, h, i, d));
          dq[d] += ds * static_cast<double>(at<T>(args.k, b, kv, j, d));
        }
      }
      for (std::int64_t d = 0; d < n.dim; ++d) at<T>(args.dq, b, h, i, d) = rounded<T>(dq[d]);
    }
  }
  for (std::int64_t j = 0; j < n.tk; ++j) {
    for (std::int64_t d = 0; d < n.dim; ++d) {
      at<T>(args.dk, b, kv, j, d) = rounded<T>(dk[j * n.dim + d]);
    }
    for (std::int64_t d = 0; d < n.value_dim; ++d) {
      at<T>(args.dv, b, kv, j, d) = rounded<T>(dv[j * n.value_dim + d]);
    }
  }
}

}  // namespace

void run(const Attention& args) {
  with_floating(args.q.dtype, [&](auto tag) { forward<decltype(tag)>(args); });
}

void run(const AttentionGrad& args) {
  const Sizes n = sizes_of(args);
  with_floating(args.q.dtype, [&](auto tag) {
    for (std::int64_t b = 0; b < n.batch; ++b) {
      for (std::int64_t kv = 0; kv < n.kv_heads; ++kv)
        backward_group<decltype(tag)>(args, n, b, kv);
    }
  });
}

}  // namespace coshard::kernels::reference
