// einsum: equations, and what cannot be read.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::counting;
using testing::on_ranks;
using testing::placed;
using testing::Values;
using testing::without_collectives;

TEST(Einsum, SumsOutLoneLettersStretchesOnesReadsDiagonalsAndSortsAnImplicitResult) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor a = counting(world, {2, 3});
    a.set_requires_grad(true);
    const Tensor v = counting(world, {2});
    const Tensor rows = einsum("ij,i->i", a, v);
    EXPECT_EQ(rows.to_vector(), (Values{6, 30}));
    run_backward(sum(rows));
    EXPECT_EQ(a.grad().to_vector(), (Values{1, 1, 1, 2, 2, 2}));
    EXPECT_EQ(einsum("ki, k", a, v).shape(), Shape{3});
    EXPECT_EQ(einsum("ba,c", a, v).shape(), (Shape{3, 2, 2}));
    const Tensor one = counting(world, {1, 3});
    EXPECT_EQ(einsum("ij,ij->ij", a, one).to_vector(), (Values{1, 4, 9, 4, 10, 18}));
    EXPECT_EQ(einsum("ij,ij->", a, one).to_vector(), Values{14 + 32});
    EXPECT_EQ(einsum("ij,ij->j", one, a).to_vector(), (Values{5, 14, 27}));
    const Tensor square = counting(world, {2, 2});
    EXPECT_EQ(einsum("ii,i->i", square, v).to_vector(), (Values{1, 8}));
    EXPECT_EQ(einsum("...ij,jk", counting(world, {3, 1, 2}), square).shape(), (Shape{3, 1, 2}));
    EXPECT_EQ(einsum("...i,...i->...", counting(world, {3, 1, 2}), square).to_vector(),
              (Values{5, 11, 11, 25, 17, 39}));
    co_return;
  });
}

TEST(Einsum, RefusesWhatItCannotRead) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor a = counting(world, {2, 2});
    for (const char* equation :
         {"ij->ij", "ij,jk,kl", "i,jk->k", "ij,jk->iz", "ij,jk->ii", "...ijk,ij"})
      EXPECT_THROW(einsum(equation, a, a), Error) << equation;
    EXPECT_THROW(einsum("ij,jk->ik", a, counting(world, {3, 2})), Error);
    co_return;
  });
}

TEST(Einsum, CutsByItsEquation) {
  without_collectives({2, 2}, [](World& world, const DeviceMesh& mesh) {
    const DTensor q = placed(world, mesh, {3, 2, 3, 5}, Layout(Shard(0), Shard(2)));
    const DTensor k = placed(world, mesh, {3, 4, 3, 5}, Layout(Shard(0), Shard(2)));
    EXPECT_EQ(einsum("bshd,bthd->bhst", q, k).layout(), Layout(Shard(0), Shard(1)));
    const DTensor inner = placed(world, mesh, {3, 5}, Layout(Shard(1), Shard(1)));
    EXPECT_EQ(einsum("mk,nk->mn", inner, inner).layout(), Layout(Partial(), Partial()));
  });
}

}  // namespace
}  // namespace coshard
