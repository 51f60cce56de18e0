#include "examples/llama/chat_template.h"

#define XXH_INLINE_ALL
#include <xxhash.h>
#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include <coshard/runtime/error.h>
#include "dtensor/checkpoint/file.h"
#include "dtensor/checkpoint/strict_json.h"
#include "examples/llama/json_object.h"
#include "examples/llama/utf8.h"

namespace coshard::llama {
namespace {

constexpr std::uint64_t kMostOfText = 10'000'000;  // bytes
constexpr std::string_view kNames = "chatml, llama3, mistral, gemma or none";

// What a template is told of its tokenizer; empty: the family's own.
struct SpecialTokens {
  std::string bos, eos;
  std::string bos_or(const char* token) const { return bos.empty() ? token : bos; }
  std::string eos_or(const char* token) const { return eos.empty() ? token : eos; }
};
using Messages = std::span<const Message>;
struct Template {
  std::function<std::string(Messages, const SpecialTokens&)> write;
  std::function<std::vector<std::string>(const SpecialTokens&)> markers;
};

// Without the white space of Python's str.strip() around it.
std::string_view trimmed(std::string_view text) {
  const auto is_space = [](std::int32_t code) {
    return is_white_space(code) || (code >= 0x1c && code <= 0x1f);
  };
  while (!text.empty() && is_space(first_character(text).code))
    text.remove_prefix(first_character(text).bytes);
  while (!text.empty() && is_space(last_character(text).code))
    text.remove_suffix(last_character(text).bytes);
  return text;
}

// user, assistant, user, …
void require_turns(Messages messages, const char* name) {
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const char* wanted = i % 2 == 0 ? "user" : "assistant";
    CS_REQUIRE(messages[i].role == wanted, "message ", i, " of a conversation is of role '",
               shortened(messages[i].role), "', where the template ", name, " wants ", wanted);
  }
}

std::string chatml(Messages messages, std::string_view default_system) {
  std::string text;
  const auto add = [&](std::string_view role, std::string_view content) {
    text += str_cat("<|im_start|>", role, "\n", content, "<|im_end|>\n");
  };
  if (!default_system.empty() && messages.front().role != "system") add("system", default_system);
  for (const Message& message : messages) add(message.role, message.content);
  return text + "<|im_start|>assistant\n";
}

std::string llama3(Messages messages, const SpecialTokens& tokens) {
  std::string text = tokens.bos_or("<|begin_of_text|>");
  const auto begin = [&](std::string_view role) {
    text += str_cat("<|start_header_id|>", role, "<|end_header_id|>\n\n");
  };
  for (const Message& message : messages) {
    begin(message.role);
    text += str_cat(trimmed(message.content), "<|eot_id|>");
  }
  begin("assistant");
  return text;
}

std::string mistral(Messages messages, const SpecialTokens& tokens, const char* after_eos) {
  require_turns(messages, "mistral");
  std::string text = tokens.bos_or("<s>");
  for (const Message& message : messages)
    text += message.role == "user" ? str_cat("[INST] ", message.content, " [/INST]")
                                   : str_cat(message.content, tokens.eos_or("</s>"), after_eos);
  return text;
}

std::string gemma(Messages messages, const SpecialTokens& tokens) {
  require_turns(messages, "gemma");
  std::string text = tokens.bos_or("<bos>");
  for (const Message& message : messages) {
    const std::string_view role = message.role == "user" ? "user" : "model";
    text += str_cat("<start_of_turn>", role, "\n", trimmed(message.content), "<end_of_turn>\n");
  }
  return text + "<start_of_turn>model\n";
}

std::string contents(Messages messages, const SpecialTokens&) {
  std::string text;
  for (const Message& message : messages) text += message.content;
  return text;
}

using Markers = std::vector<std::string>;

Template chatml_of(const char* default_system) {
  return {[default_system](Messages messages, const SpecialTokens&) {
            return chatml(messages, default_system);
          },
          [](const SpecialTokens&) {
            return Markers{"<|im_start|>", "<|im_end|>"};
          }};
}
Template llama3_of() {
  return {llama3, [](const SpecialTokens& tokens) {
            return Markers{tokens.bos_or("<|begin_of_text|>"), "<|start_header_id|>",
                           "<|end_header_id|>", "<|eot_id|>"};
          }};
}
Template mistral_of(const char* after_eos) {
  return {[after_eos](Messages messages, const SpecialTokens& tokens) {
            return mistral(messages, tokens, after_eos);
          },
          [](const SpecialTokens& tokens) {
            return Markers{tokens.bos_or("<s>"), tokens.eos_or("</s>")};
          }};
}
Template gemma_of() {
  return {gemma, [](const SpecialTokens& tokens) {
            return Markers{tokens.bos_or("<bos>"), "<start_of_turn>", "<end_of_turn>"};
          }};
}

struct Named {
  std::string_view name;
  Template made;
};
const std::vector<Named>& by_name() {
  static const std::vector<Named> all{{"chatml", chatml_of("")},
                                      {"llama3", llama3_of()},
                                      {"mistral", mistral_of("")},
                                      {"gemma", gemma_of()},
                                      {"none", {contents, [](const auto&) { return Markers(); }}}};
  return all;
}

// The xxh3-64 of template texts as Jinja reads them, with line ends as one character or as \n.
struct Hashed {
  std::vector<std::uint64_t> hashes;
  Template made;
};
const std::vector<Hashed>& by_hash() {
  static const std::vector<Hashed> all{
      // ChatML, SmolLM2, Qwen2, Qwen2.5
      {{0xa04f41d813a07b13, 0x4c6e807ee5fe9f4a}, chatml_of("")},
      {{0x99ab995e9629dacd, 0x83059ddcb62b07a0},
       chatml_of("You are a helpful AI assistant named SmolLM, trained by Hugging Face")},
      {{0xd5d943bd0bd9082f, 0xc79034a9d5f0ae58}, chatml_of("You are a helpful assistant.")},
      {{0x639547fe4d33fa67, 0x2469c9508f79506e},
       chatml_of("You are Qwen, created by Alibaba Cloud. You are a helpful assistant.")},
      // Llama 3, also without a condition on the generation prompt
      {{0x9799ad6e2dea0594, 0x866fc8fa50da12fe, 0xb97891b7adc1beb8, 0x80e4830e93c6d9f7},
       llama3_of()},
      // Mistral 7B Instruct v0.1, v0.2
      {{0xb7f52373b11c60d7}, mistral_of(" ")},
      {{0xa5d004210ebce758}, mistral_of("")},
      // Gemma 1, Gemma 2
      {{0x2c2e86beabccd2a4, 0x344edb205734f341}, gemma_of()},
  };
  return all;
}

// "<s>", or {"content": "<s>", …}; "": absent.
std::string token_of(const Json& config, const char* key) {
  const auto at = config.find(key);
  if (at == config.end()) return {};
  const Json* text = &*at;
  if (at->is_object() && at->contains("content")) text = &at->at("content");
  return text->is_string() ? text->get<std::string>() : std::string();
}

// A text, or the last one named "default" of a list, or that of an object of texts by name.
std::optional<std::string> template_in(const Json& config, const std::string& path) {
  const auto at = config.find("chat_template");
  if (at == config.end() || at->is_null()) return std::nullopt;
  if (at->is_string()) return at->get<std::string>();
  const Json* chosen = nullptr;
  if (at->is_object() && at->contains("default")) chosen = &at->at("default");
  if (at->is_array())
    for (const Json& one : *at)
      if (one.is_object() && one.value("name", Json()) == Json("default") &&
          one.contains("template"))
        chosen = &one.at("template");
  if (chosen != nullptr && chosen->is_string()) return chosen->get<std::string>();
  fail(ErrorKind::BadInput, str_cat(path, ": chat_template ", shortened(at->dump()),
                                    " is no text, nor a list or object with a default one"));
}

struct FolderTemplate {
  std::optional<std::string> text;
  std::string path;
  SpecialTokens tokens;
};

FolderTemplate read_folder(const std::string& folder) {
  FolderTemplate found;
  found.path = folder + "/tokenizer_config.json";
  if (is_there(found.path)) {
    const Json config = nn::parse_config(read_text(found.path, kMostOfText), found.path);
    found.tokens = {token_of(config, "bos_token"), token_of(config, "eos_token")};
    found.text = template_in(config, found.path);
  }
  const std::string path = folder + "/chat_template.jinja";
  if (is_there(path)) {
    found.text = read_text(path, kMostOfText);
    found.path = path;
  }
  return found;
}

// As Jinja reads it: line ends of Windows are \n, and one at the end is left out.
std::string as_jinja_reads(std::string_view text) {
  std::string made;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (text[i] != '\r')
      made += text[i];
    else if (i + 1 == text.size() || text[i + 1] != '\n')
      made += '\n';
  if (made.ends_with('\n')) made.pop_back();
  return made;
}

const Template& known_template(const FolderTemplate& folder) {
  CS_REQUIRE(folder.text, folder.path, ": has no chat template; choose one: --template ", kNames);
  const std::string text = as_jinja_reads(*folder.text);
  const std::uint64_t hash = XXH3_64bits(text.data(), text.size());
  for (const Hashed& known : by_hash())
    if (std::ranges::find(known.hashes, hash) != known.hashes.end()) return known.made;
  fail(ErrorKind::BadInput,
       str_cat(folder.path, ": its chat template of ", folder.text->size(),
               " bytes is none that is known; choose one: --template ", kNames));
}

const Template& template_of(const FolderTemplate& folder, std::string_view name) {
  if (name.empty()) return known_template(folder);
  for (const Named& known : by_name())
    if (known.name == name) return known.made;
  fail(ErrorKind::BadInput, str_cat("--template ", shortened(name), " is none of ", kNames));
}

}  // namespace

std::string chat_prompt(const std::string& folder, std::string_view name,
                        std::span<const Message> messages) {
  CS_REQUIRE(!messages.empty(), "a conversation of no messages has no prompt");
  for (const Message& message : messages) {
    CS_REQUIRE(message.role == "system" || message.role == "user" || message.role == "assistant",
               "role '", shortened(message.role), "' is none of system, user and assistant");
    CS_REQUIRE(invalid_utf8(message.content) == std::string_view::npos, "a message of role ",
               message.role, " is not UTF-8 at byte ", invalid_utf8(message.content));
  }
  const FolderTemplate found = read_folder(folder);
  return template_of(found, name).write(messages, found.tokens);
}

std::vector<std::string> chat_markers(const std::string& folder, std::string_view name) {
  const FolderTemplate found = read_folder(folder);
  return template_of(found, name).markers(found.tokens);
}

}  // namespace coshard::llama
