#pragma once
// Deterministic simulation: a whole distributed program on the calling thread, with a seeded
// scheduler and a virtual clock. The same seed gives the same run, down to every switch. The seed
// decides which rank runs next and when transfers progress. sleep_for, deadlines and timeouts are
// virtual; Asio timers and sockets are refused (Error{Unsupported}), and so are other threads that
// resume what the program awaits: a simulation waits for none. The ranks may be spread over
// several simulated processes, connected by a simulated network.
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <coshard/runtime/launch/world.h>

#pragma GCC visibility push(default)
namespace coshard {

// Kills a rank: once it has issued `after` collectives, every await of its program throws.
struct SimDeath {
  int rank = 0;
  int after = 0;
};

// Kills a process: once it has sent `after` messages, it sends and receives nothing more. The other
// processes learn of it after a delay.
struct SimProcessDeath {
  int process = 0;
  int after = 0;
};

// The network between the processes.
struct SimNetwork {
  // The probability that a message is lost. Later messages with the same source, target and tag are
  // lost with it, since messages arrive in order.
  double lost = 0;
  // The longest delay of a message.
  std::chrono::nanoseconds slowest = std::chrono::milliseconds(1);
  std::vector<SimProcessDeath> deaths = {};
};

struct SimEvent {
  std::int64_t time_ns = 0;  // virtual
  int rank = 0;              // for an event of a process, its first rank
  // "goes on", "issues all_reduce #3 on tp", "is killed", "sends 24 bytes to process 1"
  std::string what;
};

struct SimOptions {
  // The ranks are spread evenly over this many processes; at most 8.
  int processes = 1;
  SimNetwork network = {};
  std::vector<SimDeath> deaths = {};
  // Limits of virtual time and of turns: a program that has not ended by then fails with
  // Error{Timeout}, which says what each rank waits for.
  std::chrono::nanoseconds limit = std::chrono::hours(10'000);
  std::int64_t most_turns = 10'000'000;
  // The virtual duration of a rank's turn.
  std::chrono::nanoseconds turn = std::chrono::nanoseconds(100);
  // The longest delay of a share of a transfer.
  std::chrono::nanoseconds slowest_transfer = std::chrono::milliseconds(1);
  // Called for every event, in order; must not throw. Null: not called.
  std::function<void(const SimEvent&)> on_event = nullptr;
};

// run_ranks(options, program), simulated; throws what that throws. If all ranks sleep and nothing
// can wake them, a coroutine that nobody resumes included, time advances to the first timeout;
// without one (timeout = 0) Error{CommFailed} says what each rank waits for. Device cpu and
// communicator local only; one thread for kernels.
void simulate(const WorldOptions& options, const Program& program, std::uint64_t seed,
              const SimOptions& sim = {});

}  // namespace coshard
#pragma GCC visibility pop
