// Only parses the command line; what it runs is in profiling/bench, tools/ckpt, tools/conform,
// tools/doctor, tools/plan, tools/run, tools/simulate and tools/trace.
#include "tools/command.h"

#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>

#include <coshard/runtime/launch/command_line.h>
#include "profiling/bench/benches.h"
#include "runtime/launch/launcher.h"
#include "runtime/printable.h"
#include "tools/ckpt/command_line.h"
#include "tools/completion.h"
#include "tools/conform/conform.h"
#include "tools/doctor.h"
#include "tools/doctor_job.h"
#include "tools/plan_command_line.h"
#include "tools/run/guard.h"
#include "tools/run/launcher.h"
#include "tools/run/run.h"
#include "tools/simulate/command_line.h"
#include "tools/trace/command_line.h"
#include "tools/training_options.h"

namespace coshard::tools {
namespace {

using namespace coshard::bench;

using Chosen = std::function<int()>;

// --device and --communicator, and the world that they select.
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
  add_number(app, "--ranks", o.ranks, 1, kMostBenchRanks, "number of ranks");
}

void add_options(CLI::App& app, bench::RedistributeOptions& o) {
  add_number(app, "--ranks", o.ranks, 1, kMostBenchRanks, "number of ranks");
}

void add_options(CLI::App& app, TrainOptions& o) {
  add_number(app, "--ranks", o.ranks, 0, kMostBenchRanks,
             "number of ranks; 0 runs 1 and 2 ranks, both plans, batch 8 and 2");
  add_number(app, "--threads", o.threads, 0, kMostThreads,
             "compute threads per rank; 0 means cores / ranks");
  add_shape(app, o, o.dtype);
  add_word(app, "--plan", o.plan, {"tp", "tp-sp", "dp"},
           "tensor parallelism, tp-sp: with sequence parallelism as well, or dp: data parallelism");
  add_number(app, "--steps", o.steps, 1, kMostSteps, "timed steps per round");
  add_number(app, "--rounds", o.rounds, 1, kMostSteps, "rounds; the median is reported");
}

void add_options(CLI::App& app, ForecastOptions& o) {
  add_number(app, "--ranks", o.step.ranks, 2, kMostBenchRanks, "number of ranks");
  add_shape(app, o.step, o.step.dtype);
  app.add_option("--link", o.link, "emulated between ranks that are threads")
      ->capture_default_str();
  add_number(app, "--rounds", o.step.rounds, 1, kMostSteps, "rounds; the median is reported");
}

void add_options(CLI::App& app, OverlapOptions& o) {
  add_number(app, "--ranks", o.ranks, 0, kMostBenchRanks, "number of ranks; 0 runs 2 and 4");
  add_number(app, "--steps", o.steps, 1, kMostSteps, "compute kernels per branch");
  add_number(app, "--rounds", o.rounds, 1, kMostSteps, "rounds; the median is reported");
  add_number(app, "--compute-ms", o.compute_ms, 0.1, 1e5, "duration of each compute kernel, in ms");
  add_number(app, "--draws", o.draws, 0, kMostSteps,
             "instead, test the choice of schedules on this many random shapes and links each, in "
             "interleaved pairs of runs");
}

void add_options(CLI::App& app, bench::CheckpointOptions& o) {
  add_number(app, "--ranks", o.ranks, 1, kMostBenchRanks, "number of ranks");
  add_number(app, "--megabytes", o.megabytes, 8, 1'000'000, "size of the state, in 10^6 bytes");
  add_number(app, "--rounds", o.rounds, 1, kMostSteps, "rounds; the median is reported");
  app.add_option("--folder", o.folder, "a folder on the disk to measure")->capture_default_str();
}

void add_options(CLI::App& app, bench::AnnouncementsOptions& o) {
  add_number(app, "--collectives", o.collectives, 1, kMostSteps, "collectives of each process");
  add_number(app, "--most", o.most, 2, kMostBenchRanks, "the largest number of processes");
}

void add_options(CLI::App& app, GpuOptions& o) {
  app.add_flag("--tiny", o.tiny, "tiny sizes, to test the benchmark itself");
}

// For a command whose ranks are threads of one process.
void require_one_process(const std::string& command) {
  if (const auto job = launched())
    fail(ErrorKind::BadInput, str_cat(command,
                                      " runs all ranks as threads, but was started as one "
                                      "of several processes: ",
                                      job->said));
}

// Checks between options, and of the place.
void check(const auto&) {}
void check(const DispatchOptions&) { require_one_process("bench dispatch"); }
void check(const bench::CheckpointOptions& o) {
  require_one_process("bench checkpoint");
  std::error_code ignored;
  CS_REQUIRE(std::filesystem::is_directory(o.folder, ignored), "--folder ", o.folder,
             ": there is no such folder");
}
void check(const bench::AnnouncementsOptions&) { require_one_process("bench processes"); }
void check(const GpuOptions&) { require_one_process("bench gpu"); }
void check(const OverlapOptions& o) {
  require_one_process("bench overlap");
  CS_REQUIRE(o.ranks != 1, "--ranks 1: needs at least 2 ranks to communicate");
}
void check(TrainOptions o) {
  if (o.ranks == 0) o.ranks = 2;
  check_shape(o, parse_dtype(o.dtype), o.world.device);
}

void check(const ForecastOptions& o) {
  TrainOptions step = o.step;
  step.world = o.world;
  for (const char* plan : {"tp", "dp"}) step.plan = plan, check(step);
}

int show(const Report& report, bool json) {
  if (const auto job = launched(); job && job->process != 0) return 0;  // rank 0 shows them
  if (json) {
    std::cout << report.json();
  } else {
    report.print_table(std::cout);
  }
  return report.failures.empty() ? 0 : 1;
}

void add_conform(CLI::App& app, Chosen& chosen) {
  CLI::App* sub = app.add_subcommand("conform", "Run the conformance cases in a directory");
  sub->footer("Example: coshard conform tests/conformance/cases --only redistribute_1d/S0-to-R/");
  const auto directory = std::make_shared<std::string>(), only = std::make_shared<std::string>();
  const auto place = std::make_shared<Place>();
  sub->add_option("DIR", *directory, "directory with *.json and matching *.safetensors files")
      ->required();
  sub->add_option("--only", *only, "run only cases whose name contains this text");
  place->add_to(*sub);
  sub->callback([directory, only, place, &chosen] {
    chosen = [directory, only, place] {
      require_one_process("conform");
      const auto tally = conform::run_directory(*directory, *only, std::cout, place->world());
      return tally.failed == 0 ? 0 : 1;
    };
  });
}

void add_doctor(CLI::App& app, Chosen& chosen) {
  CLI::App* sub = app.add_subcommand("doctor", "Report what this build and this machine support");
  const auto options = std::make_shared<DoctorOptions>();
  add_word(*sub, "--device", options->device, device_names(),
           "fail unless this device works: " + joined(device_names()));
  add_word(*sub, "--communicator", options->communicator, known_communicators(),
           "fail unless this build has it: " + joined(known_communicators()));
  sub->callback([options, &chosen] {
    chosen = [options] {
      options->mpi_program = mpi_program();
      return launched() ? doctor_of_job(*options, std::cout) : doctor(*options, std::cout);
    };
  });
}

void add_completion(CLI::App& app, Chosen& chosen) {
  CLI::App* shells = app.add_subcommand("completion", "Print a shell completion script");
  shells->require_subcommand(1);
  shells->footer("Example: source <(coshard completion bash)");
  shells->add_subcommand("bash", "Print the completion script for bash")->callback([&app, &chosen] {
    chosen = [&app] {
      std::cout << bash_completion(app);
      return 0;
    };
  });
}

// CLI11 does not know about the program.
struct RunFormatter : CLI::Formatter {
  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string usage = Formatter::make_usage(app, std::move(name));
    return usage.insert(usage.find_last_not_of('\n') + 1, " PROGRAM [ARGUMENTS]");
  }
};

void add_run(CLI::App& app, Chosen& chosen, job::RunOptions& options) {
  CLI::App* sub = app.add_subcommand("run", "Run a program as several processes, under MPI");
  sub->formatter(std::make_shared<RunFormatter>());
  sub->footer(
      "The first word that is not an option is the program; the rest are its arguments.\n"
      "Example: coshard run -n 4 build/examples/quickstart");
  const auto check_n = [](const std::string& text) {
    (void)parse_number("-n", text, 1, kMostRanks);
  };
  add_checked(*sub, "-n,--processes", options.ranks,
              "number of processes; default: as many as --hosts has, or one per core", check_n,
              str_cat("1 to ", kMostRanks))
      ->default_str("");
  sub->add_option("--hosts", options.hosts,
                  "hosts, with or without a number of processes each: h0,h1 or h0:2,h1:2");
  add_word(*sub, "--mpi", options.mpi, job::known_mpis(),
           joined(job::known_mpis()) +
               "; default: the first that is installed and that this build can use");
  cli::add_seconds(*sub, "--start-timeout", options.start_timeout,
                   "how long all processes may take to start; 0: no limit");
  cli::add_seconds(*sub, "--grace", options.grace,
                   "how long ranks have after SIGTERM, when another has failed");
  sub->add_flag("--no-prefix", options.no_prefix,
                "do not prefix lines of output with the process's number");
  sub->callback([&options, &chosen] {
    chosen = [&options] {
      CS_REQUIRE(!options.program.empty(), "run needs a program: coshard run -n 2 ./program");
      return job::run_job(options);
    };
  });
}

// How many words of `coshard run …` are its own options; the program follows them, and "--".
int own_words(const CLI::App& app, int argc, char** argv) {
  const CLI::App* sub = app.get_subcommand("run");
  int i = 2;
  for (; i < argc && argv[i][0] == '-' && argv[i] != std::string_view("--"); ++i) {
    const CLI::Option* option = sub->get_option_no_throw(argv[i]);
    if (option != nullptr && option->get_expected_max() > 0) ++i;
  }
  return std::min(i, argc);
}

// Takes the program out of the command line.
int take_program(const CLI::App& app, int argc, char** argv, std::vector<std::string>& program) {
  if (argc < 2 || argv[1] != std::string_view("run")) return argc;
  const int own = own_words(app, argc, argv);
  const bool dashes = own < argc && argv[own] == std::string_view("--");
  program.assign(argv + own + (dashes ? 1 : 0), argv + argc);
  return own;
}

// Options and output shared by all benches.
class Benches {
 public:
  Benches(CLI::App& app, Chosen& chosen)
      : bench_(*app.add_subcommand("bench",
                                   "Run a benchmark and compare the figures with their targets")),
        chosen_(chosen) {
    bench_.require_subcommand(1);
    bench_.footer("Example: coshard bench train --ranks 2 --json");
    train_.progress = [](const std::string& line) { std::cerr << line << std::endl; };
    gpu_.progress = train_.progress;
    redistribute_.mpi_program = mpi_program();
    add("dispatch", "Host time per task and per tensor operator", dispatch_, bench_dispatch);
    add("redistribute", "Collectives and redistributions from 4 KiB to 16 MiB", redistribute_,
        bench_redistribute);
    add("overlap",
        "Communication hidden by sibling tasks, linear layers, half-batches and backward, on an "
        "emulated link",
        overlap_, bench_overlap);
    add("checkpoint", "Save and cold load of a state, beside the disk itself", checkpoint_,
        bench_checkpoint);
    add("train", "One training step of a transformer", train_, bench_train);
    add("forecast", "What the simulator says of a training step, beside what it takes", forecast_,
        bench_forecast);
    add("processes", "Messages and CPU time of comparing collectives between processes", processes_,
        bench_announcements);
    add("gpu", "Llama block, attention, matmul, bandwidth and host time on one device", gpu_,
        bench_gpu);
  }

 private:
  template <class Options>
  void add(const char* name, const char* help, Options& options, Report (*run)(const Options&)) {
    CLI::App* sub = bench_.add_subcommand(name, help);
    sub->footer(str_cat("Example: coshard bench ", name, " --json"));
    sub->add_flag("--json", json_, "print a single JSON object");
    if constexpr (requires { options.peer; })
      sub->add_option("--peer", peer_,
                      "Python script that prints PyTorch's times as JSON; run under the same load")
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
  bench::RedistributeOptions redistribute_;
  OverlapOptions overlap_;
  bench::CheckpointOptions checkpoint_;
  bench::AnnouncementsOptions processes_;
  TrainOptions train_;
  ForecastOptions forecast_;
  GpuOptions gpu_;
};

int run_command(int argc, char** argv) {
  CLI::App app("Launcher, benchmarks, conformance tests and diagnostics of coshard", "coshard");
  app.footer("Example: coshard doctor");
  app.require_subcommand(1);
  Chosen chosen;
  const Benches benches(app, chosen);
  add_ckpt(app, chosen);
  add_conform(app, chosen);
  add_doctor(app, chosen);
  add_completion(app, chosen);
  add_plan(app, chosen);
  add_simulate(app, chosen);
  add_trace(app, chosen);
  job::RunOptions run;
  add_run(app, chosen, run);
  argc = take_program(app, argc, argv, run.program);
  const int code = parse(app, argc, argv) ? chosen() : 0;
  std::cout.flush();
  if (!std::cout) fail(ErrorKind::DeviceFailed, "could not write to stdout");
  return code;
}

}  // namespace

int command(int argc, char** argv) {
  try {
    if (argc > 2 && argv[1] == std::string_view(job::kGuardWord))
      return job::guard({argv + 2, argv + argc});
    return run_command(argc, argv);
  } catch (const Error& error) {
    std::cerr << str_cat("coshard: ", printable(text_of(std::current_exception())), '\n')
              << std::flush;
    return error.kind() == ErrorKind::BadInput ? 2 : 1;
  } catch (const std::exception& error) {
    std::cerr << str_cat("coshard: ", printable(text_of(std::current_exception())), '\n')
              << std::flush;
    return 1;
  }
}

}  // namespace coshard::tools
