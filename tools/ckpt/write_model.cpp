#include "tools/ckpt/write_model.h"

#include <cmath>

#include "kernels/convert.h"
#include "kernels/typed.h"
#include "profiling/json.h"
#include "runtime/printable.h"

namespace coshard::tools {

void write_model(const FileLayout& layout, const TextFiles& texts, const std::string& to,
                 bool overwrite,
                 const std::function<void(const FileLayout::Place&, OutputFile&)>& tensor,
                 const std::function<void(const NewFolder&)>& more) {
  NewFolder made(NewFolder::resolved(to), overwrite, "--overwrite");
  for (std::size_t k = 0; k < layout.files.size(); ++k) {
    const FileLayout::File& file = layout.files[k];
    OutputFile::make(made.at(file.name), file.bytes);
    OutputFile out(made.at(file.name));
    out.write(0, std::as_bytes(std::span(file.head)));
    for (const FileLayout::Place& place : layout.places)
      if (place.file == k) tensor(place, out);
    out.sync();
    out.close();
  }
  for (const auto& [name, text] : texts) made.write(name, text);
  if (more) more(made);
  made.commit();
}

std::uint64_t cast_values(DType from, std::span<const std::byte> values, DType to,
                          std::span<std::byte> made, std::uint64_t count) {
  std::uint64_t overflown = 0;
  kernels::with_floating(from, [&](auto from_tag) {
    kernels::with_floating(to, [&](auto to_tag) {
      using From = decltype(from_tag);
      using To = decltype(to_tag);
      const auto* in = reinterpret_cast<const From*>(values.data());
      auto* out = reinterpret_cast<To*>(made.data());
      for (std::uint64_t i = 0; i < count; ++i) {
        out[i] = kernels::converted<To>(in[i]);
        overflown +=
            std::isinf(static_cast<double>(out[i])) != std::isinf(static_cast<double>(in[i]));
      }
    });
  });
  return overflown;
}

void print_written(const Written& written, const FileLayout& layout, std::optional<DType> dtype,
                   bool json, std::ostream& out) {
  std::int64_t bytes = 0;
  for (const FileLayout::File& file : layout.files) bytes += file.bytes;
  if (json) {
    Json answer{{"tensors", written.tensors},     {"cast", written.cast},
                {"overflown", written.overflown}, {"left_out", written.left_out},
                {"files", layout.files.size()},   {"bytes", bytes}};
    if (written.adapted) answer["adapted"] = *written.adapted;
    out << json_text(answer, 2) << '\n';
    return;
  }
  out << written.tensors << " tensors, " << written.cast << " of them cast, ";
  if (written.adapted) out << *written.adapted << " with an adapter added, ";
  out << "in " << layout.files.size() << (layout.files.size() == 1 ? " file" : " files") << " of "
      << bytes << " bytes\n";
  for (const auto& [name, count] : written.overflown)
    out << printable(name) << ": " << count << " values are too large for "
        << dtype.value_or(DType::F32) << " and have become infinite\n";
  for (const std::string& name : written.left_out)
    out << printable(name) << ": was left out, for it is too large; copy it if it is needed\n";
}

}  // namespace coshard::tools
