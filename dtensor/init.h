#pragma once
// How weights start (torch.nn.init). In place, off the tape, by global element index (random.h).
// No communication.
#include "dtensor/tensor.h"

namespace coshard {

// uniform(-b, b) with b = sqrt(6 / ((1 + a^2) fan_in)): He et al., 2015, for a leaky_relu of slope
// `a` behind it. fan_in: the size of dimension 1 times those after it. Error{BadInput}: fewer than
// two dimensions, a dtype that is not floating.
void kaiming_uniform_(const Tensor& x, double a = 0);

}  // namespace coshard
