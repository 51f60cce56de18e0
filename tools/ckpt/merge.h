#pragma once
// `coshard ckpt merge`: a model with the adapter of LoRA added to its weights.
#include <ostream>
#include <string>

#include "tools/ckpt/convert.h"

namespace coshard::tools {

// As convert, from the folder `base`, with scale * B A of each layer of the folder `adapter`, which is
// one of PEFT, added to the layer's weight in f64 and rounded once. In main. Error{BadInput}: as convert
// and load_adapter; a layer whose weight the base lacks, in another shape or of no floating-point type.
void merge(const std::string& base, const std::string& adapter, const std::string& to,
           const ConvertOptions& options, bool json, std::ostream& out);

}  // namespace coshard::tools
