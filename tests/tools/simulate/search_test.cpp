#include "tools/simulate/search.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <sstream>

#include <coshard/runtime/error.h>

namespace coshard::tools {
namespace {

constexpr const char* kModel = R"({"model_type": "llama", "vocab_size": 1024, "hidden_size": 512,
    "intermediate_size": 1536, "num_hidden_layers": 2, "num_attention_heads": 8})";

// A text that can be read once.
class Pipe {
 public:
  explicit Pipe(const std::string& text) {
    EXPECT_EQ(::pipe(ends_), 0);
    EXPECT_EQ(::write(ends_[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
    ::close(ends_[1]);
  }
  ~Pipe() { ::close(ends_[0]); }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  std::string name() const { return str_cat("/dev/fd/", ends_[0]); }

 private:
  int ends_[2] = {-1, -1};
};

SimulateOptions searching(int gpus) {
  SimulateOptions options;
  options.model = "llama-8b";
  options.search = true;
  options.gpus = gpus;
  options.seq = 512;
  return options;
}

std::string said(const SimulateOptions& options) {
  std::ostringstream out;
  simulate_training(options, out);
  return out.str();
}

TEST(Search, SkipsMeshesThatALinkDoesNotJoinAndCountsThem) {
  const Pipe model(kModel);
  SimulateOptions options = searching(16);
  options.model = model.name();
  options.gpus_per_node = 4, options.link = "tp=nvlink4,dp=ndr";
  const std::string text = said(options);  // dp=16; dp=8,tp=2; dp=4,tp=4; but not tp=8
  EXPECT_NE(text.find("10 of 10 choices fit on 16 x h100"), std::string::npos) << text;
  EXPECT_NE(text.find("\n1 mesh left out: --link tp=nvlink4,dp=ndr does not join all ranks of a "
                      "dimension\n"),
            std::string::npos)
      << text;
  options.link = "", options.model = "llama-8b", options.gpus = 2;
  EXPECT_EQ(said(options).find("left out"), std::string::npos);
  options.link = "nvlink4", options.gpus = 8, options.gpus_per_node = 1;
  try {
    said(options);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "--search: --link nvlink4 joins the nodes of no mesh of 8 GPUs, 1 to a node");
  }
}

TEST(Search, ReadsEachFileOnce) {
  const Pipe model(kModel);
  const Pipe gpu(R"({"memory_gb": 80, "memory_gbps": 3015, "product_tflops": 794.5,
      "wide_product_tflops": 53.6, "attention_tflops": 476.7, "multiprocessors": 132,
      "kernel_us": 2})");
  const Pipe link(R"({"gbps": 1, "base_us": 2, "step_us": 3, "crosses_nodes": 1})");
  SimulateOptions options = searching(4);
  options.model = model.name(), options.gpu = gpu.name(), options.link = link.name();
  EXPECT_NE(said(options).find("10 of 10 choices fit on 4 x " + gpu.name()), std::string::npos);
}

}  // namespace
}  // namespace coshard::tools
