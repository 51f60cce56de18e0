#include "tools/ckpt/command_line.h"

#include <iostream>
#include <memory>

#include "tools/ckpt/ckpt.h"

namespace coshard::tools {
namespace {

struct Options {
  std::string path, other;
  bool json = false;
};

// A command on `path`; `run` returns the exit code.
CLI::App* add(CLI::App& ckpt, std::function<int()>& chosen, const char* name, const char* help,
              std::shared_ptr<Options> options, std::function<int(const Options&)> run) {
  CLI::App* sub = ckpt.add_subcommand(name, help);
  sub->add_flag("--json", options->json, "print a single JSON object");
  sub->callback([options, run, &chosen] { chosen = [options, run] { return run(*options); }; });
  return sub;
}

constexpr const char* kPath = "folder of a model, as of Hugging Face, or a safetensors file";

}  // namespace

void add_ckpt(CLI::App& app, std::function<int()>& chosen) {
  CLI::App* ckpt = app.add_subcommand("ckpt", "Look into the files of a model");
  ckpt->require_subcommand(1);
  ckpt->footer("Example: coshard ckpt ls models/smollm2");
  const auto options = std::make_shared<Options>();
  CLI::App* ls = add(*ckpt, chosen, "ls", "List tensors, their types, shapes and places", options,
                     [](const Options& o) {
                       list_tensors(o.path, o.json, std::cout);
                       return 0;
                     });
  CLI::App* verified =
      add(*ckpt, chosen, "verify", "Check that the files are whole; 1: they are not", options,
          [](const Options& o) { return verify(o.path, o.json, std::cout) ? 0 : 1; });
  for (CLI::App* sub : {ls, verified}) sub->add_option("PATH", options->path, kPath)->required();
  CLI::App* diff =
      add(*ckpt, chosen, "diff", "Compare names, shapes, types and values; 1: they differ", options,
          [](const Options& o) { return differ(o.path, o.other, o.json, std::cout) ? 1 : 0; });
  diff->add_option("A", options->path, kPath)->required();
  diff->add_option("B", options->other, kPath)->required();
}

}  // namespace coshard::tools
