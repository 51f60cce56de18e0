#include "tools/ckpt/command_line.h"

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string_view>

#include "tools/ckpt/ckpt.h"
#include "tools/ckpt/convert.h"
#include "tools/ckpt/merge.h"

namespace coshard::tools {
namespace {

struct Options {
  std::string path, other, adapter;
  ConvertOptions convert;
  bool json = false;
};

// A command on `path`; `run` returns the exit code.
CLI::App* add(CLI::App& ckpt, std::function<int()>& chosen, const char* name, const char* help,
              std::shared_ptr<Options> options, std::function<int(const Options&)> run) {
  const std::string_view rest =
      name == std::string_view("merge") ? " adapter models/merged"
      : name == std::string_view("diff") || name == std::string_view("convert")
          ? " models/smollm2-b"
          : "";
  CLI::App* sub = ckpt.add_subcommand(name, help);
  sub->footer(str_cat("Example: coshard ckpt ", name, " models/smollm2", rest));
  sub->add_flag("--json", options->json, "print a single JSON object");
  sub->callback([options, run, &chosen] { chosen = [options, run] { return run(*options); }; });
  return sub;
}

// Where convert and merge write, and how.
void add_output(CLI::App& sub, const char* name, std::shared_ptr<Options> options) {
  sub.add_option(name, options->other, "the new folder")->required();
  sub.add_option_function<std::string>(
         "--dtype",
         [options](const std::string& text) { options->convert.dtype = parse_dtype(text); },
         "of floating-point tensors; default: their own")
      ->check(
          [](const std::string& text) {
            constexpr std::string_view kFloats[] = {"f32", "f64", "bf16", "f16"};
            CS_REQUIRE(std::ranges::find(kFloats, text) != std::end(kFloats), "--dtype ", text,
                       " is none of f32, f64, bf16, f16");
            return std::string();
          },
          "f32, f64, bf16 or f16");
  cli::add_number(sub, "--file-bytes", options->convert.file_bytes, std::int64_t{1},
                  std::int64_t{1} << 62, "of tensors per file, at most; a larger one is alone");
  sub.add_flag("--overwrite", options->convert.overwrite,
               str_cat("replace ", name, " if it is there"));
}

constexpr const char* kPath = "folder of a model, as of Hugging Face, or a safetensors file";

}  // namespace

void add_ckpt(CLI::App& app, std::function<int()>& chosen) {
  CLI::App* ckpt = app.add_subcommand("ckpt", "Look into the files of a model, or convert them");
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
  CLI::App* converted =
      add(*ckpt, chosen, "convert", "Write a model in another dtype, or in files of other sizes",
          options, [](const Options& o) {
            convert(o.path, o.other, o.convert, o.json, std::cout);
            return 0;
          });
  converted
      ->add_option("FROM", options->path, "folder of a model, a safetensors file, or one of GGUF")
      ->required();
  add_output(*converted, "TO", options);
  CLI::App* merged = add(*ckpt, chosen, "merge", "Add a LoRA adapter of PEFT to its model", options,
                         [](const Options& o) {
                           merge(o.path, o.adapter, o.other, o.convert, o.json, std::cout);
                           return 0;
                         });
  merged->add_option("BASE", options->path, kPath)->required();
  merged->add_option("ADAPTER", options->adapter, "folder of the adapter")->required();
  add_output(*merged, "OUT", options);
}

}  // namespace coshard::tools
