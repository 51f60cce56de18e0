#include "styles/nn/together.h"

#include <algorithm>

#include <coshard/dtensor/distribute/random.h>
#include <coshard/runtime/coro/when_all.h>

namespace coshard::nn {

Task<std::vector<Tensor>> forward_together(Tensor x, std::vector<Linear*> layers) {
  if (!arrives_by_shards(x) || std::ranges::any_of(layers, &Linear::draws)) {
    std::vector<Tensor> made;
    made.reserve(layers.size());
    for (Linear* layer : layers) made.push_back(co_await layer->forward(x));
    co_return made;
  }
  const RandomState random =
      random_state();  // branches draw from other streams; these layers draw nothing
  std::vector<Task<Tensor>> products;
  for (Linear* layer : layers) products.push_back(layer->forward(x));
  auto all = when_all(std::move(products));
  std::vector<Tensor> made = co_await std::move(all);
  set_random_state(random);
  co_return made;
}

}  // namespace coshard::nn
