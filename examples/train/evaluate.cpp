#include "examples/train/evaluate.h"

#include <algorithm>
#include <cmath>

#include <coshard/dtensor/tape/tape.h>
#include "kernels/philox.h"

namespace coshard::train {
namespace {

constexpr double kNotScored = -100;  // a target that cross-entropy ignores
constexpr int kWindows = 8;          // per forward

// Windows of seq bytes over the text; in each, only the targets [score_begin, score_end) of the
// text are scored.
class Windows {
 public:
  Windows(const std::string& bytes, std::size_t seq) : bytes_(bytes), seq_(seq) {}
  std::size_t count() const { return count_; }
  std::size_t scored() const { return scored_; }
  Batch take() {
    count_ = scored_ = 0;
    return std::move(batch_);
  }
  void add(std::size_t score_begin, std::size_t score_end) {
    // The window ends with the last byte scored, unless too little text precedes it.
    const std::size_t begin = score_end > seq_ ? score_end - seq_ - 1 : 0;
    for (std::size_t i = begin; i < begin + seq_; ++i) {
      const bool counts = i + 1 >= score_begin && i + 1 < score_end;
      batch_.tokens.push_back(static_cast<unsigned char>(bytes_[i]));
      batch_.targets.push_back(counts ? static_cast<unsigned char>(bytes_[i + 1]) : kNotScored);
      scored_ += counts ? 1 : 0;
    }
    ++count_;
  }

 private:
  const std::string& bytes_;
  std::size_t seq_, count_ = 0, scored_ = 0;
  Batch batch_;
};

// In [0, 1), of the byte `i` of a sample: of streams that no step's batch has (Text::draw).
double uniform_draw(std::uint64_t seed, int i) {
  constexpr std::uint64_t kSample = std::uint64_t{1} << 63;
  const kernels::Words words = kernels::philox_block(seed, kSample, static_cast<std::uint64_t>(i));
  return static_cast<double>((std::uint64_t{words[1]} << 32 | words[0]) >> 11) * 0x1.0p-53;
}

char draw_byte(const std::vector<double>& logits, double temperature, double u) {
  const double highest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> weights;
  double sum = 0;
  for (const double logit : logits)
    sum += weights.emplace_back(std::exp((logit - highest) / temperature));
  std::size_t byte = 0;
  for (double left = u * sum; byte + 1 < weights.size() && left >= weights[byte]; ++byte)
    left -= weights[byte];
  return static_cast<char>(byte);
}

}  // namespace

Task<std::optional<double>> held_out_bits_per_byte(LanguageModel& model, const Options& options,
                                                   const Text& text) {
  const NoGradGuard no_grad;
  const std::size_t blocks =
      std::min(text.held_out_blocks(), static_cast<std::size_t>(options.eval_blocks));
  const auto seq = static_cast<std::size_t>(options.seq);
  const std::size_t stride = std::max<std::size_t>(1, seq / 2);
  double nats = 0;
  std::size_t scored = 0;
  Windows windows(text.bytes(), seq);
  for (std::size_t block = 0; block < blocks; ++block) {
    const std::size_t begin = text.held_out_begin(block), end = begin + kBlock;
    for (std::size_t at = begin; at < end; at += stride) {
      windows.add(at, std::min(end, at + stride));
      const bool last = block + 1 == blocks && at + stride >= end;
      if (windows.count() < kWindows && !last) continue;
      const std::size_t bytes = windows.scored();
      Task<Tensor> forward = model.loss(windows.take());
      const Tensor loss = co_await std::move(forward);
      nats += loss.item() * static_cast<double>(bytes);
      scored += bytes;
    }
  }
  if (scored == 0) co_return std::nullopt;
  co_return nats / static_cast<double>(scored) / std::log(2.0);
}

Task<std::string> sample_continuation(LanguageModel& model, const Options& options) {
  const NoGradGuard no_grad;
  std::string text = options.prompt;
  for (int i = 0; i < options.sample; ++i) {
    Task<std::vector<double>> next = model.next_byte_logits(text);
    const std::vector<double> logits = co_await std::move(next);
    text += draw_byte(logits, options.temperature, uniform_draw(options.seed, i));
  }
  co_return text.substr(options.prompt.size());
}

}  // namespace coshard::train
