// 8-bit floats: casts as torch's, files, layouts, and what is refused. What torch says is in
// tests/hf/float8.safetensors.
#include <cmath>
#include <cstring>
#include <filesystem>

#include <coshard/dtensor/ops/dlpack.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/checkpoint/saved_states.h"

namespace coshard::testing {
namespace {

using Values = std::vector<double>;

constexpr DType kFloat8[] = {DType::F8E4M3, DType::F8E5M2};

std::string name_of(DType dtype) { return dtype == DType::F8E4M3 ? "e4m3" : "e5m2"; }

std::vector<std::uint8_t> raw_bytes(const Tensor& x) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(x.local_numel()));
  x.device()->download(bytes.data(), x.storage()->buffer->data(), bytes.size());
  return bytes;
}

Task<Tensor> from_torch(World& world, std::string name, Shape shape, DType dtype) {
  const Tensor x = zeros(world.device(), shape, dtype);
  State state;
  state.add(name, x);
  LoadOptions options;
  options.strict = false;
  Task<LoadReport> loading = load(state, COSHARD_HF "/float8.safetensors", options);
  co_await std::move(loading);
  co_return x;
}

void expect_equal(const Tensor& got, const Tensor& want, const std::string& what) {
  const Values a = got.to_vector(), b = want.to_vector();
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])))
        << what << ' ' << i << ": " << a[i] << ", torch " << b[i];
    if (!std::isnan(a[i])) {
      EXPECT_EQ(std::signbit(a[i]), std::signbit(b[i])) << what << ' ' << i;
    }
  }
}

TEST(Float8, EveryByteIsWhatTorchSays) {
  on_ranks(1, [](World& world) -> Task<void> {
    for (const DType dtype : kFloat8) {
      const std::string name = name_of(dtype);
      Task<Tensor> loading = from_torch(world, name + ".all", {256}, dtype);
      const Tensor all = co_await std::move(loading);
      for (int i = 0; i < 256; ++i) EXPECT_EQ(raw_bytes(all)[static_cast<std::size_t>(i)], i);
      for (const DType to_dtype : {DType::F32, DType::BF16}) {
        const std::string wide = to_dtype == DType::F32 ? ".all.f32" : ".all.bf16";
        Task<Tensor> other = from_torch(world, name + wide, {256}, to_dtype);
        const Tensor want = co_await std::move(other);
        expect_equal(to(all, to_dtype), want, name + wide);
      }
    }
  });
}

TEST(Float8, CastsRoundAsTorchDoes) {
  on_ranks(1, [](World& world) -> Task<void> {
    for (const DType dtype : kFloat8) {
      const std::string name = name_of(dtype);
      const std::int64_t count = dtype == DType::F8E4M3 ? 1288 : 1258;
      Task<Tensor> loading = from_torch(world, name + ".x", {count}, DType::F32);
      const Tensor x = co_await std::move(loading);
      for (const DType by : {DType::F32, DType::F64, DType::F16}) {
        const std::string key = name + (by == DType::F32   ? ".x.f8"
                                        : by == DType::F64 ? ".x.f64_f8"
                                                           : ".x.f16_f8");
        Task<Tensor> other = from_torch(world, key, {count}, dtype);
        const Tensor want = co_await std::move(other);
        expect_equal(to(to(x, by), dtype), want, key);
      }
    }
  });
}

TEST(Float8, GoesThroughFilesByteForByte) {
  const ScratchFolder scratch;
  on_ranks(2, [&](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    for (const DType dtype : kFloat8) {
      const std::string folder = scratch.path(name_of(dtype));
      const Tensor x = to(distribute_tensor(counting(world, {5, 6}), mesh, Shard(0)), dtype);
      State state;
      state.add("x", x);
      Task<void> saving = save(state, folder);
      co_await std::move(saving);
      const Tensor back = distribute_tensor(zeros(world.device(), {5, 6}, dtype), mesh, Shard(1));
      State other;
      other.add("x", back);
      Task<LoadReport> loading = load(other, folder);
      co_await std::move(loading);
      DTensor whole = to(x, DType::F32), again = to(back, DType::F32);
      whole = co_await whole.redistribute(Replicate());
      again = co_await again.redistribute(Replicate());
      EXPECT_EQ(whole.to_local().to_vector(), again.to_local().to_vector());
    }
  });
}

TEST(Float8, IsNotCastWhenAFileIsRead) {
  on_ranks(1, [](World& world) -> Task<void> {
    std::string said;
    try {
      Task<Tensor> loading = from_torch(world, "e4m3.all", {256}, DType::BF16);
      co_await std::move(loading);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::BadInput);
      said = error.what();
    }
    EXPECT_NE(said.find("F8_E4M3"), std::string::npos) << said;
  });
}

TEST(Float8, MovesBetweenAllLayouts) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor x = counting(world, {5, 6});
    for (const DType dtype : kFloat8) {
      const Values want = to(to(x, dtype), DType::F64).to_vector();
      for (const Placement& from :
           {Placement(Shard(0)), Placement(Shard(1)), Placement(Replicate())})
        for (const Placement& target :
             {Placement(Replicate()), Placement(Shard(0)), Placement(Shard(1))}) {
          DTensor moved = to(distribute_tensor(x, mesh, from), dtype);
          moved = co_await moved.redistribute(target);
          DTensor wide = to(moved, DType::F64);
          wide = co_await wide.redistribute(Replicate());
          EXPECT_EQ(wide.to_local().to_vector(), want) << dtype << from << target;
        }
    }
  });
}

TEST(Float8, IsNotComputedWith) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor wide = counting(world, {4, 4}, DType::F32);
    for (const DType dtype : kFloat8) {
      const Tensor x = to(wide, dtype);
      EXPECT_THROW(x + x, Error);
      EXPECT_THROW(x + wide, Error);
      EXPECT_THROW(x * 2, Error);
      EXPECT_THROW(matmul(x, x), Error);
      EXPECT_THROW(sum(x), Error);
      EXPECT_THROW(nansum(x), Error);
      EXPECT_THROW(mean(x), Error);
      EXPECT_THROW(prod(x), Error);
      EXPECT_THROW(amax(x), Error);
      EXPECT_THROW(max(x, 0), Error);
      EXPECT_THROW(argmax(x, 0), Error);
      EXPECT_THROW(sort(x, 0), Error);
      EXPECT_THROW(cumsum(x, 0), Error);
      EXPECT_THROW(logsumexp(x, 0), Error);
      EXPECT_THROW(exp(x), Error);
      EXPECT_THROW(abs(x), Error);
      EXPECT_THROW(neg(x), Error);
      EXPECT_THROW(relu(x), Error);
      EXPECT_THROW(x / 2, Error);
      EXPECT_THROW(eq(x, x), Error);
      EXPECT_THROW(softmax(x, 0), Error);
      EXPECT_THROW(Tensor(x).set_requires_grad(true), Error);
      EXPECT_EQ(to(cat({x, x.t()}, 0), DType::F32).size(0), 8);
    }
    co_return;
  });
}

TEST(Float8, CannotBeReduced) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    std::string said;
    try {
      DTensor x = from_local(to(counting(world, {4}), DType::F8E5M2), mesh, Partial());
      co_await x.redistribute(Replicate());
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Unsupported);
      said = error.what();
    }
    EXPECT_NE(said.find("f8e5m2"), std::string::npos) << said;
  });
}

TEST(Float8, GoesThroughDlpack) {
  on_ranks(1, [](World& world) -> Task<void> {
    for (const DType dtype : kFloat8) {
      const Tensor x = to(counting(world, {3}), dtype);
      DLManagedTensorVersioned* managed = to_dlpack(x);
      EXPECT_EQ(managed->dl_tensor.dtype.code, dtype == DType::F8E4M3 ? 10 : 12);
      EXPECT_EQ(managed->dl_tensor.dtype.bits, 8);
      const Tensor back = from_dlpack(world, managed);
      EXPECT_EQ(back.dtype(), dtype);
      EXPECT_EQ(back.to_vector(), x.to_vector());
    }
    co_return;
  });
}

}  // namespace
}  // namespace coshard::testing
