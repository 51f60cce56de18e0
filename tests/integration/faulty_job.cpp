// A program of which one rank comes to grief, for faults_test.py.
//
//   faulty_job RANK HOW AFTER [--ranks N] [--timeout S]      HOW: see grieve(); AFTER: so many steps
#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <coshard/coshard.h>
#include <coshard/runtime/launch/world.h>

namespace cs = coshard;

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// As a library in the program may do.
void abort_mpi() {
  if (void* open_mpi = ::dlopen("libmpi.so.40", RTLD_LAZY | RTLD_NOLOAD)) {
    const auto abort = reinterpret_cast<int (*)(void*, int)>(::dlsym(open_mpi, "MPI_Abort"));
    abort(::dlsym(open_mpi, "ompi_mpi_comm_world"), 5);
  }
  if (void* mpich = ::dlopen("libmpich.so.12", RTLD_LAZY | RTLD_NOLOAD)) {
    constexpr int kWorld = 0x44000000;
    reinterpret_cast<int (*)(int, int)>(::dlsym(mpich, "MPI_Abort"))(kWorld, 5);
  }
}

void grieve(const std::string& how) {
  std::cout << "grief at " << std::to_string(now()) << '\n' << std::flush;
  if (how == "kill") ::kill(::getpid(), SIGKILL);
  if (how == "fork") {
    if (::fork() == 0) {  // which has this one's sockets
      for (const int fd : {0, 1, 2}) ::close(fd);
      ::sleep(1);  // hydra waits for it
      ::_exit(0);
    }
    ::kill(::getpid(), SIGKILL);
  }
  if (how == "segv") ::kill(::getpid(), SIGSEGV);
  if (how == "exit") ::_exit(3);
  if (how == "exit0") ::_exit(0);
  if (how == "quit") std::exit(7);
  if (how == "quit0") std::exit(0);
  if (how == "stop") ::kill(::getpid(), SIGSTOP);
  if (how == "pause" && ::fork() == 0) {  // who continues it
    const ::pid_t parent = ::getppid();
    ::sleep(3);
    ::kill(parent, SIGCONT);
    ::_exit(0);
  }
  if (how == "pause") ::kill(::getpid(), SIGSTOP);
  if (how == "throw" || how == "late" || how == "alone") throw std::runtime_error("disk full");
  if (how == "abort") abort_mpi();
  if (how == "leave") return;
  if (how == "disagree" || how == "lent" || how.starts_with("caught")) return;
  if (how == "sleep") std::this_thread::sleep_for(std::chrono::hours(1));
}

// `kept`: what is in flight is owned by the library.
cs::Task<void> program(cs::World& world, int rank, std::string how, int after, bool kept = false) {
  const bool announced = how.starts_with("announced ");  // as for NCCL, which would move the data
  if (announced) how.erase(0, sizeof "announced");
  const auto comm = world.communicator();
  std::vector<float> own(1 << 18, 1.0F);
  const auto buffer = world.device()->make_buffer(own.size() * sizeof(float));
  const std::span data(kept ? static_cast<float*>(buffer->data()) : own.data(), own.size());
  for (float& x : data) x = 1.0F;
  const int steps = how == "short" ? after : 400;
  for (int step = 0; step < steps; ++step) {
    if (step == after && world.rank() == rank) {
      grieve(how);
      if (how == "leave") co_return;
    }
    cs::Collective sum;
    sum.kind = cs::CollectiveKind::AllReduce;
    const bool disagrees = how == "disagree" || how == "lent" || how.starts_with("caught");
    sum.reduce =
        step == after && world.rank() == rank && disagrees ? cs::Reduce::Max : cs::Reduce::Sum;
    sum.extent = static_cast<std::int64_t>(data.size());
    sum.send = sum.recv = data.data();
    if (kept) sum.keep_send = sum.keep_recv = buffer;
    sum.control_only = announced;
    try {
      co_await comm->issue(sum);
    } catch (...) {
      std::cout << "told at " + std::to_string(now()) + '\n' << std::flush;
      throw;
    }
    if (!announced && data[7] != static_cast<float>(world.size()))
      throw std::runtime_error("wrong sum");
    for (float& x : data) x = 1.0F;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (world.rank() == 0) std::cout << "all steps done\n" << std::flush;
}

bool is_without_mpi() { return std::getenv("MASTER_ADDR") != nullptr; }

// Started as torchrun does: processes on GPUs need no MPI, which this device calls itself.
cs::WorldOptions options_of(int argc, char** argv) {
  cs::WorldOptions options;
  if (is_without_mpi()) {
    options.device = cs::DeviceKind::Cuda;
    options.make_device = [](int) { return cs::make_cpu_device(1); };
  }
  for (int i = 4; i + 1 < argc; i += 2) {
    if (argv[i] == std::string("--ranks")) options.ranks = std::atoi(argv[i + 1]);
    if (argv[i] == std::string("--timeout"))
      options.timeout = std::chrono::seconds(std::atoi(argv[i + 1]));
  }
  return options;
}

// "caught 3": the program ends with this code.
int catch_error(const cs::WorldOptions& options, const cs::Program& main, const std::string& how) {
  try {
    cs::run_ranks(options, main);
  } catch (const cs::Error& error) {
    std::cout << std::string("caught: ") + error.what() + '\n' << std::flush;
    return std::atoi(how.c_str() + sizeof "caught");
  }
  return 9;
}

// "again throw": runs once more after a run of which a rank came to grief so.
int run_again(const cs::WorldOptions& options, int rank, const std::string& how, int after) {
  bool here = false;
  try {
    cs::run_ranks(options, [&](cs::World& world) {
      here = here || world.rank() == rank;
      return program(world, rank, how, after, how != "lent");
    });
  } catch (const std::exception&) {
  }
  if (here && how == "alone") return 0;
  if (here && how == "late") std::this_thread::sleep_for(2 * options.timeout);
  try {
    cs::run_ranks(options,
                  [&](cs::World& world) { return program(world, -1, "short", after, true); });
    std::cout << "again: done\n" << std::flush;
  } catch (const cs::Error& error) {
    std::cout << std::string("again: ") + error.what() + '\n' << std::flush;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int rank = std::atoi(argv[1]);
  const std::string how = argv[2];
  const int after = std::atoi(argv[3]);
  std::vector<char*> rest{argv[0]};
  for (int i = 4; i < argc; ++i) rest.push_back(argv[i]);
  const cs::Program main = [&](cs::World& world) { return program(world, rank, how, after); };
  bool here = false;
  const auto run = [&](const cs::Program& of_ranks) {
    return is_without_mpi() ? cs::run(options_of(argc, argv), of_ranks)
                            : cs::run(static_cast<int>(rest.size()), rest.data(), of_ranks);
  };
  if (how.starts_with("again "))
    return run_again(options_of(argc, argv), rank, how.substr(sizeof "again"), after);
  if (how.starts_with("caught")) return catch_error(options_of(argc, argv), main, how);
  int code = run(main);
  if (how == "once") {  // the others run once more
    code = run([&](cs::World& world) -> cs::Task<void> {
      here = world.rank() == rank;
      co_return;
    });
    if (!here) code = run(main);
  }
  std::cout << "process ends with " << code << " at " << std::to_string(now()) << '\n'
            << std::flush;
  return code;
}
