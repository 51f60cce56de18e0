// Headers of safetensors files: what is read, and hostile ones, each refused by name.
#include "dtensor/checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <coshard/runtime/error.h>
#include "tests/dtensor/checkpoint/stored_files.h"

namespace coshard::testing {
namespace {

using Sizes = std::vector<std::uint64_t>;

SafetensorsHeader parsed(std::string_view text, std::uint64_t data_bytes) {
  return SafetensorsHeader(text, data_bytes, "x");
}

std::string refusal(std::string_view text, std::uint64_t data_bytes) {
  try {
    parsed(text, data_bytes);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.message();
  }
  return "";
}

TEST(Safetensors, ReadsTensorsInOrderOfTheirBytes) {
  const SafetensorsHeader header = parsed(
      R"({"b":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]},"__metadata__":{"format":"pt"},)"
      R"("a":{"shape":[],"data_offsets":[0,8],"more":{"x":[[1],{}]},"dtype":"\u0043\u00364"},)"
      R"("Ä\n":{"dtype":"BOOL","shape":[4,0],"data_offsets":[32,32]}}  )",
      32);
  ASSERT_EQ(header.size(), 3U);
  EXPECT_EQ(header[1].name, "b");
  EXPECT_EQ(header[1].type, StoredType::F32);
  EXPECT_EQ(Sizes(header[1].shape.begin(), header[1].shape.end()), (Sizes{2, 3}));
  EXPECT_EQ(header[1].begin, 8U);
  EXPECT_EQ(header[1].end, 32U);
  EXPECT_EQ(header[0].elements(), 1U);
  EXPECT_EQ(header[2].elements(), 0U);
  EXPECT_EQ(header.find("Ä\n"), 2U);
  EXPECT_EQ(header.find("c"), std::nullopt);
  EXPECT_EQ(header.metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
}

TEST(Safetensors, KnowsEveryTypeOfTheFormat) {
  const std::string_view names[] = {
      "BOOL",        "F4",          "F6_E2M3", "F6_E3M2", "U8",  "I8",      "F16",  "F8_E5M2",
      "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F8_E4M3", "I16",     "U16", "F8_E8M0", "BF16", "I32",
      "U32",         "F32",         "C64",     "F64",     "I64", "U64"};
  for (const std::string_view name : names) {
    const int bits = name == "F4" ? 4 : name.starts_with("F6") ? 6 : -1;
    for (const int bytes : {1, 2, 4, 8}) {
      const int data = bits > 0 ? bits : 8 * bytes;  // of 8 elements
      const std::string text = str_cat("{\"t\":{\"dtype\":\"", name, "\",\"shape\":[8],",
                                       "\"data_offsets\":[0,", data, "]}}");
      if (!refusal(text, static_cast<std::uint64_t>(data)).empty()) continue;
      const StoredType type = parsed(text, static_cast<std::uint64_t>(data))[0].type;
      EXPECT_EQ(to_string(type), name);
      EXPECT_EQ(bits_of(type), data);
    }
  }
  for (const DType dtype : {DType::F32, DType::F64, DType::BF16, DType::F16, DType::I64, DType::I32,
                            DType::Bool, DType::F8E4M3, DType::F8E5M2}) {
    EXPECT_EQ(to_dtype(to_stored(dtype)), dtype);
    EXPECT_EQ(bits_of(to_stored(dtype)), static_cast<int>(8 * size_of(dtype)));
  }
  EXPECT_EQ(to_dtype(StoredType::F8_E8M0), std::nullopt);
}

struct Attack {
  const char* text;
  std::uint64_t data_bytes;
  const char* told;
};
// Of each, safetensors 0.8 or we say no.
constexpr Attack kAttacks[] = {
    {"", 0, "does not begin with '{'"},
    {"[]", 0, "does not begin with '{'"},
    {" {}", 0, "does not begin with '{'"},
    {"\xef\xbb\xbf{}", 0, "does not begin with '{'"},
    {"{", 0, "not JSON at byte 1: "},
    {"{} {}", 0, "not JSON at byte 3"},
    {"{\"a\":}", 0, "not JSON at byte"},
    {"{\"\xff\":1}", 0, "not JSON at byte 2"},
    {R"({"\ud800":1})", 0, "not JSON at byte"},
    {"{/**/}", 0, "not JSON at byte 1"},
    {R"({"a":NaN})", 0, "not JSON at byte"},
    {"{}", 4, "its tensors have 0 bytes, but 4 follow the header"},
    {R"({"a":null})", 0, "tensor 'a': has null, not an object for each tensor"},
    {R"({"a":["F32",[2],[0,8]]})", 8, "tensor 'a': has an array, not an object"},
    {R"({"a":{}})", 0, "tensor 'a': lacks its dtype"},
    {R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4, "tensor 'a': lacks its shape"},
    {R"({"a":{"dtype":"F32","shape":[1]}})", 4, "tensor 'a': lacks its data_offsets"},
    {R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", 4, "unknown dtype 'F31'"},
    {R"({"a":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}})", 4, "unknown dtype 'f32'"},
    {R"({"a":{"dtype":3,"shape":[1],"data_offsets":[0,4]}})", 4, "has 3, not a dtype"},
    {R"({"a":{"dtype":{"F32":null},"shape":[1],"data_offsets":[0,4]}})", 4,
     "an object, not a dtype"},
    {R"({"a":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", 4, "has 1, not an array of sizes"},
    {R"({"a":{"dtype":"F32","shape":[2.9],"data_offsets":[0,8]}})", 8, "has 2.9, not a size"},
    {R"({"a":{"dtype":"F32","shape":[2e0],"data_offsets":[0,8]}})", 8, "has 2e0, not a size"},
    {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8, "has -2, not a size"},
    {R"({"a":{"dtype":"F32","shape":[-0],"data_offsets":[0,0]}})", 0, "has -0, not a size"},
    {R"({"a":{"dtype":"F32","shape":["2"],"data_offsets":[0,8]}})", 8, "has \"2\", not a size"},
    {R"({"a":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}})", 8, "an array, not a size"},
    {R"({"a":{"dtype":"F32","shape":[true],"data_offsets":[0,4]}})", 4, "has true, not a size"},
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", 8, "has 1 data_offsets, not 2"},
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}})", 8, "has 3 data_offsets, not 2"},
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551616]}})", 8,
     "has 18446744073709551616, not a place"},
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, "data_offsets [8,0] are not"},
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,7]}})", 7,
     "are not the 8 bytes of F32[2]"},
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12, "begins at byte 4"},
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 12,
     "its tensors have 8 bytes, but 12 follow the header"},
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4, "the file was cut"},
    {R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", 2, "F4[3] ends within a byte"},
    {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
     "more than 2^64 bits"},
    {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}})", 0,
     "more than 2^64 bits"},
    {R"({"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}})", 0,
     "more than 2^64 bits"},
    {R"({"a":{"x":1e400,"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1,
     "x: a number that ends before byte 15 is out of range"},
    {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
     R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
     4, "tensor 'b': begins at byte 0 of the data, but 'a' before it ends at 4"},
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
     R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
     12, "tensor 'b': begins at byte 4"},
    {R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[4,4]},)"
     R"("b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
     8, "tensor 'a': begins at byte 4"},
    {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
     R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
     8, "tensor 'a' is there twice"},
    {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
     R"("\u0061":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
     8, "tensor 'a' is there twice"},
    {R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4, "a key twice"},
    {R"({"a":{"dtype":"F32","shape":[1],"\u0073hape":[1],"data_offsets":[0,4]}})", 4,
     "a key twice"},
    {R"({"__metadata__":{"a":1}})", 0, "__metadata__ has 1, not a text"},
    {R"({"__metadata__":{"a":{}}})", 0, "__metadata__ has an object, not a text"},
    {R"({"__metadata__":[]})", 0, "has an array, not an object"},
    {R"({"__metadata__":{"a":"","a":""}})", 0, "__metadata__ has 'a' twice"},
    {R"({"__metadata__":{},"__metadata__":{}})", 0, "__metadata__ is there twice"},
    {R"({"__metadata__":null,"__metadata__":{}})", 0, "__metadata__ is there twice"},
    {R"({"__metadata__":{},"\u005f_metadata__":null})", 0, "__metadata__ is there twice"},
    {R"({"__metadata__":null,"__metadata__":null})", 0, "__metadata__ is there twice"},
    {R"({"a":{"x":1.7976931348623158e308,"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1,
     "is out of range"},
    {R"({"a":{"x":[-1.7976931348623157e308],"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1,
     "is out of range"},
    {"{\"a\x1b[2J\":null}", 0, "not JSON at byte"},
    {R"({"a\u001b[2J\n":null})", 0, "tensor 'a\\x1b[2J ': has null"},
};

TEST(Safetensors, S7RefusesHostileHeadersByName) {
  for (const Attack& attack : kAttacks) {
    const std::string text = refusal(attack.text, attack.data_bytes);
    EXPECT_TRUE(text.starts_with("x: ")) << attack.text << " -> " << text;
    EXPECT_NE(text.find(attack.told), std::string::npos) << attack.text << " -> " << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
  const std::string with_nul = std::string("{}") + '\0';
  EXPECT_NE(refusal(with_nul, 0).find("not JSON at byte 2: "), std::string::npos);
  EXPECT_EQ(refusal("{}", 0), "");
  EXPECT_EQ(refusal(R"({"__metadata__":null})", 0), "");
}

TEST(Safetensors, ShowsTheBeginningOfALongName) {
  for (const std::string part : {"n", "ä", "\\u0007"}) {
    std::string name;
    while (name.size() < 10'000) name += part;
    EXPECT_LT(refusal(str_cat("{\"", name, "\":null}"), 0).size(), 1'000U) << part;
    const std::string type = str_cat(R"({"a":{"dtype":")", name, R"("}})");
    EXPECT_LT(refusal(type, 0).size(), 1'000U) << part;
  }
}

TEST(Safetensors, RefusesWhatIsTooDeepOrHasTooManyDimensions) {
  const auto with = [](const std::string& more) {
    return str_cat(R"({"a":{"dtype":"U8","data_offsets":[0,1],)", more, "}}");
  };
  const auto nested = [&](std::size_t levels) {
    return with(str_cat(R"("shape":[1],"x":)", std::string(levels, '['), std::string(levels, ']')));
  };
  EXPECT_EQ(refusal(nested(62), 1), "");
  EXPECT_NE(refusal(nested(63), 1).find("more than 64 levels"), std::string::npos);
  const auto ones = [&](int dims) {
    std::string sizes = "1";
    for (int i = 1; i < dims; ++i) sizes += ",1";
    return with(str_cat(R"("shape":[)", sizes, "]"));
  };
  EXPECT_EQ(refusal(ones(65'535), 1), "");
  EXPECT_CONTAINS(refusal(ones(65'536), 1), "more than 65535 dimensions");
  std::string many = "{", tensor = ones(65'535).substr(5);
  tensor.pop_back();
  for (int i = 0; i < 33; ++i) many += str_cat(i == 0 ? "\"" : ",\"", i, "\":", tensor);
  EXPECT_CONTAINS(refusal(many, 33), "tensor '32': and those before it have more than 2097152");
}

// As safetensors multiplies: from the left, and 0 ends it.
TEST(Safetensors, ReadsShapesOfNoElement) {
  for (const char* shape : {"0,4611686018427387904", "4611686018427387904,0",
                            "0,18446744073709551615,18446744073709551615"}) {
    const SafetensorsHeader header = parsed(
        str_cat(R"({"a":{"dtype":"F64","shape":[)", shape, R"(],"data_offsets":[0,0]}})"), 0);
    EXPECT_EQ(header[0].elements(), 0U) << shape;
    EXPECT_EQ(sizes_text(header[0].shape), str_cat('[', shape, ']'));
  }
}

TEST(Safetensors, ReadsTheHeaderOfAFile) {
  const ScratchFolder folder;
  const std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const std::string path = folder.write("m", stored_file(header, std::string(8, 'x')));
  const SafetensorsHeader read = SafetensorsHeader::of_file(path);
  EXPECT_EQ(read.data_begin(), 8 + header.size());
  EXPECT_EQ(read.file_bytes(), 16 + header.size());
  const auto told = [&](const std::string& bytes) {
    folder.write("n", bytes);
    return message_of([&] { SafetensorsHeader::of_file(folder.path("n")); });
  };
  EXPECT_NE(told("1234567").find("7 bytes, but a safetensors file has 8"), std::string::npos);
  std::string cut = stored_file(header, "");
  EXPECT_NE(told(cut).find("tensor 'a': ends at byte 8 of the data, but 0 bytes follow"),
            std::string::npos);
  cut.resize(20);
  EXPECT_NE(told(cut).find(str_cat("a header of ", header.size(), " bytes in a file of 20")),
            std::string::npos);
  EXPECT_NE(told(std::string(8, '\xff')).find("safetensors permits 100000000"), std::string::npos);
  EXPECT_NE(message_of([&] {
              SafetensorsHeader::of_file(folder.path("none"));
            }).find("none: cannot be opened: No such file"),
            std::string::npos);
  EXPECT_NE(
      message_of([&] { SafetensorsHeader::of_file(folder.path("")); }).find("is no regular file"),
      std::string::npos);
}

}  // namespace
}  // namespace coshard::testing
