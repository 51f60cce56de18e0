// A program that initialises and finalises MPI itself, and runs ranks between. Built with each MPI,
// run by tests/integration/launchers_test.py. usage: own_mpi single|funneled|serialized|multiple
// [late]; late: on a context of its own, where the last rank fails when the others have ended.
#include <mpi.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>

#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/error.h>
#include <coshard/runtime/launch/run_on_asio.h>
#include <coshard/runtime/launch/world.h>

namespace {

using namespace coshard;

int level_of(const std::string& name) {
  if (name == "single") return MPI_THREAD_SINGLE;
  if (name == "funneled") return MPI_THREAD_FUNNELED;
  return name == "serialized" ? MPI_THREAD_SERIALIZED : MPI_THREAD_MULTIPLE;
}

Task<void> add_up(World& world, float& sum) {
  float mine = static_cast<float>(world.rank() + 1);
  Collective c;
  c.kind = CollectiveKind::AllReduce;
  c.extent = 1;
  c.send = c.recv = &mine;
  const Work work = world.communicator()->issue(c);
  co_await work;
  if (world.rank() == 0) sum = mine;
}

// Twice: the handler of the first run starts the second.
void run_on_own_context(const Program& program) {
  boost::asio::io_context io;
  std::exception_ptr failed;
  const auto ended = [&failed](std::exception_ptr error) { failed = std::move(error); };
  run_ranks({}, program, io.get_executor(), [&](std::exception_ptr error) {
    if (error != nullptr) return ended(std::move(error));
    run_ranks({}, program, io.get_executor(), ended);
  });
  io.run();
  if (failed) std::rethrow_exception(failed);
}

// 2: wrong input, as run() has it.
int run_twice() {
  for (const bool own_context : {false, true}) {
    float sum = 0;
    const Program program = [&sum](World& world) { return add_up(world, sum); };
    try {
      if (own_context)
        run_on_own_context(program);
      else
        run_ranks({}, program);
    } catch (const Error& error) {
      std::cerr << "error: " << error.what() << std::endl;
      return error.kind() == ErrorKind::BadInput ? 2 : 1;
    }
    if (sum > 0) std::cout << "sum " << sum << std::endl;
  }
  return 0;
}

Task<void> last_throws(World& world) {
  if (world.rank() + 1 < world.size()) co_return;
  co_await sleep_for(std::chrono::milliseconds(500));
  throw std::runtime_error("disk full");
}

int run_late() {
  boost::asio::io_context io;
  std::string told = "nothing";
  run_ranks({}, last_throws, io.get_executor(), [&told](const std::exception_ptr& error) {
    try {
      if (error) std::rethrow_exception(error);
    } catch (const std::exception& known) {
      told = known.what();
    }
  });
  io.run();
  std::cout << "told " + told + '\n' << std::flush;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  int level = 0, rank = 0, size = 0, sum = 0;
  MPI_Init_thread(&argc, &argv, level_of(argc > 1 ? argv[1] : ""), &level);
  const int code = argc > 2 ? run_late() : run_twice();
  // MPI is the program's as before.
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (sum != size * (size - 1) / 2) return 3;
  return MPI_Finalize() == MPI_SUCCESS ? code : 4;
}
