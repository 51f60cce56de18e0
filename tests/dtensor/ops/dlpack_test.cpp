// DLPack: geometry, ownership, waits, and what is refused. tests/hf/dlpack_test.py asks NumPy and torch.
#include <coshard/dtensor/ops/dlpack.h>

#include <gtest/gtest.h>
#include <memory>
#include <thread>

#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/runtime/coro/wait_limit.h>
#include "tests/support/contains.h"
#include "tests/support/ranks.h"

namespace coshard::testing {
namespace {

using Values = std::vector<double>;

void release(DLManagedTensorVersioned* managed) { managed->deleter(managed); }

std::string refused(const std::function<void()>& call, ErrorKind kind = ErrorKind::BadInput) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "nothing was thrown";
}

// Memory of another library: 2 x 3 of f32, and how often it was released.
struct Foreign {
  float values[6] = {1, 2, 3, 4, 5, 6};
  std::int64_t shape[2] = {2, 3}, strides[2] = {3, 1};
  int released = 0;
  DLManagedTensorVersioned managed = {
      .version = {1, 1},
      .manager_ctx = this,
      .deleter =
          [](DLManagedTensorVersioned* m) { ++static_cast<Foreign*>(m->manager_ctx)->released; },
      .flags = 0,
      .dl_tensor = {values, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, strides, 0}};
};

void alone(const std::function<void(World&)>& body) {
  on_ranks(1, [&](World& world) -> Task<void> {
    body(world);
    co_return;
  });
}

TEST(Dlpack, ExportsMemoryWithItsGeometry) {
  alone([](World& world) {
    const Tensor x = counting(world, Shape{2, 3, 4}, DType::F32);
    const Tensor y = slice(transpose(x, 0, 2), 0, 1, 4);
    DLManagedTensorVersioned* const given = to_dlpack(y);
    const DLTensor& told = given->dl_tensor;
    EXPECT_EQ(given->version.major, 1U);
    EXPECT_EQ(given->version.minor, 1U);
    EXPECT_EQ(given->flags, 0U);
    EXPECT_EQ(told.device.device_type, kDLCPU);
    EXPECT_EQ(Shape(told.shape, told.shape + told.ndim), (Shape{3, 3, 2}));
    EXPECT_EQ(Strides(told.strides, told.strides + told.ndim), (Strides{1, 4, 12}));
    EXPECT_EQ(told.dtype.code, kDLFloat);
    EXPECT_EQ(told.dtype.bits, 32);
    EXPECT_EQ(static_cast<const float*>(told.data)[told.byte_offset], 2);
    release(given);
  });
}

TEST(Dlpack, EveryTypeComesBack) {
  alone([](World& world) {
    for (const DType dtype :
         {DType::F32, DType::F64, DType::BF16, DType::F16, DType::I64, DType::I32, DType::Bool}) {
      Tensor back;
      {
        const Tensor x = Tensor::from_values(world.device(), Shape{3}, dtype, {1, 0, 1});
        back = from_dlpack(world, to_dlpack(x));
      }
      EXPECT_EQ(back.dtype(), dtype);
      EXPECT_EQ(back.to_vector(), (Values{1, 0, 1}));
    }
    const Tensor scalar = from_dlpack(world, to_dlpack(counting(world, Shape{})));
    EXPECT_EQ(scalar.item(), 1);
    const Tensor none = from_dlpack(world, to_dlpack(counting(world, Shape{2, 0})));
    EXPECT_EQ(none.shape(), (Shape{2, 0}));
  });
}

TEST(Dlpack, ImportedMemoryIsSharedAndReleasedOnce) {
  Foreign foreign;
  alone([&](World& world) {
    Tensor view;
    {
      const Tensor x = from_dlpack(world, &foreign.managed);
      EXPECT_EQ(x.to_vector(), (Values{1, 2, 3, 4, 5, 6}));
      mul_(x, 2);
      view = select(x, 0, 1);
    }
    EXPECT_EQ(foreign.released, 0);
    EXPECT_EQ(view.to_vector(), (Values{8, 10, 12}));
    view = Tensor();
    EXPECT_EQ(foreign.released, 1);
    EXPECT_EQ(foreign.values[5], 12);
  });
}

TEST(Dlpack, StridesOffsetsAndTheirAbsenceAreKept) {
  alone([](World& world) {
    Foreign columns, rows, offset;
    columns.shape[0] = 3, columns.shape[1] = 2, columns.strides[0] = 1, columns.strides[1] = 3;
    EXPECT_EQ(from_dlpack(world, &columns.managed).to_vector(), (Values{1, 4, 2, 5, 3, 6}));
    rows.managed.dl_tensor.strides = nullptr;
    EXPECT_EQ(from_dlpack(world, &rows.managed).to_vector(), (Values{1, 2, 3, 4, 5, 6}));
    offset.managed.dl_tensor.byte_offset = 12, offset.shape[0] = 1;
    EXPECT_EQ(from_dlpack(world, &offset.managed).to_vector(), (Values{4, 5, 6}));
  });
}

TEST(Dlpack, AReadOnlyTensorIsNotWritten) {
  Foreign foreign;
  foreign.managed.flags = DLPACK_FLAG_BITMASK_READ_ONLY;
  alone([&](World& world) {
    const Tensor x = from_dlpack(world, &foreign.managed);
    EXPECT_CONTAINS(refused([&] { add_(x, 1); }), "for reading");
    EXPECT_CONTAINS(refused([&] { x.data(); }), "for reading");
    EXPECT_CONTAINS(refused([&] { fill_(select(x, 0, 0), 1); }), "for reading");
    EXPECT_EQ(add(x, 1).to_vector(), (Values{2, 3, 4, 5, 6, 7}));
    DLManagedTensorVersioned* const again = to_dlpack(x);
    EXPECT_EQ(again->flags, DLPACK_FLAG_BITMASK_READ_ONLY);
    release(again);
    DLManagedTensorVersioned* const asked = to_dlpack(clone(x), {.read_only = true});
    EXPECT_EQ(asked->flags, DLPACK_FLAG_BITMASK_READ_ONLY);
    release(asked);
  });
}

TEST(Dlpack, WritesWaitForTheConsumer) {
  alone([](World& world) {
    const Tensor x = counting(world, Shape{3});
    DLManagedTensorVersioned* const given = to_dlpack(x);
    {
      const WaitLimit limit(std::chrono::milliseconds(1));
      EXPECT_CONTAINS(refused([&] { add_(x, 1); }, ErrorKind::Timeout), "to_dlpack");
    }
    EXPECT_EQ(mul(x, 2).to_vector(), (Values{2, 4, 6}));  // reading does not wait
    std::thread other([given] { release(given); });
    add_(x, 1);
    EXPECT_EQ(x.to_vector(), (Values{2, 3, 4}));
    other.join();
  });
}

TEST(Dlpack, MemoryOutlivesItsTensor) {
  alone([](World& world) {
    DLManagedTensorVersioned* const given = to_dlpack(counting(world, Shape{1000}));
    const Tensor other = counting(world, Shape{1000}, DType::F64, -1);
    EXPECT_EQ(static_cast<const double*>(given->dl_tensor.data)[999], 1000);
    std::thread elsewhere([given] { release(given); });
    elsewhere.join();
  });
}

TEST(Dlpack, WhatIsInFlightIsAwaited) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"x"});
    const DTensor term = from_local(counting(world, Shape{3}), mesh, Partial());
    const Redistribution issued = term.redistribute(Replicate());
    const Tensor sum = issued.tensor().to_local();
    DLManagedTensorVersioned* const given = to_dlpack(sum);
    EXPECT_EQ(static_cast<const double*>(given->dl_tensor.data)[2], 6);
    EXPECT_CONTAINS(refused([&] { to_dlpack(term); }), "to_local()");
    release(given);
    co_return;
  });
}

TEST(Dlpack, RefusesWhatItCannotTakeAndLeavesItToTheCaller) {
  alone([](World& world) {
    const auto told = [&](auto change) {
      Foreign foreign;
      change(foreign.managed, foreign);
      const std::string why = refused([&] { from_dlpack(world, &foreign.managed); });
      EXPECT_EQ(foreign.released, 0);
      return why;
    };
    EXPECT_CONTAINS(told([](auto& m, auto&) { m.version.major = 2; }), "version 2.1");
    EXPECT_CONTAINS(told([](auto& m, auto&) { m.dl_tensor.dtype.bits = 8; }), "8 bits");
    EXPECT_CONTAINS(told([](auto& m, auto&) { m.dl_tensor.dtype.lanes = 2; }), "2 lanes");
    EXPECT_CONTAINS(told([](auto& m, auto&) { m.dl_tensor.device.device_type = kDLCUDA; }),
                    "(2, 0)");
    EXPECT_CONTAINS(told([](auto&, auto& f) { f.strides[0] = -3; }), "negative");
    EXPECT_CONTAINS(told([](auto&, auto& f) { f.strides[0] = INT64_MAX; }), "beyond all memory");
    EXPECT_CONTAINS(told([](auto&, auto& f) { f.shape[0] = -1; }), "from_dlpack");
    EXPECT_CONTAINS(told([](auto& m, auto&) { m.dl_tensor.data = nullptr; }), "null");
    EXPECT_CONTAINS(told([](auto& m, auto&) { m.dl_tensor.byte_offset = 2; }), "multiple of 4");
    EXPECT_CONTAINS(told([](auto& m, auto&) { m.dl_tensor.ndim = -1; }), "-1 dimensions");
    EXPECT_CONTAINS(refused([&] { from_dlpack(world, nullptr); }), "no tensor");
    Tensor leaf = counting(world, Shape{2});
    leaf.set_requires_grad(true);
    EXPECT_CONTAINS(refused([&] { to_dlpack(leaf); }), "detach()");
  });
}

}  // namespace
}  // namespace coshard::testing
