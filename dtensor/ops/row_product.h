#pragma once
// Matmuls whose rows are computed in parts by a schedule: a linear layer, or a sum of several of
// one shape, such as the gradient of an input that several layers share. Rank's thread.
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include <coshard/dtensor/mesh/spec.h>
#include <coshard/dtensor/ops/overlap.h>
#include "dtensor/ops/op_call.h"

namespace coshard {

// x [..., k] @ weight [n, k]^T + bias.
struct RowFactor {
  Tensor x, weight, bias = {};
};

// dy @ weight, the gradient of a layer's x.
RowFactor gradient_factor(const Tensor& dy, const Tensor& weight);

// The positions [offset, offset+size) of dimension `dim`; off the tape, waits for nothing.
Tensor part_of(const Tensor& x, int dim, const Chunk& part);

class RowProduct {
 public:
  // Redistributes the layers' inputs as plain calls do, but waits for nothing. `overlap`: for the
  // record on the tape. Error{BadInput}: as linear.
  explicit RowProduct(const std::vector<RowFactor>& factors, Overlap overlap = Overlap::Off);

  const Tensor& x() const { return first().used()[0]; }  // of the first factor
  const DeviceMesh& mesh() const { return spec()->mesh; }
  const std::shared_ptr<Device>& device() const { return x().device(); }
  // Whether the rows are terms of a sum over ranks, as the operator's rule decided.
  bool is_sum() const;
  // Whether the rule left `x` where it is.
  bool reads(const Tensor& x) const;
  bool absent() const { return first().absent(); }  // this rank is not in the mesh
  const std::shared_ptr<const Spec>& spec() const { return first().spec(); }
  const Shape& local_shape() const { return first().local_shape(); }
  DType dtype() const { return first().dtype(); }
  std::uint64_t origin() const { return first().origin(); }
  std::uint64_t marks() const {
    std::uint64_t marks = 0;
    for (const OpCall& call : calls_) marks |= call.marks();
    return marks;
  }
  // From now on compute() reads the rows of x from another tensor of its shape.
  void read_from(Tensor x) { xs_.front() = std::move(x); }
  // From now on compute() takes rows of [the product of the leading dimensions, n].
  void flatten();
  // Fills `out` with the rows `rows` of dimension `dim`. Observers are notified as by linear.
  void compute(int dim, const Chunk& rows, const Tensor& out) const;
  // Returns `out` as the output of the only factor: with its spec, on the tape.
  Tensor record(Tensor out) { return calls_.front().record(std::move(out)); }

 private:
  const OpCall& first() const { return calls_.front(); }
  std::deque<OpCall> calls_;
  std::vector<Tensor> xs_;  // whose rows are computed; one per call
};

}  // namespace coshard
