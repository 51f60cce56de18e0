// Gradients of attention.
#include <functional>

#include "kernels/reference/reference.h"
#include "tests/kernels/reference/slopes.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels::reference {
namespace {

using namespace testing;

TEST(Gradients, OfAttentionAreItsSlopes) {
  for (std::int64_t window : {-1, 0, 2}) {
    const bool causal = window >= 0;
    const std::vector<std::int64_t> wide = {1, 4, 3, 5};
    const std::vector<std::int64_t> narrow = {1, 2, 6, 5};
    Data q = Data::normal(kF64, 60, 1);
    Data k = Data::normal(kF64, 60, 2);
    Data v = Data::normal(kF64, 60, 3);
    Data dout = Data::normal(kF64, 60, 4);
    Data out(kF64, 60);
    Data lse(kF64, 12);
    Data dq(kF64, 60);
    Data dk(kF64, 60);
    Data dv(kF64, 60);
    Data mask = Data::normal(kF64, 4 * 3 * 6, 5);
    Data dmask(kF64, 4 * 3 * 6);
    const View bias = mask.view({1, 4, 3, 6});
    const auto forward = [&] {
      run(Attention{out.view(wide), q.view(wide), k.view(narrow), v.view(narrow), lse.ptr(), 0.4,
                    causal, 3, bias, window});
    };
    forward();
    run(AttentionGrad{dq.view(wide), dk.view(narrow), dv.view(narrow), dout.view(wide),
                      out.view(wide), q.view(wide), k.view(narrow), v.view(narrow), lse.ptr(), 0.4,
                      causal, 3, bias, dmask.view({1, 4, 3, 6}), window});
    expect_gradient(q, dq, dout, out, forward, "q");
    expect_gradient(k, dk, dout, out, forward, "k");
    expect_gradient(v, dv, dout, out, forward, "v");
    expect_gradient(mask, dmask, dout, out, forward, "mask");
  }
}

}  // namespace
}  // namespace coshard::kernels::reference
