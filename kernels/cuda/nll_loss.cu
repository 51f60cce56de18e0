// Negative log-likelihood along the middle dimension of [outer, classes, inner], and its gradient.
#include "kernels/cuda/team.h"

namespace coshard::kernels::cuda {
namespace {

template <class T>
CS_BODY Wide<T> nll_weight(const T* weight, std::int64_t c) {
  return weight == nullptr ? Wide<T>(1) : widen(weight[c]);
}

// `extent` is the number of classes that a team iterates over: 0 without smoothing.
template <class T>
struct NllLossKernel : LineKernel<> {
  std::int64_t classes, ignore;
  Wide<T> smoothing;
  const T* log_probs;
  const std::int64_t* target;
  const T* weight;
  Wide<T>* loss;
  Wide<T>* count;
  DeviceAssert* finding;

  CS_BODY void operator()(Block& block) const {
    Team team(block, this->shape);
    team.each_line(this->lines(), [&](std::int64_t line) { one(block, team, line); });
  }
  CS_BODY void one(Block& block, Team& team, std::int64_t line) const {
    using A = Wide<T>;
    const bool is_line = line < this->lines();
    const std::int64_t first =
        is_line ? line / this->inner * classes * this->inner + line % this->inner : 0;
    A all = 0;
    if (is_line) {
      for (std::int64_t c = team.rank(); c < this->extent; c += team.size())
        all += nll_weight(weight, c) * widen(log_probs[first + c * this->inner]);
    }
    if (this->extent > 0) all = team.sum(all);
    if (team.rank() != 0 || !is_line) return;
    const std::int64_t wanted = target[line];
    const bool known = wanted >= 0 && wanted < classes;
    const bool counted = wanted != ignore;
    if (counted && !known) leave(block, finding, DeviceAssertKind::Target, wanted, classes);
    const bool here = counted && known;
    const A own = here ? nll_weight(weight, wanted) : A(0);
    A value = here ? -(1 - smoothing) * own * widen(log_probs[first + wanted * this->inner]) : A(0);
    if (here && smoothing != 0) value -= smoothing / static_cast<A>(classes) * all;
    loss[line] = value;
    count[line] = own;
  }
};

template <class T>
struct NllLossGradKernel : PerElement {
  std::int64_t classes, inner, ignore, elements;
  Wide<T> hit, everywhere;
  const Wide<T>* dloss;
  const std::int64_t* target;
  const T* weight;
  T* dlog_probs;

  CS_BODY void operator()(Block& block) const {
    using A = Wide<T>;
    for (std::int64_t i = block.grid_thread(); i < elements; i += block.grid_threads()) {
      const std::int64_t c = i / inner % classes;
      const std::int64_t line = i / inner / classes * inner + i % inner;
      const A share = (c == target[line] ? hit : A(0)) + everywhere;
      const bool nothing = share == 0 || target[line] == ignore;
      dlog_probs[i] = static_cast<T>(nothing ? A(0) : -dloss[line] * share * nll_weight(weight, c));
    }
  }
};

}  // namespace

void run(CudaDevice& device, const NllLoss& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    NllLossKernel<T> kernel{};
    set_lines(kernel, args.outer, args.smoothing == 0 ? 0 : args.classes, args.inner);
    kernel.classes = args.classes;
    kernel.ignore = args.ignore;
    kernel.smoothing = static_cast<Wide<T>>(args.smoothing);
    kernel.log_probs = as<T>(args.log_probs);
    kernel.target = as<std::int64_t>(args.target);
    kernel.weight = as<T>(args.weight);
    kernel.loss = as<Wide<T>>(args.loss);
    kernel.count = as<Wide<T>>(args.count);
    kernel.finding = device.finding();
    launch_lines(device, "nll loss", kernel);
  });
}

void run(CudaDevice& device, const NllLossGrad& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const auto classes = static_cast<double>(args.classes);
    NllLossGradKernel<T> kernel{};
    kernel.classes = args.classes;
    kernel.inner = args.inner;
    kernel.ignore = args.ignore;
    kernel.elements = args.outer * args.classes * args.inner;
    kernel.hit = static_cast<Wide<T>>(1 - args.smoothing);
    kernel.everywhere = static_cast<Wide<T>>(args.smoothing == 0 ? 0 : args.smoothing / classes);
    kernel.dloss = as<Wide<T>>(args.dloss);
    kernel.target = as<std::int64_t>(args.target);
    kernel.weight = as<T>(args.weight);
    kernel.dlog_probs = as<T>(args.dlog_probs);
    launch_elements(device, "nll loss gradient", kernel, kernel.elements);
  });
}

}  // namespace coshard::kernels::cuda
