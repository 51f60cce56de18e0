// Updates by the reference, by hand.
#include <gtest/gtest.h>

#include "kernels/reference/reference.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {

using namespace testing;

TEST(ReferenceSgd, KeepsABufferFromTheFirstGradientOn) {
  Data p = Data::filled(DType::F64, 1, 10), g = Data::filled(DType::F64, 1, 2), m(DType::F64, 1);
  Sgd args{.dtype = DType::F64,
           .count = 1,
           .param = p.ptr(),
           .grad = g.ptr(),
           .momentum = m.ptr(),
           .lr = 0.5,
           .momentum_factor = 0.5,
           .weight_decay = 0.1,
           .grad_scale = 1,
           .first = true};
  reference::run(args);
  EXPECT_DOUBLE_EQ(m.get(0), 3);  // 2 + 0.1 * 10
  EXPECT_DOUBLE_EQ(p.get(0), 8.5);
  args.first = false;
  args.dampening = 0.5;
  args.nesterov = true;
  reference::run(args);
  const double g2 = 2 + 0.1 * 8.5, m2 = 0.5 * 3 + 0.5 * g2;
  EXPECT_DOUBLE_EQ(m.get(0), m2);
  EXPECT_DOUBLE_EQ(p.get(0), 8.5 - 0.5 * (g2 + 0.5 * m2));
}

TEST(ReferenceAdamW, DecaysMovesAndKeepsTheLargestSecondMoment) {
  Data p = Data::filled(DType::F64, 1, 10), g = Data::filled(DType::F64, 1, 4), m(DType::F64, 1),
       v(DType::F64, 1), most(DType::F64, 1);
  const AdamWTensor tensor{1, p.ptr(), g.ptr(), m.ptr(), v.ptr(), nullptr, most.ptr()};
  AdamW args{.dtype = DType::F64,
             .tensors = std::span(&tensor, 1),
             .lr = 0.1,
             .beta1 = 0.9,
             .beta2 = 0.5,
             .eps = 0,
             .weight_decay = 0.2,
             .grad_scale = 0.5,
             .step = 1};
  reference::run(args);
  EXPECT_DOUBLE_EQ(m.get(0), 0.2);
  EXPECT_DOUBLE_EQ(v.get(0), 2);
  EXPECT_DOUBLE_EQ(most.get(0), 2);
  EXPECT_NEAR(p.get(0), 10 * (1 - 0.1 * 0.2) - 0.1, 1e-12);
  g.set(0, 0);
  args.step = 2;
  reference::run(args);
  EXPECT_DOUBLE_EQ(v.get(0), 1);
  EXPECT_DOUBLE_EQ(most.get(0), 2);
}

}  // namespace
}  // namespace coshard::kernels
