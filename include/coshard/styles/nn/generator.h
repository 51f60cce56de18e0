#pragma once
// Generator: text from a language model, token by token, with a KV cache. Owned by the user; rank's
// thread.
#include <optional>
#include <span>
#include <string>

#include <coshard/runtime/coro/task.h>
#include <coshard/styles/module.h>
#include <coshard/styles/nn/kv_cache.h>

#pragma GCC visibility push(default)
namespace coshard {
namespace nn {

// Applied in this order, as transformers does: repetition_penalty, temperature, top_k, top_p.
struct GenerationOptions {
  std::int64_t max_new_tokens = 20;
  std::int64_t max_length = 0;  // of the longest prompt of a batch and its text; 0: no limit
  double temperature = 0;       // 0: greedy, the most likely token, of equal ones the first
  std::int64_t top_k = 0;       // draw from the k most likely tokens; 0: from all
  double top_p = 1;             // and from the fewest that have this probability together
  // Divides positive logits of tokens that the prompt or the text has, and multiplies negative ones.
  double repetition_penalty = 1;
  std::vector<std::int64_t> eos_token_ids{};  // after one of these, a row is finished
  // Draws depend on the seed, the prompt's number, the step and the token, not on ranks or batches.
  std::uint64_t seed = 0;
  std::int64_t cache_capacity = 0;  // slots of the KV cache; 0: what the prompts need
};

// generation_config.json of `folder`, in the keys of transformers; without the file, the same keys
// of config.json. do_sample false is temperature 0, and max_new_tokens stands above max_length.
// Error{BadInput}: keys with an effect that are not supported (num_beams, typical_p, …), by name and
// value.
GenerationOptions read_generation_config(const std::string& folder);

// One batch of prompts after the other. The model's forward takes ids i64 [batch, seq] and returns
// logits [batch, 1, vocab] under Sequences::last_logits_only: CausalLM, GPT2 and Transformer do. Its
// parameters may be sharded by any plan; all ranks give the same prompts and get the same tokens.
// Logits that are sharded along the vocabulary stay so:
//   Moves: per step what the model's forward moves, and 8 bytes per prompt by all_reduce; with top_k
//          or top_p, instead an all_gather of the candidates of each rank.
//   Memory: the cache (KvCache) is allocated by the first batch, and used again while prompts fit.
class Generator {
 public:
  // Error{BadInput}: options outside their ranges.
  Generator(Module& model, GenerationOptions options);

  // Runs the prompts, of any lengths, through the model. first_number: of the first prompt, for draws.
  // Error{BadInput}: no prompt, or an empty one; a token that the model does not have; prompts with
  // max_new_tokens for which the cache or the model has no positions.
  Task<void> start(std::vector<std::vector<std::int64_t>> prompts, std::int64_t first_number = 0);
  // The next token of each prompt, kFinished for those that ended before; valid until the next call.
  // nullopt: all are finished, or max_new_tokens were generated.
  Task<std::optional<std::span<const std::int64_t>>> next();
  static constexpr std::int64_t kFinished = -1;

  // After prompts of which the longest has `longest` tokens; below 1: max_length leaves none.
  std::int64_t most_tokens(std::int64_t longest) const;
  const KvCache* cache() const { return cache_ ? &*cache_ : nullptr; }

 private:
  struct Row {
    std::int64_t padding;  // columns before its prompt
    bool finished = false;
    std::vector<std::int64_t> seen{};  // tokens of prompt and text, sorted
  };
  void check(const std::vector<std::vector<std::int64_t>>& prompts) const;
  Task<void> feed(std::int64_t seq);
  Task<void> choose();
  Task<void> most_likely_of_all();
  Task<void> drawn_of_candidates();
  void take(Row& row, std::int64_t token);

  Module& model_;
  std::shared_ptr<Device> device_;                               // the model's
  std::int64_t vocabulary_ = INT32_MAX, positions_ = INT64_MAX;  // of a LanguageModel
  GenerationOptions options_;
  std::optional<KvCache> cache_;
  std::vector<Row> rows_;
  std::vector<std::int64_t> tokens_;   // of this step
  std::vector<std::int64_t> chosen_;   // with their logits (sampling.h)
  std::vector<std::int64_t> columns_;  // of a forward: positions, first and last keys
  std::int64_t first_number_ = 0, step_ = 0, steps_ = 0;  // steps_: at most
  Tensor logits_;
  std::vector<float> read_;  // this rank's part of them, [batch, vocabulary of this rank]
};

}  // namespace nn
}  // namespace coshard
#pragma GCC visibility pop
