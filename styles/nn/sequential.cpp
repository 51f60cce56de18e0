#include <coshard/styles/nn/sequential.h>

namespace coshard::nn {

void Sequential::append(std::string name, std::shared_ptr<Module> module) {
  register_module(std::move(name), module);
  modules_.push_back(std::move(module));
}

Task<Tensor> Sequential::run(Tensor x) {
  for (const std::shared_ptr<Module>& module : modules_) {
    Task<Tensor> next = module->forward(std::move(x));
    x = co_await std::move(next);
  }
  co_return x;
}

}  // namespace coshard::nn
