#pragma once
// Modules without parameters: activations, Identity, Dropout. Owned by the module they are members
// of; rank's thread.
#include <coshard/styles/module.h>

#pragma GCC visibility push(default)
namespace coshard {
namespace nn {

// Exact (erf), or with the tanh approximation.
class GELU : public Module {
 public:
  explicit GELU(bool with_tanh = false) : tanh_approximation(with_tanh) {}
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
// does not depend on a DTensor's layout. p = 1 drops all. Error{BadInput} for p outside [0, 1].
class Dropout : public Module {
 public:
  explicit Dropout(double p);
  double p;

 protected:
  Task<Tensor> run(Tensor x) override;
};

}  // namespace nn
}  // namespace coshard
#pragma GCC visibility pop
