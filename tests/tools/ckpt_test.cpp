// `coshard ckpt`: what it prints of files, and its exit codes.
#include "tools/ckpt/ckpt.h"

#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "dtensor/checkpoint/manifest.h"
#include "tests/dtensor/checkpoint/stored_files.h"

namespace coshard::tools {
namespace {

using testing::ScratchFolder;
using testing::stored_file;

// a: F32[2,2], f: F8_E4M3[2], t: BOOL[2]
std::string model(std::initializer_list<float> a, const char* f = "\x01\x02",
                  std::string t = {'\1', '\0'}) {
  std::string data(reinterpret_cast<const char*>(std::data(a)), sizeof(float) * a.size());
  return stored_file(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
      R"("f":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[16,18]},)"
      R"("t":{"dtype":"BOOL","shape":[2],"data_offsets":[18,20]}})",
      data + std::string(f, 2) + t);
}

template <class F>
nlohmann::json json_of(F&& print) {
  std::ostringstream out;
  print(out);
  return nlohmann::json::parse(out.str());
}

TEST(Ckpt, S66ListsTensorsWithTheirPlaces) {
  const ScratchFolder folder;
  const std::string path = folder.write("m/model.safetensors", model({1, 2, 3, 4}));
  const auto json = json_of([&](auto& out) { list_tensors(folder.path("m"), true, out); });
  EXPECT_EQ(json["bytes"], 20);
  EXPECT_EQ(json["files"][0]["metadata"]["format"], "pt");
  const auto size = static_cast<std::uint64_t>(json["files"][0]["bytes"]);
  EXPECT_EQ(size, std::filesystem::file_size(path));
  const auto& f = json["tensors"][1];
  EXPECT_EQ(f["name"], "f");
  EXPECT_EQ(f["dtype"], "F8_E4M3");
  EXPECT_EQ(f["shape"], nlohmann::json::array({2}));
  EXPECT_EQ(f["offset"], size - 4);
  EXPECT_EQ(f["bytes"], 2);
  const auto refused = [&](const char* bytes) {
    const std::string other = folder.write("other", bytes);
    return testing::message_of([&] { json_of([&](auto& o) { list_tensors(other, true, o); }); }) +
           testing::message_of([&] { json_of([&](auto& o) { differ(path, other, true, o); }); });
  };
  EXPECT_NE(refused("GGUF file").rfind("FOLDER"), refused("GGUF file").find("FOLDER"));
  EXPECT_CONTAINS(refused("{}, and other text"), "other: is neither a safetensors file");
  std::ostringstream text;
  list_tensors(path, false, text);
  EXPECT_NE(text.str().find("F8_E4M3   [2]"), std::string::npos) << text.str();
  EXPECT_NE(text.str().find("3 tensors"), std::string::npos) << text.str();
}

TEST(Ckpt, VerifyComparesHashesOfACheckpoint) {
  const ScratchFolder folder;
  const std::map<std::string, std::string> files{{"model.safetensors", model({1, 2, 3, 4})},
                                                 {"config.json", "{}"},
                                                 {"training/a.safetensors", model({5, 6, 7, 8})}};
  Manifest manifest;
  manifest.step = 12;
  for (const auto& [name, bytes] : files) {
    folder.write("m/" + name, bytes);
    manifest.add(name, bytes);
  }
  folder.write("m/" + std::string(Manifest::kPath), manifest.text());
  const auto verified = [&] {
    return json_of([&](auto& out) { verify(folder.path("m"), true, out); });
  };
  EXPECT_EQ(verified()["whole"], true);
  EXPECT_EQ(verified()["hashes"], true);
  EXPECT_EQ(verified()["step"], 12);
  for (const auto& [name, bytes] : files) {  // S16
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      std::string other = bytes;
      other[at] = static_cast<char>(other[at] ^ 4);
      folder.write("m/" + name, other);
      const auto answer = verified();
      EXPECT_EQ(answer["whole"], false);
      EXPECT_NE(std::string(answer["error"]).find(name + ": is damaged: bytes 0 to"),
                std::string::npos)
          << answer["error"];
    }
    std::filesystem::remove(folder.path("m/" + name));
    EXPECT_EQ(verified()["whole"], false) << name;
    folder.write("m/" + name, bytes);
  }
  EXPECT_EQ(verified()["whole"], true);
}

TEST(Ckpt, S66VerifySaysWhatIsDamaged) {
  const ScratchFolder folder;
  const std::string whole = model({1, 2, 3, 4});
  const auto verified = [&](const std::string& bytes, const char* said) {
    std::ostringstream out;
    const bool right = verify(folder.write("m", bytes), false, out);
    EXPECT_NE(out.str().find(said), std::string::npos) << out.str();
    return right;
  };
  EXPECT_TRUE(verified(whole, "there are no hashes"));
  EXPECT_FALSE(verified(whole + "x", "21 follow the header"));
  for (std::size_t cut = 0; cut < whole.size(); ++cut)
    EXPECT_FALSE(verified(whole.substr(0, cut), ""));
  EXPECT_NE(testing::message_of([&] {
              std::ostringstream out;
              verify(folder.path("none"), false, out);
            }).find("none: there is no such file"),
            std::string::npos);
}

TEST(Ckpt, S67DiffNamesTheFirstElementThatDiffersAndTheLargestDistance) {
  const ScratchFolder folder;
  const std::string a = folder.write("a", model({1, 2, 3, 4}));
  bool differs = false;
  const auto diff = [&](const std::string& bytes) {
    const auto json =
        json_of([&](auto& out) { differs = differ(a, folder.write("b", bytes), true, out); });
    EXPECT_EQ(differs, json["differ"] != 0);
    return json;
  };
  EXPECT_EQ(diff(model({1, 2, 3, 4}))["differ"], 0);
  EXPECT_EQ(diff(model({1, 2, 3, 4}, "\x01\x02", {'\7', '\0'}))["differ"], 0);  // both are true
  const auto values = diff(model({1, 2.5, 3, 0}));
  EXPECT_EQ(values["differ"], 1);
  EXPECT_EQ(values["tensors"][0]["name"], "a");
  EXPECT_EQ(values["tensors"][0]["elements"], 2);
  EXPECT_EQ(values["tensors"][0]["index"], "[0,1]");
  EXPECT_EQ(values["tensors"][0]["a"], 2);
  EXPECT_EQ(values["tensors"][0]["b"], 2.5);
  EXPECT_EQ(values["tensors"][0]["max"], 4);
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& bytes : {model({kNan, 9, 3, 4}), model({9, kNan, 3, 4})})
    EXPECT_TRUE(diff(bytes)["tensors"][0]["max"].is_null());  // JSON has no NaN
  EXPECT_EQ(diff(model({1, 2, 3, 4}, "\x01\x03"))["tensors"][0]["what"], "F8_E4M3[2]: other bytes");
  const auto others =
      diff(stored_file(R"({"a":{"dtype":"F64","shape":[2,2],"data_offsets":[0,32]},)"
                       R"("f":{"dtype":"F8_E4M3","shape":[1,2],"data_offsets":[32,34]},)"
                       R"("u":{"dtype":"BOOL","shape":[],"data_offsets":[34,35]}})",
                       std::string(35, '\0')));
  EXPECT_EQ(others["differ"], 4);
  EXPECT_EQ(others["tensors"][0]["what"], "F32[2,2] in a, F64[2,2] in b");
  EXPECT_EQ(others["tensors"][0]["elements"], 4);
  EXPECT_EQ(others["tensors"][1]["what"], "F8_E4M3[2] in a, F8_E4M3[1,2] in b");
  EXPECT_EQ(others["tensors"][2]["what"], "BOOL[2] in a alone");
  EXPECT_EQ(others["tensors"][3]["what"], "BOOL[] in b alone");
}

// Beyond 2^53, where doubles have no odd integers.
TEST(Ckpt, DiffIsExactForLargeIntegersAndAcrossTypes) {
  const ScratchFolder folder;
  const auto diff = [&](const char* a_type, auto a, const char* b_type, auto b) {
    const auto file = [&](const char* name, const char* type, auto value) {
      const std::string header =
          str_cat(R"({"a":{"dtype":")", type, R"(","shape":[],"data_offsets":[0,8]}})");
      return folder.write(
          name, stored_file(header, {reinterpret_cast<const char*>(&value), sizeof(value)}));
    };
    const auto json =
        json_of([&](auto& out) { differ(file("a", a_type, a), file("b", b_type, b), true, out); });
    return json["tensors"][0];
  };
  constexpr std::int64_t kOdd = (1LL << 53) + 1;
  const auto ints = diff("I64", kOdd, "I64", kOdd - 1);
  EXPECT_EQ(ints["max"], 1);
  EXPECT_EQ(ints["a"], kOdd);
  EXPECT_EQ(ints["b"], kOdd - 1);
  const auto mixed = diff("I64", kOdd, "F64", static_cast<double>(kOdd - 1));
  EXPECT_EQ(mixed["elements"], 1);
  EXPECT_EQ(mixed["max"], 1);
  const auto far = diff("U64", ~0ULL, "I64", std::int64_t{-1});
  EXPECT_EQ(far["a"], ~0ULL);
  EXPECT_EQ(far["b"], -1);
  EXPECT_EQ(far["max"], 0x1p64);
}

}  // namespace
}  // namespace coshard::tools
