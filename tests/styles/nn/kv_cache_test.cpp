// Cached keys and values, and rows that hold several sequences.
#include <coshard/styles/nn/kv_cache.h>

#include "tests/styles/nn/generated.h"

namespace coshard::testing {
namespace {

// positions, first and last for rows that begin at slot padding[b], of slots [begin, begin + seq).
nn::Sequences padded(World& world, const Tokens& padding, std::int64_t begin, std::int64_t seq) {
  std::vector<std::int64_t> positions, first, last;
  nn::Sequences of;
  for (const std::int64_t pad : padding)
    for (std::int64_t slot = begin; slot < begin + seq; ++slot) {
      positions.push_back(std::max<std::int64_t>(slot - pad, 0));
      of.longest = std::max(of.longest, positions.back() + 1);
      first.push_back(pad);
      last.push_back(slot);
    }
  const auto tensor = [&](const std::vector<std::int64_t>& values) {
    return Tensor::from_values(world.device(), Shape{std::int64_t(padding.size()), seq}, DType::I64,
                               values);
  };
  of.positions = tensor(positions);
  of.keys = {tensor(first), tensor(last)};
  return of;
}

nn::CausalLMConfig model_number(int i) {
  nn::CausalLMConfig config = speaking_llama();
  config.qk_norm = i % 3 == 0;
  config.sliding_window = i % 2 == 0 ? 0 : 1 + i % 5;
  if (i % 4 == 3) config.layer_types = {nn::LayerType::Sliding, nn::LayerType::Full};
  if (i % 5 == 4) config.rope = {.type = nn::RopeType::Llama3, .factor = 2};
  if (i % 5 == 4) config.rope.original_max_position_embeddings = 8;
  return config;
}

// Prompts of several lengths in one batch, in pieces of several sizes, against each alone.
Task<void> compare_with_forwards_of_all(World& world, int number) {
  nn::CausalLM model(model_number(number), world);
  const std::size_t batch = 1 + std::size_t(number) % 8;
  const std::vector<Tokens> texts = some_prompts(batch, model.config.vocab_size, unsigned(number));
  std::size_t longest = 0;
  for (const Tokens& text : texts) longest = std::max(longest, text.size());
  Tokens padding;
  for (const Tokens& text : texts) padding.push_back(std::int64_t(longest - text.size()));
  nn::KvCache cache{std::int64_t(longest)};
  const NoGradGuard no_grad;
  std::mt19937 engine(static_cast<unsigned>(number));
  for (std::size_t begin = 0; begin < longest;) {
    const std::size_t seq = std::uniform_int_distribution<std::size_t>(1, longest - begin)(engine);
    std::vector<std::int64_t> ids;
    for (std::size_t b = 0; b < batch; ++b)
      for (std::size_t slot = begin; slot < begin + seq; ++slot)
        ids.push_back(slot < std::size_t(padding[b]) ? 0
                                                     : texts[b][slot - std::size_t(padding[b])]);
    nn::Sequences of = padded(world, padding, std::int64_t(begin), std::int64_t(seq));
    of.cache = &cache;
    of.last_logits_only = true;
    Tensor logits;
    {
      const nn::SequenceScope scope(of);
      Task<Tensor> forward = model.forward(Tensor::from_values(
          world.device(), Shape{std::int64_t(batch), std::int64_t(seq)}, DType::I64, ids));
      logits = co_await std::move(forward);
    }
    cache.advance(std::int64_t(seq));
    begin += seq;
    for (std::size_t b = 0; b < batch; ++b) {
      if (begin <= std::size_t(padding[b])) continue;
      const Tokens text(texts[b].begin(),
                        texts[b].begin() + std::ptrdiff_t(begin - std::size_t(padding[b])));
      Task<std::vector<double>> alone = logits_after(world, model, text);
      const std::vector<double> want = co_await std::move(alone);
      const Tensor got = contiguous(select(select(logits, 0, std::int64_t(b)), 0, 0));
      expect_close(got, Tensor::from_values(world.device(), got.shape(), DType::F64, want), 1e-9);
    }
  }
}

TEST(KvCache, EqualsForwardsOfTheWholeText) {
  on_ranks(1, [](World& world) -> Task<void> {
    for (int number = 0; number < 60; ++number) {
      Task<void> compare = compare_with_forwards_of_all(world, number);
      co_await std::move(compare);
    }
  });
}

TEST(KvCache, TakesTheMemoryOfItsFormula) {
  on_ranks(2, [](World& world) -> Task<void> {
    nn::CausalLMConfig config = speaking_llama();
    nn::CausalLM model(config, world);
    Task<void> cut = parallelize_module(model, line(world), model.plan());
    co_await std::move(cut);
    nn::KvCache cache(7);
    EXPECT_EQ(cache.bytes(), 0);
    const NoGradGuard no_grad;
    nn::Sequences of = padded(world, {0, 1, 0}, 0, 4);
    of.cache = &cache;
    {
      const nn::SequenceScope scope(of);
      co_await model.forward(integers(world, Shape{3, 4}, 37));
    }
    cache.advance(4);
    const std::int64_t head_dim = 2, heads = 4 / 2, layers = 2;
    EXPECT_EQ(cache.bytes(), layers * 2 * 3 * heads * 7 * head_dim * 8);
    EXPECT_EQ(cache.size(), 4);
  });
}

// Logits of the last column of a forward over `ids`.
Task<Tensor> forward_with(World& world, nn::CausalLM& model, nn::KvCache& cache, Tensor ids) {
  nn::Sequences of = padded(world, {0, 0}, cache.size(), ids.size(1));
  of.cache = &cache;
  const nn::SequenceScope scope(of);
  co_return co_await model.forward(ids);
}

TEST(KvCache, ForwardsThatCameToNothingLeaveNothing) {
  on_ranks(1, [](World& world) -> Task<void> {
    nn::CausalLM model(speaking_llama(), world);
    const NoGradGuard no_grad;
    const Tensor text = integers(world, Shape{2, 8}, 37),
                 warm_up = integers(world, Shape{2, 3}, 37);
    nn::KvCache cache(8);
    Task<Tensor> dropped = forward_with(world, model, cache, warm_up);
    co_await std::move(dropped);
    model.model.layers[1].self_attn.q_proj.bias = random(world, Shape{3});  // fits nothing
    const std::string error =
        co_await refusal(forward_with(world, model, cache, slice(text, 1, 0, 5)));
    EXPECT_FALSE(error.empty());
    model.model.layers[1].self_attn.q_proj.bias = Tensor();
    for (const std::int64_t begin : {0, 5}) {
      const Tensor piece = slice(text, 1, begin, begin == 0 ? 5 : 8);
      Task<Tensor> again = forward_with(world, model, cache, piece);
      const Tensor got = co_await std::move(again);
      cache.advance(piece.size(1));
      Task<Tensor> whole = model.forward(slice(text, 1, 0, begin + piece.size(1)));
      const Tensor want = co_await std::move(whole);
      expect_close(contiguous(slice(got, 1, piece.size(1) - 1, piece.size(1))),
                   contiguous(slice(want, 1, begin + piece.size(1) - 1, begin + piece.size(1))),
                   1e-9);
    }
    EXPECT_EQ(cache.bytes(), 2 * 2 * 2 * 4 * 8 * 2 * 8);
  });
}

TEST(KvCache, RefusesForwardsThatAreNotThoseBefore) {
  on_ranks(1, [](World& world) -> Task<void> {
    const NoGradGuard no_grad;
    const Tensor k = random(world, Shape{2, 2, 3, 4}), one = slice(k, 2, 0, 1);
    nn::KvCache cache(9);
    cache.append(k, k);
    EXPECT_CONTAINS(error_of([&] { cache.append(one, one); }), "1 positions after those of 3");
    cache.append(k, k);
    EXPECT_CONTAINS(error_of([&] { cache.advance(1); }), "advance(1)");
    cache.advance(3);
    cache.append(k, k);
    EXPECT_CONTAINS(error_of([&] { cache.advance(3); }), "1 of 2 attention modules");
    nn::Sequences of = padded(world, {0, 0}, 0, 4);
    of.keys.first = slice(of.keys.first, 1, 0, 3);
    EXPECT_CONTAINS(error_of([&] { const nn::SequenceScope scope(of); }), "keys.first [2,3]");
    of = padded(world, {0, 0}, 0, 4);
    const nn::SequenceScope scope(of);
    EXPECT_CONTAINS(error_of([&] { nn::attend(k, k, k); }), "positions of its SequenceScope");
    co_return;
  });
}

TEST(KvCache, RefusesWhatItHasNoRoomFor) {
  on_ranks(1, [](World& world) -> Task<void> {
    EXPECT_CONTAINS(error_of([] { nn::KvCache none(0); }), "capacity 0");
    nn::KvCache cache(4);
    const Tensor k = random(world, Shape{2, 2, 3, 4});
    EXPECT_CONTAINS(error_of([&] { cache.append(k, k); }), "NoGradGuard");
    const NoGradGuard no_grad;
    cache.append(k, k);
    EXPECT_CONTAINS(error_of([&] {
                      cache.append(k, random(world, Shape{2, 2, 1, 4}));
                    }),
                    "are not [batch, heads, seq, head_dim]");
    cache.advance(3);
    EXPECT_CONTAINS(error_of([&] { cache.append(slice(k, 2, 0, 2), slice(k, 2, 0, 2)); }),
                    "capacity of 4");
    const Tensor one = random(world, Shape{1, 2, 1, 4});
    EXPECT_CONTAINS(error_of([&] { cache.append(one, one); }), "do not fit the cache");
    const Tensor next = slice(k, 2, 0, 1);
    const nn::KvCache::Entry all = cache.append(next, next);
    EXPECT_EQ(all.keys.shape(), (Shape{2, 2, 4, 4}));
    EXPECT_CONTAINS(error_of([&] { cache.append(next, next); }), "more attention modules");
    co_return;
  });
}

// Two documents in one row have the logits and gradients of each alone.
Task<void> compare_documents(World& world, bool recompute) {
  nn::CausalLMConfig config = speaking_llama();
  auto [plain, model] = twins<nn::CausalLM>(config, world);
  if (recompute)
    for (const auto& block : model->blocks()) block->set_recompute();
  const std::vector<std::vector<std::int64_t>> lengths = {{3, 5}, {8}};
  const Tensor ids = integers(world, Shape{2, 8}, 37), seed = random(world, Shape{2, 8, 37});
  Tensor logits;
  {
    const nn::SequenceScope scope(nn::documents(world.device(), lengths));
    logits = co_await model->forward(ids);
  }
  co_await backward(logits, seed);
  std::int64_t row = 0;
  for (const auto& documents : lengths) {
    std::int64_t begin = 0;
    for (const std::int64_t length : documents) {
      const auto part = [&](const Tensor& x) {
        return contiguous(slice(slice(x, 0, row, row + 1), 1, begin, begin + length)).detach();
      };
      const Tensor want = co_await plain->forward(part(ids));
      expect_close(part(logits), want);
      co_await backward(want, part(seed));
      begin += length;
    }
    ++row;
  }
  for (const NamedParameter& p : model->named_parameters())
    expect_close(p.slot->grad(), plain->parameter(p.name).grad());
}

TEST(Documents, InOneRowAreAsIfAlone) {
  on_ranks(1, [](World& world) -> Task<void> {
    for (const bool recompute : {false, true}) {
      Task<void> compare = compare_documents(world, recompute);
      co_await std::move(compare);
    }
  });
}

TEST(Documents, ThatDoNotFillTheirRowsAreRefused) {
  on_ranks(1, [](World& world) -> Task<void> {
    const auto& device = world.device();
    EXPECT_CONTAINS(error_of([&] { nn::documents(device, {}); }), "no row");
    EXPECT_CONTAINS(error_of([&] { nn::documents(device, {{3, 0}}); }), "a length of 0");
    EXPECT_CONTAINS(error_of([&] { nn::documents(device, {{3}, {2, 2}}); }), "a row of 4");
    co_return;
  });
}

TEST(Documents, InATransformerAreAsIfAlone) {
  on_ranks(2, [](World& world) -> Task<void> {
    nn::TransformerConfig config = tiny_transformer();
    config.dtype = DType::F64;
    nn::Transformer model(config, world);
    Task<void> cut = parallelize_module(model, line(world), nn::transformer_plan(true));
    co_await std::move(cut);
    const Tensor ids = integers(world, Shape{1, 8}, 32);
    Tensor logits;
    {
      const nn::SequenceScope scope(nn::documents(world.device(), {{2, 6}}));
      logits = co_await model.forward(ids);
    }
    const Tensor second = co_await model.forward(contiguous(slice(ids, 1, 2, 8)));
    expect_close(slice(full_tensor(logits.detach()), 1, 2, 8), full_tensor(second.detach()));
  });
}

}  // namespace
}  // namespace coshard::testing
