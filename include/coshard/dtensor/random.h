#pragma once
// Random numbers that do not depend on the sharding: Philox 4x32-10 (Salmon et al., SC'11) keyed by
// the world's seed and counted by the global element index. Every call takes the next stream
// number; all ranks call in the same order. Children of a when_all draw from streams of their own,
// forked by position. What a rank draws for a DTensor is compared with the next collective of its
// mesh: ranks whose streams differ by then, because one of them drew more before, get
// Error{CommFailed} there instead of replicas that differ. Draws of plain tensors are not compared.
#include <coshard/dtensor/factories.h>
#include <coshard/dtensor/tensor.h>

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

// In place, off the tape, on a leaf or plain value: normal(mean, std) and uniform [low, high). A
// Partial becomes terms of what one device would draw. Error{BadInput}: std < 0; low > high, or a
// range that is infinite or NaN.
void normal_(const Tensor& x, double mean, double std);
void uniform_(const Tensor& x, double low, double high);

}  // namespace coshard
