// Folders with one file and with an index, and indexes that lie.
#include "dtensor/checkpoint/model_folder.h"

#include <gtest/gtest.h>

#include "tests/dtensor/checkpoint/stored_files.h"

namespace coshard::testing {
namespace {

// A file of f32 tensors of one element each.
std::string file_of(std::initializer_list<const char*> names) {
  std::string header = "{";
  std::size_t at = 0;
  for (const char* name : names) {
    header += str_cat(at == 0 ? "" : ",", '"', name,
                      R"(":{"dtype":"F32","shape":[1],"data_offsets":[)", at, ',', at + 4, "]}");
    at += 4;
  }
  return stored_file(header + "}", std::string(at, 'x'));
}

TEST(ModelFolder, ReadsOneFileOrThoseOfAnIndex) {
  const ScratchFolder folder;
  folder.write("one/model.safetensors", file_of({"b", "a"}));
  folder.write("two/m-1.safetensors", file_of({"b", "d"}));
  folder.write("two/m-2.safetensors", file_of({"c", "a"}));
  folder.write("two/model.safetensors.index.json",
               R"({"metadata":{"total_size":16,"more":[{}]},"weight_map":{"a":"m-2.safetensors",)"
               R"("b":"m-1.safetensors","c":"m-2.safetensors"}})");
  const auto names = [&](const char* name) {
    const ModelFolder model(folder.path(name));
    std::string all;
    for (std::size_t i = 0; i < model.size(); ++i) {
      EXPECT_EQ(model.find(model[i].tensor.name)->file, model[i].file);
      all += str_cat(model[i].tensor.name, model[i].file, ' ');
    }
    EXPECT_EQ(model.bytes(), 4 * model.size());
    EXPECT_FALSE(model.find("e"));
    return all;
  };
  EXPECT_EQ(names("one"), "a0 b0 ");
  EXPECT_EQ(names("one/model.safetensors"), "a0 b0 ");
  EXPECT_EQ(names("two"),
            "a1 b0 c1 d0 ");  // d: the index does not know it, as transformers takes it
  EXPECT_NE(message_of([&] { ModelFolder(folder.path("")); }).find("has neither model.safetensors"),
            std::string::npos);
  EXPECT_NE(message_of([&] { ModelFolder(folder.path("none")); }).find("none: cannot be opened"),
            std::string::npos);
}

TEST(ModelFolder, S9RefusesIndexesByFileAndTensor) {
  const ScratchFolder folder;
  folder.write("1.safetensors", file_of({"a"}));
  folder.write("2.safetensors", file_of({"a", "b"}));
  const auto refusal = [&](const std::string& map) {
    const std::string index = map.starts_with('{') ? map : str_cat(R"({"weight_map":)", map, "}");
    folder.write("model.safetensors.index.json", index);
    return message_of([&] { ModelFolder(folder.path("")); });
  };
  const auto names = [&](const std::string& map, std::string_view what) {
    const std::string message = refusal(map);
    EXPECT_NE(message.find(what), std::string::npos) << map << " -> " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  };
  const auto at = [](const char* file) { return str_cat(R"( {"a":")", file, R"("})"); };
  for (const char* file : {"../1.safetensors", "/tmp/1.safetensors", "x/../1.safetensors", "", "..",
                           "1.bin", ".\\\\1.safetensors", "1.safetensors\\u0000.safetensors"})
    names(at(file), "tensor 'a' is in '");
  names(at("3.safetensors"), "3.safetensors: is missing, and with it 'a'");
  names(R"( {"c":"1.safetensors"})", "1.safetensors: lacks 'c', which");
  names(R"( {"a":"1.safetensors","b":"2.safetensors"})", "tensor 'a' is in");
  names(R"( {"a":"1.safetensors","\u0061":"1.safetensors"})", "has tensor 'a' twice");
  names(R"( {"a":1})", "weight_map has 1 for 'a', but it is");
  names(R"( {"a":["1.safetensors"]})", "weight_map has an array");
  names(R"( {"a":{"b":"1.safetensors"}})", "weight_map has an object");
  names(R"( ["1.safetensors"])", "weight_map has an array");
  names(R"( "1.safetensors")", "weight_map has a text");
  names("{}", "has no weight_map");
  names(R"({"weight_map":{}})", "its weight_map has no tensor");
  names(R"({"weight_map":{},"weight_map":{}})", "has weight_map twice");
  std::filesystem::create_symlink("model.safetensors", folder.path("model.safetensors"));
  names(at("1.safetensors"), "model.safetensors: cannot be reached: ");
  std::filesystem::remove(folder.path("model.safetensors"));
  names("{", "not JSON at byte");
  std::string many = " {";
  for (const char* name : {"p", "q", "r", "s", "t", "u", "v"})
    many += str_cat(many.size() > 2 ? "," : "", '"', name, R"(":"3.safetensors")");
  names(many + "}", "'p', 'q', 'r', 's', 't' and 2 more");
}

}  // namespace
}  // namespace coshard::testing
