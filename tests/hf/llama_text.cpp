// Tokenizer and chat templates of examples/llama for tests in Python, and their speed.
//   llama_text encode FOLDER IN OUT [bare]   IN: texts; OUT: of each the ids, then the text that they decode to
//   llama_text chat FOLDER NAME IN OUT       IN: a number of messages, role and content of each, and so on; OUT: prompts
//   llama_text bench FOLDER FILE PASSES      prints the seconds of the CPU of each pass over the file's lines, and its ids; the first one is cold
// Texts are a size (u64, little-endian) and bytes; ids a count (u64) and i64 each.
#include <cstdint>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>

#include <coshard/runtime/error.h>
#include "examples/llama/chat_template.h"
#include "examples/llama/tokenizer.h"

namespace coshard::llama {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  CS_REQUIRE(in, path, ": cannot be opened");
  return {std::istreambuf_iterator<char>(in), {}};
}

class Reader {
 public:
  explicit Reader(std::string bytes) : bytes_(std::move(bytes)) {}
  bool at_end() const { return at_ == bytes_.size(); }
  std::uint64_t number() {
    std::uint64_t value = 0;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view text() { return take(number()); }

 private:
  std::string_view take(std::size_t bytes) {
    CS_REQUIRE(bytes <= bytes_.size() - at_, "the input ends too early");
    at_ += bytes;
    return std::string_view(bytes_).substr(at_ - bytes, bytes);
  }
  std::string bytes_;
  std::size_t at_ = 0;
};

class Writer {
 public:
  explicit Writer(const std::string& path) : out_(path, std::ios::binary) {}
  void number(std::uint64_t value) { write(&value, sizeof value); }
  void text(std::string_view value) {
    number(value.size());
    write(value.data(), value.size());
  }
  void ids(const std::vector<std::int64_t>& values) {
    number(values.size());
    write(values.data(), values.size() * sizeof(std::int64_t));
  }

 private:
  void write(const void* from, std::size_t bytes) {
    out_.write(static_cast<const char*>(from), static_cast<std::streamsize>(bytes));
  }
  std::ofstream out_;
};

void encode(const Tokenizer& tokenizer, Reader in, Writer out, bool with_special) {
  while (!in.at_end()) {
    const std::vector<std::int64_t> ids = tokenizer.encode(in.text(), with_special);
    out.ids(ids);
    const std::string text = tokenizer.decode(ids);
    TextStream stream(tokenizer, false);
    std::string streamed;
    for (const std::int64_t id : ids) streamed += stream.next(id);
    CS_REQUIRE(streamed + stream.rest() == text, "the text is another when it is streamed");
    out.text(text);
  }
}

void chat(const std::string& folder, const std::string& name, Reader in, Writer out) {
  while (!in.at_end()) {
    std::vector<Message> messages;
    for (std::uint64_t left = in.number(); left > 0; --left) {
      const std::string role(in.text()), content(in.text());
      messages.push_back({role, content});
    }
    out.text(chat_prompt(folder, name, messages));
  }
}

void bench(const Tokenizer& tokenizer, const std::string& text, int passes) {
  for (int pass = 0; pass < passes; ++pass) {
    std::size_t ids = 0;
    const std::clock_t begin = std::clock();
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      ids += tokenizer.encode(std::string_view(text).substr(at, end - at)).size();
      at = end + 1;
    }
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    std::cout << seconds << ' ' << ids << '\n';
  }
}

int run(const std::vector<std::string>& words) {
  const std::string command = words.empty() ? "" : words[0];
  CS_REQUIRE(words.size() >= 4, "usage: see llama_text.cpp");
  if (command == "chat") {
    CS_REQUIRE(words.size() == 5, "usage: chat FOLDER NAME IN OUT");
    chat(words[1], words[2], Reader(read_file(words[3])), Writer(words[4]));
    return 0;
  }
  const Tokenizer tokenizer = Tokenizer::open(words[1]);
  if (command == "encode")
    encode(tokenizer, Reader(read_file(words[2])), Writer(words[3]), words.size() == 4);
  else
    bench(tokenizer, read_file(words[2]), std::stoi(words[3]));
  return 0;
}

}  // namespace
}  // namespace coshard::llama

int main(int argc, char** argv) {
  try {
    return coshard::llama::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
}
