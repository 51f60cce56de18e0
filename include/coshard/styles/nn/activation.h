#pragma once
// Modules without parameters: activations, Identity, Dropout. Owned by the module they are members
// of; rank's thread.
#include <coshard/styles/module.h>

namespace coshard::nn {

// By erf, or by the tanh approximation.
class GELU : public Module {
 public:
  explicit GELU(bool tanh_approximation = false) : tanh_approximation(tanh_approximation) {}
  bool tanh_approximation;

 protected:
  Task<Tensor> run(Tensor x) override;
};

class SiLU : public Module {
 protected:
  Task<Tensor> run(Tensor x) override;
};

class ReLU : public Module {
 protected:
  Task<Tensor> run(Tensor x) override;
};

class Identity : public Module {
 protected:
  Task<Tensor> run(Tensor x) override;
};

// Zeroes elements with probability p while training() and scales the rest by 1/(1-p); which ones
// does not depend on the layout of a DTensor. p = 1: all of them. Error{BadInput} for p outside [0,
// 1].
class Dropout : public Module {
 public:
  explicit Dropout(double p);
  double p;

 protected:
  Task<Tensor> run(Tensor x) override;
};

}  // namespace coshard::nn
