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
  const File text("not JSON"), negative(R"({"gbps": -1})");
  EXPECT_NE(refusal([&] { link_figures(text.name); }).find("is not a JSON object"),
            std::string::npos);
  EXPECT_NE(refusal([&] { link_figures(negative.name); }).find("gbps -1 is not a number"),
            std::string::npos);
}

TEST(Models, APresetIsItsConfig) {
  const nn::LlamaConfig config = llama_config("llama-70b");
  EXPECT_EQ(config.num_hidden_layers, 80);
  EXPECT_EQ(config.num_key_value_heads, 8);
  EXPECT_EQ(config.dtype, DType::BF16);
}

TEST(Models, AFileIsHuggingFacesConfig) {
  const File file(R"({"vocab_size": 256, "hidden_size": 64, "intermediate_size": 96,
                      "num_hidden_layers": 3, "num_attention_heads": 4, "model_type": "llama"})");
  EXPECT_EQ(llama_config(file.name).num_key_value_heads, 4);
  const File lacks(R"({"vocab_size": 256, "hidden_size": 64, "num_hidden_layers": 3})");
  EXPECT_EQ(refusal([&] { llama_config(lacks.name); }),
            "--model " + lacks.name + ": lacks intermediate_size, num_attention_heads");
  const File wrong(R"({"vocab_size": "many"})");
  EXPECT_NE(refusal([&] { llama_config(wrong.name); }).find("vocab_size \"many\""),
            std::string::npos);
  EXPECT_EQ(refusal([] { llama_config("llama-7b"); }),
            "--model llama-7b: No such file or directory; expected llama-8b, llama-70b or a "
            "Llama's config.json");
}

}  // namespace
}  // namespace coshard::tools
