#include "kernels/sim/kernel_work.h"

#include <algorithm>

namespace coshard::kernels {
namespace {

double size(DType dtype) { return static_cast<double>(size_of(dtype)); }

// Elements stored in memory: a broadcast dimension counts once.
double elements(const View& view) {
  if (view.data == nullptr) return 0;
  double count = 1;
  for (int d = 0; d < view.ndim; ++d) {
    const auto i = static_cast<std::size_t>(d);
    if (view.strides[i] != 0 || view.shape[i] == 0) count *= static_cast<double>(view.shape[i]);
  }
  return count;
}
double bytes(const View& view) { return elements(view) * size(view.dtype); }
template <class... Views>
double bytes(const View& first, const Views&... rest) {
  return bytes(first) + (... + bytes(rest));
}

template <class... Sizes>
double product(Sizes... sizes) {
  return (1.0 * ... * static_cast<double>(sizes));
}

KernelWork moving(std::string_view name, double bytes, DType dtype) {
  KernelWork work;
  work.name = name;
  work.bytes = bytes;
  work.dtype = dtype;
  return work;
}
// `passes` over `count` elements.
KernelWork passing(std::string_view name, int passes, double count, DType dtype) {
  return moving(name, passes * count * size(dtype), dtype);
}
double of_pointer(const void* data, double bytes) { return data == nullptr ? 0 : bytes; }

// The number of scores of q and k that a causal mask and a window keep.
template <class Args>
double kept_scores(const Args& a) {
  const std::int64_t tq = a.q.shape[2], tk = a.k.shape[2];
  if (!a.causal) return product(tq, tk);
  if (tq == tk && a.diagonal == 0 && a.window == 0)
    return product(tq, tk) / 2;  // as usually counted
  double kept = 0;
  for (std::int64_t i = 0; i < tq; ++i) {
    const std::int64_t end = i + a.diagonal + 1;
    kept += static_cast<double>(std::clamp<std::int64_t>(end, 0, tk));
    if (a.window > 0) kept -= static_cast<double>(std::clamp<std::int64_t>(end - a.window, 0, tk));
  }
  return kept;
}

template <class Args>
KernelWork attention(std::string_view name, const Args& a, double factor) {
  KernelWork work;
  work.name = name;
  work.what = ComputeClass::Attention;
  work.dtype = a.q.dtype;
  const double scores = product(a.q.shape[0], a.q.shape[1]) * kept_scores(a);
  work.flops = factor * 2 * scores * static_cast<double>(a.q.shape[3] + a.v.shape[3]);
  return work;
}

}  // namespace

KernelWork work_of(const Copy& a) { return moving("Copy", bytes(a.to, a.from), a.to.dtype); }
KernelWork work_of(const Fill& a) { return passing("Fill", 1, product(a.count), a.dtype); }
KernelWork work_of(const Unary& a) { return passing("Unary", 2, product(a.count), a.dtype); }
KernelWork work_of(const UnaryGrad& a) {
  return passing("UnaryGrad", 3, product(a.count), a.dtype);
}
KernelWork work_of(const Binary& a) {
  return moving("Binary", bytes(a.out, a.a, a.b), a.out.dtype);
}
KernelWork work_of(const Where& a) {
  return moving("Where", bytes(a.out, a.condition, a.x, a.y), a.out.dtype);
}
KernelWork work_of(const SwiGlu& a) { return passing("SwiGlu", 3, product(a.count), a.dtype); }
KernelWork work_of(const SwiGluGrad& a) {
  return passing("SwiGluGrad", 5, product(a.count), a.dtype);
}
KernelWork work_of(const Gather& a) {
  return moving("Gather", bytes(a.index) + 2 * bytes(a.out), a.out.dtype);
}
KernelWork work_of(const Scatter& a) {
  const double written = elements(a.index) * size(a.out.dtype);
  return moving("Scatter", bytes(a.index, a.src) + (a.add ? 2 : 1) * written, a.out.dtype);
}
KernelWork work_of(const Triangle& a) { return moving("Triangle", bytes(a.y, a.x), a.x.dtype); }
KernelWork work_of(const CheckIndex& a) {
  return passing("CheckIndex", 1, product(a.count), a.dtype);
}

KernelWork work_of(const Matmul& a) {
  KernelWork work;
  work.name = "Matmul";
  work.what = ComputeClass::Gemm;
  work.dtype = a.out.dtype;
  const auto last = static_cast<std::size_t>(a.out.ndim - 1);
  work.batch = a.out.ndim == 3 ? a.out.shape[0] : 1;
  work.m = a.out.shape[last - 1];
  work.n = a.out.shape[last];
  work.k = a.a.shape[last];
  work.flops = 2 * product(work.batch, work.m, work.n, work.k);
  work.bytes = bytes(a.a, a.b) + (a.beta == 0 ? 1 : 2) * bytes(a.out);
  if (a.epilogue == Epilogue::Gelu || a.epilogue == Epilogue::GeluGrad)
    work.bytes += bytes(a.out);  // aux
  return work;
}

KernelWork work_of(const ReduceDim& a) {
  return moving("ReduceDim", product(a.outer, a.extent + 1, a.inner) * size(a.dtype), a.dtype);
}
KernelWork work_of(const ReduceGrad& a) {
  return moving("ReduceGrad", product(a.outer, 2 * a.extent + 1, a.inner) * size(a.dtype), a.dtype);
}
KernelWork work_of(const ArgReduce& a) {
  return passing("ArgReduce", 1, product(a.outer, a.extent, a.inner), a.dtype);
}
KernelWork work_of(const Scan& a) {
  return passing("Scan", 2, product(a.outer, a.extent, a.inner), a.dtype);
}
KernelWork work_of(const ScanGrad& a) {
  return passing("ScanGrad", 4, product(a.outer, a.extent, a.inner), a.dtype);
}
KernelWork work_of(const Sort& a) {
  return moving("Sort",
                product(a.outer, a.inner) * (product(a.extent) + product(a.k)) * size(a.dtype) +
                    product(a.outer, a.inner, a.k) * 8,
                a.dtype);
}
KernelWork work_of(const PowSum& a) { return passing("PowSum", 1, product(a.count), a.dtype); }

KernelWork work_of(const Softmax& a) {
  return passing("Softmax", 2, product(a.outer, a.extent, a.inner), a.dtype);
}
KernelWork work_of(const SoftmaxGrad& a) {
  return passing("SoftmaxGrad", 3, product(a.outer, a.extent, a.inner), a.dtype);
}
KernelWork work_of(const LayerNorm& a) {
  return passing("LayerNorm", 2, product(a.rows, a.dim), a.dtype);
}
KernelWork work_of(const LayerNormGrad& a) {
  return passing("LayerNormGrad", 3, product(a.rows, a.dim), a.dtype);
}
KernelWork work_of(const RmsNorm& a) {
  return passing("RmsNorm", 2, product(a.rows, a.dim), a.dtype);
}
KernelWork work_of(const RmsNormGrad& a) {
  return passing("RmsNormGrad", 3, product(a.rows, a.dim), a.dtype);
}
KernelWork work_of(const Embedding& a) {
  return moving("Embedding",
                2 * product(a.count, a.dim) * size(a.dtype) + product(a.count) * size(a.ids_dtype),
                a.dtype);
}
KernelWork work_of(const EmbeddingGrad& a) {
  return moving(
      "EmbeddingGrad",
      product(2 * a.count + a.rows, a.dim) * size(a.dtype) + product(a.count) * size(a.ids_dtype),
      a.dtype);
}
KernelWork work_of(const Rope& a) { return moving("Rope", bytes(a.y, a.x), a.x.dtype); }
KernelWork work_of(const Attention& a) {
  KernelWork work = attention("Attention", a, 1);
  work.bytes = bytes(a.q, a.k, a.v, a.out) + bytes(a.mask, a.first, a.last);
  return work;
}
// Five matmuls where forward has two.
KernelWork work_of(const AttentionGrad& a) {
  KernelWork work = attention("AttentionGrad", a, 2.5);
  work.bytes = bytes(a.q, a.k, a.v, a.out, a.dout) + bytes(a.dq, a.dk, a.dv, a.mask, a.dmask) +
               bytes(a.first, a.last);
  return work;
}
KernelWork work_of(const CrossEntropyJoin& a) {
  return passing("CrossEntropyJoin", 1, product(a.parts + 1, a.kinds, a.rows), a.dtype);
}
KernelWork work_of(const CrossEntropyStats& a) {
  return passing("CrossEntropyStats", 1, product(a.rows, a.classes), a.dtype);
}
KernelWork work_of(const CrossEntropyGrad& a) {
  return passing("CrossEntropyGrad", 2, product(a.rows, a.classes), a.dtype);
}
KernelWork work_of(const CrossEntropyLoss& a) {
  return passing("CrossEntropyLoss", 5, product(a.rows), a.dtype);
}
KernelWork work_of(const NllLoss& a) {
  return passing("NllLoss", 3, product(a.outer, a.inner), a.dtype);
}
KernelWork work_of(const NllLossGrad& a) {
  return passing("NllLossGrad", 1, product(a.outer, a.classes, a.inner), a.dtype);
}

KernelWork work_of(const Random& a) {
  double count = 1;
  for (int d = 0; d < a.region.ndim; ++d)
    count *= product(a.region.shape[static_cast<std::size_t>(d)]);
  return passing("Random", 1, count, a.dtype);
}
KernelWork work_of(const Dropout& a) {
  double count = 1;
  for (int d = 0; d < a.region.ndim; ++d)
    count *= product(a.region.shape[static_cast<std::size_t>(d)]);
  return passing("Dropout", 2, count, a.dtype);
}

KernelWork work_of(const AdamW& a) {
  const DType moments = a.dtype == DType::F64 ? DType::F64 : DType::F32;
  double moved = 0;
  for (const AdamWTensor& t : a.tensors) {
    const double count = product(t.count);
    moved += count * (3 * size(a.dtype) + 4 * size(moments));  // parameter, gradient; m, v
    moved +=
        of_pointer(t.master, 2 * count * 4) + of_pointer(t.largest_v, 2 * count * size(moments));
  }
  return moving("AdamW", moved, a.dtype);
}
KernelWork work_of(const Sgd& a) {
  const double count = product(a.count) * size(a.dtype);
  return moving("Sgd", 3 * count + of_pointer(a.momentum, 2 * count), a.dtype);
}

}  // namespace coshard::kernels
