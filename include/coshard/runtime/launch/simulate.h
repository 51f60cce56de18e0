#pragma once
// Deterministic simulation: a whole distributed program on the calling thread, with a scheduler
// that draws from a seed and a clock that jumps. The same seed gives the same run, to the last
// switch. What a seed decides: which rank goes on, and when transfers do. Virtual are sleep_for,
// deadlines and timeouts; Asio's own timers and sockets are refused (Error{Unsupported}).
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <coshard/runtime/launch/world.h>

namespace coshard {

// A rank that is killed: once it has issued `after` collectives, every await of its program throws.
struct SimDeath {
  int rank = 0;
  int after = 0;
};

struct SimEvent {
  std::int64_t time_ns = 0;  // virtual
  int rank = 0;
  std::string what;  // "goes on", "issues all_reduce #3 on tp", "is killed"
};

struct SimOptions {
  std::vector<SimDeath> deaths = {};
  // Of virtual time, and of turns of ranks: a program that has not ended by then is an
  // Error{Timeout} that names where each rank stands.
  std::chrono::nanoseconds limit = std::chrono::hours(10'000);
  std::int64_t most_turns = 10'000'000;
  // A turn of a rank takes this long.
  std::chrono::nanoseconds turn = std::chrono::nanoseconds(100);
  // A share of a transfer is put off for at most this long at a time.
  std::chrono::nanoseconds slowest_transfer = std::chrono::milliseconds(1);
  // Told of everything that happens, in order; throws nothing. Null: nobody.
  std::function<void(const SimEvent&)> on_event = nullptr;
};

// run_ranks(options, program), simulated: throws what that throws. When all ranks sleep and nothing
// will wake them, time goes on to the first timeout; without one (timeout = 0) Error{CommFailed}
// names what each waits for. On the cpu, communicator local; one
// thread for kernels.
void simulate(const WorldOptions& options, const Program& program, std::uint64_t seed,
              const SimOptions& sim = {});

}  // namespace coshard
