#include "dtensor/optim/unsummed.h"

#include <gtest/gtest.h>

#include <cmath>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/optim/data_parallel.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/hooks.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/support/ends.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::CountingObserver;
using testing::End;
using testing::ends_of;
using testing::on_ranks;
using testing::quick_options;
using Values = std::vector<double>;

// A step of a plain scale on heads that each rank has its own of, as QK norm: [2, 4], 1 to 8.
struct Heads {
  explicit Heads(World& world, int ranks = 2)
      : mesh(init_device_mesh(world, {ranks}, {"tp"})),
        x(distribute_tensor(arange(1, 1.0 + 4 * ranks).to(DType::F64).view({ranks, 4}), mesh,
                            Shard(0))) {}
  // The same on every rank: (sum of scale * x)^2 / 2.
  Tensor loss() const {
    const DTensor sums = from_local(sum(x.to_local() * scale, {1}), mesh, Shard(0));
    const Tensor all = sum(redistribute(sums, Replicate()).tensor()).to_local();
    return all * all * 0.5;
  }
  // Whose sum over ranks is the gradient.
  double term(int rank) const { return 4.0 * rank + 2.5; }

  DeviceMesh mesh;
  DTensor x;
  Tensor scale = ones({}, DType::F64, true);
};

Task<void> walk(Tensor loss) {
  Task<void> pass = backward(loss);
  co_await std::move(pass);
}
Task<void> stepped(Optimizer& optimizer) {
  Task<void> step = optimizer.step();
  co_await std::move(step);
}
Task<double> clipped(Tensor parameter, double most) {
  Task<Tensor> norm = clip_grad_norm(std::vector<Tensor>(1, parameter), most);
  const Tensor all = co_await std::move(norm);
  co_return all.item();
}

// After `program` the ranks issue a collective, which compares.
void expect_refused(const std::function<Task<void>(World&)>& program, const std::string& name,
                    ErrorKind kind = ErrorKind::CommFailed) {
  const auto whole = [&program](World& world) -> Task<void> {
    Task<void> body = program(world);
    co_await std::move(body);
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    static_cast<void>(ones(mesh, Shard(0), {2}).full_tensor());
  };
  std::string texts;  // a rank in another process may hear first that its peer has left
  for (const End& end : ends_of(quick_options(2), whole)) {
    EXPECT_TRUE(end.is(kind)) << end;
    texts += end.text + "\n";
  }
  for (const std::string& each : {name, std::string("tp")})
    EXPECT_NE(texts.find(each), std::string::npos) << texts;
}

TEST(Unsummed, IsAnErrorAtTheFirstStep) {
  expect_refused(
      [](World& world) -> Task<void> {
        const Heads heads(world);
        SGD optimizer({heads.scale}, {.lr = 0.1});
        co_await walk(heads.loss());
        co_await stepped(optimizer);
      },
      "parameter 0");
}

TEST(Unsummed, IsAnErrorOfClipping) {
  expect_refused(
      [](World& world) -> Task<void> {
        const Heads heads(world);
        co_await walk(heads.loss());
        co_await clipped(heads.scale, 1);
      },
      "parameter 0");
}

TEST(Unsummed, NamesTheOperatorAndTheDimension) {
  expect_refused(
      [](World& world) -> Task<void> {
        const Heads heads(world);
        const Tensor other = ones({2}, DType::F64, true);
        SGD optimizer({other, heads.scale}, {.lr = 0.1});
        co_await walk(heads.loss());
        co_await stepped(optimizer);
      },
      "by mul");
}

TEST(Unsummed, IsPaidByASum) {
  on_ranks(2, [](World& world) -> Task<void> {
    const Heads heads(world);
    SGD optimizer({heads.scale}, {.lr = 0.01});
    for (int micro = 0; micro < 8; ++micro) co_await walk(heads.loss());
    const double each = (heads.term(0) * 4 + heads.term(1) * 4) * 36;
    all_reduce_gradients({heads.scale}, heads.mesh, 0);
    EXPECT_NEAR(co_await clipped(heads.scale, 1e9), 8 * each, 1e-9);
    co_await stepped(optimizer);
    EXPECT_NEAR(heads.scale.item(), 1 - 0.01 * 8 * each, 1e-9);
  });
}

// Right where the loss was scaled by the number of ranks, so no error.
TEST(Unsummed, IsWarnedOfWhenItIsAveraged) {
  ::testing::internal::CaptureStderr();
  on_ranks(2, [](World& world) -> Task<void> {
    const Heads heads(world);
    SGD optimizer({heads.scale}, {.lr = 1e-3});
    co_await walk(heads.loss() * 2.0);
    all_reduce_gradients({heads.scale}, heads.mesh, 0, Reduce::Avg);
    co_await stepped(optimizer);
    EXPECT_NEAR(heads.scale.grad().item(), 36 * 36, 1e-9);
  });
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("parameter 0"), std::string::npos) << said;
  EXPECT_NE(said.find("Reduce::Sum"), std::string::npos) << said;
}

TEST(Unsummed, OfAParameterUsedOutsideTooIsRefused) {
  expect_refused(
      [](World& world) -> Task<void> {
        const Heads heads(world);
        const Tensor loss = heads.loss() + heads.scale * heads.scale;
        co_await walk(loss);
        all_reduce_gradients({heads.scale}, heads.mesh, 0);
      },
      "inside and outside", ErrorKind::BadInput);
}

// A term of zeros, so that every rank reaches the parameter, is none; on the CPU, whose memory the
// host reads.
TEST(Unsummed, MayHaveATermOfZeros) {
  on_ranks(2, [](World& world) -> Task<void> {
    if (world.device()->kind() != DeviceKind::Cpu) co_return;
    const Heads heads(world);
    co_await walk(heads.loss() + sum(heads.scale) * 0.0);
    all_reduce_gradients({heads.scale}, heads.mesh, 0);
    EXPECT_NEAR(co_await clipped(heads.scale, 1e9), 36 * 36, 1e-9);
  });
}

// Each rank's loss is its own, so that a term for all of them counts once.
TEST(Unsummed, IsAveragedIfTheLossVaries) {
  on_ranks(2, [](World& world) -> Task<void> {
    const Heads heads(world);
    const DataParallel parallel({heads.scale}, heads.mesh, 0);
    const Tensor own = sum(heads.x.to_local() * heads.scale);
    co_await walk(own + heads.scale * heads.scale * 1e-1);
    EXPECT_NEAR(co_await clipped(heads.scale, 1e9), 18 + 0.2, 1e-9);
  });
}

TEST(Unsummed, IsNothingWithAPlainLoader) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"dp"});
    const Tensor w = ones({3}, DType::F64, true), x = full({3}, world.rank() + 1.0, DType::F64);
    const DataParallel parallel({w}, mesh, 0);
    SGD optimizer({w}, {.lr = 1});
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      co_await walk(sum(w * x));
      co_await stepped(optimizer);
    }
    EXPECT_EQ(w.to_vector(), Values(3, 1 - 3 * 1.5));
  });
}

TEST(Unsummed, OfWhatEachRankHasItsOwnOfIsWarnedOfOnce) {
  ::testing::internal::CaptureStderr();
  on_ranks(2, [](World& world) -> Task<void> {
    const Heads heads(world);
    const Tensor expert = full({}, world.rank() + 1.0, DType::F64, true);
    SGD optimizer({expert}, {.lr = 1});
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      const DTensor sums = from_local(sum(heads.x.to_local() * expert, {1}), heads.mesh, Shard(0));
      co_await walk(sum(redistribute(sums, Replicate()).tensor()).to_local());
      co_await stepped(optimizer);
    }
    EXPECT_EQ(expert.item(), world.rank() + 1.0 - 3 * (world.rank() == 0 ? 10 : 26));
  });
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(said.find("parameter 0"), said.rfind("parameter 0")) << said;
}

// Experts that a rank has no tokens for have no gradient there.
TEST(Unsummed, OfExpertsWithoutTokensIsNoCollectiveOfSomeRanks) {
  for (const bool declared : {false, true})
    on_ranks(2, [declared](World& world) -> Task<void> {
      const Heads heads(world);
      const DTensor beside = ones(heads.mesh, Shard(0), {4}, DType::F64, true);
      const Tensor expert = full({}, world.rank() + 1.0, DType::F64, true);
      if (declared) varies(expert, heads.mesh, 0);
      const std::vector<Tensor> all{expert, beside};
      SGD optimizer(all, {.lr = 1});
      for (int step = 0; step < 4; ++step) {
        optimizer.zero_grad();
        Tensor own = sum(heads.x.to_local());
        if (world.rank() == 0 || step == 2) own = own * expert;
        const DTensor terms = from_local(own.view({1}), heads.mesh, Shard(0)) + sum(beside);
        co_await walk(sum(redistribute(terms, Replicate()).tensor()).to_local());
        Task<Tensor> clip = clip_grad_norm(all, 1e9);
        const Tensor norm = co_await std::move(clip);
        const double mine = step == 2 || world.rank() == 0 ? 10.0 + 16 * world.rank() : 0;
        const double others = step == 2 || world.rank() == 1 ? 10.0 + 16 * (1 - world.rank()) : 0;
        const double experts = mine * mine + (declared ? others * others : 0);
        EXPECT_NEAR(norm.item(), std::sqrt(experts + 4 * 4.0), 1e-9) << step;
        co_await stepped(optimizer);
      }
    });
}

TEST(Unsummed, OfADeclaredParameterIsItsOwn) {
  on_ranks(2, [](World& world) -> Task<void> {
    const Heads heads(world);
    varies(heads.scale, heads.mesh, 0);  // zero-initialised alike, but each rank trains its own
    SGD optimizer({heads.scale}, {.lr = 1});
    co_await walk(sum(heads.x.to_local() * heads.scale));
    EXPECT_NEAR(co_await clipped(heads.scale, 1e9), std::sqrt(10.0 * 10 + 26 * 26), 1e-9);
    co_await stepped(optimizer);
    EXPECT_EQ(heads.scale.item(), 1.0 - (world.rank() == 0 ? 10 : 26));
  });
}

// Ranks meet their meshes in any order; the norm is summed along both dimensions on all of them.
TEST(Unsummed, OfWhatIsOwnAlongTwoDimensionsIsSummedInOneOrder) {
  on_ranks(16, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {4, 4}, {"dp", "tp"});
    if (world.rank() % 3 == 0) static_cast<void>(ones(mesh["tp"], Shard(0), {4}).to_local());
    const Tensor own = full({2}, 1, DType::F64, true);
    varies(varies(own, mesh, 0), mesh, 1);
    own.set_grad(full({2}, world.rank(), DType::F64));
    double squares = 0;
    for (int rank = 0; rank < 16; ++rank) squares += 2.0 * rank * rank;
    EXPECT_NEAR(co_await clipped(own, 1e9), std::sqrt(squares), 1e-9);
  });
}

// Along a flattened dimension, and so along its parts.
TEST(Unsummed, OfWhatIsOwnAlongAFlattenedDimensionIsLegal) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    const DTensor beside = ones(mesh, {Shard(0), Shard(0)}, {4}, DType::F64, true);
    const Tensor own = zeros({2}, DType::F64, true);
    varies(own, mesh.flatten(), 0);
    const std::vector<Tensor> all{own, beside};
    SGD optimizer(all, {.lr = 0.1});
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      co_await walk(sum(own * (world.rank() + 1.0)) + sum(beside).full_tensor());
      co_await stepped(optimizer);
      for (const char* name : {"dp", "tp"})
        static_cast<void>(ones(mesh[name], Shard(0), {2}).full_tensor());
    }
  });
}

// Compared by clip and by step before anything is sent: as one.
TEST(Unsummed, IsToldAlsoAfterClipAndStep) {
  expect_refused(
      [](World& world) -> Task<void> {
        const Heads heads(world);
        SGD optimizer({heads.scale}, {.lr = 0.1});
        co_await walk(heads.loss());
        co_await clipped(heads.scale, 1e9);
        co_await stepped(optimizer);
      },
      "of 1");
}

TEST(Unsummed, IsPaidByAHookThatReduces) {
  on_ranks(2, [](World& world) -> Task<void> {
    const Heads heads(world);
    register_hook(heads.scale, [&heads](const Tensor& gradient) {
      return from_local(gradient.detach(), heads.mesh, Partial()).full_tensor();
    });
    SGD optimizer({heads.scale}, {.lr = 1e-3});
    co_await walk(heads.loss());
    co_await stepped(optimizer);
    EXPECT_NEAR(heads.scale.grad().item(), 36 * 36, 1e-9);
  });
}

TEST(Unsummed, OfARawCollectiveIsPaidByMarkWritten) {
  on_ranks(2, [](World& world) -> Task<void> {
    const Heads heads(world);
    Tensor h = sum(heads.x.to_local(), {1}).detach();
    Collective c;
    c.kind = CollectiveKind::AllReduce;
    c.dtype = DType::F64;
    c.extent = 1;
    c.send = c.recv = h.data();
    Work reduced = heads.mesh.communicator(0).issue(c);
    co_await reduced;
    h.mark_written();
    SGD optimizer({heads.scale}, {.lr = 1e-3});
    co_await walk(sum(h * heads.scale));
    co_await stepped(optimizer);
    EXPECT_NEAR(heads.scale.grad().item(), 36, 1e-9);
  });
}

TEST(Unsummed, MattersToNothingThatIsNotTrained) {
  on_ranks(2, [](World& world) -> Task<void> {
    const Heads heads(world);
    heads.scale.grad();
    Tensor frozen = ones({4}, DType::F64), w = ones({}, DType::F64, true);
    {
      const NoGradGuard off;
      static_cast<void>(sum(heads.x.to_local() * heads.scale).item());
    }
    Task<std::vector<Tensor>> asked =
        grad(std::vector<Tensor>{sum(heads.x.to_local() * frozen * heads.scale)},
             std::vector<Tensor>{heads.scale});
    const std::vector<Tensor> own = co_await std::move(asked);
    EXPECT_NE(own[0].marks(), 0U);
    SGD optimizer({w, heads.scale}, {.lr = 1});
    co_await walk(w * 3.0);
    co_await stepped(optimizer);
    EXPECT_EQ(w.item(), -2);
  });
}

// Beside DTensors plain gradients are compared, whatever is known of them.
TEST(Unsummed, OfAnotherBatchBesideDTensorsIsAnError) {
  expect_refused(
      [](World& world) -> Task<void> {
        const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
        const Tensor w = ones({3}, DType::F64, true);
        const DTensor d = ones(mesh, Shard(0), {4}, DType::F64, true);
        SGD optimizer({d, w}, {.lr = 1});
        co_await walk(sum(w * (world.rank() + 1.0)) + sum(d).full_tensor());
        co_await stepped(optimizer);
      },
      "parameter 1");
}

TEST(Unsummed, IsComparedBeforeAStepIsCaptured) {
  on_ranks(2, [](World& world) -> Task<void> {
    const Heads heads(world);
    SGD optimizer({heads.scale}, {.lr = 1e-3, .momentum = 0.5});
    CountingObserver seen(world);
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      co_await walk(heads.loss());
      all_reduce_gradients({heads.scale}, heads.mesh, 0);
      seen.reset();
      co_await stepped(optimizer);
      EXPECT_EQ(seen.total(), 0);  // comparisons are hidden, and what is paid is not compared
    }
  });
}

}  // namespace
}  // namespace coshard
