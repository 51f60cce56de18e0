// The `coshard` command. It only reads the command line; what it runs lies in profiling/bench,
// tools/conform and tools/plan.
#include <CLI/CLI.hpp>
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>

#include "profiling/bench/benches.h"
#include "runtime/error.h"
#include "tools/conform/conform.h"
#include "tools/plan.h"

namespace {

using namespace coshard::bench;

// Built beside this program when meson found MPI.
std::string mpi_program() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto program = self.parent_path() / "mpi_all_reduce";
  return !error && std::filesystem::exists(program, error) ? program.string() : "";
}

void add_train_options(CLI::App& app, TrainOptions& o) {
  const auto add = [&app](const char* name, auto& value, const char* help) {
    app.add_option(name, value, help)->capture_default_str();
  };
  add("--ranks", o.ranks, "ranks; 0: 1 and 2 ranks, both plans, batch 8 and 2");
  add("--threads", o.threads, "threads per rank");
  add("--dim", o.dim, "width");
  add("--heads", o.heads, "heads");
  add("--layers", o.layers, "blocks");
  add("--ffn", o.ffn, "width of the MLP");
  add("--seq", o.seq, "tokens per sequence");
  add("--batch", o.batch, "sequences per step");
  add("--steps", o.steps, "measured steps per round");
  add("--rounds", o.rounds, "rounds; the median counts");
  add("--plan", o.plan, "tp or tp-sp");
  add("--dtype", o.dtype, "f32, bf16 or f64");
}

int show(const Report& report, bool json) {
  if (json) {
    std::cout << report.json();
  } else {
    report.print_table(std::cout);
  }
  return 0;
}

void add_plan(CLI::App& app, std::function<int()>& chosen) {
  CLI::App* plan = app.add_subcommand("plan", "looks at plans of redistribution");
  plan->require_subcommand(1);
  CLI::App* sub = plan->add_subcommand("explain", "steps, bytes and predicted time of a plan");
  const auto options = std::make_shared<coshard::tools::PlanOptions>();
  sub->add_option("--mesh", options->mesh, "sizes, with names or without: dp=2,tp=4")->required();
  sub->add_option("--shape", options->shape, "of the tensor: 8,16; nothing: a scalar");
  sub->add_option("--from", options->from, "one placement per mesh dimension: S(0),R")->required();
  sub->add_option("--to", options->to, "the same: R,S(1)")->required();
  sub->add_option("--dtype", options->dtype, "of the tensor")->capture_default_str();
  sub->add_flag("--json", options->json, "print one JSON object");
  sub->callback([options, &chosen] {
    chosen = [options] {
      coshard::tools::explain_plan(*options, std::cout);
      return 0;
    };
  });
}

void add_conform(CLI::App& app, std::function<int()>& chosen) {
  CLI::App* sub = app.add_subcommand("conform", "runs every conformance case of a directory");
  const auto directory = std::make_shared<std::string>(), only = std::make_shared<std::string>();
  sub->add_option("DIR", *directory, "*.json with *.safetensors beside them")->required();
  sub->add_option("--only", *only, "cases whose name contains this");
  sub->callback([directory, only, &chosen] {
    chosen = [directory, only] {
      const auto tally = coshard::conform::run_directory(*directory, *only, std::cout);
      return tally.failed == 0 ? 0 : 1;
    };
  });
}

int run_command(int argc, char** argv) {
  CLI::App app("coshard: measures and proves the library on this machine", "coshard");
  app.footer("Example: coshard bench train --json --peer bench_pytorch.py");
  app.require_subcommand(1);
  CLI::App* bench = app.add_subcommand("bench", "runs a bench and compares with its targets");
  bench->require_subcommand(1);
  bool json = false;
  std::string peer;
  std::function<int()> chosen;
  const auto add_bench = [&](const char* name, const char* help) {
    CLI::App* sub = bench->add_subcommand(name, help);
    sub->add_flag("--json", json, "print one JSON object");
    sub->add_option("--peer", peer, "bench_pytorch.py, to be run beside it with python3");
    return sub;
  };
  DispatchOptions dispatch;
  CLI::App* sub = add_bench("dispatch", "host cost of tasks and of tensor operations");
  sub->add_option("--ranks", dispatch.ranks, "ranks")->capture_default_str();
  sub->callback([&] {
    dispatch.peer = peer;
    chosen = [&] { return show(bench_dispatch(dispatch), json); };
  });
  RedistributeOptions redistribute;
  redistribute.mpi_program = mpi_program();
  sub = add_bench("redistribute", "collectives and redistributes of 4 KiB to 16 MiB");
  sub->add_option("--ranks", redistribute.ranks, "ranks")->capture_default_str();
  sub->callback([&] {
    redistribute.peer = peer;
    chosen = [&] { return show(bench_redistribute(redistribute), json); };
  });
  TrainOptions train;
  train.progress = [](const std::string& line) { std::cerr << line << std::endl; };
  sub = add_bench("train", "a training step of the Transformer");
  add_train_options(*sub, train);
  sub->callback([&] {
    train.peer = peer;
    chosen = [&] { return show(bench_train(train), json); };
  });
  add_conform(app, chosen);
  add_plan(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    coshard::fail(coshard::ErrorKind::BadInput, error.what());
  }
  return chosen();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run_command(argc, argv);
  } catch (const coshard::Error& error) {
    std::cerr << "coshard: " << error.what() << std::endl;
    return error.kind() == coshard::ErrorKind::BadInput ? 2 : 1;
  } catch (const std::exception& error) {
    std::cerr << "coshard: " << error.what() << std::endl;
    return 1;
  }
}
