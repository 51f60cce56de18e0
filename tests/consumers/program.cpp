// What a program outside this tree does: ranks, a redistribute, a gradient, errors that are thrown
// on one side of the library and caught on the other, casts of its polymorphic types, types of its
// own derived from them. Its tree has headers of the same names as the library's inside.
#include <coshard/asio.h>
#include <coshard/coshard.h>
#include <coshard/debug.h>
#include <coshard/op.h>
#include <coshard/simulate.h>
#include <coshard/version.h>

#include <cstdlib>
#include <iostream>
#include <string_view>

#include "kernels/run.h"
#include "runtime/error.h"
#include "styles/style.h"
namespace cs = coshard;

static_assert(OWN_ERROR && OWN_RUN && OWN_STYLE);

class Halves : public cs::Module {
  cs::Task<cs::Tensor> run(cs::Tensor x) override { co_return x * 0.5; }
};

void expect(bool holds, std::string_view what) {
  if (holds) return;
  std::cerr << "consumer: " << what << "\n";
  std::exit(1);
}

cs::Task<void> program(cs::World& world) {
  const cs::DeviceMesh mesh = cs::init_device_mesh(world, {world.size()}, {"tp"});
  const cs::DTensor x = cs::randn(mesh, cs::Shard(0), {4, 3}).requires_grad_();
  const cs::Redistribution whole = x.redistribute(cs::Replicate());
  const cs::DTensor all = co_await whole;
  expect(all.layout()[0] == cs::Replicate(), "an awaited redistribute has its layout");
  co_await cs::sum(x * x).backward();
  const cs::Tensor gradient = x.grad().full_tensor(), value = x.detach().full_tensor();
  expect(gradient.to_vector() == (value * 2.0).to_vector(), "the gradient of x * x is 2 x");
  try {
    cs::matmul(x, x);
    expect(false, "a matmul of shapes that do not fit is refused");
  } catch (const cs::Error& error) {
    expect(error.kind() == cs::ErrorKind::BadInput, "the error has its kind");
  }
  std::cout << x.shape() << x.layout() << cs::ColwiseParallel() << "\n";
  Halves halves;
  cs::nn::Linear linear(3, 2, world);
  cs::Module* base = &linear;
  expect(dynamic_cast<cs::nn::Linear*>(base) != nullptr, "a module is cast to what it is");
  expect(dynamic_cast<cs::nn::Linear*>(static_cast<cs::Module*>(&halves)) == nullptr,
         "a module is not cast to what it is not");
  const cs::Tensor y = co_await halves.forward(value);
  expect((y * 2.0).to_vector() == value.to_vector(), "a module of its own runs");
  if (world.rank() == 0) std::cout << "consumer: " << cs::version() << " ok\n";
}

int main() {
  expect(cs::version() == COSHARD_VERSION, "headers and library are of one version");
  cs::WorldOptions options;
  try {
    cs::run_ranks(options, [](cs::World&) -> cs::Task<void> {
      throw cs::Error(cs::ErrorKind::BadInput, "thrown by the program");
      co_return;
    });
    expect(false, "an error of the program leaves run_ranks");
  } catch (const cs::Error& error) {
    expect(std::string_view(error.what()).find("thrown by the program") != std::string_view::npos,
           "it is the program's error");
  }
  cs::run_ranks(options, program);
}
