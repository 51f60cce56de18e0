// Gradients of functions of one element.
#include <limits>

#include <coshard/runtime/error.h>
#include "tests/kernels/cuda/on_device.h"

namespace coshard::kernels {
namespace {

using namespace testing;

TEST(CudaUnaryGrad, MatchesTheReference) {
  for (const UnaryOp op : every_unary_op()) {
    for (const DType dtype : kFloating) {
      for (const std::int64_t count : {0, 1, 17, 1030}) {
        const Data x = Data::normal(dtype, count, 1, 3), dy = Data::normal(dtype, count, 2);
        const Data dx(dtype, count);
        Data want = dx;
        OnDevice on;
        UnaryGrad args{op, dtype, count, on.put(dy), on.put(x), on.put(dx), -1, 2};
        on.run(args);
        args.dy = dy.ptr(), args.x = x.ptr(), args.dx = want.ptr();
        reference::run(args);
        expect_close(on.get(dx), want, "gradient of " + std::string(to_string(op)));
      }
    }
  }
}

TEST(CudaUnaryGrad, OfAFunctionWithKinksPassesOrNotWhateverTheGradientIs) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const DType dtype : kFloating) {
    Data x(dtype, 4);
    const double values[] = {-1, 0, 1, std::nan("")};
    for (int i = 0; i < 4; ++i) x.set(i, values[i]);
    const Data dy = Data::filled(dtype, 4, inf);
    const Data relu(dtype, 4), clamp(dtype, 4);
    OnDevice on;
    on.run(UnaryGrad{UnaryOp::Relu, dtype, 4, on.put(dy), on.put(x), on.put(relu)});
    on.run(UnaryGrad{UnaryOp::Clamp, dtype, 4, on.put(dy), on.put(x), on.put(clamp), -1, 1});
    for (int i = 0; i < 4; ++i) EXPECT_EQ(on.get(relu).get(i), i < 2 ? 0 : inf);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(on.get(clamp).get(i), i == 1 ? inf : 0);
  }
}

}  // namespace
}  // namespace coshard::kernels
