#include "tools/simulate/command_line.h"

#include <iostream>
#include <memory>

#include "tools/options.h"
#include "tools/simulate/models.h"
#include "tools/simulate/simulate.h"

namespace coshard::tools {

namespace {

constexpr std::int64_t kMost = 1'000'000'000;

void add_machine(CLI::App& sub, SimulateOptions& o) {
  sub.add_option("--gpu", o.gpu, listed(gpu_presets()) + " or a JSON file")
      ->type_name(choice_of(gpu_presets()))
      ->capture_default_str();
  sub.add_option("--link", o.link,
                 listed(link_presets()) +
                     ", 20us,365GB/s or a JSON file; one for all dimensions or one each: "
                     "tp=nvlink4,dp=ndr; default: the GPU's own, and ndr between nodes");
  add_number(sub, "--gpus-per-node", o.gpus_per_node, 1, 1'000'000, "GPUs per node");
}

}  // namespace

void add_simulate(CLI::App& app, std::function<int()>& chosen) {
  CLI::App* sub = app.add_subcommand(
      "simulate", "Forecast time and memory of a training step on GPUs that need not exist");
  sub->footer(
      "Example: coshard simulate --model llama-70b --mesh dp=32,tp=8 --gpu b200 --recompute layers "
      "--trace step.json");
  const auto o = std::make_shared<SimulateOptions>();
  sub->add_option("--model", o->model, listed(model_presets()) + " or a model's config.json")
      ->type_name(choice_of(model_presets()))
      ->required();
  sub->add_option("--mesh", o->mesh, "ranks: dp=32,tp=8");
  add_machine(*sub, *o);
  add_number<std::int64_t, std::int64_t>(
      *sub, "--batch", o->batch, 0, kMost,
      "sequences per step of all ranks; 0: one per rank of dp, and with "
      "--search one per GPU");
  add_number<std::int64_t, std::int64_t>(*sub, "--seq", o->seq, 1, kMost, "tokens per sequence");
  const CLI::Option* plan =
      add_word(*sub, "--plan", o->plan, {"tp", "tp-sp"},
               "tensor parallelism, or tp-sp: with sequence parallelism as well");
  add_word(*sub, "--overlap", o->overlap, {"off", "auto", "always"},
           "overlap linear layers with the collectives around them, and backward with the sums of "
           "gradients over dp");
  add_number(
      *sub, "--weave", o->weave, 1, 1'000'000,
      "interleaved parts of a rank's sequences: one computes while another's collectives are in "
      "flight");
  const CLI::Option* recompute =
      add_word(*sub, "--recompute", o->recompute, recompute_policies(),
               "save all activations, or recompute each layer in backward");
  sub->add_option("--trace", o->trace, "write a Chrome trace in virtual time to this file");
  sub->add_flag("--json", o->json, "print a JSON object; with --search, an array of them");
  sub->add_flag("--search", o->search,
                "try the meshes, plans and recompute policies of --gpus, without those that --link "
                "does not join, and print the ten best");
  add_number(
      *sub, "--gpus", o->gpus, 0, 1'000'000,
      "number of GPUs for --search; with --mesh, it must equal the number of ranks in the mesh");
  sub->callback([o, plan, recompute, &chosen] {
    for (const CLI::Option* tried : {plan, recompute})
      CS_REQUIRE(!o->search || tried->count() == 0, "--search tries each ", tried->get_name(),
                 ": leave it out");
    chosen = [o] {
      simulate_training(*o, std::cout);
      return 0;
    };
  });
}

}  // namespace coshard::tools
