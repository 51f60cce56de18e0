// What constructors write, made later: every initializer, operators, views, copies.
#include "tests/styles/deferred_modules.h"

#include <coshard/dtensor/distribute/deferred_init.h>

namespace coshard::testing {
namespace {

// Every initializer, and what constructors write by operators.
struct Initialized : Module {
  explicit Initialized(World& world) : table(10, 4, world, {.padding_idx = 3}), norm(4, world) {
    const auto add = [&](Tensor x) {
      x = x.detach();
      x.set_requires_grad(true);
      slots.push_back(std::make_unique<Tensor>(std::move(x)));
      register_parameter("p" + std::to_string(slots.size()), *slots.back());
    };
    using namespace nn::init;
    const Shape shape{5, 7};
    add(nn::init::constant_(empty(world, shape), 0.25));
    add(nn::init::zeros_(empty(world, shape)));
    add(nn::init::ones_(empty(world, shape)));
    add(nn::init::uniform_(empty(world, shape), -2, 3));
    add(nn::init::normal_(empty(world, shape), 1, 2));
    add(nn::init::trunc_normal_(empty(world, shape), 0, 0.5, -1, 1));
    add(nn::init::xavier_uniform_(empty(world, shape), 2));
    add(nn::init::xavier_normal_(empty(world, shape)));
    add(nn::init::kaiming_uniform_(empty(world, shape)));
    add(nn::init::kaiming_normal_(empty(world, shape), 1, nn::init::Fan::Out));
    add(rand(world, shape, DType::F64));
    add(randn(world, shape, DType::BF16));
    add(mul(randn(world, shape), 0.02));
    add(randn(world, shape).to(DType::F64));
    add(transpose(randn(world, {7, 5}), 0, 1));
    add(tril(ones(world, {6, 6})));
    add(eye(world, 5));
    const Tensor scaled = randn(world, shape);
    mul_(scaled, 3);
    add_(scaled, randn(world, shape));
    fill_(narrow(scaled, 1, 2, 3), 9);
    clamp_(scaled, -2, 2);
    add(scaled);
    const Tensor copied = empty(world, shape);
    copy_(copied, counting(world, shape, DType::F32));
    add(copied);
    const Tensor from_other = zeros(world, shape);
    copy_(from_other, randn(world, {1, 7}));
    add(from_other);
    buffer = randint(world, 0, 9, {3});
    order = randperm(world, 6);
    register_buffer("buffer", buffer);
    register_buffer("order", order);
    register_module("table", table);
    register_module("norm", norm);
  }
  std::vector<std::unique_ptr<Tensor>> slots;
  Tensor buffer, order;
  nn::Embedding table;
  nn::LayerNorm norm;
};

TEST(DeferredInit, S28GivesTheBitsOfEveryInitializer) {
  for (const int ranks : {1, 2, 3, 4})
    for (const std::string how : {"as it is", "columns", "rows", "strided", "replicas"})
      on_ranks(ranks, [=](World& world) -> Task<void> {
        Bits want, got;
        std::array<std::uint64_t, 3> states[2];
        const int tp = how == "strided" && ranks % 2 == 0 ? 2 : 1;
        const DeviceMesh mesh = init_device_mesh(world, {ranks / tp, tp}, {"dp", "tp"});
        for (const bool deferred : {false, true}) {
          manual_seed(11);
          const auto module = made_deferred<Initialized>(deferred, world);
          EXPECT_EQ(is_deferred(*module->slots[0]), deferred);
          const int dim = how == "rows" ? 0 : 1;
          const auto cut = [&](std::string_view, Module& part, const DeviceMesh& on) {
            for (const NamedParameter& p : part.named_slots())
              if (!p.slot->is_distributed() && p.name.find('.') == std::string::npos)
                *p.slot = distribute_tensor(p.slot->detach(), on,
                                            Layout(Shard(std::min(dim, p.slot->ndim() - 1))))
                              .set_requires_grad(true);
          };
          if (how == "columns" || how == "rows" || how == "strided")
            distribute_module(*module, how == "strided" ? mesh["tp"] : mesh["dp"], cut);
          if (how == "strided")
            for (const NamedParameter& p : module->named_slots()) {
              struct Only : Module {
                explicit Only(Tensor& x) { register_parameter("x", x); }
              } only(*p.slot);
              if (!only.state()) fully_shard(only, mesh["dp"]);
            }
          if (how == "replicas") distribute_module(*module, mesh["dp"]);
          materialize(*module);
          (deferred ? got : want) = bits_of(*module);
          states[deferred ? 1 : 0] = state_now();
        }
        EXPECT_EQ(want.size(), got.size());
        for (const auto& [name, bits] : want)
          EXPECT_TRUE(got.contains(name) && got[name] == bits)
              << ranks << " " << how << " " << name;
        EXPECT_EQ(states[0], states[1]);
        co_return;
      });
}

}  // namespace
}  // namespace coshard::testing
