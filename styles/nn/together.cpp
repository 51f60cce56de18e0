#include "styles/nn/together.h"

#include <coshard/dtensor/random.h>
#include <coshard/runtime/coro/when_all.h>

namespace coshard::nn {

Task<std::vector<Tensor>> forward_together(Tensor x, std::vector<Linear*> layers) {
  const RandomState random = random_state();
  std::vector<Task<Tensor>> products;
  for (Linear* layer : layers) products.push_back(layer->forward(x));
  auto all = when_all(std::move(products));
  std::vector<Tensor> made = co_await std::move(all);
  set_random_state(random);
  co_return made;
}

}  // namespace coshard::nn
