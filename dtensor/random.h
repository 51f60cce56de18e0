#pragma once
// Random numbers that do not depend on the sharding: Philox 4x32-10 (Salmon et al., SC'11) keyed by
// the world's seed and counted by the global element index. Every call takes the next stream
// number; all ranks call in the same order. Children of a when_all draw from streams of their own,
// forked by position.
#include "dtensor/factories.h"
#include "dtensor/tensor.h"

namespace coshard {

// Seeds the generator of this branch and restarts its streams. All ranks use the same seed. No
// communication.
void manual_seed(std::uint64_t seed);
// The state: seed, and the number of the next stream. take_stream() uses one up.
struct RandomState {
  std::uint64_t seed = 0, next_stream = 0;
};
RandomState random_state();
void set_random_state(RandomState state);
RandomState take_stream();

// In place, off the tape, on a leaf or plain value: normal(mean, std) and uniform [low, high).
void normal_(const Tensor& x, double mean, double std);
void uniform_(const Tensor& x, double low, double high);

}  // namespace coshard
