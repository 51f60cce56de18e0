#pragma once
// A network for tests of data parallelism: uneven sizes, a tied weight, a parameter that the loss
// does not read, and samples that differ per replica.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/support/ranks.h"

namespace coshard::testing {

struct SmallNet {
  explicit SmallNet(World& world, DType dtype = DType::F32) : world(world), dtype(dtype) {
    manual_seed(3);
    const Shape shapes[] = {{7, 5}, {7}, {3, 7}, {7, 3}, {4}};
    for (const Shape& shape : shapes) {
      parameters.push_back(to(randn(world.device(), shape), dtype));
      parameters.back().set_requires_grad(true);
    }
  }
  // Layers of `parameters` 0 (twice: the last one transposed) to 3; 4 is not read.
  Tensor loss(int step) const {
    manual_seed(static_cast<std::uint64_t>(100 + 10 * step + world.rank()));
    const Tensor x = to(randn(world.device(), Shape{4, 5}), dtype);
    Tensor y = relu(linear(x, parameters[0], parameters[1]));
    y = linear(relu(linear(y, parameters[2])), parameters[3]);
    y = matmul(y, parameters[0]);
    return mean(mul(y, y));
  }
  Task<void> run(int step) const {
    const Tensor out = loss(step);
    co_await backward(out);
  }
  std::vector<std::vector<double>> gradients() const {
    std::vector<std::vector<double>> all;
    for (const Tensor& p : parameters)
      all.push_back(p.grad().defined() ? p.grad().to_vector() : std::vector<double>());
    return all;
  }
  std::vector<std::vector<double>> values() const {
    std::vector<std::vector<double>> all;
    for (const Tensor& p : parameters) all.push_back(p.detach().to_vector());
    return all;
  }
  void zero_grad() const {
    for (const Tensor& p : parameters) p.set_grad(Tensor());
  }

  World& world;
  DType dtype;
  std::vector<Tensor> parameters;
};

// What `task` throws, which is bad input; "" if nothing.
inline Task<std::string> refusal_of(Task<void> task) {
  std::string text;
  try {
    co_await std::move(task);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput) << error.what();
    text = error.what();
  }
  co_return text;
}

}  // namespace coshard::testing
