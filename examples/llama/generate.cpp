#include "examples/llama/generate.h"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <limits>

#include "dtensor/checkpoint/strict_json.h"
#include "examples/llama/model_folder.h"
#include "profiling/json.h"
#include "profiling/output_file.h"
#include "tools/options.h"

namespace coshard::llama {
namespace {

using Clock = std::chrono::steady_clock;
using Ids = std::vector<std::int64_t>;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void add_common(CLI::App& app, GenerateOptions& o) {
  const std::string file = " [generation_config.json]";
  app.add_option("folder", o.folder, "a Hugging Face folder: config, tokenizer and model")
      ->required();
  app.add_option("--adapter", o.adapter, "a folder of PEFT: a LoRA adapter of the model");
  app.add_option("--system", o.system, "the system message of the conversation");
  app.add_option("--template", o.chat_template,
                 "chatml, llama3, mistral, gemma or none, for a folder whose own is not known");
  tools::add_word(app, "--dtype", o.dtype_name, {"f32", "bf16", "f16", "f64"},
                  "dtype of the parameters; default: the folder's");
  cli::add_texts(app, "--ignore", o.ignore, "keys of config.json that are left out");
  app.add_flag("--greedy", o.greedy, "always the most likely token");
  app.add_flag("--ignore-eos", o.ignore_eos, "goes on after a stop token, to --tokens");
  const auto add = [&app](const char* name, auto& value, auto lowest, auto highest,
                          const std::string& help) {
    cli::add_number(app, name, value, lowest, highest, help);
  };
  constexpr std::int64_t kMost = 1'000'000'000;
  add("--tokens", o.tokens, std::int64_t{1}, kMost, "at most as many new ones" + file);
  add("--temperature", o.temperature, 0.0, 1e6, "of the draw; 0: --greedy" + file);
  add("--top-k", o.top_k, std::int64_t{0}, kMost,
      "draw from the k most likely; 0: from all" + file);
  add("--top-p", o.top_p, 1e-9, 1.0, "and from the fewest that have p together" + file);
  add("--repetition-penalty", o.repetition_penalty, 1e-6, 1e6, "1: none" + file);
  add("--seed", o.seed, std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max(),
      "of the draws");
  cli::add_world_options(app, o);
}

// Error{BadInput}: options that do not fit together.
nn::GenerationOptions generation_of(const GenerateOptions& o) {
  nn::GenerationOptions of = nn::read_generation_config(o.folder);
  if (o.tokens) of.max_new_tokens = *o.tokens, of.max_length = 0;
  of.temperature = o.greedy ? 0 : o.temperature.value_or(of.temperature);
  of.top_k = o.top_k.value_or(of.top_k);
  of.top_p = o.top_p.value_or(of.top_p);
  of.repetition_penalty = o.repetition_penalty.value_or(of.repetition_penalty);
  of.seed = o.seed;
  if (o.ignore_eos) of.eos_token_ids.clear();
  CS_REQUIRE(!o.raw || o.system.empty(), "--raw with --system ", o.system, "; leave one out");
  CS_REQUIRE(!o.raw || o.chat_template.empty(), "--raw with --template ", o.chat_template,
             "; leave one out");
  CS_REQUIRE(!o.greedy || o.temperature.value_or(0) == 0, "--greedy with --temperature ",
             o.temperature.value_or(0), "; leave one out");
  CS_REQUIRE(of.temperature > 0 || (!o.top_k && !o.top_p),
             "--top-k and --top-p need a --temperature above 0");
  return of;
}

Task<std::shared_ptr<nn::LanguageModel>> opened(World& world, const GenerateOptions& o) {
  nn::OpenModelOptions how{.ignore = o.ignore};
  LoadOptions reading;
  if (!o.dtype_name.empty()) {
    how.dtype = parse_dtype(o.dtype_name);
    reading.cast = Cast::Any;
  }
  const auto model = nn::open_model(o.folder, world, how);
  model->train(false);
  if (!o.adapter.empty()) {  // before the plan, which cuts the adapters with their layers
    Task<LoadReport> adapting = load_adapter(*model, o.adapter, reading);
    co_await std::move(adapting);
  }
  if (world.size() > 1) {
    Task<void> cut =
        parallelize_module(*model, init_device_mesh(world, {world.size()}, {"tp"}), model->plan());
    co_await std::move(cut);
  }
  Task<LoadReport> loading = load(*model, o.folder, reading);
  co_await std::move(loading);
  co_return model;
}

// Error{BadInput}: more tokens than the model has positions.
void require_room(const nn::LanguageModel& model, const nn::Generator& generator, const Ids& prompt,
                  const char* remedy) {
  const auto size = static_cast<std::int64_t>(prompt.size());
  const std::int64_t most = model.longest_sequence(), tokens = generator.most_tokens(size);
  CS_REQUIRE(tokens >= 1, "a prompt of ", size, " tokens leaves none of max_length for new ones",
             "; give --tokens, or ", remedy);
  CS_REQUIRE(
      size <= most && tokens - 1 <= most - size, "a prompt of ", size, " tokens and --tokens ",
      tokens, " take more than the ", most, " positions of the model; give ",
      size > most ? std::string() : str_cat("--tokens ", most - size + 1, " or less, or "), remedy);
}

struct Answers {
  std::vector<Ids> ids;
  double prefill_s = 0, decode_s = 0;
  std::int64_t decoded = 0;  // tokens after the first of each
};

// Runs the model over the prompts, for which it takes the memory of all tokens.
Task<void> start(nn::Generator& generator, std::vector<Ids> prompts) {
  const auto longest = std::ranges::max(prompts, {}, &Ids::size).size();
  const std::int64_t tokens = generator.most_tokens(static_cast<std::int64_t>(longest));
  try {
    Task<void> starting = generator.start(std::move(prompts));
    co_await std::move(starting);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::DeviceFailed) throw;
    fail(error.kind(), str_cat(error.message(), "; --tokens ", tokens,
                               " sizes the cache, and fewer take less memory"));
  }
}

void tell_if_cut(const Speaker& speaker, const std::vector<Ids>& answers) {
  const std::vector<std::int64_t>& ends = speaker.generation.eos_token_ids;
  const auto is_cut = [&](const Ids& ids) {
    return !ids.empty() && std::ranges::find(ends, ids.back()) == ends.end();
  };
  const auto cut = std::ranges::find_if(answers, is_cut);
  if (!speaker.options.ignore_eos && cut != answers.end())
    std::cerr << str_cat("llama: stopped at --tokens ", cut->size(), "\n");
}

// Answers to prompts; the only one is printed by rank 0 as it grows.
Task<Answers> answers(World& world, const Speaker& speaker, nn::Generator& generator,
                      std::vector<Ids> prompts) {
  Answers made{std::vector<Ids>(prompts.size())};
  const bool streams = world.rank() == 0 && prompts.size() == 1;
  TextStream text(speaker.tokenizer, true);
  const Clock::time_point begin = Clock::now();
  Task<void> starting = start(generator, std::move(prompts));
  co_await std::move(starting);
  for (std::int64_t step = 0;; ++step) {
    Task<std::optional<std::span<const std::int64_t>>> next = generator.next();
    const auto tokens = co_await std::move(next);
    if (!tokens) break;
    if (step == 0) made.prefill_s = seconds_since(begin);
    for (std::size_t i = 0; i < made.ids.size(); ++i) {
      const std::int64_t token = (*tokens)[i];
      if (token == nn::Generator::kFinished) continue;
      made.ids[i].push_back(token);
      made.decoded += step > 0 ? 1 : 0;
      if (streams) std::cout << text.next(token) << std::flush;
    }
  }
  made.decode_s = seconds_since(begin) - made.prefill_s;
  if (streams) std::cout << text.rest() << std::endl;
  if (streams) tell_if_cut(speaker, made.ids);
  co_return made;
}

void write_json(const GenerateOptions& o, const Speaker& speaker, const std::vector<Ids>& prompts,
                const Answers& made, const nn::Generator& generator) {
  Json json{{"prompt_ids", prompts}, {"ids", made.ids}, {"texts", Json::array()}};
  for (const Ids& ids : made.ids) json["texts"].push_back(speaker.tokenizer.decode(ids, true));
  json["prefill_s"] = made.prefill_s;
  json["decode_s"] = made.decode_s;
  json["decoded"] = made.decoded;
  json["cache_bytes"] = generator.cache()->bytes();
  write_output("--json", o.json, [&](std::ostream& out) { out << json.dump(1) << '\n'; });
}

// A line of rank 0's stdin, on all ranks, which wait for it as long as it takes; nullopt: the end
// of the file. Rank 0 stays on its thread meanwhile, where nothing else is to do.
Task<std::optional<std::string>> shared_line(World& world) {
  const WaitLimit none(std::chrono::nanoseconds(0));
  std::string line;
  bool there = false;
  if (world.rank() == 0) {
    std::cout << "> " << std::flush;
    there = static_cast<bool>(std::getline(std::cin, line));
  }
  if (world.size() > 1) {
    const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
    const double length = there ? static_cast<double>(line.size()) : -1;
    const Tensor size = Tensor::from_values(world.device(), Shape{1}, DType::I64, {length});
    const auto everywhere = [&](const Tensor& x) {
      return to_local(distribute_tensor(x, mesh, Replicate())).to_vector();
    };
    const double count = everywhere(size)[0];
    there = count >= 0;
    std::vector<double> bytes(static_cast<std::size_t>(std::max(count, 0.0)));
    if (world.rank() == 0)
      for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(line[i]);
    if (!bytes.empty())
      bytes = everywhere(Tensor::from_values(
          world.device(), Shape{static_cast<std::int64_t>(bytes.size())}, DType::I64, bytes));
    line.clear();
    for (const double byte : bytes) line += static_cast<char>(static_cast<int>(byte));
  }
  if (!there) co_return std::nullopt;
  co_return line;
}

std::vector<Message> conversation(const GenerateOptions& o) {
  if (o.system.empty()) return {};
  return {{"system", o.system}};
}

}  // namespace

void add_generate(CLI::App& app, GenerateOptions& o) {
  add_common(app, o);
  cli::add_texts(app, "--prompt", o.prompts, "what is asked; several are answered as one batch")
      ->required();
  app.add_flag("--raw", o.raw, "goes on with the prompt, without a chat template");
  app.add_option("--json", o.json, "a file for ids, texts and figures");
}

void add_chat(CLI::App& app, GenerateOptions& o) { add_common(app, o); }

Speaker::Speaker(const GenerateOptions& o)
    : options(o), tokenizer(Tokenizer::open(model_folder(o.folder))), generation(generation_of(o)) {
  if (!o.adapter.empty()) require_adapter(o.adapter);
  const std::string config = o.folder + "/config.json";
  if (!o.json.empty()) require_writable("--json", o.json, "config.json of the model", config);
}

std::vector<std::int64_t> Speaker::ids_of(const std::vector<Message>& messages) const {
  if (options.raw) return tokenizer.encode(messages.back().content);
  for (const std::string& marker : chat_markers(options.folder, options.chat_template))
    CS_REQUIRE(tokenizer.encode(marker, false).size() == 1, options.folder,
               "/tokenizer.json: has no token '", shortened(marker),
               "', which the chat template writes; --template chooses another");
  return tokenizer.encode(chat_prompt(options.folder, options.chat_template, messages), false);
}

Task<void> generate(World& world, const Speaker& speaker) {
  const GenerateOptions& o = speaker.options;
  std::vector<Ids> prompts;
  for (const std::string& prompt : o.prompts) {
    std::vector<Message> messages = conversation(o);
    messages.push_back({"user", prompt});
    prompts.push_back(speaker.ids_of(messages));
  }
  Task<std::shared_ptr<nn::LanguageModel>> opening = opened(world, o);
  const std::shared_ptr<nn::LanguageModel> model = co_await std::move(opening);
  nn::Generator generator(*model, speaker.generation);
  for (const Ids& prompt : prompts) require_room(*model, generator, prompt, "a shorter prompt");
  Task<Answers> answering = answers(world, speaker, generator, prompts);
  const Answers made = co_await std::move(answering);
  if (world.rank() != 0) co_return;
  if (prompts.size() > 1)
    for (std::size_t i = 0; i < prompts.size(); ++i)
      std::cout << o.prompts[i] << "\n" << speaker.tokenizer.decode(made.ids[i], true) << "\n\n";
  if (prompts.size() > 1) tell_if_cut(speaker, made.ids);
  std::cerr << str_cat(
      "prefill ", made.prefill_s, " s, ", made.decoded, " tokens in ", made.decode_s,
      " s: ", static_cast<double>(made.decoded) / std::max(made.decode_s, 1e-9), " tokens/s\n");
  if (!o.json.empty()) write_json(o, speaker, prompts, made, generator);
}

Task<void> chat(World& world, const Speaker& speaker) {
  std::vector<Message> messages = conversation(speaker.options);
  messages.push_back({"user", "?"});
  (void)speaker.ids_of(messages);  // an error of --system or --template is one of every line
  messages.pop_back();
  Task<std::shared_ptr<nn::LanguageModel>> opening = opened(world, speaker.options);
  const std::shared_ptr<nn::LanguageModel> model = co_await std::move(opening);
  nn::Generator generator(*model, speaker.generation);
  for (;;) {
    Task<std::optional<std::string>> reading = shared_line(world);
    const std::optional<std::string> line = co_await std::move(reading);
    if (!line) co_return;
    if (line->empty()) continue;
    messages.push_back({"user", *line});
    try {
      const Ids prompt = speaker.ids_of(messages);
      require_room(*model, generator, prompt, "a shorter message, or begin a new chat");
      Task<Answers> answering = answers(world, speaker, generator, {prompt});
      const Answers made = co_await std::move(answering);
      messages.push_back({"assistant", speaker.tokenizer.decode(made.ids[0], true)});
    } catch (const Error& error) {  // that of all ranks, before they generate
      if (error.kind() != ErrorKind::BadInput) throw;
      messages.pop_back();
      if (world.rank() == 0)
        std::cerr << str_cat("llama: ", error.what(), "; this message is left out\n");
    }
  }
}

}  // namespace coshard::llama
