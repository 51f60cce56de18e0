#include <filesystem>
#include <fstream>

#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

struct Folder {
  Folder()
      : path(std::filesystem::temp_directory_path() / ("generation-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  void write(const char* name, const std::string& text) const {
    std::ofstream(path / name) << text;
  }
  std::filesystem::path path;
};

nn::GenerationOptions read(const std::string& text) {
  const Folder folder;
  folder.write("generation_config.json", text);
  return nn::read_generation_config(folder.path.string());
}

TEST(GenerationConfig, ReadsWhatTransformersWrites) {
  const nn::GenerationOptions drawn = read(
      R"({"_from_model_config": true, "bos_token_id": 1, "eos_token_id": [2, 7], "do_sample": true,
          "temperature": 0.6, "top_p": 0.9, "max_new_tokens": 33, "repetition_penalty": 1.1,
          "num_beams": 1, "output_scores": false, "transformers_version": "4.57.0"})");
  EXPECT_EQ(drawn.eos_token_ids, (std::vector<std::int64_t>{2, 7}));
  EXPECT_EQ(drawn.temperature, 0.6);
  EXPECT_EQ(drawn.top_k, 50);
  EXPECT_EQ(drawn.top_p, 0.9);
  EXPECT_EQ(drawn.max_new_tokens, 33);
  EXPECT_EQ(drawn.repetition_penalty, 1.1);
  const nn::GenerationOptions greedy = read(R"({"eos_token_id": 2, "temperature": 0.6})");
  EXPECT_EQ(greedy.eos_token_ids, (std::vector<std::int64_t>{2}));
  EXPECT_EQ(greedy.temperature, 0);
}

TEST(GenerationConfig, RefusesWhatItCannotDoByName) {
  const std::pair<const char*, const char*> bad[] = {
      {R"({"num_beams": 4})", "num_beams"},
      {R"({"typical_p": 0.5})", "typical_p"},
      {R"({"min_p": 0.1})", "min_p"},
      {R"({"penalty_alpha": 0.6})", "penalty_alpha"},
      {R"({"do_sample": true, "temperature": 0})", "temperature"},
      {R"({"do_sample": true, "top_p": 1.5})", "top_p"},
      {R"({"do_sample": 1})", "do_sample"},
      {R"({"top_k": -1})", "top_k"},
      {R"({"eos_token_id": "</s>"})", "eos_token_id"},
      {R"({"eos_token_id": [2, -1]})", "eos_token_id"},
      {R"({"bad_words_ids": [[3]]})", "bad_words_ids"},
      {R"({"repetition_penalty": 0})", "repetition_penalty"},
      {R"({"max_new_tokens": 2.5})", "max_new_tokens"},
      {R"({"max_length": 0})", "max_length"},
  };
  for (const auto& [text, key] : bad) {
    const std::string error = error_of([text = text] { read(text); });
    EXPECT_CONTAINS(error, key);
    EXPECT_CONTAINS(error, "generation_config.json");
  }
}

TEST(GenerationConfig, NullAndNeutralValuesAreAsIfAbsent) {
  const nn::GenerationOptions options = read(
      R"({"eos_token_id": null, "temperature": null, "top_p": null, "do_sample": null,
          "max_new_tokens": null, "num_beams": null, "min_p": 0.0, "suppress_tokens": [],
          "min_new_tokens": 0, "watermarking_config": null, "sequence_bias": {},
          "disable_compile": true, "num_assistant_tokens": 20})");
  EXPECT_TRUE(options.eos_token_ids.empty());
  EXPECT_EQ(options.temperature, 0);
  EXPECT_EQ(options.max_new_tokens, 20);
}

TEST(GenerationConfig, MaxLengthCountsUnlessNewTokensDo) {
  EXPECT_EQ(read(R"({"max_length": 64})").max_length, 64);
  EXPECT_EQ(read(R"({"max_length": 64, "max_new_tokens": 5})").max_length, 0);
  EXPECT_EQ(read(R"({"max_length": 64, "max_new_tokens": 5})").max_new_tokens, 5);
  EXPECT_EQ(read(R"({"max_length": 20})").max_length, 0);  // the default of transformers
  EXPECT_EQ(read(R"({"max_length": 20})").max_new_tokens, 20);
}

TEST(GenerationConfig, WithoutTheFileTakesKeysOfTheModel) {
  const Folder folder;
  folder.write("config.json", R"({"model_type": "llama", "eos_token_id": 3, "hidden_size": 4,
      "repetition_penalty": 1.5, "num_beams": 1, "top_k": null})");
  const nn::GenerationOptions options = nn::read_generation_config(folder.path.string());
  EXPECT_EQ(options.eos_token_ids, (std::vector<std::int64_t>{3}));
  EXPECT_EQ(options.repetition_penalty, 1.5);
  EXPECT_EQ(options.temperature, 0);
  folder.write("config.json", R"({"model_type": "llama", "eos_token_id": null})");
  EXPECT_TRUE(nn::read_generation_config(folder.path.string()).eos_token_ids.empty());
  folder.write("config.json", R"({"model_type": "llama", "num_beams": 2})");
  EXPECT_CONTAINS(error_of([&] { nn::read_generation_config(folder.path.string()); }), "num_beams");
}

}  // namespace
}  // namespace coshard::testing
