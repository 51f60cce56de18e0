// Every operator in place on its first input: the same values as beside it, also where the other
// inputs are the same tensor or lie askew in its memory.
#include <gtest/gtest.h>

#include <functional>

#include <coshard/dtensor/ops/op.h>
#include <coshard/dtensor/ops/ops.h>
#include "tests/conformance/samples.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::make_input;
using testing::on_ranks;

// Whether an operator may be called in place on such inputs.
bool fits_in_place(const OpDef& op, const OpDef::Sample& sample) {
  if (op.view || !sample.in[0].defined) return false;
  const TensorInfo out = op.infer(sample.in, sample.attrs)[0];
  return out.shape == sample.in[0].shape &&
         (is_floating(sample.in[0].dtype) || !is_floating(out.dtype));
}

// The other inputs of x's shape and dtype become `aliased(x)`; the rest stay.
void expect_the_same_in_place(const OpDef& op, const OpDef::Sample& sample,
                              const std::vector<Tensor>& in,
                              const std::function<Tensor(const Tensor&)>& aliased) {
  const auto with = [&](const Tensor& x, const Tensor& read) {
    std::vector<Tensor> all = in;
    all[0] = x;
    for (std::size_t k = 1; k < all.size(); ++k)
      if (aliased && all[k].defined() && all[k].shape() == x.shape() && all[k].dtype() == x.dtype())
        all[k] = aliased(read);
    return all;
  };
  const Tensor x = clone(in[0]);
  const Tensor want = call(op, with(x, clone(x)), sample.attrs)[0];
  call_in_place(op, with(x, x), sample.attrs);
  EXPECT_EQ(x.to_vector(), to(want, x.dtype()).to_vector()) << op.name << " of " << x;
}

TEST(InPlaceOfAll, GivesTheSameAsBeside) {
  on_ranks(1, [](World& world) -> Task<void> {
    const NoGradGuard off;
    int pointwise = 0;
    for (const OpDef* op : all_operators()) {
      if (op->samples == nullptr) continue;
      for (const OpDef::Sample& sample : op->samples()) {
        if (!fits_in_place(*op, sample)) continue;
        std::vector<Tensor> in;
        for (std::size_t k = 0; k < sample.in.size(); ++k)
          in.push_back(make_input(world, sample, k));
        pointwise += op->pointwise ? 1 : 0;
        expect_the_same_in_place(*op, sample, in, nullptr);
        expect_the_same_in_place(*op, sample, in, [](const Tensor& x) { return x; });
        if (op->compute == ComputeClass::Other && in[0].ndim() > 0)
          expect_the_same_in_place(*op, sample, in, [](const Tensor& x) {
            return expand(slice(x, 0, 0, 1), x.shape());
          });
      }
    }
    EXPECT_GT(pointwise, 30);
    co_return;
  });
}

}  // namespace
}  // namespace coshard
