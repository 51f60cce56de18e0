#pragma once
// Initial values of parameters, as in torch.nn.init: each function fills x in place, off the tape,
// and returns it. A random number depends only on the global index of its element (random.h), so
// every layout gets the same values; fans are computed from the logical shape. No communication.
// Error{BadInput}: a dtype that is not floating-point; fewer than 2 dimensions where fans are
// needed.
#include <coshard/dtensor/tensor/tensor.h>

#pragma GCC visibility push(default)
namespace coshard {
namespace nn::init {

enum class Fan : std::uint8_t { In, Out };  // for a weight [out, in, …]: in · …, out · …

Tensor constant_(const Tensor& x, double value);
Tensor zeros_(const Tensor& x);
Tensor ones_(const Tensor& x);
Tensor uniform_(const Tensor& x, double low = 0, double high = 1);
Tensor normal_(const Tensor& x, double mean = 0, double std = 1);
// Normal(mean, std) truncated to [low, high]. Computed on the host.
Tensor trunc_normal_(const Tensor& x, double mean = 0, double std = 1, double low = -2,
                     double high = 2);
// Uniform in ±gain sqrt(6 / (fan_in + fan_out)); normal with std gain sqrt(2 / (fan_in + fan_out)).
Tensor xavier_uniform_(const Tensor& x, double gain = 1);
Tensor xavier_normal_(const Tensor& x, double gain = 1);
// Uniform in ±sqrt(3) s, or normal with std s, where s = sqrt(2 / (1 + slope^2) / fan): for
// leaky_relu with that negative slope; 0 is relu. PyTorch's Linear uses slope sqrt(5).
Tensor kaiming_uniform_(const Tensor& x, double slope = 0, Fan fan = Fan::In);
Tensor kaiming_normal_(const Tensor& x, double slope = 0, Fan fan = Fan::In);

}  // namespace nn::init
}  // namespace coshard
#pragma GCC visibility pop
