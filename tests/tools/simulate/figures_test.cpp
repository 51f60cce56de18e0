#include "tools/simulate/figures.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include <coshard/runtime/error.h>
#include "tests/support/json.h"
#include "tools/simulate/models.h"

namespace coshard::tools {
namespace {

// A file with this text, for as long as it lives.
struct File {
  explicit File(const std::string& text) { std::ofstream(name) << text; }
  ~File() { std::filesystem::remove(name); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  std::string name = coshard::testing::temporary_path("figures");
};

template <class F>
std::string refusal(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Figures, OfAPresetHaveASourceEach) {
  for (const std::string& name : gpu_presets())
    for (const Figure& figure : gpu_figures(name).all) EXPECT_NE(figure.source, "") << figure.key;
  for (const std::string& name : link_presets())
    for (const Figure& figure : link_figures(name).all) EXPECT_NE(figure.source, "") << figure.key;
  EXPECT_EQ(gpu_figures("h100")["product_tflops"], 794.5);
  EXPECT_EQ(processor_of(gpu_figures("h200")).memory, 141e9);
}

TEST(Figures, OfAFileHaveAllKeys) {
  const File gpu(
      R"({"memory_gb": 1, "memory_gbps": 2, "product_tflops": 3, "wide_product_tflops": 4,
          "attention_tflops": 5, "multiprocessors": 6, "kernel_us": 7})");
  const ProcessorModel model = processor_of(gpu_figures(gpu.name));
  EXPECT_EQ(model.memory_rate, 2e9);
  EXPECT_EQ(model.multiprocessors, 6);
  EXPECT_EQ(model.kernel_ns, 7000);
  const File link(R"({"gbps": 1, "base_us": 2, "step_us": 3, "crosses_nodes": 0})");
  EXPECT_EQ(link_figures(link.name)["step_us"], 3);
  EXPECT_FALSE(link_figures(link.name).has("small_gbps"));
}

TEST(Figures, ThatAreUnknownOrIncompleteAreNamed) {
  EXPECT_EQ(
      refusal([] { gpu_figures("h1000"); }),
      "--gpu h1000: No such file or directory; expected h100, h200, b200, ideal or a JSON file");
  const File lacks(R"({"gbps": 1, "base_us": 2, "small_gbps": 1})");
  EXPECT_EQ(
      refusal([&] { link_figures(lacks.name); }),
      "--link " + lacks.name + ": lacks step_us, crosses_nodes, small_base_us, small_step_us");
  for (const char* key : {"small_base_us", "small_step_us"}) {
    const File half(str_cat(R"({"gbps": 1, "base_us": 2, "step_us": 3, "crosses_nodes": 0, ")", key,
                            R"(": 1})"));
    EXPECT_NE(refusal([&] { link_figures(half.name); }).find(": lacks small_gbps, small_"),
              std::string::npos)
        << key;
  }
  const File text("not JSON"), negative(R"({"gbps": -1})");
  EXPECT_NE(refusal([&] { link_figures(text.name); }).find("is not a JSON object"),
            std::string::npos);
  EXPECT_NE(refusal([&] { link_figures(negative.name); }).find("gbps -1 is not a number"),
            std::string::npos);
}

TEST(Figures, MisspelledKeysAreNamed) {
  const auto refused = [](const std::string& more) {
    const File file(R"({"gbps": 1, "base_us": 2, "step_us": 3, )" + more + "}");
    const std::string text = refusal([&] { link_figures(file.name); });
    return text.substr(std::min(text.find(": ") + 2, text.size()));
  };
  EXPECT_EQ(refused(R"("crosses_nodes": 0, "small_gbp": 141)"),
            "has no key \"small_gbp\"; did you mean small_gbps?");
  EXPECT_EQ(refused(R"("crosses_nodes": 0, "x": 4)"),
            "has no key \"x\"; its keys are gbps, base_us, step_us, crosses_nodes, small_gbps, "
            "small_base_us, small_step_us");
  for (const char* value : {"0.2", "2"})
    EXPECT_EQ(refused(str_cat(R"("crosses_nodes": )", value)),
              str_cat("crosses_nodes is 0 or 1, got ", value));
}

TEST(Figures, BeyondTheirRangeAreNamed) {
  const auto refused = [](const std::string& figure) {
    const File file("{" + figure + "}");
    const std::string text = refusal([&] { gpu_figures(file.name); });
    return text.substr(std::min(text.find(": ") + 2, text.size()));
  };
  for (const char* count : {"2147483648", "0.5"})
    EXPECT_EQ(refused(str_cat(R"("memory_gb": 0, "memory_gbps": 0, "product_tflops": 1,
                                 "wide_product_tflops": 1, "attention_tflops": 1,
                                 "multiprocessors": )",
                              count)),
              str_cat("multiprocessors ", count, " is not a whole number from 0 to 1e+06"));
  EXPECT_EQ(refused(R"("kernel_us": 1e300)"), "kernel_us 1e+300 is not a number from 0 to 1e+09");
  EXPECT_EQ(refused(R"("memory_gb": true)"), "memory_gb true is not a number from 0 to 1e+09");
}

TEST(Models, APresetIsItsConfig) {
  const nn::CausalLMConfig config = llama_config("llama-70b");
  EXPECT_EQ(config.num_hidden_layers, 80);
  EXPECT_EQ(config.num_key_value_heads, 8);
  EXPECT_EQ(config.dtype, DType::BF16);
}

TEST(Models, AFileIsHuggingFacesConfig) {
  const File file(R"({"vocab_size": 256, "hidden_size": 64, "intermediate_size": 96,
                      "num_hidden_layers": 3, "num_attention_heads": 4, "model_type": "llama"})");
  EXPECT_EQ(llama_config(file.name).num_key_value_heads, 4);
  EXPECT_EQ(llama_config(file.name).head_dim, 16);
  EXPECT_EQ(llama_config(file.name).dtype, DType::BF16);
  const File qwen(R"({"model_type": "qwen3", "num_hidden_layers": 2, "vocab_size": 64})");
  EXPECT_TRUE(llama_config(qwen.name).qk_norm);
  const auto refused = [](const std::string& text) {
    const File other(text);
    const std::string said = refusal([&] { llama_config(other.name); });
    EXPECT_NE(said.find(other.name), std::string::npos);
    return said;
  };
  for (const char* text :
       {R"({"model_type": "mixtral"})", R"({"model_type": "llama", "vocab_size": "many"})",
        R"({"model_type": "llama", "quantization_config": {"bits": 4}})", "{}", "[]", ""})
    EXPECT_NE(refused(text), "") << text;
  EXPECT_NE(refused(R"({"model_type": "llama", "num_hidden_layers": 1001})")
                .find("num_hidden_layers 1001 is more than 1000"),
            std::string::npos);
  EXPECT_NE(refusal([] { llama_config("llama-7b"); }).find("expected llama-8b, llama-70b or"),
            std::string::npos);
}

}  // namespace
}  // namespace coshard::tools
