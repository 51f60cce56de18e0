#include <range/v3/view/cartesian_product.hpp>

#include "kernels/cpu/cpu.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {
using namespace testing;

// A table of 10 rows, of which this rank holds rows 3..6; ids reach outside on both sides.
TEST(Embedding, AndItsGradientMatchTheReferenceOnAPartOfTheTable) {
  constexpr DType kIds[] = {DType::I64, DType::I32};
  constexpr std::int64_t kFew[] = {0, 1, 50}, kDims[] = {1, 17, 64};
  for (const auto& [dtype, ids_dtype, count, dim] :
       ranges::views::cartesian_product(kFloating, kIds, kFew, kDims)) {
    const Data ids = Data::integers(ids_dtype, count, 1, 0, 9);
    const Data weight = Data::normal(dtype, 4 * dim, 2);
    const Data dout = Data::normal(dtype, count * dim, 3);
    Data got(dtype, count * dim);
    Data want = got;
    cpu::run(Embedding{dtype, ids_dtype, count, 4, dim, 3, ids.ptr(), weight.ptr(), got.ptr()});
    reference::run(
        Embedding{dtype, ids_dtype, count, 4, dim, 3, ids.ptr(), weight.ptr(), want.ptr()});
    EXPECT_EQ(got, want);
    for (std::int64_t padding : {-1, 4}) {
      Data dw = Data::filled(dtype, 4 * dim, 7);
      Data want_dw(dtype, 4 * dim);
      cpu::run(EmbeddingGrad{dtype, ids_dtype, count, 4, dim, 3, padding, ids.ptr(), dout.ptr(),
                             dw.ptr()});
      reference::run(EmbeddingGrad{dtype, ids_dtype, count, 4, dim, 3, padding, ids.ptr(),
                                   dout.ptr(), want_dw.ptr()});
      expect_close(dw, want_dw, "embedding gradient");
    }
  }
}

TEST(Embedding, GivesZeroOutsideItsRows) {
  const Data ids = Data::filled(DType::I64, 3, 100);
  const Data weight = Data::filled(DType::F32, 4 * 5, 1);
  Data out = Data::filled(DType::F32, 15, 9);
  cpu::run(Embedding{DType::F32, DType::I64, 3, 4, 5, 0, ids.ptr(), weight.ptr(), out.ptr()});
  EXPECT_EQ(out, Data(DType::F32, 15));
}

}  // namespace
}  // namespace coshard::kernels
