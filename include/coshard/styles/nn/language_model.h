#pragma once
// LanguageModel: what models of Hugging Face folders have in common (open_model). Owned by the
// user; rank's thread.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <coshard/styles/parallelize.h>

#pragma GCC visibility push(default)
namespace coshard {
namespace nn {

// forward: ids i64 [batch, seq] -> logits [batch, seq, vocab_size].
class LanguageModel : public Module {
 public:
  // Of the folder that open_model read it from, and written beside the model: tokenizer.json,
  // generation_config.json and what belongs to them, by name.
  std::map<std::string, std::string> tokenizer_files;
  // The absolute path of that folder, for save_adapter; "": the model was made otherwise.
  std::string folder;
  // The texts above, and config.json.
  std::map<std::string, std::string> folder_files() const override {
    std::map<std::string, std::string> files = tokenizer_files;
    files["config.json"] = config_json();
    return files;
  }
  // The text of its config.json. Error{BadInput}: as config_text.
  virtual std::string config_json() const = 0;

  // The layers, of which each is a unit for fully_shard.
  virtual std::vector<std::shared_ptr<Module>> blocks() const = 0;
  // The tensor-parallel plan; logits are a DTensor sharded along the classes. sequence_parallel:
  // between the blocks activations are sharded along the sequence.
  virtual ParallelPlan plan(bool sequence_parallel = false) const = 0;

  virtual std::int64_t vocab_size() const = 0;
  // The positions that it has; a model with rotary ones has them all.
  virtual std::int64_t longest_sequence() const { return INT64_MAX; }
};

}  // namespace nn
}  // namespace coshard
#pragma GCC visibility pop
