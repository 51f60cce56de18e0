// It only reads the command line; what it runs lies in profiling/bench, tools/conform, tools/doctor
// and tools/plan.
#include "tools/command.h"

#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>

#include <coshard/runtime/launch/command_line.h>
#include "profiling/bench/benches.h"
#include "tools/completion.h"
#include "tools/conform/conform.h"
#include "tools/doctor.h"
#include "tools/plan.h"
#include "tools/training_options.h"

namespace coshard::tools {
namespace {

using namespace coshard::bench;

using Chosen = std::function<int()>;

// --device and --communicator, and the world that they ask for.
struct Place {
  std::string device = "cpu", communicator = "local";

  void add_to(CLI::App& app) { add_place(app, device, communicator); }
  WorldOptions world() const {
    WorldOptions options;
    options.device = parse_device_kind(device);
    check_backend(options.device);
    options.communicator = communicator;
    return options;
  }
};

// Built beside this program when meson found MPI.
std::string mpi_program() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto program = self.parent_path() / "mpi_all_reduce";
  return !error && std::filesystem::exists(program, error) ? program.string() : "";
}

constexpr int kMostBenchRanks = 64, kMostSteps = 1'000'000;

void add_options(CLI::App& app, DispatchOptions& o) {
  add_number(app, "--ranks", o.ranks, 1, kMostBenchRanks, "ranks");
}

void add_options(CLI::App& app, RedistributeOptions& o) {
  add_number(app, "--ranks", o.ranks, 1, kMostBenchRanks, "ranks");
}

void add_options(CLI::App& app, TrainOptions& o) {
  add_number(app, "--ranks", o.ranks, 0, kMostBenchRanks,
             "ranks; 0: 1 and 2 ranks, both plans, batch 8 and 2");
  add_number(app, "--threads", o.threads, 0, kMostThreads, "threads per rank; 0: cores / ranks");
  add_shape(app, o, o.dtype);
  add_number(app, "--steps", o.steps, 1, kMostSteps, "measured steps per round");
  add_number(app, "--rounds", o.rounds, 1, kMostSteps, "rounds; the median counts");
}

void add_options(CLI::App& app, OverlapOptions& o) {
  add_number(app, "--ranks", o.ranks, 0, kMostBenchRanks, "ranks; 0: 2 and 4");
  add_number(app, "--steps", o.steps, 1, kMostSteps, "computations of a branch");
  add_number(app, "--rounds", o.rounds, 1, kMostSteps, "rounds; the median counts");
  add_number(app, "--compute-ms", o.compute_ms, 0.1, 1e5, "length of a computation");
}

void add_options(CLI::App& app, GpuOptions& o) {
  app.add_flag("--tiny", o.tiny, "sizes for a test, not for figures");
}

// What one option says of another.
void check(const auto&) {}
void check(const OverlapOptions& o) {
  CS_REQUIRE(o.ranks != 1, "--ranks 1: needs at least 2 ranks to communicate");
}
void check(TrainOptions o) {
  if (o.ranks == 0) o.ranks = 2;
  check_shape(o, parse_dtype(o.dtype), o.world.device);
}

int show(const Report& report, bool json) {
  if (json) {
    std::cout << report.json();
  } else {
    report.print_table(std::cout);
  }
  return report.failures.empty() ? 0 : 1;
}

void add_plan(CLI::App& app, Chosen& chosen) {
  CLI::App* plan = app.add_subcommand("plan", "looks at plans of redistribution");
  plan->require_subcommand(1);
  plan->footer(
      "Example: coshard plan explain --mesh dp=2,tp=4 --shape 8,16 --from 'S(0),R' --to 'R,S(1)'");
  CLI::App* sub = plan->add_subcommand("explain", "steps, bytes and predicted time of a plan");
  const auto options = std::make_shared<PlanOptions>();
  sub->add_option("--mesh", options->mesh, "sizes, with names or without: dp=2,tp=4")->required();
  sub->add_option("--shape", options->shape, "of the tensor: 8,16; nothing: a scalar");
  sub->add_option("--from", options->from, "one placement per mesh dimension: S(0),R")->required();
  sub->add_option("--to", options->to, "the same: R,S(1)")->required();
  sub->add_option("--dtype", options->dtype, "of the tensor")->capture_default_str();
  sub->add_option("--link", options->links,
                  "latency and rate of all mesh dimensions, 20us,1GB/s, or of one: dp=20us,1GB/s");
  sub->add_flag("--json", options->json, "print one JSON object");
  sub->callback([options, &chosen] {
    chosen = [options] {
      explain_plan(*options, std::cout);
      return 0;
    };
  });
}

void add_conform(CLI::App& app, Chosen& chosen) {
  CLI::App* sub = app.add_subcommand("conform", "runs every conformance case of a directory");
  sub->footer("Example: coshard conform tests/conformance/cases --only redistribute_1d/S0-to-R/");
  const auto directory = std::make_shared<std::string>(), only = std::make_shared<std::string>();
  const auto place = std::make_shared<Place>();
  sub->add_option("DIR", *directory, "*.json with *.safetensors beside them")->required();
  sub->add_option("--only", *only, "cases whose name contains this");
  place->add_to(*sub);
  sub->callback([directory, only, place, &chosen] {
    chosen = [directory, only, place] {
      const auto tally = conform::run_directory(*directory, *only, std::cout, place->world());
      return tally.failed == 0 ? 0 : 1;
    };
  });
}

void add_doctor(CLI::App& app, Chosen& chosen) {
  CLI::App* sub = app.add_subcommand("doctor", "says what this build and this machine have");
  const auto options = std::make_shared<DoctorOptions>();
  add_word(*sub, "--device", options->device, device_names(),
           "must work: " + joined(device_names()));
  sub->add_option("--communicator", options->communicator,
                  "must be there: " + joined(known_communicators()));
  sub->callback([options, &chosen] {
    chosen = [options] {
      options->mpi_program = mpi_program();
      return doctor(*options, std::cout);
    };
  });
}

void add_completion(CLI::App& app, Chosen& chosen) {
  CLI::App* shells = app.add_subcommand("completion", "prints the completion script of a shell");
  shells->require_subcommand(1);
  shells->footer("Example: source <(coshard completion bash)");
  shells->add_subcommand("bash", "for bash")->callback([&app, &chosen] {
    chosen = [&app] {
      std::cout << bash_completion(app);
      return 0;
    };
  });
}

// What all benches share.
class Benches {
 public:
  Benches(CLI::App& app, Chosen& chosen)
      : bench_(*app.add_subcommand("bench", "runs a bench and compares with its targets")),
        chosen_(chosen) {
    bench_.require_subcommand(1);
    bench_.footer("Example: coshard bench train --ranks 2 --json");
    train_.progress = [](const std::string& line) { std::cerr << line << std::endl; };
    gpu_.progress = train_.progress;
    redistribute_.mpi_program = mpi_program();
    add("dispatch", "host cost of tasks and of tensor operations", dispatch_, bench_dispatch);
    add("redistribute", "collectives and redistributes of 4 KiB to 16 MiB", redistribute_,
        bench_redistribute);
    add("overlap", "what a sibling hides of collectives on an emulated link", overlap_,
        bench_overlap);
    add("train", "a training step of the Transformer", train_, bench_train);
    add("gpu", "a Llama block, attention, matmul, bandwidth and host time on one device", gpu_,
        bench_gpu);
  }

 private:
  template <class Options>
  void add(const char* name, const char* help, Options& options, Report (*run)(const Options&)) {
    CLI::App* sub = bench_.add_subcommand(name, help);
    sub->add_flag("--json", json_, "print one JSON object");
    if constexpr (requires { options.peer; })
      sub->add_option("--peer", peer_,
                      "script of PyTorch's times as JSON, run beside it with python3")
          ->check(CLI::ExistingFile);
    const auto place = std::make_shared<Place>();
    if constexpr (std::is_same_v<Options, GpuOptions>) place->device = "cuda";
    place->add_to(*sub);
    add_options(*sub, options);
    sub->callback([this, &options, run, place] {
      chosen_ = [this, &options, run, place] {
        if constexpr (requires { options.peer; }) options.peer = peer_;
        options.world = place->world();
        check(options);
        return show(run(options), json_);
      };
    });
  }

  CLI::App& bench_;
  Chosen& chosen_;
  std::string peer_;
  bool json_ = false;
  DispatchOptions dispatch_;
  RedistributeOptions redistribute_;
  OverlapOptions overlap_;
  TrainOptions train_;
  GpuOptions gpu_;
};

int run_command(int argc, char** argv) {
  CLI::App app("coshard: measures and proves the library on this machine", "coshard");
  app.footer("Example: coshard doctor");
  app.require_subcommand(1);
  Chosen chosen;
  const Benches benches(app, chosen);
  add_conform(app, chosen);
  add_doctor(app, chosen);
  add_completion(app, chosen);
  add_plan(app, chosen);
  const int code = parse(app, argc, argv) ? chosen() : 0;
  std::cout.flush();
  if (!std::cout) fail(ErrorKind::DeviceFailed, "stdout: could not be written");
  return code;
}

}  // namespace

int command(int argc, char** argv) {
  try {
    return run_command(argc, argv);
  } catch (const Error& error) {
    std::cerr << "coshard: " << error.what() << std::endl;
    return error.kind() == ErrorKind::BadInput ? 2 : 1;
  } catch (const std::exception& error) {
    std::cerr << "coshard: " << error.what() << std::endl;
    return 1;
  }
}

}  // namespace coshard::tools
