#include "tools/plan_command_line.h"

#include <iostream>
#include <memory>
#include <set>
#include <vector>

#include <coshard/runtime/launch/command_line.h>
#include "tools/options.h"
#include "tools/plan.h"
#include "tools/plan_modules.h"
#include "tools/simulate/links.h"
#include "tools/training_options.h"

namespace coshard::tools {
namespace {

// The subject of `plan explain`: a redistribution or, with --module, a model's linear layers.
struct Explained {
  PlanOptions steps;
  PlanModulesOptions modules;
  CLI::Option *from = nullptr, *to = nullptr, *module = nullptr;
  CLI::Option *shape = nullptr, *device = nullptr, *threads = nullptr;
  std::vector<CLI::Option*> of_modules;  // which have no effect without --module

  void check() {
    const bool modules_asked = module->count() > 0;
    for (const CLI::Option* each : {from, to, shape})
      CS_REQUIRE(!modules_asked || each->count() == 0, each->get_name(),
                 " cannot be combined with --module");
    for (const CLI::Option* each : of_modules)
      CS_REQUIRE(modules_asked || each->count() == 0, each->get_name(), " needs --module");
    CS_REQUIRE(threads->count() == 0 || modules.device == "cpu", "--threads ", modules.threads,
               " needs --device cpu, got --device ", modules.device);
    std::set<std::string> dims;
    for (const std::string& link : steps.links) {
      const std::size_t equals = link.find('=');
      const std::string dim = equals == std::string::npos ? "" : link.substr(0, equals);
      CS_REQUIRE(dims.insert(dim).second, "--link ", link, ": that of ",
                 dim.empty() ? "all dimensions" : dim, " is given twice");
    }
    for (const CLI::Option* each : {device, threads})
      if (each->count() > 0)
        modules.machine += str_cat(modules.machine.empty() ? "" : " ", each->get_name(), ' ',
                                   each->results().back());
  }
  int run() {
    std::vector<std::string> links;
    for (const std::string& text : steps.links)
      for (std::string& link : split_links(text)) links.push_back(std::move(link));
    steps.links = std::move(links);
    check();
    modules.mesh = steps.mesh, modules.links = steps.links;
    modules.dtype = steps.dtype, modules.json = steps.json;
    if (module->count() > 0) {
      explain_modules(modules, std::cout);
      return 0;
    }
    for (const CLI::Option* each : {from, to})
      CS_REQUIRE(each->count() > 0, each->get_name(), " is required, or --module");
    explain_plan(steps, std::cout);
    return 0;
  }
};

void add_modules(CLI::App& app, Explained& explained) {
  PlanModulesOptions& o = explained.modules;
  const auto keep = [&explained](CLI::Option* option) {
    explained.of_modules.push_back(option);
    return option;
  };
  const auto add = [&](const char* name, int& value, const char* help, int most = kMostOfAShape) {
    keep(add_number(app, name, value, 1, most, help));
  };
  explained.module =
      app.add_option(
             "--module", o.module,
             "show the forecast schedule of each linear layer of a transformer, or of those "
             "below a module: layers.*.mlp")
          ->expected(0, 1);
  keep(add_word(app, "--plan", o.plan, {"tp", "tp-sp"},
                "with --module: tensor parallelism, or tp-sp: with sequence parallelism as well"));
  keep(app.add_option("--calibration", o.calibration,
                      "with --module: a file that calibrate() has written; of several mesh "
                      "dimensions the one that --mesh names"));
  explained.device = keep(add_word(app, "--device", o.device, {"cpu", "cuda"},
                                   "with --module: the device that computes"));
  keep(add_word(app, "--communicator", o.communicator, {"local", "nccl"},
                "with --module: what moves the data; on nccl each shard of an all_gather takes a "
                "round of its own"));
  explained.threads = keep(add_number(app, "--threads", o.threads, 1, kMostThreads,
                                      "with --module: compute threads per rank of a CPU"));
  add("--layers", o.layers, "with --module: transformer blocks", kMostLayers);
  add("--dim", o.dim, "with --module: model width");
  add("--heads", o.heads, "with --module: attention heads");
  add("--ffn", o.ffn, "with --module: hidden width of the MLP");
  add("--vocab", o.vocab, "with --module: vocabulary size");
  add("--seq", o.seq, "with --module: sequence length");
  add("--batch", o.batch, "with --module: sequences per step");
}

}  // namespace

void add_plan(CLI::App& app, std::function<int()>& chosen) {
  CLI::App* plan = app.add_subcommand("plan", "Inspect redistribution plans and schedules");
  plan->require_subcommand(1);
  plan->footer(
      "Example: coshard plan explain --mesh dp=2,tp=4 --shape 8,16 --from 'S(0),R' --to 'R,S(1)'\n"
      "         coshard plan explain --module --mesh tp=4 --plan tp-sp --link 20us,1GB/s");
  CLI::App* sub = plan->add_subcommand(
      "explain",
      "Show the steps, bytes and predicted time of a redistribution, or what the linear "
      "layers of a model overlap with");
  const auto explained = std::make_shared<Explained>();
  PlanOptions& options = explained->steps;
  sub->add_option("--mesh", options.mesh, "mesh dimensions, named or not: dp=2,tp=4 or 2,4")
      ->required();
  explained->shape =
      sub->add_option("--shape", options.shape, "tensor shape, e.g. 8,16; empty for a scalar")
          ->expected(0, 1);
  explained->from = sub->add_option("--from", options.from,
                                    "source layout, one placement per mesh dimension: S(0),R");
  explained->to = sub->add_option("--to", options.to, "target layout: R,S(1)");
  add_word(*sub, "--dtype", options.dtype, {"f32", "f64", "bf16", "f16", "i64", "i32", "bool"},
           "tensor dtype");
  sub->add_option(
      "--link", options.links,
      "link latency and bandwidth: 20us,1GB/s for all mesh dimensions, or of those that are "
      "named: dp=20us,1GB/s,tp=1us,10GB/s");
  sub->add_flag("--json", options.json, "print a single JSON object");
  add_modules(*sub, *explained);
  sub->callback([explained, &chosen] { chosen = [explained] { return explained->run(); }; });
}

}  // namespace coshard::tools
