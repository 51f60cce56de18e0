// An operator of the user's own with rule and gradient, and another rule for a built-in one.
#include "examples/own_operator/smooth_clip.h"

#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

TEST(OwnOperator, WorksOnAnyLayoutWithItsGradient) {
  on_ranks(2, [](World& world) -> Task<void> {
    Tensor plain = random(world, {4, 3}).requires_grad_();
    const Tensor want = own::smooth_clip(plain, 0.7);
    co_await want.sum().backward();
    for (const Placement p : {Replicate(), Shard(0), Shard(1), Partial()}) {
      DTensor x = distribute_tensor(plain.detach(), line(world), p).requires_grad_();
      CountingObserver seen(world);
      const DTensor y = own::smooth_clip(x, 0.7);
      EXPECT_EQ(seen.total(), p.is_partial() ? 1 : 0);
      EXPECT_EQ(y.full_tensor().to_vector(), want.to_vector());
      co_await y.sum().backward();
      EXPECT_EQ(x.grad().full_tensor().to_vector(), plain.grad().to_vector()) << p;
    }
    EXPECT_THROW(own::smooth_clip(plain, -1), Error);
  });
}

TEST(OwnOperator, HasAGradientOfItsGradient) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor x = full(world, {1}, 0.3, DType::F64, true);
    co_await backward(own::smooth_clip(x, 1), BackwardOptions{.create_graph = true});
    const Tensor first = x.grad();
    x.set_grad({});
    co_await first.backward();
    const double t = std::tanh(0.3);
    EXPECT_NEAR(first.item(), 1 - t * t, 1e-12);
    EXPECT_NEAR(x.grad().item(), -2 * t * (1 - t * t), 1e-12);
  });
}

// Of two inputs; its backward forgets the second, or says that there is nothing for it.
template <bool Says>
const OpDef& product_of_two() {
  static const OpDef op = [] {
    OpDef def{.name = "forgetful", .rule = nullptr, .infer = same_as_first};
    def.forward = [](OpContext& c) { c.out[0] = (c.in[0] * c.in[1]).detach(); };
    def.backward = [](GradContext& c) {
      c.sink.accumulate(0, c.out_grad[0] * c.in[1]);
      if (Says) c.sink.accumulate(1, {});
    };
    return def;
  }();
  return op;
}

TEST(OwnOperator, WhoseBackwardForgetsAnInputIsAnError) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor x = full(world, {2}, 3, DType::F32, true);
    Tensor w = full(world, {2}, 5, DType::F32, true);
    Tensor constant = full(world, {2}, 5);
    const Tensor forgotten = call1(product_of_two<false>(), {x, w}).sum();
    const std::string text = co_await error_of(backward(forgotten));
    EXPECT_CONTAINS(text, "forgetful: backward accumulated no gradient for input 1, f32[2]");
    EXPECT_CONTAINS(text, "accumulate(1, {})");
    x.set_grad({});
    const Tensor unneeded = call1(product_of_two<false>(), {x, constant}).sum();
    co_await backward(unneeded);
    const Tensor said = call1(product_of_two<true>(), {x, w}).sum();
    co_await backward(said);
    EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{10, 10}));
    EXPECT_FALSE(w.grad().defined());
  });
}

OpDef without_rule() {
  OpDef op{.name = "lonely", .rule = nullptr, .infer = same_as_first};
  op.forward = [](OpContext& c) { c.out[0] = c.in[0].raw_local() + 1; };
  return op;
}

TEST(OwnOperator, WithoutARuleIsForPlainTensors) {
  on_ranks(1, [](World& world) -> Task<void> {
    static const OpDef op = without_rule();
    EXPECT_EQ(call1(op, {ones(world, {1})}).item(), 2);
    try {
      call1(op, {ones(line(world), {1})});
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("lonely has no sharding rule"), std::string::npos);
    }
    co_return;
  });
}

// --- mistakes of an operator's author: an error that names the operator, not memory of others ---

std::vector<TensorInfo> as_first(std::span<const TensorInfo> in, const Attrs&) { return {in[0]}; }

OpDef doubling(std::string_view name) {
  OpDef op{.name = name, .rule = elementwise_rule, .infer = as_first};
  op.forward = [](OpContext& c) { c.out[0] = c.in[0].raw_local() * 2; };
  op.backward = [](GradContext& c) { c.sink.accumulate(0, c.out_grad[0] * 2); };
  return op;
}

std::string said_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

// What op(x) and its backward say, plain and cut.
std::vector<std::string> refusals(World& world, const OpDef& op) {
  std::vector<std::string> texts;
  for (const bool cut : {false, true}) {
    Tensor x = random(world, {5, 2});
    if (cut) x = distribute_tensor(x, line(world), Shard(0));
    x.requires_grad_();
    texts.push_back(said_by([&] { run_backward(sum(call1(op, {x}))); }));
  }
  return texts;
}

TEST(OwnOperator, AForwardThatGivesAnotherShapeOrTypeIsRefused) {
  on_ranks(2, [](World& world) -> Task<void> {
    static thread_local OpDef shape = doubling("my_shape"), type = shape, none = shape;
    shape.forward = [](OpContext& c) { c.out[0] = ones(c.in[0].device(), {1}, DType::F64); };
    type.forward = [](OpContext& c) { c.out[0] = c.in[0].raw_local().to(DType::F32); };
    none.forward = [](OpContext&) {};
    for (const std::string& text : refusals(world, shape))
      EXPECT_CONTAINS(text,
                      "my_shape: forward set output 0 to f64[1]; expected a local tensor f64[");
    for (const std::string& text : refusals(world, type))
      EXPECT_CONTAINS(text, "; expected a local tensor f64[");
    for (const std::string& text : refusals(world, none))
      EXPECT_CONTAINS(text, "my_shape: forward set output 0 to undefined");
    none.forward = [](OpContext& c) { c.make(9); };
    EXPECT_CONTAINS(refusals(world, none)[0],
                    "make: output 9 is out of range for an operator with 1");
    none.forward = nullptr;
    EXPECT_CONTAINS(said_by([&] { call1(none, {ones(world, {7})}); }), "its OpDef lacks forward");
    EXPECT_CONTAINS(said_by([&] { call1(shape, {}); }), "my_shape: called without tensor inputs");
    none.infer = [](std::span<const TensorInfo> in, const Attrs&) {
      return std::vector<TensorInfo>(5, in[0]);
    };
    none.forward = shape.forward;
    EXPECT_CONTAINS(said_by([&] { call1(none, {ones(world, {7})}); }), "infer returned 5 outputs");
    co_return;
  });
}

TEST(OwnOperator, ABackwardThatGivesNoGradientOfTheInputIsRefused) {
  on_ranks(2, [](World& world) -> Task<void> {
    static thread_local OpDef shape = doubling("my_op"), type = shape, other = shape, past = shape;
    shape.backward = [](GradContext& c) { c.sink.accumulate(0, sum(c.out_grad[0])); };
    type.backward = [](GradContext& c) { c.sink.accumulate(0, c.out_grad[0].to(DType::F32)); };
    past.backward = [](GradContext& c) { c.sink.accumulate(5, c.out_grad[0]); };
    other.backward = [](GradContext& c) {
      c.sink.accumulate(0, c.out_grad[0].is_distributed() ? full_tensor(c.out_grad[0])
                                                          : c.out_grad[0].to(DType::F32));
    };
    for (const OpDef* op : {&shape, &type, &other})
      for (const std::string& text : refusals(world, *op)) {
        EXPECT_CONTAINS(text, "my_op: backward returned ");
        EXPECT_CONTAINS(text, " as the gradient of input 0, which is f64[5,2]");
      }
    for (const std::string& text : refusals(world, past))
      EXPECT_CONTAINS(text, "my_op: backward names input 5, but the call had 1");
    co_return;
  });
}

TEST(OwnOperator, ARuleHasALetterForEachDimension) {
  on_ranks(2, [](World& world) -> Task<void> {
    static thread_local OpDef few = doubling("my_rule"), many = few;
    few.rule = [](std::span<const TensorInfo>, const Attrs&) { return Rule{{"a"}, {"ab"}}; };
    many.rule = [](std::span<const TensorInfo>, const Attrs&) { return Rule{{"ab"}, {"abc"}}; };
    EXPECT_CONTAINS(refusals(world, few)[1],
                    "my_rule: the rule has axes 'a' for input 0 of shape [5,2]");
    EXPECT_CONTAINS(refusals(world, many)[1], "axes 'abc' for output 0 of shape [5,2]");
    register_sharding("sin", [](std::span<const TensorInfo>, const Attrs&) {
      return Rule{{"abc"}, {"q"}};
    });
    const DTensor x = ones(line(world), Shard(0), {4});
    EXPECT_CONTAINS(said_by([&] { sin(x); }), "sin: the rule has axes 'abc' for input 0");
    // The example of <coshard/op.h>.
    register_sharding("cumsum", [](std::span<const TensorInfo>, const Attrs&) {
      return Rule{{".."}, {".."}};
    });
    EXPECT_EQ(cumsum(ones(line(world), Shard(0), {4, 2}), 1).layout(), Layout(Replicate()));
    co_return;
  });
}

Rule nothing_cut(std::span<const TensorInfo>, const Attrs&) {
  Rule rule;
  rule.in = {".."};
  rule.out = {"..", ".."};
  return rule;
}

TEST(RegisterSharding, ReplacesTheRuleOfABuiltInOperator) {
  on_ranks(2, [](World& world) -> Task<void> {
    register_sharding("sort", nothing_cut);
    const DTensor x = distribute_tensor(random(world, {4, 3}), line(world), Shard(0));
    CountingObserver seen(world);
    const ValuesAndIndices sorted = sort(x, 1);
    EXPECT_EQ(seen.count(CollectiveKind::AllGather), 1);
    EXPECT_EQ(sorted.values.layout(), Layout(Replicate()));
    co_return;
  });
  on_ranks(2, [](World& world) -> Task<void> {  // the next world has the operator's own
    const DTensor x = distribute_tensor(random(world, {4, 3}), line(world), Shard(0));
    EXPECT_EQ(sort(x, 1).values.layout(), Layout(Shard(0)));
    EXPECT_THROW(register_sharding("sort", nothing_cut), Error);  // it has been used
    EXPECT_THROW(register_sharding("no such operator", nothing_cut), Error);
    EXPECT_THROW(register_sharding("softmax", nullptr), Error);
    co_return;
  });
}

TEST(RegisterSharding, ByOneRankAloneFailsAtTheNextCollective) {
  std::string text;
  try {
    on_ranks(2, [](World& world) -> Task<void> {
      if (world.rank() == 0) register_sharding("sort", nothing_cut);
      const DTensor x = distribute_tensor(random(world, {4, 3}), line(world), Shard(0));
      const DTensor sorted = sort(x, 1).values;
      co_await sorted.redistribute(Replicate());
    });
  } catch (const Error& error) {
    text = error.what();
  }
  EXPECT_CONTAINS(text, "rank 0 last used for sort a registered rule with 1 inputs and the hash");
}

// Also at one over several mesh dimensions, which has a communicator of its own.
TEST(RegisterSharding, ByOneRankAloneFailsAtACollectiveOverSeveralMeshDimensions) {
  std::string text;
  try {
    on_ranks(4, [](World& world) -> Task<void> {
      const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
      if (world.rank() == 0) register_sharding("sort", nothing_cut);
      const DTensor terms = from_local(random(world, {4, 3}), mesh, {Partial(), Partial()});
      const DTensor x = distribute_tensor(random(world, {4, 3}), mesh, {Shard(0), Shard(0)});
      static_cast<void>(sort(x, 1).values);
      co_await terms.redistribute(Replicate(), Replicate());
    });
  } catch (const Error& error) {
    text = error.what();
  }
  EXPECT_CONTAINS(text, "a registered rule with 1 inputs and the hash");
}

// A rule of the program's own may look at a number, a built-in one looks at its kind alone.
TEST(RegisterSharding, IsAskedForEachNumber) {
  on_ranks(2, [](World& world) -> Task<void> {
    register_sharding("pow_scalar", [](std::span<const TensorInfo> in, const Attrs& attrs) {
      return attrs.as<ScalarAttrs>().value == 3 ? Rule{{".."}, {".."}}
                                                : elementwise_rule(in, attrs);
    });
    const DTensor x = distribute_tensor(random(world, {4, 3}), line(world), Shard(0));
    EXPECT_EQ(pow(x, 3).layout(), Layout(Replicate()));
    EXPECT_EQ(pow(x, 4).layout(), Layout(Shard(0)));
    EXPECT_EQ(pow(x, 3).layout(), Layout(Replicate()));
    co_return;
  });
}

}  // namespace
}  // namespace coshard::testing
