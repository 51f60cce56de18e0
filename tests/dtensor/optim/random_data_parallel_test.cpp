// Random programs over a DataParallel against a model of its gradients: backwards with and without
// sync over some of the parameters, zero_grad of some, set_grad, freezing, and exceptions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/optim/data_parallel.h>
#include <coshard/dtensor/tape/hooks.h>
#include <coshard/runtime/coro/when_all.h>
#include "tests/support/ranks.h"
#include "tests/support/seeds.h"

namespace coshard {
namespace {

using testing::on_ranks;

// What is known of one parameter's gradient.
struct KnownGradient {
  bool defined = false, summed = false, frozen = false;
  std::vector<double> of_rank;  // the value of all elements
};

// The same program on all ranks, with the model of all ranks' gradients.
class RandomReplicas {
 public:
  RandomReplicas(World& world, std::uint64_t seed)
      : world_(world), dice_(seed * 9 + static_cast<std::uint64_t>(world.size())) {
    DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"dp"});
    if (dice_.one_in(2)) mesh = mesh.with_links({{.latency = 10, .bytes_per_us = 100}});
    for (int count = 1 + dice_.below(7); count > 0; --count) {
      const std::int64_t size = dice_.one_in(6) ? 0 : 1 + dice_.below(5);
      const DType dtype = dice_.one_in(3) ? DType::F32 : DType::F64;
      parameters_.push_back(ones(world.device(), Shape{size}, dtype).set_requires_grad(true));
      known_.emplace_back();
      known_.back().of_rank.assign(static_cast<std::size_t>(world.size()), 0);
    }
    const bool averages = dice_.one_in(2);
    options_ = {.reduce = averages ? Reduce::Avg : Reduce::Sum,
                .overlap = static_cast<Overlap>(dice_.below(3)),
                .bucket_bytes = dice_.one_in(2) ? 0 : 8 * (1 + dice_.below(10))};
    parallel_.emplace(parameters_, mesh, 0, options_);
    log_ = str_cat(testing::how_to_replay(seed), ", ", world.size(), " ranks, ", parameters_.size(),
                   " parameters, ", to_string(options_.reduce), ", overlap ", options_.overlap,
                   ", buckets ", options_.bucket_bytes, ":");
  }

  Task<void> step() {
    const int kind = dice_.below(10);
    if (kind < 6) {
      Task<void> added = add_gradients();
      co_await std::move(added);
    } else if (kind == 6) {
      zero_some();
    } else if (kind == 7) {
      set_one();
    } else if (kind == 8) {
      freeze_or_thaw_one();
    } else {
      Task<void> thrown = throw_within_backward();
      co_await std::move(thrown);
    }
    check();
  }

 private:
  bool averages() const { return options_.reduce == Reduce::Avg; }
  std::size_t any() { return static_cast<std::size_t>(dice_.below(int(parameters_.size()))); }

  void zero(std::size_t i) {
    parameters_[i].set_grad(Tensor());
    known_[i].defined = known_[i].summed = false;
    std::ranges::fill(known_[i].of_rank, 0.0);
  }
  void zero_summed(const std::vector<bool>& but) {
    for (std::size_t i = 0; i < known_.size(); ++i)
      if (known_[i].summed && !but[i]) zero(i);
  }

  // Each rank's gradient of parameter i is c * (1 + rank) + i + more.
  Tensor loss_of(const std::vector<std::size_t>& read, double c, double more) const {
    Tensor loss;
    for (const std::size_t i : read) {
      const Tensor p = to(parameters_[i], DType::F64);
      Tensor term = sum(mul(p, c * (1 + world_.rank()) + static_cast<double>(i)));
      if (more != 0) term = add(term, add(sum(mul(sin(p), 0.0)), sum(mul(p, more))));
      loss = loss.defined() ? add(loss, term) : term;
    }
    return loss;
  }
  void note_backward(const std::vector<bool>& reached, double c, double more, bool sync) {
    for (std::size_t i = 0; i < known_.size(); ++i) {
      KnownGradient& g = known_[i];
      for (std::size_t r = 0; reached[i] && r < g.of_rank.size(); ++r)
        g.of_rank[r] += c * static_cast<double>(1 + r) + static_cast<double>(i) + more;
      if (reached[i]) g.defined = true, g.summed = false;
      if (!sync || !g.defined || g.summed) continue;
      double sum = 0;
      for (const double value : g.of_rank) sum += value;
      std::ranges::fill(g.of_rank, averages() ? sum / world_.size() : sum);
      g.summed = true;
    }
  }

  Task<void> add_gradients() {
    std::vector<std::size_t> read;
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      if (!dice_.one_in(3)) read.push_back(i);
    if (read.empty()) read.push_back(0);
    if (dice_.one_in(3)) std::ranges::reverse(read);
    const bool sync = dice_.one_in(2);
    const int how = dice_.below(4);
    const double c = ++backwards_, more = how == 1 ? 0.5 : 0;
    std::vector<bool> reached(known_.size()), none(known_.size());
    for (const std::size_t i : read) reached[i] = !known_[i].frozen;
    if (reached == none) co_return;
    log_ += sync ? " sum" : " add";
    for (const std::size_t i : read) log_ += str_cat(' ', i);
    log_ += str_cat(" (", how, ");");
    // A sum must not be counted again: only an average may be added to, by what reaches it.
    if (sync || !averages()) zero_summed(averages() ? reached : none);
    parallel_->set_requires_gradient_sync(sync);
    const Tensor loss = loss_of(read, c, more);
    if (how == 3) {
      run_backward(loss);
    } else if (how == 2 && sync) {
      co_await backward(loss, BackwardOptions{.retain_graph = true});
      note_backward(reached, c, more, true);
      zero_summed(averages() ? reached : none);
      co_await backward(loss);
    } else if (how == 2) {
      const Tensor other = loss_of(read, c, more);
      auto both = when_all(backward(loss), backward(other));
      co_await std::move(both);
      note_backward(reached, c, more, false);
    } else {
      co_await backward(loss);
    }
    note_backward(reached, c, more, sync);
  }

  void zero_some() {
    log_ += " zero some;";
    for (std::size_t i = 0; i < known_.size(); ++i)
      if (dice_.one_in(2)) zero(i);
  }

  void set_one() {
    const std::size_t i = any();
    KnownGradient& g = known_[i];
    if (g.frozen || g.summed) return;
    log_ += str_cat(" set ", i, ';');
    const Tensor& p = parameters_[i];
    p.set_grad(to(mul(ones(p.device(), p.shape(), DType::F64), 7.0 + world_.rank()), p.dtype()));
    g.defined = true;
    for (std::size_t r = 0; r < g.of_rank.size(); ++r) g.of_rank[r] = 7 + static_cast<double>(r);
  }

  void freeze_or_thaw_one() {
    const std::size_t i = any();
    known_[i].frozen = !known_[i].frozen;
    log_ += str_cat(known_[i].frozen ? " freeze " : " thaw ", i, ';');
    parameters_[i].set_requires_grad(!known_[i].frozen);
  }

  // Afterwards the next backward works again.
  Task<void> throw_within_backward() {
    const std::size_t i = any();
    const bool sync = dice_.one_in(2);
    log_ += str_cat(" throw after ", i, sync ? " with sync;" : ";");
    const Tensor x = ones(world_.device(), Shape{3}, DType::F64).set_requires_grad(true);
    const Tensor y = mul(x, 2.0);
    const Tensor loss = add(sum(y), sum(mul(to(parameters_[i], DType::F64), 100.0)));
    register_hook(y, [](const Tensor&) -> Tensor { throw std::runtime_error("by the hook"); });
    zero_summed(std::vector<bool>(known_.size()));
    parallel_->set_requires_gradient_sync(sync);
    bool threw = false;
    try {
      co_await backward(loss);
    } catch (const std::runtime_error&) {
      threw = true;
    }
    CS_REQUIRE(threw, log_, " the hook's error is lost");
    for (std::size_t k = 0; k < known_.size(); ++k) zero(k);
  }

  void check() const {
    const auto rank = static_cast<std::size_t>(world_.rank());
    for (std::size_t i = 0; i < known_.size(); ++i) {
      const Tensor g = parameters_[i].grad();
      CS_REQUIRE(g.defined() == known_[i].defined, log_, " parameter ", i, " has ",
                 g.defined() ? "a gradient" : "no gradient");
      if (!g.defined()) continue;
      for (const double value : g.detach().to_vector())
        CS_REQUIRE(std::abs(value - known_[i].of_rank[rank]) < 1e-3, log_, " the gradient of ", i,
                   " is ", value, ", not ", known_[i].of_rank[rank]);
    }
  }

  World& world_;
  testing::Dice dice_;
  std::vector<Tensor> parameters_;
  std::vector<KnownGradient> known_;
  DataParallelOptions options_;
  std::optional<DataParallel> parallel_;
  double backwards_ = 0;
  std::string log_;
};

TEST(DataParallel, HasTheGradientsOfAModelOfRandomPrograms) {
  const std::uint64_t seeds = std::min<std::uint64_t>(testing::seeds(), 100);
  for (const int ranks : {2, 3, 4})
    on_ranks(ranks, [seeds](World& world) -> Task<void> {
      for (std::uint64_t seed = testing::first_seed(); seed < testing::first_seed() + seeds;
           ++seed) {
        RandomReplicas program(world, seed);
        for (int step = 0; step < 12; ++step) {
          Task<void> one = program.step();
          co_await std::move(one);
        }
      }
    });
}

}  // namespace
}  // namespace coshard
