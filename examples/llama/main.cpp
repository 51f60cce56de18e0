// Language models of Hugging Face folders: generate and chat, finetune. `llama COMMAND --help`.
#include <iostream>

#include "examples/llama/finetune.h"
#include "examples/llama/generate.h"
#include "runtime/launch/stop_signals.h"

namespace coshard::llama {
namespace {

int run_command(int argc, char** argv) {
  CLI::App app("Language models of Hugging Face folders, on any number of ranks.");
  app.require_subcommand(1);
  GenerateOptions asked;
  FinetuneOptions trained;
  CLI::App* const generating = app.add_subcommand("generate", "answers prompts");
  CLI::App* const chatting = app.add_subcommand("chat", "answers the lines of stdin");
  CLI::App* const training =
      app.add_subcommand("finetune", "trains a model, or LoRA adapters of it");
  add_generate(*generating, asked);
  add_chat(*chatting, asked);
  add_finetune(*training, trained);
  if (!cli::parse(app, argc, argv)) return 0;
  if (training->parsed()) {
    check_finetune(trained);
    const TokenFile tokens = tokens_of<Tokenizer>(trained);
    StepFigures figures;
    const StopSignals signals("llama");
    trained.stop = signals.token();
    run_ranks(trained, [&](World& world) { return finetune(world, trained, tokens, figures); });
    return 0;
  }
  const Speaker speaker(asked);
  run_ranks(asked, [&](World& world) {
    return chatting->parsed() ? chat(world, speaker) : generate(world, speaker);
  });
  return 0;
}

}  // namespace
}  // namespace coshard::llama

int main(int argc, char** argv) {
  try {
    return coshard::llama::run_command(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << std::string("llama: ") + error.what() + '\n' << std::flush;
    const auto* known = dynamic_cast<const coshard::Error*>(&error);
    return known != nullptr && known->kind() == coshard::ErrorKind::BadInput ? 2 : 1;
  }
}
