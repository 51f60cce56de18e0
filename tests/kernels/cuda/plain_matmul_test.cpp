// Products that cuBLASLt does not take.
#include <coshard/runtime/error.h>
#include "kernels/cuda/lt_api.h"
#include "tests/kernels/cuda/on_device.h"
#include "tests/kernels/cuda/products.h"

namespace coshard::kernels {
namespace {

using namespace testing;

// Heads of a [b, t, h*d] tensor, a shared weight, broadcast rows and no unit stride at all.
TEST(CudaMatmul, TakesStridedAndBroadcastViews) {
  for (const DType dtype : kFloating) {
    Data a = Data::normal(dtype, 4 * 12 * 40, 1), b = Data::normal(dtype, 4 * 20 * 40, 2);
    const View shared = {b.ptr(), dtype, 3, {4, 10, 20}, {0, 1, 40}};
    const View heads = {a.ptr(), dtype, 3, {4, 12, 10}, {10, 40, 1}};
    const View same = {a.ptr(), dtype, 3, {4, 12, 10}, {480, 0, 1}};
    const View single = {a.ptr(), dtype, 3, {4, 12, 10}, {0, 0, 0}};
    const View strided = {a.ptr(), dtype, 3, {4, 12, 10}, {480, 40, 3}};
    const View plain = {a.ptr(), dtype, 3, {4, 12, 10}, {120, 10, 1}};
    for (const View& left : {heads, same, single, strided, plain}) {
      for (const std::int64_t step : {1, 2}) {  // 2: a result without a unit stride
        Data out = Data::normal(dtype, 4 * 12 * 40, 3), want = out;
        const View to = {out.ptr(), dtype, 3, {4, 12, 20}, {480, 40, step}};
        OnDevice on;
        Matmul args{to, left, shared, 1, 0.5};
        args.out.data = want.ptr();
        reference::run(args);
        on.run(Matmul{on.put(to, out), on.put(left, a), on.put(shared, b), 1, 0.5});
        expect_close(on.get(out), want, product_tolerance(dtype, 10), "views");
      }
    }
  }
}

TEST(CudaMatmul, TakesAddressesThatNoAlgorithmTakes) {
  for (const DType dtype : {DType::BF16, DType::F16}) {
    Data a = Data::normal(dtype, 200, 1), b = Data::normal(dtype, 200, 2), out(dtype, 200);
    Data want = out;
    const auto shifted = [](View view, std::int64_t by) {
      view.data = static_cast<std::byte*>(view.data) + by * 2;
      return view;
    };
    OnDevice on;
    reference::run(Matmul{shifted(want.view({5, 9}), 3), shifted(a.view({5, 7}), 1),
                          shifted(b.view({7, 9}), 1)});
    on.run(Matmul{shifted(on.put(out.view({5, 9}), out), 3), shifted(on.put(a.view({5, 7}), a), 1),
                  shifted(on.put(b.view({7, 9}), b), 1)});
    expect_close(on.get(out), want, product_tolerance(dtype, 7), "shifted");
  }
}

}  // namespace
}  // namespace coshard::kernels
