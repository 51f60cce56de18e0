// Gradients of attention where they are known.
#include <gtest/gtest.h>

#include "kernels/cpu/cpu.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {

using namespace testing;

// Of one key the weight is 1 whatever the scores: the value gets the gradients of all queries.
TEST(AttentionGradOf, OneKeyIsThatOfItsValueAlone) {
  Data q = Data::normal(DType::F32, 3 * 4, 1), k = Data::normal(DType::F32, 4, 2),
       v = Data::normal(DType::F32, 4, 3), dout = Data::normal(DType::F32, 3 * 4, 4);
  Data out(DType::F32, 12), lse(DType::F32, 3), dq = Data::filled(DType::F32, 12, 9),
                                                dk = Data::filled(DType::F32, 4, 9),
                                                dv = Data::filled(DType::F32, 4, 9);
  const std::vector<std::int64_t> queries{1, 1, 3, 4}, keys{1, 1, 1, 4};
  cpu::run(Attention{out.view(queries), q.view(queries), k.view(keys), v.view(keys), lse.ptr(), 0.5,
                     false, 0, View{}});
  cpu::run(AttentionGrad{dq.view(queries), dk.view(keys), dv.view(keys), dout.view(queries),
                         out.view(queries), q.view(queries), k.view(keys), v.view(keys), lse.ptr(),
                         0.5, false, 0, View{}, View{}});
  for (int i = 0; i < 12; ++i) EXPECT_NEAR(dq.get(i), 0, 1e-6);
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(dk.get(i), 0, 1e-6);
    EXPECT_NEAR(dv.get(i), dout.get(i) + dout.get(4 + i) + dout.get(8 + i), 1e-5);
  }
}

// A key that causality hides gets none.
TEST(AttentionGradOf, AHiddenKeyIsZero) {
  Data q = Data::normal(DType::F32, 4, 1), k = Data::normal(DType::F32, 8, 2),
       v = Data::normal(DType::F32, 8, 3), dout = Data::normal(DType::F32, 4, 4);
  Data out(DType::F32, 4), lse(DType::F32, 1), dq(DType::F32, 4),
      dk = Data::filled(DType::F32, 8, 9), dv = Data::filled(DType::F32, 8, 9);
  const std::vector<std::int64_t> queries{1, 1, 1, 4}, keys{1, 1, 2, 4};
  cpu::run(Attention{out.view(queries), q.view(queries), k.view(keys), v.view(keys), lse.ptr(), 1,
                     true, 0, View{}});
  cpu::run(AttentionGrad{dq.view(queries), dk.view(keys), dv.view(keys), dout.view(queries),
                         out.view(queries), q.view(queries), k.view(keys), v.view(keys), lse.ptr(),
                         1, true, 0, View{}, View{}});
  for (int i = 4; i < 8; ++i) {
    EXPECT_EQ(dk.get(i), 0);
    EXPECT_EQ(dv.get(i), 0);
  }
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(dv.get(i), dout.get(i), 1e-6);
}

}  // namespace
}  // namespace coshard::kernels
