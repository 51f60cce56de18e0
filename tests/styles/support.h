#pragma once
// What the tests of styles/ share: small modules, comparisons over all ranks, collectives per kind.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <type_traits>

#include <coshard/coshard.h>
#include "tests/support/contains.h"
#include "tests/support/ranks.h"

namespace coshard::testing {

// {all_reduce, all_gather, reduce_scatter}; everything else must be 0.
struct Issued {
  int all_reduce = 0, all_gather = 0, reduce_scatter = 0, other = 0;
  friend bool operator==(const Issued&, const Issued&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Issued& i) {
    return out << "all_reduce " << i.all_reduce << ", all_gather " << i.all_gather
               << ", reduce_scatter " << i.reduce_scatter << ", other " << i.other;
  }
};

// What was issued since the last call.
inline Issued take(CountingObserver& observer) {
  Issued issued;
  issued.all_reduce = observer.count(CollectiveKind::AllReduce);
  issued.all_gather = observer.count(CollectiveKind::AllGather);
  issued.reduce_scatter = observer.count(CollectiveKind::ReduceScatter);
  issued.other = observer.total() - issued.all_reduce - issued.all_gather - issued.reduce_scatter;
  observer.reset();
  return issued;
}

inline DeviceMesh line(World& world) { return init_device_mesh(world, {world.size()}, {"tp"}); }

// Random, the same on every rank.
inline Tensor random(World& world, const Shape& shape, DType dtype = DType::F64) {
  return randn(world.device(), shape, dtype);
}
inline Tensor integers(World& world, const Shape& shape, std::int64_t high) {
  std::vector<double> values(static_cast<std::size_t>(numel(shape)));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>(static_cast<std::int64_t>(i * 7 + i / 3 + 1) % high);
  return Tensor::from_values(world.device(), shape, DType::I64, values);
}
inline nn::TransformerConfig tiny_transformer() {
  nn::TransformerConfig config;
  config.layers = 2;
  config.dim = 16;
  config.heads = 4;
  config.ffn = 24;
  config.vocab = 32;
  config.seq = 8;
  return config;
}
inline nn::CausalLMConfig small_llama() {
  nn::CausalLMConfig config;
  config.vocab_size = 11;
  config.hidden_size = 16;
  config.intermediate_size = 12;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 8;
  config.num_key_value_heads = 4;
  config.dtype = DType::F64;
  return config;
}
// This rank's rows of an even cut.
inline Tensor part(World& world, const Tensor& x, int dim) {
  const std::int64_t size = x.size(dim) / world.size();
  return contiguous(slice(x, dim, world.rank() * size, (world.rank() + 1) * size)).detach();
}

inline void expect_close(const Tensor& got, const Tensor& want, double tolerance = 1e-10) {
  ASSERT_TRUE(got.defined() && want.defined());
  const Tensor full = got.is_distributed() ? full_tensor(got.detach()) : got;
  ASSERT_EQ(full.shape(), want.shape());
  const std::vector<double> a = full.to_vector(), b = want.to_vector();
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, std::abs(a[i] - b[i]) / (1 + std::abs(b[i])));
  EXPECT_LE(worst, tolerance);
}

// The error of awaiting `task`: its text, and that it is of `kind`.
inline Task<std::string> error_of(Task<void> task, ErrorKind kind = ErrorKind::BadInput) {
  std::string text = "nothing was thrown";
  try {
    co_await std::move(task);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    text = error.what();
  }
  co_return text;
}
// That of a call.
inline std::string error_of(const std::function<void()>& call,
                            ErrorKind kind = ErrorKind::BadInput) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "nothing was thrown";
}
// The text of an Error of any kind; "": none.
template <class Result>
Task<std::string> refusal(Task<Result> task) {
  std::string text;
  try {
    if constexpr (std::is_void_v<Result>) {
      co_await std::move(task);
    } else {
      const Result result = co_await std::move(task);
      static_cast<void>(result);
    }
  } catch (const Error& error) {
    text = error.message();
  }
  co_return text;
}
inline Task<void> discard(Task<Tensor> task) {
  const Tensor result = co_await std::move(task);
  result.device()->synchronize();  // what kernels found comes out there
}
inline Task<void> discard(Task<Outputs> task) {
  const Outputs result = co_await std::move(task);
  static_cast<void>(result);
}

// Two layers with an activation between them: net1, net2.
struct Mlp : Module {
  Mlp(World& world, std::int64_t in = 10, std::int64_t hidden = 16, std::int64_t out = 10)
      : net1(in, hidden, world, {.dtype = DType::F64, .init_std = 0.5}),
        net2(hidden, out, world, {.dtype = DType::F64, .init_std = 0.5}) {
    register_module("net1", net1);
    register_module("net2", net2);
  }
  Task<Tensor> run(Tensor x) override {
    Tensor hidden = co_await net1.forward(std::move(x));
    co_return co_await net2.forward(relu(hidden));
  }
  nn::Linear net1, net2;
};

// Gives (x, y), the second undefined when it was not given; by position or keyword.
struct Pair : Module {
  Task<Outputs> run_all(Inputs inputs) override {
    Outputs outputs{inputs.get(0, "x")};
    const Tensor y = inputs.get(1, "y");
    if (y.defined()) outputs.push_back(y);
    co_return outputs;
  }
};

// What forward and backward of the sum of squares of a module's output issued.
struct Counted {
  Issued forward, backward;
  Tensor output, input_grad;
};
inline Task<Counted> run_counted(World& world, Module& module, Tensor x) {
  CountingObserver counter(world);
  Counted run;
  if (is_floating(x.dtype())) x.set_requires_grad(true);
  run.output = co_await module.forward(x);
  run.forward = take(counter);
  const Tensor loss = sum(mul(run.output, run.output));
  co_await backward(loss);
  run.backward = take(counter);
  if (is_floating(x.dtype())) run.input_grad = x.grad();
  co_return run;
}

// Two equal modules: the second is for the style.
template <class M, class... Arguments>
std::pair<std::shared_ptr<M>, std::shared_ptr<M>> twins(Arguments&&... arguments) {
  manual_seed(7);
  auto first = std::make_shared<M>(arguments...);
  manual_seed(7);
  return {std::move(first), std::make_shared<M>(arguments...)};
}

constexpr nn::LinearOptions kF64{.dtype = DType::F64, .init_std = 0.5};
constexpr nn::EmbeddingOptions kEmbeddingF64{.dtype = DType::F64, .init_std = 0.5};

}  // namespace coshard::testing
