#pragma once
// Performance figures of GPUs and links, each with its source, and files of the same form. Values.
#include <string>
#include <string_view>
#include <vector>

#include "runtime/device/sim/processor_model.h"

namespace coshard::tools {

// A number of a preset or of a file.
struct Figure {
  std::string key;  // "product_tflops"
  double value = 0;
  std::string source;
  bool measured = false;  // on such hardware; else from a data sheet or assumed
};

struct Figures {
  std::string kind, name;  // "gpu", "h100"
  std::vector<Figure> all;
  double operator[](std::string_view key) const;
  bool has(std::string_view key) const;
};

// gpu keys: memory_gb (0: no limit), memory_gbps (0: takes no time), product_tflops,
// wide_product_tflops, attention_tflops, multiprocessors (0: GEMMs without waves), kernel_us.
// link keys: gbps; base_us and step_us: a collective's latency is base_us + steps x step_us;
// crosses_nodes: 1 for the NIC of a GPU, 0 for a link within a node; and, all or none, small_gbps,
// small_base_us and small_step_us: a protocol for small messages.
// `text` is a preset or a JSON file with all keys of its kind. Error{BadInput} names the presets,
// or the file and its missing keys; numbers above 1e9, multiprocessors above 1e6 or not whole.
Figures gpu_figures(const std::string& text);
Figures link_figures(const std::string& text);
std::string listed(const std::vector<std::string>& words);  // "a, b, c"

std::vector<std::string> gpu_presets();
std::vector<std::string> link_presets();

ProcessorModel processor_of(const Figures& gpu);
// The preset of the link between the GPUs of a node; "": none.
std::string own_link(std::string_view gpu);

}  // namespace coshard::tools
