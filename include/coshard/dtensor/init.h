#pragma once
// First values of parameters, as in torch.nn.init: each fills x in place, off the tape, and returns
// it. Random numbers depend on the global element alone (random.h), so that any layout gets the
// same values; the sizes that count are those of the logical tensor. No communication.
// Error{BadInput}: a dtype that is not floating; fewer than two dimensions where fans are needed.
#include <coshard/dtensor/tensor.h>

namespace coshard::nn::init {

enum class Fan : std::uint8_t { In, Out };  // of [out, in, …]: in · …, out · …

Tensor constant_(const Tensor& x, double value);
Tensor zeros_(const Tensor& x);
Tensor ones_(const Tensor& x);
Tensor uniform_(const Tensor& x, double low = 0, double high = 1);
Tensor normal_(const Tensor& x, double mean = 0, double std = 1);
// normal(mean, std) without what lies outside [low, high]. Computed on the host.
Tensor trunc_normal_(const Tensor& x, double mean = 0, double std = 1, double low = -2,
                     double high = 2);
// uniform in ±gain sqrt(6 / (fan in + fan out)); normal of deviation gain sqrt(2 / (…)).
Tensor xavier_uniform_(const Tensor& x, double gain = 1);
Tensor xavier_normal_(const Tensor& x, double gain = 1);
// uniform in ±sqrt(3) s, normal of deviation s, where s = sqrt(2 / (1 + slope^2) / fan): for
// leaky_relu of that slope, 0 being relu. PyTorch's Linear starts with slope sqrt(5).
Tensor kaiming_uniform_(const Tensor& x, double slope = 0, Fan fan = Fan::In);
Tensor kaiming_normal_(const Tensor& x, double slope = 0, Fan fan = Fan::In);

}  // namespace coshard::nn::init
