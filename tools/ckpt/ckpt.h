#pragma once
// What `coshard ckpt` says of a model's files (dtensor/checkpoint/model_folder.h). Each prints to
// `out`: with `json` one object, else text. Error{BadInput}: as ModelFolder. In main.
#include <ostream>
#include <string>

namespace coshard::tools {

// Error{BadInput}: nothing is at `path`, or a file that is none of safetensors.
void require_model(const std::string& path);

// Tensors, with type, shape and place, and what they add up to.
void list_tensors(const std::string& path, bool json, std::ostream& out);

// Whether the files are whole; false where they are not, which `out` says in one line. Error{BadInput}:
// there is nothing at `path`.
bool verify(const std::string& path, bool json, std::ostream& out);

// Names, shapes, types and values that differ; whether there are none.
bool differ(const std::string& a, const std::string& b, bool json, std::ostream& out);

}  // namespace coshard::tools
