#pragma once
// Random numbers that do not depend on the sharding: Philox 4x32-10 (Salmon et al., SC'11) keyed by
// the world's seed and counted by the global element index. Every call takes the next stream
// number; all ranks call in the same order. Children of a when_all draw from streams of their own,
// forked by position. What a rank draws for a DTensor is compared with the next collective of its
// mesh: ranks whose streams differ by then, because one of them drew more before, get
// Error{CommFailed} there instead of replicas that differ. Draws of plain tensors are not compared.
#include "dtensor/tensor.h"

namespace coshard {

// Seeds the generator of this branch and restarts its streams. All ranks use the same seed. No
// communication.
void manual_seed(std::uint64_t seed);
// The state: seed, the number of the next stream, and how many LocalRandom there have been.
struct RandomState {
  std::uint64_t seed = 0, next_stream = 0, local = 0;
};
RandomState random_state();
void set_random_state(RandomState state);
// Uses one stream up, for numbers that go into `x` (undefined: anything plain).
RandomState take_stream(const Tensor& x = {});

// Draws of this rank alone: while one lives, this branch draws from streams of the rank's own, and
// the common stream stays where it is. Another one draws other numbers. A DTensor that is drawn
// under it differs from rank to rank, which the next collective of its mesh finds.
class LocalRandom {
 public:
  LocalRandom();
  ~LocalRandom();
  LocalRandom(const LocalRandom&) = delete;
  LocalRandom& operator=(const LocalRandom&) = delete;

 private:
  RandomState before_;
};

// Factories on a plain device, or of a logical tensor of `shape` on a mesh with any layout: each
// rank makes its part, a Partial is split into terms whose reduction is the tensor (partial.h).
// rand and randn draw the same numbers for every layout. No communication. Error{BadInput}: a
// layout with more or fewer entries than the mesh, a dim that the shape lacks; rand and randn of a
// dtype that is not floating.
Tensor zeros(const std::shared_ptr<Device>& device, const Shape& shape, DType dtype = DType::F32);
Tensor ones(const std::shared_ptr<Device>& device, const Shape& shape, DType dtype = DType::F32);
Tensor full(const std::shared_ptr<Device>& device, const Shape& shape, double value,
            DType dtype = DType::F32);
Tensor rand(const std::shared_ptr<Device>& device, const Shape& shape,
            DType dtype = DType::F32);  // uniform [0,1)
Tensor randn(const std::shared_ptr<Device>& device, const Shape& shape,
             DType dtype = DType::F32);  // normal(0,1)
DTensor zeros(const DeviceMesh& mesh, const Layout& layout, const Shape& shape,
              DType dtype = DType::F32);
DTensor ones(const DeviceMesh& mesh, const Layout& layout, const Shape& shape,
             DType dtype = DType::F32);
DTensor full(const DeviceMesh& mesh, const Layout& layout, const Shape& shape, double value,
             DType dtype = DType::F32);
DTensor empty(const DeviceMesh& mesh, const Layout& layout, const Shape& shape,
              DType dtype = DType::F32);
DTensor rand(const DeviceMesh& mesh, const Layout& layout, const Shape& shape,
             DType dtype = DType::F32);
DTensor randn(const DeviceMesh& mesh, const Layout& layout, const Shape& shape,
              DType dtype = DType::F32);
// On the mesh of the innermost DefaultMesh.
DTensor zeros(const Layout& layout, const Shape& shape, DType dtype = DType::F32);
DTensor ones(const Layout& layout, const Shape& shape, DType dtype = DType::F32);
DTensor full(const Layout& layout, const Shape& shape, double value, DType dtype = DType::F32);
DTensor empty(const Layout& layout, const Shape& shape, DType dtype = DType::F32);
DTensor rand(const Layout& layout, const Shape& shape, DType dtype = DType::F32);
DTensor randn(const Layout& layout, const Shape& shape, DType dtype = DType::F32);

// In place, off the tape, on a leaf or plain value: normal(mean, std) and uniform [low, high).
void normal_(const Tensor& x, double mean, double std);
void uniform_(const Tensor& x, double low, double high);

}  // namespace coshard
