#include <coshard/styles/nn/generator.h>

#include <algorithm>
#include <cmath>

#include <coshard/dtensor/ops/from_local.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/styles/nn/language_model.h>
#include "styles/nn/sampling.h"

namespace coshard::nn {
namespace {

constexpr std::size_t kFirstCandidates = 64;
constexpr std::int64_t kMost = INT32_MAX;

void check_options(const GenerationOptions& o) {
  CS_REQUIRE(o.max_new_tokens >= 1 && o.max_new_tokens <= kMost, "Generator: max_new_tokens ",
             o.max_new_tokens, " is not in [1, ", kMost, "]");
  CS_REQUIRE(o.max_length >= 0 && o.max_length <= kMost, "Generator: max_length ", o.max_length,
             " is not in [0, ", kMost, "]; 0 is no limit");
  CS_REQUIRE(o.temperature >= 0 && o.temperature <= 1e6, "Generator: temperature ", o.temperature,
             " is not in [0, 1e6]; 0 takes the most likely token");
  CS_REQUIRE(o.top_k >= 0, "Generator: top_k ", o.top_k, " is negative; 0 draws from all tokens");
  CS_REQUIRE(o.top_p > 0 && o.top_p <= 1, "Generator: top_p ", o.top_p, " is not in (0, 1]");
  CS_REQUIRE(o.repetition_penalty > 0, "Generator: repetition_penalty ", o.repetition_penalty,
             " is not positive; 1 does nothing");
  CS_REQUIRE(o.cache_capacity >= 0 && o.cache_capacity <= kMost, "Generator: cache_capacity ",
             o.cache_capacity, " is not in [0, ", kMost, "]");
}

// The device of a model: that of its first parameter.
std::shared_ptr<Device> device_of(Module& model) {
  const std::vector<NamedParameter> parameters = model.named_parameters();
  CS_REQUIRE(!parameters.empty(), "Generator: a model without parameters");
  return parameters.front().slot->device();
}

// The mesh dimensions that shard the vocabulary of logits [batch, 1, vocab]; nothing else may.
std::vector<bool> vocabulary_dims(const Tensor& logits) {
  std::vector<bool> dims;
  if (!logits.is_distributed()) return dims;
  for (int m = 0; m < logits.layout().ndim(); ++m) {
    const Placement placement = logits.layout()[m];
    CS_REQUIRE(placement == Replicate() || placement.is_shard(2), "Generator: logits ", logits,
               " are neither whole on each rank nor sharded along the vocabulary");
    dims.push_back(placement.is_shard(2));
  }
  return dims;
}

// `along` where a mesh dimension shards the vocabulary.
Layout layout_with(const std::vector<bool>& dims, Placement along) {
  Layout layout = Layout::filled(static_cast<int>(dims.size()), Replicate());
  for (std::size_t m = 0; m < dims.size(); ++m)
    if (dims[m]) layout[static_cast<int>(m)] = along;
  return layout;
}

Tensor uploaded(const std::shared_ptr<Device>& device, const Shape& shape,
                std::span<const std::int64_t> values) {
  const Tensor x = Tensor::empty(device, shape, DType::I64);
  device->upload(x.data(), values.data(), values.size_bytes());
  return x;
}

void download(const Tensor& x, void* to) {
  const Tensor dense = contiguous(x);
  const auto bytes = static_cast<std::size_t>(dense.local_numel()) * size_of(dense.dtype());
  if (bytes > 0) dense.device()->download(to, dense.const_data(), bytes);
}

// x of each rank, joined by `along` over the ranks that share the vocabulary of `logits`.
Task<Tensor> joined(Tensor x, Tensor logits, Placement along) {
  const std::vector<bool> dims = vocabulary_dims(logits);
  if (std::ranges::find(dims, true) == dims.end()) co_return x;
  const DTensor parts = from_local(x, logits.mesh(), layout_with(dims, along));
  const Redistribution all = redistribute(parts, layout_with(dims, Replicate()));
  const Tensor whole = co_await all;
  co_return to_local(whole);
}

}  // namespace

Generator::Generator(Module& model, GenerationOptions options)
    : model_(model), device_(device_of(model)), options_(std::move(options)) {
  check_options(options_);
  if (const auto* known = dynamic_cast<const LanguageModel*>(&model)) {
    vocabulary_ = known->vocab_size();
    positions_ = known->longest_sequence();
  }
  std::ranges::sort(options_.eos_token_ids);
}

std::int64_t Generator::most_tokens(std::int64_t longest) const {
  if (options_.max_length == 0) return options_.max_new_tokens;
  return std::min(options_.max_new_tokens, options_.max_length - longest);
}

void Generator::check(const std::vector<std::vector<std::int64_t>>& prompts) const {
  CS_REQUIRE(!prompts.empty(), "Generator: no prompt");
  std::int64_t longest = 0;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    CS_REQUIRE(!prompts[i].empty(), "Generator: prompt ", i, " has no tokens");
    for (const std::int64_t token : prompts[i])
      CS_REQUIRE(token >= 0 && token < vocabulary_, "Generator: prompt ", i, " has token ", token,
                 ", but the model has ", vocabulary_);
    longest = std::max(longest, static_cast<std::int64_t>(prompts[i].size()));
  }
  const std::int64_t steps = most_tokens(longest), slots = longest + steps - 1;
  CS_REQUIRE(steps >= 1, "Generator: a prompt of ", longest, " tokens leaves none of max_length ",
             options_.max_length, " for new ones; set max_length or max_new_tokens");
  CS_REQUIRE(options_.cache_capacity == 0 || slots <= options_.cache_capacity,
             "Generator: a prompt of ", longest, " tokens and ", steps, " new ones take ", slots,
             " slots of the cache, which has ", options_.cache_capacity,
             "; set cache_capacity or max_new_tokens");
  CS_REQUIRE(slots <= positions_, "Generator: a prompt of ", longest, " tokens and ", steps,
             " new ones take ", slots, " positions, but the model has ", positions_,
             "; set max_new_tokens");
}

Task<void> Generator::start(std::vector<std::vector<std::int64_t>> prompts,
                            std::int64_t first_number) {
  check(prompts);
  std::int64_t longest = 0;
  for (const auto& prompt : prompts)
    longest = std::max(longest, static_cast<std::int64_t>(prompt.size()));
  steps_ = most_tokens(longest);
  const std::int64_t slots = longest + steps_ - 1;
  const bool fits = cache_ && cache_->capacity() >= slots && rows_.size() == prompts.size();
  if (fits)
    cache_->clear();
  else
    cache_.emplace(options_.cache_capacity > 0 ? options_.cache_capacity : slots);
  rows_.clear();
  tokens_.clear();
  for (const auto& prompt : prompts) {
    Row row{longest - static_cast<std::int64_t>(prompt.size())};
    tokens_.insert(tokens_.end(), static_cast<std::size_t>(row.padding), 0);
    tokens_.insert(tokens_.end(), prompt.begin(), prompt.end());
    if (options_.repetition_penalty != 1) row.seen = prompt;
    std::ranges::sort(row.seen);
    row.seen.erase(std::unique(row.seen.begin(), row.seen.end()), row.seen.end());
    rows_.push_back(std::move(row));
  }
  first_number_ = first_number;
  step_ = 0;
  Task<void> prefill = feed(longest);
  co_await std::move(prefill);
}

// Runs the model over the columns in tokens_, [batch, seq]; leaves the logits of the last one.
Task<void> Generator::feed(std::int64_t seq) {
  const NoGradGuard no_grad;
  const auto batch = static_cast<std::int64_t>(rows_.size());
  const Shape shape{batch, seq};
  const auto count = static_cast<std::size_t>(batch * seq);
  columns_.resize(3 * count);
  const auto positions = std::span(columns_).first(count);
  const auto first = std::span(columns_).subspan(count, count);
  const auto last = std::span(columns_).last(count);
  std::int64_t longest = 0;
  for (std::size_t e = 0; e < count; ++e) {
    const std::int64_t slot = cache_->size() + static_cast<std::int64_t>(e) % seq;
    const std::int64_t padding = rows_[e / static_cast<std::size_t>(seq)].padding;
    positions[e] = std::max<std::int64_t>(slot - padding, 0);
    first[e] = padding;
    last[e] = slot;
    longest = std::max(longest, positions[e] + 1);
  }
  const Tensor ids = uploaded(device_, shape, tokens_);
  const SequenceScope scope(
      {.positions = uploaded(device_, shape, positions),
       .keys = {uploaded(device_, shape, first), uploaded(device_, shape, last)},
       .cache = &*cache_,
       .longest = longest,
       .last_logits_only = true});
  Task<Tensor> run = model_.forward(ids);
  logits_ = co_await std::move(run);
  if (logits_.in_flight()) {
    const Redistribution arriving(logits_);
    logits_ = co_await arriving;
  }
  CS_REQUIRE(logits_.ndim() == 3 && logits_.size(0) == batch && logits_.size(1) == 1,
             "Generator: the model's logits ", logits_, " are not [", batch,
             ", 1, vocab]; its forward takes wanted_columns(x) before the last layer");
  cache_->advance(seq);
}

// The best of each row over all ranks, packed.
Task<void> Generator::most_likely_of_all() {
  const std::size_t batch = rows_.size(), width = read_.size() / batch;
  const std::int64_t offset = logits_.is_distributed() ? logits_.spec()->offset[2] : 0;
  chosen_.clear();
  for (std::size_t i = 0; i < batch; ++i) {
    const VocabularyPart part{std::span(read_).subspan(i * width, width), offset};
    const Noise noise{options_.seed, first_number_ + static_cast<std::int64_t>(i), step_};
    chosen_.push_back(options_.temperature == 0 ? most_likely(part)
                                                : drawn(part, options_.temperature, noise));
  }
  const Tensor mine = uploaded(logits_.device(), Shape{static_cast<std::int64_t>(batch)}, chosen_);
  Task<Tensor> join = joined(mine, logits_, Partial(Reduce::Max));
  const Tensor all = co_await std::move(join);
  download(all, chosen_.data());
}

// One of the tokens that top_k and top_p leave of each row, packed.
Task<void> Generator::drawn_of_candidates() {
  const std::size_t batch = rows_.size(), width = read_.size() / batch;
  const std::int64_t offset = logits_.is_distributed() ? logits_.spec()->offset[2] : 0;
  const Choice choice{options_.temperature, options_.top_k, options_.top_p};
  std::size_t count =
      options_.top_k > 0 ? static_cast<std::size_t>(options_.top_k) + 1 : kFirstCandidates;
  for (;; count *= 2) {
    count = std::min(count, static_cast<std::size_t>(logits_.size(2)) + 1);
    std::vector<std::int64_t> found(batch * (1 + count));
    for (std::size_t i = 0; i < batch; ++i)
      write_candidates({std::span(read_).subspan(i * width, width), offset}, choice.temperature,
                       std::span(found).subspan(i * (1 + count), 1 + count));
    const Tensor mine = uploaded(
        logits_.device(),
        Shape{1, static_cast<std::int64_t>(batch), static_cast<std::int64_t>(1 + count)}, found);
    Task<Tensor> join = joined(mine, logits_, Shard(0));
    const Tensor all = co_await std::move(join);
    const auto ranks = static_cast<std::size_t>(all.size(0));
    found.resize(ranks * batch * (1 + count));
    download(all, found.data());
    chosen_.clear();
    for (std::size_t i = 0; i < batch; ++i) {
      std::vector<Candidates> parts;
      for (std::size_t r = 0; r < ranks; ++r)
        parts.push_back(
            read_candidates(std::span(found).subspan((r * batch + i) * (1 + count), 1 + count)));
      const Noise noise{options_.seed, first_number_ + static_cast<std::int64_t>(i), step_};
      if (const auto token = draw_of(parts, choice, noise)) chosen_.push_back(*token);
    }
    if (chosen_.size() == batch) co_return;
  }
}

Task<void> Generator::choose() {
  const Tensor local = logits_.is_distributed() ? to_local(logits_) : logits_;
  vocabulary_dims(logits_);
  read_.resize(static_cast<std::size_t>(local.local_numel()));
  download(to(local, DType::F32), read_.data());
  const std::size_t width = read_.size() / rows_.size();
  const std::int64_t offset = logits_.is_distributed() ? logits_.spec()->offset[2] : 0;
  for (std::size_t i = 0; i < rows_.size(); ++i)
    penalize({std::span(read_).subspan(i * width, width), offset}, rows_[i].seen,
             options_.repetition_penalty);
  const bool some = options_.temperature > 0 && (options_.top_k > 0 || options_.top_p < 1);
  Task<void> choice = some ? drawn_of_candidates() : most_likely_of_all();
  co_await std::move(choice);
  tokens_.resize(rows_.size());
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    CS_REQUIRE(!std::isnan(logit_of(chosen_[i])), "Generator: the logits of prompt ", i,
               " at step ", step_, " have a NaN");
    tokens_[i] = rows_[i].finished ? kFinished : token_of(chosen_[i]);
    if (!rows_[i].finished) take(rows_[i], tokens_[i]);
  }
}

void Generator::take(Row& row, std::int64_t token) {
  row.finished = std::ranges::binary_search(options_.eos_token_ids, token);
  if (options_.repetition_penalty == 1) return;
  const auto at = std::ranges::lower_bound(row.seen, token);
  if (at == row.seen.end() || *at != token) row.seen.insert(at, token);
}

Task<std::optional<std::span<const std::int64_t>>> Generator::next() {
  CS_REQUIRE(logits_.defined(), "Generator: next before start");
  const bool over = std::ranges::all_of(rows_, [](const Row& row) { return row.finished; });
  if (over || step_ == steps_) co_return std::nullopt;
  if (step_ > 0) {
    for (std::int64_t& token : tokens_) token = std::max<std::int64_t>(token, 0);
    Task<void> forward = feed(1);
    co_await std::move(forward);
  }
  Task<void> choice = choose();
  co_await std::move(choice);
  ++step_;
  co_return std::span<const std::int64_t>(tokens_);
}

}  // namespace coshard::nn
