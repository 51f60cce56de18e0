// The gradient of an embedding.
#include <functional>

#include "kernels/reference/reference.h"
#include "tests/kernels/reference/slopes.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels::reference {
namespace {

using namespace testing;

TEST(Gradients, OfEmbeddingAreItsSlopes) {
  const Data ids = Data::integers(DType::I64, 9, 1, 0, 5);
  Data weight = Data::normal(kF64, 4 * 3, 2);
  const Data dout = Data::normal(kF64, 27, 3);
  Data out(kF64, 27);
  Data dw(kF64, 12);
  run(EmbeddingGrad{kF64, DType::I64, 9, 4, 3, 1, -1, ids.ptr(), dout.ptr(), dw.ptr()});
  const auto forward = [&] {
    run(Embedding{kF64, DType::I64, 9, 4, 3, 1, ids.ptr(), weight.ptr(), out.ptr()});
  };
  expect_gradient(weight, dw, dout, out, forward, "weight");
}

}  // namespace
}  // namespace coshard::kernels::reference
