#include "dtensor/tape/marks.h"

#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include "tests/dtensor/thrown_by.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::counting;
using testing::on_ranks;
using testing::thrown_by;

// A plain tensor that differs by rank along "tp".
Tensor local_rows(const DeviceMesh& mesh) {
  return ones(mesh, Shard(0), {4 * mesh.size(), 3}, DType::F64).to_local();
}

void on_tp(const std::function<void(World&, const DeviceMesh&)>& body) {
  on_ranks(2, [&body](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    body(world, mesh);
    co_return;
  });
}

TEST(Marks, ComeFromLocalTensorsOfShardsAndTerms) {
  on_tp([](World&, const DeviceMesh& mesh) {
    const std::uint64_t tp = mark_of(mesh, 0);
    EXPECT_NE(tp, 0U);
    EXPECT_EQ(names_of(tp), "'tp'");
    EXPECT_EQ(ones(mesh, Shard(0), {4}).to_local().marks(), tp);
    EXPECT_EQ(ones(mesh, StridedShard(0, 2), {8}).to_local().marks(), tp);
    EXPECT_EQ(ones(mesh, Partial(), {4}).to_local().marks(), tp);
    EXPECT_EQ(ones(mesh, Replicate(), {4}).to_local().marks(), 0U);
    EXPECT_EQ(ones(mesh, Shard(0), {4}).full_tensor().marks(), 0U);
    EXPECT_EQ(ones({4}).marks(), 0U);
  });
}

TEST(Marks, StayWithCopiesDetachedHandlesAndViews) {
  on_tp([](World&, const DeviceMesh& mesh) {
    const Tensor x = local_rows(mesh);
    const std::uint64_t tp = x.marks();
    EXPECT_EQ(x.detach().marks(), tp);
    EXPECT_EQ(copy_of(x).marks(), tp);
    EXPECT_EQ(x.clone().marks(), tp);
    EXPECT_EQ(x.t().marks(), tp);
    EXPECT_EQ(x[0].marks(), tp);
    EXPECT_EQ(x.to(DType::F32).marks(), tp);
    EXPECT_EQ(zeros_like(x).marks(), 0U);
  });
}

TEST(Marks, OfAWriteAreThoseOfWhatItIsAViewOf) {
  on_tp([](World&, const DeviceMesh& mesh) {
    const Tensor x = local_rows(mesh), h = zeros({4, 3}, DType::F64);
    const Tensor row = h[1], other = h[2];
    row.copy_(x[0]);
    for (const Tensor& t : {h, row, other, h.detach()}) EXPECT_EQ(t.marks(), x.marks());
    h.zero_();
    EXPECT_EQ(h.marks(), 0U);
    h.add_(x);
    EXPECT_EQ(other.marks(), x.marks());
    h.copy_(ones({4, 3}, DType::F64));
    EXPECT_EQ(h.marks(), 0U);
    h.mul_(x);
    h.mark_written();
    EXPECT_EQ(h.marks(), 0U);
  });
}

TEST(Marks, EndInADTensorOfTheSameDimension) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    const std::uint64_t dp = mark_of(mesh, 0), tp = mark_of(mesh, 1);
    const Tensor batch = ones(mesh["dp"], Shard(0), {4, 6}, DType::F64).to_local();
    EXPECT_EQ(batch.marks(), dp);
    const DTensor columns = from_local(batch, mesh["tp"], Shard(1));
    EXPECT_EQ(columns.marks(), dp);  // its layout says nothing of dp
    EXPECT_EQ(sum(columns * columns).to_local().marks(), dp | tp);
    EXPECT_EQ(columns.full_tensor().marks(), dp);
    EXPECT_EQ(from_local(columns.to_local(), mesh["tp"], Replicate()).marks(), dp);
    co_return;
  });
}

TEST(Marks, OfGradientsComeFromWhatTheyAreComputedFrom) {
  on_tp([](World&, const DeviceMesh& mesh) {
    const Tensor scale = ones({3}, DType::F64, true), bias = ones({3}, DType::F64, true);
    const Tensor h = local_rows(mesh) * scale;
    const DTensor rows = from_local(h, mesh, Shard(0));
    const DTensor all = redistribute(rows, Replicate()).tensor();
    run_backward(sum(all.to_local() + bias));
    EXPECT_EQ(scale.grad().marks(), mark_of(mesh, 0));
    EXPECT_EQ(bias.grad().marks(), 0U);
  });
}

// What a gradient is averaged or summed over later: terms of one loss, or of one per rank.
TEST(Marks, ALeafKnowsWhetherTheLossDiffersByRank) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const std::uint64_t tp = mark_of(mesh, 0);
    for (const bool in_place : {true, false}) {
      const Tensor own = ones({3}, DType::F64, true), shared = ones({3}, DType::F64, true);
      const Tensor of_rank = sum(local_rows(mesh) * own);
      const Tensor of_all =
          from_local(local_rows(mesh) * shared, mesh, Shard(0)).sum().full_tensor();
      if (in_place) {
        run_backward(of_rank);
        run_backward(of_all);
      } else {
        co_await backward(of_rank);
        co_await backward(of_all);
      }
      EXPECT_EQ(own.grad_meta()->terms.alike_loss & tp, 0U) << in_place;
      EXPECT_EQ(shared.grad_meta()->terms.alike_loss & tp, tp) << in_place;
    }
  });
}

TEST(Marks, AGradientThatDiffersByRankIsNoReplica) {
  on_tp([](World&, const DeviceMesh& mesh) {
    const DTensor w = ones(mesh, Replicate(), {3}, DType::F64, true);
    const auto loss = [&](std::optional<Layout> grad) {
      return sum(local_rows(mesh) * w.to_local(grad));
    };
    const std::string text = thrown_by([&] { run_backward(loss({})); });
    EXPECT_NE(text.find("'tp'"), std::string::npos) << text;
    EXPECT_NE(text.find("grad_placements"), std::string::npos) << text;
    w.set_grad({});
    run_backward(loss(Partial()));
    EXPECT_EQ(w.grad().full_tensor().to_vector(), std::vector<double>(3, 8));
  });
}

TEST(Marks, OfAScalarBesideADTensorAreAnError) {
  on_tp([](World&, const DeviceMesh& mesh) {
    const DTensor x = ones(mesh, Shard(0), {4, 3}, DType::F64);
    const Tensor largest = amax(abs(x.to_local()));
    const std::string text = thrown_by([&] { x / largest; });
    EXPECT_NE(text.find("'tp'"), std::string::npos) << text;
    EXPECT_EQ((x / ones({}, DType::F64)).layout(), Layout(Shard(0)));
  });
}

TEST(Varies, MarksATensorAndEverythingComputedFromIt) {
  on_tp([](World& world, const DeviceMesh& mesh) {
    const Tensor x = varies(counting(world, {4}), mesh, 0);
    EXPECT_EQ((x + 1).marks(), mark_of(mesh, 0));
    const Tensor p = ones({3}, DType::F64, true);
    varies(p, mesh, 0);
    p.mark_written();
    EXPECT_EQ(p.marks(), mark_of(mesh, 0));  // it stays this rank's own
  });
}

TEST(Varies, RefusesWhatHasALayoutThere) {
  on_tp([](World&, const DeviceMesh& mesh) {
    EXPECT_NE(thrown_by([&] { varies(ones(mesh, Replicate(), {4}), mesh, 0); }), "nothing");
    EXPECT_NE(thrown_by([&] { varies(ones({4}), mesh, 1); }), "nothing");
    EXPECT_NE(thrown_by([&] { varies(Tensor(), mesh, 0); }), "nothing");
    EXPECT_NE(thrown_by([&] { varies(ones({4}), DeviceMesh(), 0); }), "nothing");
  });
}

TEST(Marks, OfAFlattenedDimensionAreSettledByItsParts) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"a", "b"});
    const DeviceMesh flat = mesh.flatten();
    const std::uint64_t both = mark_of(flat, 0), a = mark_of(mesh, 0), b = mark_of(mesh, 1);
    EXPECT_EQ(outermost_of(both | a | b), both);
    GradMeta leaf;
    note_term(leaf, both, both);
    EXPECT_EQ(marks_once_summed(leaf, both, mesh, 0, Reduce::Avg, "w"), both);
    EXPECT_EQ(marks_once_summed(leaf, both, mesh, 1, Reduce::Avg, "w"), 0U);
    GradMeta parts;
    note_term(parts, a | b, a | b);
    EXPECT_EQ(marks_once_summed(parts, a | b, flat, 0, Reduce::Sum, "w"), 0U);
    co_return;
  });
}

}  // namespace
}  // namespace coshard
