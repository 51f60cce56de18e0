#pragma once
// The generator of random numbers: which stream is drawn next. Every draw takes the next stream
// number; all ranks must draw in the same order. Children of a when_all draw from their own
// streams, forked by position. What a rank draws for a DTensor is checked by the next collective of
// its mesh: if ranks drew differently before it, all get Error{CommFailed} there instead of
// diverging replicas. Draws for plain tensors are not checked.
#include <cstdint>

#include <coshard/dtensor/tensor/tensor.h>

#pragma GCC visibility push(default)
namespace coshard {

// Seeds the generator of this branch and restarts its streams. All ranks must use the same seed. No
// communication.
void manual_seed(std::uint64_t seed);
// The state: seed, number of the next stream, and how many LocalRandom scopes there have been.
struct RandomState {
  std::uint64_t seed = 0, next_stream = 0, local = 0;
};
RandomState random_state();
void set_random_state(RandomState state);
// Consumes one stream, for numbers that go into `x` (undefined: any plain tensor).
RandomState take_stream(const Tensor& x = {});

// Draws for this rank alone: while one is alive, this branch draws from the rank's own streams and
// the common stream does not advance. Each scope draws different numbers. A DTensor drawn under it
// differs between ranks, which the next collective of its mesh reports.
class LocalRandom {
 public:
  LocalRandom();
  ~LocalRandom();
  LocalRandom(const LocalRandom&) = delete;
  LocalRandom& operator=(const LocalRandom&) = delete;

 private:
  RandomState before_;
};

}  // namespace coshard
#pragma GCC visibility pop
