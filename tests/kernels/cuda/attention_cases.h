#pragma once
// Calls of attention and its gradients, on the device and by the reference.
#include <cmath>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/kernels/cuda/on_device.h"

namespace coshard::kernels::testing {

enum class Mask { None, Bias, Keep };

enum class Part { Forward, Both };

inline const DType kShort[] = {DType::BF16, DType::F16};

inline constexpr std::int64_t kSquare = 1 << 20;  // as diagonal: tk - tq

struct Case {
  std::int64_t batch, heads, kv_heads, tq, tk, dim;
  bool causal = false;
  Mask mask = Mask::None;
  std::int64_t value_dim = 0;  // 0: dim
  std::int64_t shift = kSquare;
  bool interleaved = false;  // heads lie inside [b, t, h, d] memory
  double scale = 1 / std::sqrt(double(dim));
  std::int64_t window = 0;
  bool ranges = false;
  std::int64_t diagonal() const { return shift == kSquare ? tk - tq : shift; }
  std::int64_t values() const { return value_dim != 0 ? value_dim : dim; }
};

inline std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << "b " << c.batch << " h " << c.heads << "/" << c.kv_heads << " tq " << c.tq << " tk "
             << c.tk << " d " << c.dim << "/" << c.values() << " causal " << c.causal
             << " diagonal " << c.diagonal() << " mask " << static_cast<int>(c.mask)
             << " interleaved " << c.interleaved << " window " << c.window << " ranges "
             << c.ranges;
}

// Inputs and results of one call and its gradients.
struct Arrays {
  Data q, k, v, dout, mask, first, last, out, lse, dq, dk, dv, dmask;
  Arrays(DType dtype, const Case& c)
      : q(Data::normal(dtype, c.batch * c.heads * c.tq * c.dim, 1)),
        k(Data::normal(dtype, c.batch * c.kv_heads * c.tk * c.dim, 2)),
        v(Data::normal(dtype, c.batch * c.kv_heads * c.tk * c.values(), 3)),
        dout(Data::normal(dtype, c.batch * c.heads * c.tq * c.values(), 4)),
        mask(c.mask == Mask::Keep ? Data::integers(DType::Bool, c.batch * c.tq * c.tk, 5, 0, 1)
                                  : Data::normal(dtype, c.batch * c.tq * c.tk, 5)),
        first(Data::integers(DType::I64, c.batch * c.tq, 6, -3, c.tk + 2)),
        last(Data::integers(DType::I64, c.batch * c.tq, 7, c.tk / 3, c.tk + 2)),
        out(dtype, c.batch * c.heads * c.tq * c.values()),
        lse(statistic(dtype), c.batch * c.heads * c.tq),
        dq(dtype, q.count()),
        dk(dtype, k.count()),
        dv(dtype, v.count()),
        dmask(dtype, c.batch * c.heads * c.tq * c.tk) {
    // The first query of each batch sees nothing.
    for (std::int64_t b = 0; c.tq > 0 && b < c.batch; ++b)
      for (std::int64_t j = 0; j < c.tk; ++j)
        mask.set(b * c.tq * c.tk + j, c.mask == Mask::Keep ? 0 : -INFINITY);
  }
};

// The arguments over `a`; pointer(data) is where a kernel finds it.
template <class Pointer>
std::pair<Attention, AttentionGrad> arguments(const Case& c, Arrays& a, Pointer pointer) {
  const std::vector<int> order =
      c.interleaved ? std::vector<int>{0, 2, 1, 3} : std::vector<int>{0, 1, 2, 3};
  const auto view = [&](Data& data, std::int64_t h, std::int64_t rows, std::int64_t columns) {
    View v = data.view({c.batch, h, rows, columns}, order);
    v.data = pointer(data);
    return v;
  };
  View mask{}, dmask{};
  if (c.mask != Mask::None) {
    mask = a.mask.view({c.batch, 1, c.tq, c.tk});
    mask.data = pointer(a.mask);
    mask.shape[1] = c.heads;
    mask.strides[1] = 0;
    dmask = a.dmask.view({c.batch, c.heads, c.tq, c.tk});
    dmask.data = pointer(a.dmask);
  }
  const View q = view(a.q, c.heads, c.tq, c.dim);
  const View k = view(a.k, c.kv_heads, c.tk, c.dim);
  const View v = view(a.v, c.kv_heads, c.tk, c.values());
  const View out = view(a.out, c.heads, c.tq, c.values());
  void* lse = pointer(a.lse);
  View first{}, last{};
  if (c.ranges) {
    first = a.first.view({c.batch, c.tq});
    first.data = pointer(a.first);
    last = a.last.view({c.batch, c.tq});
    last.data = pointer(a.last);
  }
  return {
      Attention{out, q, k, v, lse, c.scale, c.causal, c.diagonal(), mask, c.window, first, last},
      AttentionGrad{view(a.dq, c.heads, c.tq, c.dim), view(a.dk, c.kv_heads, c.tk, c.dim),
                    view(a.dv, c.kv_heads, c.tk, c.values()),
                    view(a.dout, c.heads, c.tq, c.values()), out, q, k, v, lse, c.scale, c.causal,
                    c.diagonal(), mask, dmask, c.window, first, last}};
}

// out, lse, dq, dk, dv, dmask (last, where there is a mask).
inline std::vector<Data> on_device(DType dtype, const Case& c, Part part = Part::Both) {
  Arrays a(dtype, c);
  OnDevice on;
  const auto args = arguments(c, a, [&](Data& data) { return on.put(data); });
  on.run(args.first);
  if (part == Part::Forward) return {on.get(a.out), on.get(a.lse)};
  on.run(args.second);
  std::vector<Data> results;
  for (Data* data : {&a.out, &a.lse, &a.dq, &a.dk, &a.dv}) results.push_back(on.get(*data));
  if (c.mask != Mask::None) results.push_back(on.get(a.dmask));
  return results;
}

inline std::vector<Data> by_reference(DType dtype, const Case& c, Part part = Part::Both) {
  Arrays a(dtype, c);
  const auto args = arguments(c, a, [](Data& data) { return data.ptr(); });
  reference::run(args.first);
  if (part == Part::Forward) return {a.out, a.lse};
  reference::run(args.second);
  std::vector<Data> results = {a.out, a.lse, a.dq, a.dk, a.dv};
  if (c.mask != Mask::None) results.push_back(a.dmask);
  return results;
}

inline void expect_matches(DType dtype, const Case& c, Part part = Part::Both) {
  const char* names[] = {"out", "lse", "dq", "dk", "dv", "dmask"};
  const auto got = on_device(dtype, c, part);
  const auto want = by_reference(dtype, c, part);
  for (std::size_t i = 0; i < got.size(); ++i) {
    std::ostringstream what;
    what << names[i] << " of " << c;
    expect_close(got[i], want[i], tolerance(dtype) * 5, what.str());
  }
}

}  // namespace coshard::kernels::testing
