// Choices between two operands.
#include <coshard/runtime/error.h>
#include "tests/kernels/cuda/on_device.h"
#include "tests/kernels/cuda/operands.h"

namespace coshard::kernels {
namespace {

using namespace testing;

TEST(CudaWhere, ChoosesBetweenBroadcastTensorsAndNumbersOfAnyDType) {
  for (const DType dtype : kEveryDType) {
    for (const std::int64_t inner : {3, 48}) {
      Data condition = Data::integers(DType::Bool, 5 * inner, 1, 0, 1);
      Data x = operand(dtype, 5 * inner, 2, false), y = operand(dtype, inner, 3, false);
      const Data out(dtype, 5 * inner);
      const std::vector<std::int64_t> shape = {5, inner};
      const View rows{condition.ptr(), DType::Bool, 2, {5, inner}, {1, 0}};
      const View columns{y.ptr(), dtype, 2, {5, inner}, {0, 1}};
      for (const View& chosen : {rows, condition.view(shape), condition.view(shape, {1, 0})}) {
        for (int numbers = 0; numbers < 4; ++numbers) {
          Data want = out;
          const View left = numbers % 2 == 0 ? x.view(shape) : View{};
          const View right = numbers < 2 ? columns : View{};
          OnDevice on;
          on.run(Where{on.put(want.view(shape), out), on.put(chosen, condition),
                       left.data != nullptr ? on.put(left, x) : View{},
                       right.data != nullptr ? on.put(right, y) : View{}, 1});
          reference::run(Where{want.view(shape), chosen, left, right, 1});
          EXPECT_EQ(on.get(out), want) << dtype;
        }
      }
    }
  }
  Data none(DType::F32, 0);
  OnDevice on;
  const View view = on.put(none.view({0, 3}), none);
  on.run(Where{view, view, view, {}, 1});
}

}  // namespace
}  // namespace coshard::kernels
