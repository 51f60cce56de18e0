#include "tests/kernels/cuda/on_device.h"

namespace coshard::kernels {
namespace {

using namespace testing;

// A parameter with all that belongs to it, and its gradient.
struct Parameter {
  Data param, grad, m, v, master, largest;
  bool with_master, amsgrad;
  Parameter(DType dtype, std::int64_t count, unsigned seed)
      : param(Data::normal(dtype, count, seed)),
        grad(Data::normal(dtype, count, seed + 1)),
        m(Data::normal(statistic(dtype), count, seed + 2)),
        v(Data::filled(statistic(dtype), count, 0.5)),
        master(Data::normal(statistic(dtype), count, seed + 3)),
        largest(Data::filled(statistic(dtype), count, 0.6)),
        with_master(seed % 2 == 1),
        amsgrad(seed % 4 > 1) {}
};

void compare_adamw(DType dtype, std::vector<Parameter> all) {
  OnDevice on;
  std::vector<AdamWTensor> there, here;
  for (Parameter& p : all) {
    const std::int64_t count = p.param.count();
    there.push_back({count, on.put(p.param), on.put(p.grad), on.put(p.m), on.put(p.v),
                     p.with_master ? on.put(p.master) : nullptr,
                     p.amsgrad ? on.put(p.largest) : nullptr});
  }
  for (int step = 1; step <= 2; ++step)
    on.run(AdamW{dtype, there, 1e-2, 0.9, 0.95, 1e-8, 0.1, 0.5, step});
  std::vector<Parameter> want = all;
  for (Parameter& p : want)
    here.push_back({p.param.count(), p.param.ptr(), p.grad.ptr(), p.m.ptr(), p.v.ptr(),
                    p.with_master ? p.master.ptr() : nullptr,
                    p.amsgrad ? p.largest.ptr() : nullptr});
  for (int step = 1; step <= 2; ++step)
    reference::run(AdamW{dtype, here, 1e-2, 0.9, 0.95, 1e-8, 0.1, 0.5, step});
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string what = "adamw tensor " + std::to_string(i) + ": ";
    expect_close(on.get(all[i].param), want[i].param, what + "parameter");
    expect_close(on.get(all[i].m), want[i].m, what + "m");
    expect_close(on.get(all[i].v), want[i].v, what + "v");
    expect_close(on.get(all[i].master), want[i].master, what + "master");
    expect_close(on.get(all[i].largest), want[i].largest, what + "largest v");
  }
}

TEST(CudaAdamW, MatchesTheReferenceForTensorsOfAllSizesAtOnce) {
  for (const DType dtype : kFloating) {
    std::vector<Parameter> all;
    unsigned seed = 0;
    for (const std::int64_t count : {0, 1, 3, 17, 4096, 0, 4097, 9001, 100})
      for (int i = 0; i < 2; ++i) all.emplace_back(dtype, count, seed++);
    compare_adamw(dtype, std::move(all));
  }
}

TEST(CudaAdamW, TakesMoreTensorsThanOneLaunchHolds) {
  std::vector<Parameter> all;
  for (unsigned i = 0; i < 150; ++i) all.emplace_back(DType::F32, 1 + i % 7, i);
  compare_adamw(DType::F32, std::move(all));
}

TEST(CudaAdamW, TakesTensorsThatStartAnywhere) {
  Parameter of(DType::F32, 50, 4);
  Parameter want = of;
  OnDevice on;
  const auto at = [](void* data) { return static_cast<float*>(data) + 1; };
  const AdamWTensor there{
      49, at(on.put(of.param)), at(on.put(of.grad)), at(on.put(of.m)), at(on.put(of.v)), nullptr};
  const AdamWTensor here{
      49, at(want.param.ptr()), at(want.grad.ptr()), at(want.m.ptr()), at(want.v.ptr()), nullptr};
  on.run(AdamW{DType::F32, {&there, 1}, 1e-2, 0.9, 0.95, 1e-8, 0.1, 1, 3});
  reference::run(AdamW{DType::F32, {&here, 1}, 1e-2, 0.9, 0.95, 1e-8, 0.1, 1, 3});
  expect_close(on.get(of.param), want.param, "adamw");
}

TEST(CudaAdamW, DoesNothingWithoutTensors) {
  OnDevice on;
  on.run(AdamW{DType::F32, {}, 1e-2, 0.9, 0.95, 1e-8, 0.1, 1, 1});
  on.device().synchronize();
}

TEST(CudaSgd, MatchesTheReferenceOverSteps) {
  for (const DType dtype : kFloating) {
    for (const std::int64_t count : kCounts) {
      for (int variant = 0; variant < 4; ++variant) {  // plain, momentum, nesterov, dampening
        const Data param = Data::normal(dtype, count, 1), momentum = Data::normal(dtype, count, 2);
        Data want[] = {param, momentum};
        OnDevice on;
        for (int step = 0; step < 3; ++step) {
          const Data grad = Data::normal(dtype, count, 10 + static_cast<unsigned>(step));
          const bool with = variant > 0;
          Sgd args{dtype,
                   count,
                   want[0].ptr(),
                   grad.ptr(),
                   with ? want[1].ptr() : nullptr,
                   0.1,
                   0.9,
                   0.01,
                   0.5,
                   step == 0,
                   variant == 3 ? 0.3 : 0,
                   variant == 2};
          reference::run(args);
          args.param = on.put(param);
          args.momentum = with ? on.put(momentum) : nullptr;
          const std::shared_ptr<Buffer> there =
              on.device().make_buffer(static_cast<std::size_t>(count) * size_of(dtype));
          on.device().upload(there->data(), grad.ptr(), there->bytes());
          args.grad = there->data();
          on.run(args);
        }
        expect_close(on.get(param), want[0], "sgd parameter");
        expect_close(on.get(momentum), want[1], "sgd momentum");
      }
    }
  }
}

}  // namespace
}  // namespace coshard::kernels
